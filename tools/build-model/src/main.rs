//! build-model
fn main() {}
