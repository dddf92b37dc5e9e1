//! Decodes one file in a process of its own, so that a test can bound its time and memory.
//!
//! `decode_one FILE [--strict] [--out RGB_FILE]` prints one line: `ok WIDTH HEIGHT PARTIAL` or `error KIND MESSAGE`. The
//! exit status is 0 for both; anything else is a crash.

use std::process::ExitCode;

use ocellus::decode::{DecodeOptions, decode};

fn main() -> ExitCode {
    let mut options = DecodeOptions::default();
    let (mut file, mut out) = (None, None);
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--strict") => options.strict = true,
            Some("--out") => out = arguments.next(),
            _ => file = Some(argument),
        }
    }
    let Some(file) = file else {
        eprintln!("usage: decode_one FILE [--strict] [--out RGB_FILE]");
        return ExitCode::from(2);
    };
    let bytes = match std::fs::read(&file) {
        Ok(bytes) => bytes,
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            return ExitCode::from(1);
        }
    };
    match decode(&bytes, &options) {
        Ok(picture) => {
            println!("ok {} {} {}", picture.width_px, picture.height_px, picture.partial);
            if let Some(out) = out
                && let Err(e) = std::fs::write(&out, &picture.rgb)
            {
                eprintln!("{}: {e}", out.display());
                return ExitCode::from(1);
            }
        }
        Err(e) => println!("error {} {}", e.kind, e.message),
    }
    ExitCode::SUCCESS
}
