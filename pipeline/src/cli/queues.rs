//! Which commands take all queues that the driver can keep to a GPU.
//!
//! With 32 of them instead of 8 the streams of many decoders do not wait for one another: an H200 labels 40.0k images of 500x375
//! a second instead of 24.9k. But its context takes 0.57 s to make instead of 0.15 s.

use crate::source::{Input, may_hold};

/// Files from which on a job is a long one. What the queues cost at the start they have earned back after 28,000 images of 500x375,
/// of larger ones, which take longer anyway, after fewer.
const MANY_FILES: usize = 20_000;
/// Entries of folders that are looked at, at most: this takes a few milliseconds. What has more is a long job.
const LOOKED_AT: usize = 4096;

/// Has the driver keep all queues, for a job over these inputs, where it may be a long one. To be called while the process has
/// one thread.
pub(super) fn take_for(inputs: &[Input]) {
    if may_be_long(inputs) {
        take();
    }
}

/// Has the driver keep all queues. To be called while the process has one thread.
pub(super) fn take() {
    ocellus_sys::use_all_queues();
}

/// Whether there may be many images: nobody knows what will be on a list, or is in a large folder.
fn may_be_long(inputs: &[Input]) -> bool {
    let is_file = |input: &Input| matches!(input, Input::Path(path) if !path.is_dir());
    inputs.len() >= MANY_FILES || may_hold(inputs.iter().filter(|input| !is_file(input)), LOOKED_AT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn parsed(path: &Path) -> Input {
        Input::parse(path.as_os_str()).unwrap()
    }

    #[test]
    fn a_job_is_long_where_there_may_be_many_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a [1].jpg");
        fs::write(&file, "").unwrap();
        let few = [parsed(&file), parsed(&folder.path().join("none.jpg"))];
        let with = |open: &Path| {
            (0..=few.len())
                .map(|place| {
                    let mut inputs = few.to_vec();
                    inputs.insert(place, parsed(open));
                    may_be_long(&inputs)
                })
                .collect::<Vec<_>>()
        };
        assert!(!may_be_long(&few) && !may_be_long(&[]));
        assert_eq!(with(Path::new("-")), [true; 3]);
        // In folders of folders, up to some more than are looked at.
        let (pattern, link) = (folder.path().join("*/*.jpg"), folder.path().join("link"));
        let deep = folder.path().join("b/c/d");
        fs::create_dir_all(&deep).unwrap();
        for (count, long) in [(10, false), (LOOKED_AT - 100, false), (LOOKED_AT + 1, true)] {
            (0..count).for_each(|n| fs::write(deep.join(format!("{n}.txt")), "").unwrap());
            for open in [folder.path(), &pattern, &deep] {
                assert_eq!(with(open), [long; 3], "{} with {count}", open.display());
            }
        }
        symlink(&deep, &link).unwrap();
        assert_eq!(with(&link), [true; 3]);
        // Two that are few, and together many.
        let halves = ["one", "two"].map(|name| folder.path().join(name));
        for half in &halves {
            fs::create_dir(half).unwrap();
            (0..=LOOKED_AT / 2).for_each(|n| fs::write(half.join(format!("{n}.jpg")), "").unwrap());
            assert_eq!(with(half), [false; 3]);
        }
        assert!(may_be_long(&halves.map(|half| parsed(&half))));
        let many = vec![few[0].clone(); MANY_FILES];
        assert!(may_be_long(&many) && !may_be_long(&many[1..]));
    }

    /// Links that lead back are followed only so far.
    #[test]
    fn folders_that_hold_themselves_end() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            symlink(folder.path(), folder.path().join(name)).unwrap();
        }
        may_be_long(&[parsed(folder.path())]);
    }
}
