//! A message of the start-up barrier is refused, or reads the same when it is written again.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::start_message(data));
