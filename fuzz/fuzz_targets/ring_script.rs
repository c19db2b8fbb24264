//! The ring does what its model does, and bears subscribers that write anything (§5, I1 to I7).

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::ring_script(data));
