//! A sender of the bridge bears any receiver, and any owner.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::bridge_sender(data));
