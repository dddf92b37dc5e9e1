//! [`use_all_queues`] changes the environment of its process, and does so only where it is the only thread: a test without
//! the harness, which has several.

use std::env;
use std::process::Command;

use ocellus_sys::use_all_queues;

const VARIABLE: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

fn main() {
    match env::args().nth(1).as_deref() {
        Some("alone") => {
            assert!(use_all_queues());
            println!("{}", env::var(VARIABLE).unwrap());
        }
        Some("not alone") => {
            std::thread::scope(|scope| {
                let changed = scope.spawn(use_all_queues).join().unwrap();
                assert!(!changed);
            });
            println!("{}", env::var(VARIABLE).unwrap_or("unset".into()));
        }
        // By cargo test.
        _ => {
            for (how, before, after) in [
                ("alone", None, "32"),
                ("alone", Some(""), "32"),
                ("alone", Some("4"), "4"),
                ("not alone", None, "unset"),
            ] {
                let mut process = Command::new(env::current_exe().unwrap());
                process.arg(how).env_remove(VARIABLE).envs(before.map(|value| (VARIABLE, value)));
                let output = process.output().unwrap();
                assert!(output.status.success(), "{how}, {before:?}: {}", String::from_utf8_lossy(&output.stderr));
                assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), after, "{how}, {before:?}");
            }
        }
    }
}
