//! What the unit tests share.

use std::fmt::Display;

/// A library of NVIDIA's, or of the tests' emulator where `OCELLUS_CUDA_LIBS` names its folder. `None` with the reason
/// printed where there is none, which `REQUIRE_GPU=1` makes a failure.
pub(crate) fn available<T, E: Display>(loaded: Result<T, E>) -> Option<T> {
    match loaded {
        Ok(library) => Some(library),
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_GPU").is_none_or(|value| value != "1"), "REQUIRE_GPU=1: {error}");
            println!("skipped: {error}");
            None
        }
    }
}
