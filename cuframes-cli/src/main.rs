//! The program `cuframes`.
fn main() {}
