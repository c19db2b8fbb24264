//! Suites of tests that every implementation of a trait must pass. Each has a trait by which it reaches what it tests, and
//! a macro that makes one test of each of its cases.

pub mod gpu;
