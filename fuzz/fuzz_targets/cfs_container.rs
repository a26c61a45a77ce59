//! Records of the map and roots from anywhere: no panic, and what can be decoded comes back from its encoder.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| pgshrink_cfs::decoders::all(data));
