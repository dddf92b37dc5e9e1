//! The marker segments of a JPEG file, and which decoder they send it to.
#![no_main]

use ocellus::decode::route::{Route, route};
use ocellus::decode::{DecodeOptions, jpeg_header};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = jpeg_header::parse(file);
    if let Route::Hardware(planar) | Route::Hybrid(planar) = route(file, &DecodeOptions::default()) {
        assert!(planar.length_bytes <= file.len());
    }
});
