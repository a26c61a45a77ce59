//! What a session keeps that was active and is quiet, at either end, by its own count and by the kernel's.

use std::process::Command;
use std::sync::Arc;

use pgshrink_codec::stream::{Encoder, EncoderOptions};
use pgshrink_wire::{ContextMode, Dialect, Link, LinkConfig, MemoryBudget, Offer, Policy, Role, message};

use crate::pair::{DIALECTS, OVER, Pair, Random, list, row, server_stream};

/// What a link may hold while its session is quiet; the rest of 64 KiB is for sockets, their task and TLS.
const HELD_MAX: usize = 32 << 10;
const ALGORITHMS: [&str; 3] = ["zstd:1", "lz4", "zlib:1"];
/// An lz4 history that does not shrink, which values beside compressible rows can make.
const HISTORY_MAX: usize = 64 << 10;

/// Lines that shrink as tables do, four times with zstd:1.
fn lines(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < size {
        out.extend(message::message(b'd', &[&row(random)[11..], b"\n"].concat()));
    }
    out
}

/// Two ends of which neither packs rows, as `pack-rows = off` makes them.
fn without_packed_rows(algorithms: &str, config: LinkConfig) -> Pair {
    let offered = list(algorithms);
    let offer = Offer::new(Dialect::Ack, &offered).allow_packed_rows(false).invite_window(19);
    let answer = offer.answer(&offered, 19);
    let mine = pgshrink_wire::Agreed::from_ack(&offered, &answer.ack.unwrap()[5..]).unwrap().unwrap();
    let (config, budget) = (Arc::new(config), MemoryBudget::default());
    Pair {
        connector: Link::new(Role::Connector, mine, config.clone(), budget.clone()),
        gateway: Link::new(Role::Gateway, answer.agreed.unwrap(), config, budget.clone()),
        budget,
    }
}

/// Both ends say once that they are quiet, and each gets what the other one says.
fn fall_quiet(pair: &mut Pair) -> (usize, usize) {
    let (mut down, mut up) = (Vec::new(), Vec::new());
    pair.gateway.release_idle(&mut down);
    pair.connector.release_idle(&mut up);
    assert!(crate::pair::receive(&mut pair.connector, &down).unwrap().is_empty());
    assert!(crate::pair::receive(&mut pair.gateway, &up).unwrap().is_empty());
    (down.len(), up.len())
}

#[test]
fn a_quiet_session_keeps_little_at_either_end_and_goes_on_whatever_carried_it() {
    let mut random = Random(0x5117);
    let plain = lines(&mut random, 600 << 10);
    for (context, algorithms) in
        [(ContextMode::Preserved, &ALGORITHMS[..]), (ContextMode::PerFrame, &["zstd:1"])]
    {
        for algorithms in algorithms {
            let policy = Policy { context, ..Policy::default() };
            let config = LinkConfig { policy, ..LinkConfig::default() };
            let pairs = [
                Pair::new(Dialect::Ack, algorithms, config.clone()),
                Pair::new(Dialect::Restart, algorithms, config.clone()),
                without_packed_rows(algorithms, config),
            ];
            for (which, mut pair) in pairs.into_iter().enumerate() {
                let what = format!("{context:?} {algorithms}, pair {which}");
                for _ in 0..2 {
                    assert!(pair.down(&plain, usize::MAX).1 == plain, "{what}");
                    assert!(pair.up(&plain, usize::MAX).1 == plain, "{what}");
                    let active = pair.connector.memory_bytes().min(pair.gateway.memory_bytes());
                    fall_quiet(&mut pair);
                    let quiet = pair.connector.memory_bytes().max(pair.gateway.memory_bytes());
                    assert!(quiet <= HELD_MAX, "{what}: {quiet} bytes of {active}");
                    assert_eq!(
                        pair.budget.used() as usize,
                        pair.connector.memory_bytes() + pair.gateway.memory_bytes()
                    );
                }
            }
        }
    }
}

#[test]
fn what_a_quiet_end_says_never_costs_more_than_was_saved_and_is_said_once() {
    for (seed, dialect) in [(3, DIALECTS[0]), (4, DIALECTS[1])] {
        for algorithms in ["zstd:1", "lz4", "zlib:1", "zstd:1,lz4,zlib"] {
            let mut random = Random(seed);
            let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
            let (mut plain_total, mut wire_total) = (0, 0);
            for step in 0..200 {
                let plain = match random.below(10) {
                    0 => server_stream(&mut random, 1),
                    1..4 => row(&mut random),
                    4..7 => message::command_complete("SELECT 1"),
                    _ => (0..random.below(9)).flat_map(|_| row(&mut random)).collect(),
                };
                let (wire, back) = pair.down(&plain, 1 + random.below(9000) as usize);
                assert!(back == plain, "{dialect:?} {algorithms}, step {step}");
                (plain_total, wire_total) = (plain_total + plain.len(), wire_total + wire.len());
                if random.below(3) == 0 {
                    let (down, up) = fall_quiet(&mut pair);
                    wire_total += down;
                    assert_eq!((up, fall_quiet(&mut pair)), (0, (0, 0)), "said twice");
                    let held = pair.connector.memory_bytes().max(pair.gateway.memory_bytes());
                    assert!(held <= HISTORY_MAX, "{dialect:?} {algorithms}, step {step}: {held} bytes");
                }
                assert!(wire_total <= plain_total + OVER, "{dialect:?} {algorithms}, step {step}");
            }
        }
    }
}

/// A reader of the ack dialect that says nothing of itself gets no frame that gives no output.
#[test]
fn a_stranger_of_the_ack_dialect_gets_no_empty_frame() {
    let offered = list("zstd:1");
    let answer = Offer { dialect: Dialect::Ack, text: "zstd:1".into() }.answer(&offered, 19);
    let mut gateway = Link::new(
        Role::Gateway,
        answer.agreed.unwrap(),
        Arc::new(LinkConfig::default()),
        MemoryBudget::default(),
    );
    gateway.plain_buffer().extend(lines(&mut Random(9), 10_000));
    let mut wire = Vec::new();
    crate::pair::pump_all(&mut gateway, pgshrink_wire::Flush::Idle, &mut wire);
    assert!(wire.len() < 5000);
    wire.clear();
    gateway.release_idle(&mut wire);
    assert!(wire.is_empty());
}

/// Only those who agreed on it say by an empty frame that they forget: of others it is a flush like any other.
#[test]
fn an_empty_flush_of_a_stranger_leaves_its_stream_as_it_was() {
    let plain = lines(&mut Random(10), 5000);
    for (algorithms, empty) in [("zlib:1", &[0, 0, 0, 0xff, 0xff][..]), ("lz4", &[0])] {
        let offered = list(algorithms);
        let answer = Offer { dialect: Dialect::Ack, text: algorithms.into() }.answer(&offered, 19);
        let config = Arc::new(LinkConfig::default());
        let mut gateway = Link::new(Role::Gateway, answer.agreed.unwrap(), config, MemoryBudget::default());
        let choice = *offered.iter().next().unwrap();
        let mut encoder = Encoder::new(EncoderOptions::from(choice)).unwrap();
        let frame = |encoder: &mut Encoder| {
            let mut payload = Vec::new();
            encoder.encode(&plain, &mut payload).unwrap();
            encoder.commit();
            message::message(b'm', &payload)
        };
        let (first, second) = (frame(&mut encoder), frame(&mut encoder));
        assert!(second.len() * 5 < first.len(), "the second refers to the first");
        let wire = [message::message(b'k', &[0]), first, message::message(b'm', empty), second].concat();
        assert!(crate::pair::receive(&mut gateway, &wire).unwrap() == plain.repeat(2), "{algorithms}");
    }
}

const CHILD: &str = "PGSHRINK_TEST_QUIET";

/// In a process of its own, whose resident memory is then that of the links alone. The allocator maps each larger block by
/// itself, so that what was freed is not resident.
#[test]
fn quiet_sessions_hold_no_more_by_the_kernels_count() {
    if let Ok(case) = std::env::var(CHILD) {
        return hold(&case);
    }
    for dialect in DIALECTS {
        for algorithms in ALGORITHMS {
            let case = format!("{} {algorithms}", dialect.name());
            let done = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "quiet::quiet_sessions_hold_no_more_by_the_kernels_count", "--nocapture"])
                .env(CHILD, &case)
                .env("MALLOC_MMAP_THRESHOLD_", "8192")
                .env("MALLOC_MMAP_MAX_", "1000000")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&done.stdout);
            println!("{}", text.lines().find(|line| line.contains("bytes a link")).unwrap_or_default());
            assert!(done.status.success(), "{case}: {text}{}", String::from_utf8_lossy(&done.stderr));
        }
    }
}

/// Opens, uses and rests sessions as `case` says, and compares what is resident.
fn hold(case: &str) {
    const SESSIONS: usize = 12;
    let (dialect, algorithms) = case.split_once(' ').unwrap();
    let dialect = Dialect::from_name(dialect).unwrap();
    let plain = lines(&mut Random(0x5117), 700 << 10);
    let used = || {
        let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
        assert!(pair.down(&plain, usize::MAX).1 == plain);
        assert!(pair.up(&plain, usize::MAX).1 == plain);
        pair
    };
    // One that has come and gone, so that what a process holds once is not counted.
    drop(used());
    let before = resident();
    let mut pairs: Vec<Pair> = (0..SESSIONS).map(|_| used()).collect();
    let active = (resident() - before) / (2 * SESSIONS);
    for pair in &mut pairs {
        fall_quiet(pair);
    }
    let quiet = resident().saturating_sub(before) / (2 * SESSIONS);
    println!("{case}: {active} bytes a link while active, {quiet} while quiet");
    assert!(quiet <= HELD_MAX + (8 << 10), "{case}: {quiet} bytes a link, {active} while active");
    assert!(active > 2 * quiet, "{case}: {active} bytes a link while active, {quiet} while quiet");
    for pair in &mut pairs {
        assert!(pair.down(&plain, usize::MAX).1 == plain);
    }
}

/// Anonymous memory of this process that is resident.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}
