//! EXIF blocks: the parser of the orientation tag.
#![no_main]

libfuzzer_sys::fuzz_target!(|block: &[u8]| {
    let _ = ocellus::decode::exif::orientation(block);
});
