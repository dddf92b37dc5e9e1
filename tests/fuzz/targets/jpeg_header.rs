//! The marker segments of a JPEG file.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = ocellus::decode::jpeg_header::parse(file);
});
