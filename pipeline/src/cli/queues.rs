//! Which commands take all queues that the driver can keep to a GPU.
//!
//! With 32 of them instead of 8 the streams of many decoders do not wait for one another: an H200 labels 40.0k images of 500x375
//! a second instead of 24.9k. But its context takes 0.57 s to make instead of 0.15 s.

use crate::source::Input;

/// Files, named one by one, from which on a job is a long one. What the queues cost at the start they have earned back after
/// 28,000 images of 500x375, of larger ones, which take longer anyway, after fewer.
const MANY_FILES: usize = 20_000;

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

/// Whether there may be many images: nobody knows what is in a folder, or will be on a list.
fn may_be_long(inputs: &[Input]) -> bool {
    let is_open = |input: &Input| match input {
        Input::Path(path) => path.is_dir(),
        Input::Glob(_) | Input::Stdin => true,
    };
    inputs.len() >= MANY_FILES || inputs.iter().any(is_open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_job_is_long_where_nobody_knows_how_many_files_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a [1].jpg");
        fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        let parsed = |text: &std::path::Path| Input::parse(text.as_os_str()).unwrap();
        let few = [parsed(&file), parsed(&folder.path().join("none.jpg"))];
        assert!(!may_be_long(&few) && !may_be_long(&[]));
        for open in [folder.path(), &link, &folder.path().join("*.jpg"), std::path::Path::new("-")] {
            for place in 0..=few.len() {
                let mut inputs = few.to_vec();
                inputs.insert(place, parsed(open));
                assert!(may_be_long(&inputs), "{} in place {place}", open.display());
            }
        }
        let many = vec![few[0].clone(); MANY_FILES];
        assert!(may_be_long(&many) && !may_be_long(&many[1..]));
    }
}
