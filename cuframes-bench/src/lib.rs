//! Measures cuframes against the floor, and against other ways to hand frames from process to process.

pub mod system;
