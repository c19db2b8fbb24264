//! A server of the work queue bears any workers, and any changes of its tasks.

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::blocks_server(data));
