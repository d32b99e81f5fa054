//! pawl-cli
fn main() {}
