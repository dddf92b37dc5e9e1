//! GStreamer plugin of Ocellus: `libgstocellus.so`, found by GStreamer through `GST_PLUGIN_PATH`.
//!
//! The plugin holds no elements yet. Building it needs GStreamer's development files (1.20 or newer), which is why the
//! crate is no default member of the workspace.

// `plugin_define!` exports the C entry points that GStreamer looks up: unsafe, public and without documentation.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::missing_safety_doc)]

use gstreamer as gst;
use gstreamer::glib;

/// Called by GStreamer when it loads the plugin; elements are registered here.
#[allow(clippy::unnecessary_wraps, reason = "the signature is GStreamer's")]
fn plugin_init(_plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    Ok(())
}

gst::plugin_define!(
    ocellus,
    env!("CARGO_PKG_DESCRIPTION"),
    plugin_init,
    env!("CARGO_PKG_VERSION"),
    // GStreamer accepts only names from its own list here; it has none for "MIT OR Apache-2.0".
    "MIT/X11",
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_NAME"),
    env!("CARGO_PKG_REPOSITORY")
);
