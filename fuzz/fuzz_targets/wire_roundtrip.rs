//! Any message stream, cut anywhere, comes out unchanged and never costs more than plain.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::policy::PRIMING_BYTES_MAX;
use pgshrink_wire::{
    ContextMode, Dialect, Flush, Held, Link, LinkConfig, MemoryBudget, Offer, Policy, Role, message,
};

#[derive(Debug, Arbitrary)]
struct Case {
    restart: bool,
    algorithms: u8,
    context: u8,
    frame_size: u16,
    group_size_min: u8,
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
enum Step {
    /// A message of this tag whose body repeats the bytes.
    Message {
        tag: u8,
        seed: Vec<u8>,
        repeat: u8,
    },
    /// Whatever was queued goes in, all but some bytes of it at once.
    Flush {
        keep_back: u8,
    },
    Set(u8),
    Idle,
}

const SETTINGS: [&str; 6] = ["zstd:1", "off", "lz4", "zlib:1", "zstd:3", "on"];
const PLAIN_MAX: usize = 4 << 20;

/// Both links, what came out, and what crossed the wire.
struct Pair {
    from: Link,
    to: Link,
    back: Vec<u8>,
    wire_bytes: usize,
}

impl Pair {
    fn new(case: &Case) -> Option<Self> {
        let text = ["zstd:1,lz4,zlib", "lz4:3", "zlib:1", "zstd:3"][usize::from(case.algorithms & 3)];
        let list = AlgorithmList::parse(text, WIRE_ALGORITHMS).ok()?;
        let dialect = if case.restart { Dialect::Restart } else { Dialect::Ack };
        let agreed = Offer::new(dialect, &list).answer(&list, 23).agreed?;
        let context = [ContextMode::Preserved, ContextMode::PerFrame, ContextMode::PerTransaction]
            [usize::from(case.context % 3)];
        let policy = Policy {
            context,
            frame_size: usize::from(case.frame_size).max(64),
            group_size_min: case.group_size_min.into(),
            ..Policy::default()
        };
        let config = Arc::new(LinkConfig { policy, ..LinkConfig::default() });
        let budget = MemoryBudget::default();
        Some(Self {
            from: Link::new(Role::Gateway, agreed.clone(), config.clone(), budget.clone()),
            to: Link::new(Role::Connector, agreed, config, budget),
            back: Vec::new(),
            wire_bytes: 0,
        })
    }

    fn give(&mut self, mut plain: &[u8], flush: Flush) {
        while !plain.is_empty() {
            let n = plain.len().min(self.from.plain_room());
            assert!(n > 0, "a pumped link has room");
            self.from.plain_buffer().extend_from_slice(&plain[..n]);
            plain = &plain[n..];
            self.carry(flush);
        }
    }

    fn idle(&mut self) {
        let mut out = Vec::new();
        self.from.release_idle(&mut out);
        self.arrive(&out);
        self.to.release_idle(&mut Vec::new());
    }

    fn arrive(&mut self, mut wire: &[u8]) {
        self.wire_bytes += wire.len();
        while !wire.is_empty() || self.to.wants_output_room() {
            let mut decoded = Vec::new();
            let used = self.to.handle_wire(wire, &mut decoded).expect("own frames");
            self.back.append(&mut decoded);
            wire = &wire[used..];
        }
    }

    fn carry(&mut self, flush: Flush) {
        loop {
            let mut out = Vec::new();
            let held = self.from.pump(flush, &mut out).expect("own messages").held;
            self.arrive(&out);
            if held != Held::OutputFull {
                return;
            }
        }
    }
}

fuzz_target!(|case: Case| {
    let Some(mut pair) = Pair::new(&case) else { return };
    let (mut plain, mut given) = (Vec::new(), 0);
    for step in case.steps.iter().take(200) {
        match step {
            Step::Message { tag, seed, repeat } if !b"zkmTWZ".contains(tag) => {
                plain.extend(message::message(*tag, &seed.repeat(usize::from(*repeat).pow(2))));
            }
            Step::Message { .. } => plain.extend(message::ready_for_query(b'I')),
            Step::Flush { keep_back } => {
                let end = plain.len().saturating_sub(usize::from(*keep_back)).max(given);
                pair.give(&plain[given..end], Flush::Idle);
                given = end;
            }
            Step::Set(n) => {
                let _ = pair.from.set_compression(SETTINGS[usize::from(*n) % SETTINGS.len()]);
            }
            Step::Idle => pair.idle(),
        }
        if plain.len() > PLAIN_MAX {
            break;
        }
    }
    pair.give(&plain[given..], Flush::Force);
    pair.carry(Flush::Force);
    assert!(pair.back == plain, "different bytes");
    let most = plain.len() + PRIMING_BYTES_MAX as usize;
    assert!(pair.wire_bytes <= most, "{} > {most}", pair.wire_bytes);
});
