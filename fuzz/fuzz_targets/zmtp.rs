//! A ZMTP stream is cut into the same messages however it arrives, and a message comes out as it was sent.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::zmtp(data));
