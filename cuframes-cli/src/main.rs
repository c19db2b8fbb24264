//! The program `cuframes`.

mod convert;
mod error;
mod pattern;
mod rate;

fn main() {}
