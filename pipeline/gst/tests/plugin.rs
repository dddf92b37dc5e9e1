//! The shared library is a plugin that GStreamer loads.

#![allow(clippy::unwrap_used, reason = "clippy knows only `#[test]` functions as tests")]

use std::path::PathBuf;

use gstreamer as gst;

/// The library of the profile under test: cargo puts it two folders above a test's own file, or beside it.
fn shared_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let name = format!("{}gstocellus{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let candidates = test.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("no {name} beside {}", test.display()))
}

#[test]
fn gstreamer_loads_the_library() {
    gst::init().unwrap();
    let plugin = gst::Plugin::load_file(shared_library()).unwrap();
    assert_eq!(plugin.plugin_name(), "ocellus");
    assert_eq!(plugin.version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(plugin.license(), "MIT/X11");
}
