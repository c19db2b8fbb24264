//! A byte stream is cut into the same messages however it arrives (§3.1), and what is understood stays the same when it is
//! sent again.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::framing(data));
