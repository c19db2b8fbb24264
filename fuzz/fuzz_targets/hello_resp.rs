//! HELLO_RESP is refused or understood, and a subscriber does what follows from it (§3.4).

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::hello_resp(data));
