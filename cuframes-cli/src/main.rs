//! The program `cuframes`.

mod args;
mod convert;
mod error;
mod pattern;
mod rate;
mod signals;
mod sink;
mod source;

fn main() {}
