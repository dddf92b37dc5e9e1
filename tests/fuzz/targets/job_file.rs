//! Jobs of `ocellus run`: the TOML text and what its keys may say.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = ocellus::cli::check_job_file(text) {
        assert!(!error.to_string().contains('\n'), "an error is one line: {error}");
    }
});
