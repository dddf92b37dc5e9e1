//! Model cards: the TOML text and what its keys may say.
#![no_main]

use std::path::Path;

use ocellus::model::card::Card;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = Card::parse(text, Path::new("card.toml")) {
        assert!(!error.to_string().contains('\n'), "an error is one line: {error}");
    }
});
