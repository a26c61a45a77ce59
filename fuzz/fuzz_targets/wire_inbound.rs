//! Whatever a peer sends: no panic, bounded output, bounded memory.
//! Byte 0 picks dialect, side and algorithms; the rest is the wire, cut at a place byte 1 picks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{Dialect, Limits, Link, LinkConfig, MemoryBudget, Offer, Role};

fuzz_target!(|data: &[u8]| {
    let [pick, cut, wire @ ..] = data else { return };
    let dialect = if pick & 1 == 0 { Dialect::Ack } else { Dialect::Restart };
    let role = if pick & 2 == 0 { Role::Gateway } else { Role::Connector };
    let text = ["zstd:1,lz4,zlib", "lz4", "zlib", "zstd:1"][usize::from(pick >> 2 & 3)];
    let Ok(list) = AlgorithmList::parse(text, WIRE_ALGORITHMS) else { return };
    let Some(agreed) = Offer::new(dialect, &list).answer(&list, 23).agreed else { return };
    let limits = Limits { frame_raw_max: 1 << 20, out_max: 32 << 10, ..Limits::default() };
    let budget = MemoryBudget::new(32 << 20);
    let config = LinkConfig { limits: limits.clone(), ..LinkConfig::default() };
    let mut link = Link::new(role, agreed, config.into(), budget.clone());
    let at = usize::from(*cut).min(wire.len());
    for mut piece in [&wire[..at], &wire[at..]] {
        while !piece.is_empty() || link.wants_output_room() {
            let mut out = Vec::new();
            let Ok(used) = link.handle_wire(piece, &mut out) else { return };
            // A run of packed rows gives eleven times its 64 KiB at most.
            assert!(out.len() <= limits.out_max + 11 * (64 << 10));
            assert!(used > 0 || !out.is_empty());
            assert!(budget.used() <= budget.limit());
            piece = &piece[used..];
        }
    }
});
