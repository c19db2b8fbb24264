//! Measures what people would use instead of cuframes, interleaved with it.
fn main() {}
