//! Any bytes as an egress meter's file: no panic; what is accepted comes back from the writer. Byte 0 picks whether the last line is
//! made right first.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_egress::{DEFAULT_LIMITS, file};

fuzz_target!(|data: &[u8]| {
    let [pick, bytes @ ..] = data else { return };
    let mut text = bytes.to_vec();
    if pick & 1 == 1 {
        text.push(b'\n');
        let lines = text.split(|b| *b == b'\n').count().saturating_sub(2);
        let end = format!("{{\"lines\":{lines},\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(&text));
        text.extend_from_slice(end.as_bytes());
    }
    let Ok(ledger) = file::read(&text, DEFAULT_LIMITS) else { return };
    assert_eq!(file::read(&file::write(&ledger, "zstd:1", ""), DEFAULT_LIMITS), Ok(ledger));
});
