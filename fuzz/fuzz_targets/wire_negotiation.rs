//! Lists, offers, answers, settings and connection strings as text from a stranger.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{Agreed, Dialect, Offer, setting};

fuzz_target!(|data: &[u8]| {
    let _ = setting::read(data);
    let Ok(all) = AlgorithmList::parse("zstd:1,lz4,zlib", WIRE_ALGORITHMS) else { return };
    let _ = Agreed::from_ack(&all, data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(list) = AlgorithmList::parse(text, WIRE_ALGORITHMS) {
        assert_eq!(AlgorithmList::parse(&list.to_string(), WIRE_ALGORITHMS).as_ref(), Ok(&list));
    }
    for dialect in [Dialect::Ack, Dialect::Restart] {
        let answer = Offer { dialect, text: text.to_string() }.answer(&all, 22);
        if let Some(agreed) = answer.agreed {
            let _ = agreed.choose(text);
            assert!(!agreed.describe().is_empty());
        }
    }
    let _ = Agreed::from_status(&all, text);
});
