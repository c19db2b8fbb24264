//! A subscriber bears any region and any publisher that writes it meanwhile (§2, D-23).

#![no_main]

use cuframes_testkit::chaos;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| chaos::region_header(data));
