//! A frontend of the start-up barrier bears any peers, with any options.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::start_frontend(data));
