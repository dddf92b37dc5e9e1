//! The command `ocellus`.

fn main() -> std::process::ExitCode {
    ocellus::cli::main()
}
