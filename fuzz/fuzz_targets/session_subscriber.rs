//! A subscriber's session bears any bytes, descriptors, times and commands in any order (§4.1).

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::subscriber(data));
