//! Bursts beside the same bytes in a session that is compressed from its first byte.

use std::sync::Arc;
use std::time::Duration;

use pgshrink_codec::AlgorithmList;
use pgshrink_egress::replay::{SIZE_MAX, WARM_SIZE};
use pgshrink_egress::traffic::START_SIZE;
use pgshrink_egress::{Burst, Direction, Kind, Sample, Samples, Simulation};
use pgshrink_testkit::Seed;
use pgshrink_wire::message::message;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{Dialect, Flush, Held, Link, LinkConfig, MemoryBudget, Offer, Role};

const READ_SIZE: usize = 128 << 10;

fn list(text: &str) -> AlgorithmList {
    AlgorithmList::parse(text, WIRE_ALGORITHMS).unwrap()
}

fn simulation() -> Simulation {
    Simulation::new(&list("zstd:1,lz4:1"), true, Arc::new(LinkConfig::default())).unwrap()
}

/// Lines of a COPY, some of which come again.
fn copy(size: usize) -> Vec<u8> {
    let mut rng = Seed(7).rng();
    let mut bytes = Vec::with_capacity(size);
    let names: Vec<String> =
        (0..500u32).map(|n| format!("customer-{:x}", u64::from(n) * 7_919_191)).collect();
    for n in 0.. {
        let (name, amount) = (rng.pick(&names).clone(), rng.below(100_000));
        let line = format!("{n}\t2026-11-{:02}\t{name}\t{amount}\tdelivered to the usual place\n", n % 30);
        bytes.extend(message(b'd', line.as_bytes()));
        if bytes.len() >= size {
            return bytes;
        }
    }
    bytes
}

/// Short answers, each of which a flush ends.
fn replies(count: usize) -> Vec<Vec<u8>> {
    let mut rng = Seed(11).rng();
    let reply = |n: usize| {
        let row = format!("\0\x02\0\0\0\x05{:05}\0\0\0\x06{:06}", n % 100_000, rng.below(1_000_000));
        [message(b'2', b""), message(b'D', row.as_bytes()), message(b'C', b"SELECT 1\0"), message(b'Z', b"I")]
            .concat()
    };
    (0..count).map(reply).collect()
}

/// The whole session, from its first byte on: bytes sent so far at every read.
fn session(reads: &[&[u8]], idle: bool) -> Vec<u64> {
    let answer = Offer::new(Dialect::Ack, &list("zstd:1,lz4:1")).answer(&list("zstd:1,lz4:1"), 19);
    let mut link = Link::new(Role::Gateway, answer.agreed.unwrap(), Arc::default(), MemoryBudget::default());
    let (mut out, mut sent) = (Vec::new(), Vec::new());
    let mut pump = |link: &mut Link, flush| loop {
        let held = link.pump(flush, &mut out).unwrap().held;
        out.clear();
        if held != Held::OutputFull {
            return;
        }
    };
    for read in reads {
        link.plain_buffer().extend_from_slice(read);
        pump(&mut link, if idle { Flush::Idle } else { Flush::No });
        sent.push(link.stats().outbound.wire_bytes);
    }
    sent
}

fn no_clock() -> Duration {
    Duration::ZERO
}

fn percent_off(samples: &Samples, kind: Kind, real: f64) -> f64 {
    let Sample { raw_bytes, wire_bytes, .. } = samples[kind as usize];
    100.0 * (wire_bytes as f64 / raw_bytes as f64 / real - 1.0)
}

#[test]
fn the_start_of_a_session_is_measured_to_the_byte() {
    let replies = replies(2000);
    let reads: Vec<&[u8]> = replies.iter().map(Vec::as_slice).collect();
    let sent = session(&reads, true);
    let mut burst = Burst::from_start(Direction::ToClient);
    let mut count = 0;
    for read in &reads {
        count += 1;
        let goes_on = burst.push(read, Kind::Start);
        burst.idle();
        if !goes_on {
            break;
        }
    }
    assert!(count < reads.len() && burst.size() >= START_SIZE as usize);
    let sample = simulation().replay(&burst, no_clock)[Kind::Start as usize];
    let raw: usize = reads[..count].iter().map(|read| read.len()).sum();
    assert_eq!((sample.raw_bytes, sample.wire_bytes), (raw as u64, sent[count - 1]));
}

#[test]
fn what_no_flush_has_ended_is_measured_too() {
    let stream = copy(100 << 10);
    for reads in [vec![&stream[..70_000]], stream[..70_000].chunks(8192).collect()] {
        let mut burst = Burst::from_start(Direction::ToClient);
        for read in &reads {
            burst.push(read, Kind::Start);
        }
        let sample = simulation().replay(&burst, no_clock)[Kind::Start as usize];
        assert!(sample.raw_bytes >= 69_900 && sample.wire_bytes < 25_000, "{sample:?}");
    }
}

#[test]
fn a_burst_from_the_middle_tells_what_the_session_sends_there() {
    let stream = copy(12 << 20);
    let reads: Vec<&[u8]> = stream.chunks(READ_SIZE).collect();
    let sent = session(&reads, false);
    let real = sent[sent.len() - 1] as f64 / stream.len() as f64;
    // At a message's begin, inside of it, and as if it were a gigabyte.
    let cut = stream.iter().skip(5 << 20).position(|b| *b == b'\n').unwrap() + (5 << 20) + 1;
    for (begin, left) in [(cut, 0), (cut - 20, 20), (cut - 3, 3), (cut - 20, 1 << 30)] {
        let mut burst = Burst::from_middle(Direction::ToClient, left, false, SIZE_MAX);
        for read in stream[begin..].chunks(READ_SIZE) {
            if !burst.push(read, Kind::Bulk) {
                break;
            }
        }
        let samples = simulation().replay(&burst, no_clock);
        let sample = samples[Kind::Bulk as usize];
        assert!(sample.raw_bytes as usize <= SIZE_MAX - WARM_SIZE + 2 * READ_SIZE, "{left}: {sample:?}");
        if left < 1 << 20 {
            let off = percent_off(&samples, Kind::Bulk, real);
            assert!(off.abs() < 2.0, "{left}: {off:+.2} %");
        }
    }
}

#[test]
fn replies_from_the_middle_are_as_small_as_in_the_session() {
    let replies = replies(8000);
    let reads: Vec<&[u8]> = replies.iter().map(Vec::as_slice).collect();
    let sent = session(&reads, true);
    let size =
        |range: std::ops::Range<usize>| reads[range].iter().map(|r| r.len() as u64).sum::<u64>() as f64;
    let real = (sent[7999] - sent[3999]) as f64 / size(4000..8000);
    let mut burst = Burst::from_middle(Direction::ToClient, 0, false, 0);
    for read in &reads[4000..] {
        let goes_on = burst.push(read, Kind::Replies);
        burst.idle();
        if !goes_on {
            break;
        }
    }
    let off = percent_off(&simulation().replay(&burst, no_clock), Kind::Replies, real);
    assert!(off.abs() < 5.0, "{off:+.2} %");
}

#[test]
fn kinds_in_one_burst_are_told_apart_and_both_directions_are_measured() {
    let (noise, text) = (Seed(3).rng().bytes(600_000), copy(600_000));
    let noise: Vec<u8> = noise.chunks(8000).flat_map(|piece| message(b'd', piece)).collect();
    for direction in Direction::ALL {
        let mut burst = Burst::from_start(direction);
        burst.push(&text, Kind::Bulk);
        burst.push(&noise, Kind::Replication);
        burst.idle();
        let samples = simulation().replay(&burst, no_clock);
        let ratio =
            |kind: Kind| samples[kind as usize].wire_bytes as f64 / samples[kind as usize].raw_bytes as f64;
        assert!(ratio(Kind::Bulk) < 0.5, "{direction:?}: {samples:?}");
        assert!(ratio(Kind::Replication) > 0.8, "{direction:?}: {samples:?}");
        assert_eq!(samples[Kind::Start as usize], Sample::default());
    }
}

#[test]
fn time_is_that_of_the_end_at_the_gateway() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NOW: AtomicU64 = AtomicU64::new(0);
    fn clock() -> Duration {
        Duration::from_nanos(NOW.fetch_add(1000, Ordering::Relaxed))
    }
    let text = copy(200_000);
    for direction in Direction::ALL {
        let mut burst = Burst::from_start(direction);
        burst.push(&text, Kind::Bulk);
        burst.idle();
        // One run: the clock is asked before and after.
        assert_eq!(simulation().replay(&burst, clock)[Kind::Bulk as usize].cpu_ns, 1000, "{direction:?}");
    }
}

#[test]
fn bytes_that_are_no_messages_measure_nothing_and_end_nothing() {
    for bytes in [&b"D\0\0\0\x01impossible"[..], &[0xff; 5000], b""] {
        for direction in Direction::ALL {
            for left in [0, 3, 1 << 20] {
                let mut burst = Burst::from_middle(direction, left, true, 0);
                for _ in 0..4 {
                    burst.push(bytes, Kind::Bulk);
                    burst.idle();
                }
                let measured: u64 = simulation().replay(&burst, no_clock).iter().map(|s| s.raw_bytes).sum();
                assert!(measured <= 4 * 5000);
            }
        }
    }
}

#[test]
fn where_nothing_is_allowed_there_is_nothing_to_simulate() {
    assert!(Simulation::new(&AlgorithmList::default(), true, Arc::default()).is_none());
    assert!(simulation().describe().contains("zstd:1"), "{}", simulation().describe());
}
