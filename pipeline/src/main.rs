//! The command `ocellus`.
fn main() {}
