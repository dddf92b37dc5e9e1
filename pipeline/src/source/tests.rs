use std::fs::{self, create_dir_all};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;
use crate::error::ErrorKind;
use crate::stage::Cancel;

/// A folder with these files; a name that ends in `/` is a folder.
fn tree(names: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for name in names {
        let path = root.path().join(name);
        if name.ends_with('/') {
            create_dir_all(path).unwrap();
        } else {
            create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }
    root
}

/// What a walk over the inputs below `root` finds, named from there, and what it skipped.
fn walk(root: &Path, inputs: &[&str]) -> (Vec<String>, SkippedCounts) {
    let skipped = Skipped::default();
    let inputs = inputs.iter().map(|i| Input::parse(root.join(i).as_os_str()).unwrap()).collect();
    let found: Vec<Found> = Walk::new(inputs, skipped.clone(), Cancel::default()).collect();
    assert!(found.iter().all(|f| f.error.is_none()), "{found:?}");
    let names = found.iter().map(|f| f.path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
    (names.collect(), skipped.snapshot())
}

const NAMES: [&str; 11] = [
    "img10.jpg",
    "img2.JPG",
    "b/9.png",
    "b/10.webp",
    "b/c/1.tiff",
    "notes.txt",
    ".hidden.jpg",
    ".git/x.jpg",
    "noext",
    "a.bmp/inside.gif",
    "empty/",
];

#[test]
fn a_folder_gives_its_images_in_natural_order() {
    let root = tree(&NAMES);
    let (names, skipped) = walk(root.path(), &[""]);
    assert_eq!(names, ["a.bmp/inside.gif", "b/9.png", "b/10.webp", "b/c/1.tiff", "img2.JPG", "img10.jpg"]);
    assert_eq!(skipped, SkippedCounts { hidden: 2, not_images: 2, ..SkippedCounts::default() });
}

#[test]
fn what_is_named_is_taken_as_it_is_and_as_often() {
    let root = tree(&NAMES);
    let inputs = ["notes.txt", ".hidden.jpg", "none.jpg", "img2.JPG", "img2.JPG", ".git", "empty"];
    let (names, skipped) = walk(root.path(), &inputs);
    assert_eq!(names, ["notes.txt", ".hidden.jpg", "none.jpg", "img2.JPG", "img2.JPG", ".git/x.jpg"]);
    assert_eq!(skipped, SkippedCounts { empty_inputs: 1, ..SkippedCounts::default() });
}

#[test]
fn patterns_are_expanded_in_order() {
    let root = tree(&NAMES);
    let cases: [(&str, &[&str]); 8] = [
        ("img*", &["img2.JPG", "img10.jpg"]),
        ("*/*.png", &["b/9.png"]),
        ("**/*.{png,webp,jpg}", &["b/9.png", "b/10.webp", "img10.jpg"]),
        ("b*", &["b/9.png", "b/10.webp", "b/c/1.tiff"]),
        ("[ab]*/**", &["a.bmp/inside.gif", "b/9.png", "b/10.webp", "b/c/1.tiff"]),
        ("b/?.png", &["b/9.png"]),
        (".g*/*", &[".git/x.jpg"]),
        ("none/*.jpg", &[]),
    ];
    for (pattern, expected) in cases {
        let (names, skipped) = walk(root.path(), &[pattern]);
        assert_eq!(names, expected, "{pattern}");
        assert_eq!(skipped.empty_inputs, u64::from(expected.is_empty()), "{pattern}");
    }
}

#[test]
fn a_file_whose_name_looks_like_a_pattern_is_a_file() {
    let root = tree(&["a[1].jpg", "a1.jpg"]);
    assert_eq!(walk(root.path(), &["a[1].jpg"]).0, ["a[1].jpg"]);
    assert_eq!(walk(root.path(), &["a[12].jpg"]).0, ["a1.jpg"]);
}

#[test]
fn links_are_followed_but_never_round() {
    let root = tree(&["a/1.jpg", "a/b/2.jpg", "other/3.jpg"]);
    let link = |target: &str, name: &str| symlink(target, root.path().join(name)).unwrap();
    link("..", "a/b/up");
    link(".", "a/self");
    link("../other", "a/first");
    link("../other", "a/second");
    link("1.jpg", "a/file.jpg");
    link("nowhere", "a/broken.jpg");
    link("round.jpg", "a/round.jpg");
    let (names, skipped) = walk(root.path(), &["a"]);
    let expected = ["a/1.jpg", "a/b/2.jpg", "a/broken.jpg", "a/file.jpg", "a/first/3.jpg", "a/round.jpg"];
    assert_eq!(names, expected);
    assert_eq!(skipped, SkippedCounts { folder_links: 3, ..SkippedCounts::default() });
    // Folders linked to each other end as well: each is entered once by its name and once by a link.
    let pair = tree(&["x/1.jpg", "y/2.jpg"]);
    symlink("../y", pair.path().join("x/y")).unwrap();
    symlink("../x", pair.path().join("y/x")).unwrap();
    assert_eq!(walk(pair.path(), &[""]).0, ["x/1.jpg", "x/y/2.jpg", "y/2.jpg", "y/x/1.jpg"]);
}

#[test]
fn special_files_are_skipped_and_names_keep_their_bytes() {
    let root = tree(&["a.jpg"]);
    let socket = std::os::unix::net::UnixListener::bind(root.path().join("s.jpg")).unwrap();
    let name = OsStr::from_bytes(b"\xff\xfe.jpg");
    fs::write(root.path().join(name), "x").unwrap();
    let skipped = Skipped::default();
    let inputs = vec![Input::parse(root.path().as_os_str()).unwrap()];
    let found: Vec<_> = Walk::new(inputs, skipped.clone(), Cancel::default()).map(|f| f.path).collect();
    assert_eq!(found, [root.path().join("a.jpg"), root.path().join(name)]);
    assert_eq!(skipped.snapshot().special, 1);
    drop(socket);
}

#[test]
fn a_folder_that_vanishes_is_a_failed_item() {
    let root = tree(&["a/1.jpg", "b/2.jpg"]);
    let inputs = vec![Input::parse(root.path().as_os_str()).unwrap()];
    let mut walk = Walk::new(inputs, Skipped::default(), Cancel::default());
    assert_eq!(walk.next().unwrap().path, root.path().join("a/1.jpg"));
    fs::remove_dir_all(root.path().join("b")).unwrap();
    let failed = walk.next().unwrap();
    assert_eq!(failed.path, root.path().join("b"));
    assert_eq!(failed.error.clone().unwrap().kind, ErrorKind::NotFound);
    assert_eq!(failed.into_item(7).payload.unwrap_err().kind, ErrorKind::NotFound);
    assert!(walk.next().is_none());
}
