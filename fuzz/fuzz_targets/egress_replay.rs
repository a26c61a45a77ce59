//! Any bytes as a sample of a session: no panic, and no more measured than there is. Byte 0 picks direction and beginning.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pgshrink_codec::AlgorithmList;
use pgshrink_egress::{Burst, Direction, Kind, Simulation};
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;

fuzz_target!(|data: &[u8]| {
    let [pick, size, bytes @ ..] = data else { return };
    let direction = Direction::ALL[usize::from(pick & 1)];
    let mut burst = match pick & 2 {
        0 => Burst::from_start(direction),
        _ => Burst::from_middle(direction, usize::from(pick >> 3), pick & 4 != 0, 0),
    };
    for piece in bytes.chunks(usize::from(*size) + 1) {
        if !burst.push(piece, Kind::of(piece.len(), u64::MAX, false)) {
            break;
        }
        burst.idle();
    }
    let allowed = AlgorithmList::parse("zstd:1", WIRE_ALGORITHMS).unwrap();
    let simulation = Simulation::new(&allowed, true, Arc::default()).unwrap();
    let measured: u64 = simulation.replay(&burst, || Duration::ZERO).iter().map(|s| s.raw_bytes).sum();
    // What stands for a message begun before is counted with the first read, and notices of the engine's own.
    assert!(measured <= bytes.len() as u64 + 13 + (4 << 10));
});
