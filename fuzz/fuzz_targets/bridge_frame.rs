//! A stream of the bridge is cut into the same messages however it arrives, and they read the same when they are written again.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::bridge_frame(data));
