//! A connector's link and a gateway's link joined by a wire that the test can see and cut.

use std::sync::Arc;

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{Agreed, Dialect, Flush, Held, Link, LinkConfig, MemoryBudget, Offer, Role, message};

pub const DIALECTS: [Dialect; 2] = [Dialect::Ack, Dialect::Restart];

pub fn list(text: &str) -> AlgorithmList {
    AlgorithmList::parse(text, WIRE_ALGORITHMS).unwrap()
}

/// Both ends' view of a negotiation that succeeded.
pub fn negotiate(dialect: Dialect, client: &str, server: &str) -> (Agreed, Agreed) {
    let offered = list(client);
    let answer = Offer::new(dialect, &offered).invite_window(23).answer(&list(server), 23);
    let connector = match dialect {
        Dialect::Ack => Agreed::from_ack(&offered, &answer.ack.unwrap()[5..]).unwrap().unwrap(),
        Dialect::Restart => {
            let status = answer.status.unwrap();
            let (_, value) = message::parse_parameter_status(&status[5..]).unwrap();
            Agreed::from_status(&offered, std::str::from_utf8(value).unwrap()).unwrap()
        }
    };
    (connector, answer.agreed.unwrap())
}

/// What the wire may be ahead of plain.
pub const OVER: usize = pgshrink_wire::policy::PRIMING_BYTES_MAX as usize;

pub struct Pair {
    pub connector: Link,
    pub gateway: Link,
    pub budget: MemoryBudget,
}

impl Pair {
    pub fn new(dialect: Dialect, algorithms: &str, config: LinkConfig) -> Self {
        let (mine, theirs) = negotiate(dialect, algorithms, algorithms);
        let config = Arc::new(config);
        let budget = MemoryBudget::default();
        Self {
            connector: Link::new(Role::Connector, mine, config.clone(), budget.clone()),
            gateway: Link::new(Role::Gateway, theirs, config, budget.clone()),
            budget,
        }
    }

    /// Server messages through the gateway, over the wire and out at the client; the wire bytes too.
    pub fn down(&mut self, plain: &[u8], cut: usize) -> (Vec<u8>, Vec<u8>) {
        carry(&mut self.gateway, &mut self.connector, plain, cut)
    }

    /// Both ends are quiet for a while, one after the other.
    pub fn release_idle(&mut self) {
        let mut wire = Vec::new();
        self.gateway.release_idle(&mut wire);
        assert!(receive(&mut self.connector, &wire).unwrap().is_empty());
        wire.clear();
        self.connector.release_idle(&mut wire);
        assert!(receive(&mut self.gateway, &wire).unwrap().is_empty());
        self.gateway.release_idle(&mut wire);
    }

    /// Client messages the other way.
    pub fn up(&mut self, plain: &[u8], cut: usize) -> (Vec<u8>, Vec<u8>) {
        carry(&mut self.connector, &mut self.gateway, plain, cut)
    }
}

/// Moves everything, `cut` bytes at a time on both sides, flushing as a session whose source blocks after each cut.
pub fn carry(from: &mut Link, to: &mut Link, plain: &[u8], cut: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut wire, mut back) = (Vec::new(), Vec::new());
    for piece in plain.chunks(cut.max(1)) {
        let mut rest = piece;
        while !rest.is_empty() {
            let n = rest.len().min(from.plain_room());
            assert!(n > 0, "a link that was pumped has room");
            from.plain_buffer().extend_from_slice(&rest[..n]);
            rest = &rest[n..];
            pump_all(from, Flush::Idle, &mut wire);
        }
    }
    pump_all(from, Flush::Force, &mut wire);
    for piece in wire.chunks(cut.max(1)) {
        back.extend(receive(to, piece).unwrap());
    }
    (wire, back)
}

pub fn pump_all(link: &mut Link, flush: Flush, wire: &mut Vec<u8>) {
    loop {
        let mut out = Vec::new();
        let held = link.pump(flush, &mut out).unwrap().held;
        wire.extend_from_slice(&out);
        if held != Held::OutputFull {
            return;
        }
    }
}

pub fn receive(link: &mut Link, mut input: &[u8]) -> Result<Vec<u8>, pgshrink_wire::Error> {
    let mut back = Vec::new();
    while !input.is_empty() || link.wants_output_room() {
        let mut out = Vec::new();
        let wanted_room = link.wants_output_room();
        let used = link.handle_wire(input, &mut out)?;
        // Output that fits exactly is known to be all only when more was asked for.
        let was_all = wanted_room && !link.wants_output_room();
        assert!(used > 0 || !out.is_empty() || was_all, "progress");
        input = &input[used..];
        back.extend(out);
    }
    Ok(back)
}

/// xorshift64*; the seed is part of every failure message.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 40) as u8).collect()
    }
}

/// A DataRow of one text-like column.
pub fn row(random: &mut Random) -> Vec<u8> {
    let id = random.below(100_000);
    let text =
        format!("{id}\tuser{}@example.org\t2026-11-{:02}\tactive", random.below(500), random.below(28) + 1);
    message::data_row(&[Some(&text)])
}

/// What a server sends: queries' results of all shapes, some of it incompressible.
pub fn server_stream(random: &mut Random, answers: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..answers {
        out.extend(message::row_description(&["a"]));
        for _ in 0..random.below(200) {
            match random.below(40) {
                0 => {
                    let n = random.below(200_000) as usize;
                    out.extend(message::message(b'D', &random.bytes(n)));
                }
                1 => {
                    let n = random.below(300_000) as usize;
                    out.extend(message::message(b'd', &b"compressible ".repeat(n / 13 + 1)));
                }
                2 => out.extend(message::message(b'N', b"SNOTICE\0\0")),
                _ => out.extend(row(random)),
            }
        }
        out.extend(message::command_complete("SELECT 1"));
        out.extend(message::ready_for_query(b"IT"[random.below(2) as usize]));
    }
    out
}
