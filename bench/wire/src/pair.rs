//! A gateway's link and a connector's link with a wire between them, fed as a server and a client feed them.

use std::sync::Arc;

use pgshrink_bench_report::{Result, cpu_seconds_of_thread};
use pgshrink_codec::AlgorithmList;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{Agreed, Dialect, Flush, Held, Link, LinkConfig, MemoryBudget, Offer, Role, message};

use crate::recording::{Piece, Way};

/// What a server writes at once while a result goes on (PostgreSQL's `PQ_SEND_BUFFER_SIZE`).
pub const SERVER_PIECE_SIZE: usize = 8192;

/// What carrying something cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Plain bytes in.
    pub raw: u64,
    /// Wire bytes between.
    pub wire: u64,
    /// Processor seconds of the sending link.
    pub send_seconds: f64,
    /// Processor seconds of the receiving link.
    pub receive_seconds: f64,
}

impl Cost {
    /// Plain bytes per wire byte.
    pub fn ratio(&self) -> f64 {
        self.raw as f64 / self.wire as f64
    }

    /// Both links' processor seconds.
    pub fn seconds(&self) -> f64 {
        self.send_seconds + self.receive_seconds
    }
}

/// Both ends of a session that has agreed on compression.
#[derive(Debug)]
pub struct Pair {
    gateway: Link,
    connector: Link,
    wire: Vec<u8>,
    scratch: Vec<u8>,
}

impl Pair {
    /// A session of this dialect and algorithm list.
    pub fn new(dialect: Dialect, algorithms: &str, config: LinkConfig) -> Result<Pair> {
        let (mine, theirs) = negotiate(dialect, algorithms)?;
        let config = Arc::new(config);
        let budget = MemoryBudget::default();
        Ok(Pair {
            connector: Link::new(Role::Connector, mine, config.clone(), budget.clone()),
            gateway: Link::new(Role::Gateway, theirs, config, budget),
            wire: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// Carries a server's answer to the client, as a gateway gets it that is faster than the server, and compares.
    pub fn carry_answer(&mut self, answer: &[u8]) -> Result<Cost> {
        let mut cost = Cost::default();
        let mut arrived = 0;
        let mut pieces = answer.chunks(SERVER_PIECE_SIZE).peekable();
        while let Some(piece) = pieces.next() {
            self.carry(Way::ToClient, piece, Flush::Idle, answer, &mut arrived, &mut cost)?;
            if pieces.peek().is_none() {
                self.carry(Way::ToClient, &[], Flush::Force, answer, &mut arrived, &mut cost)?;
            }
        }
        check_all_arrived(arrived, answer)?;
        Ok(cost)
    }

    /// Carries a recorded dialogue piece by piece, both ways, and compares. Costs are of the way to the server and the
    /// way to the client.
    pub fn carry_dialogue(&mut self, pieces: &[Piece]) -> Result<[Cost; 2]> {
        let sent = Way::BOTH.map(|way| crate::recording::bytes_of(pieces, way));
        let (mut costs, mut arrived) = ([Cost::default(); 2], [0; 2]);
        for piece in pieces {
            let at = piece.way as usize;
            let (arrived, cost) = (&mut arrived[at], &mut costs[at]);
            self.carry(piece.way, &piece.bytes, Flush::Idle, &sent[at], arrived, cost)?;
        }
        for way in Way::BOTH {
            let at = way as usize;
            self.carry(way, &[], Flush::Force, &sent[at], &mut arrived[at], &mut costs[at])?;
            check_all_arrived(arrived[at], &sent[at])?;
        }
        Ok(costs)
    }

    /// Moves one piece. What arrives must be `all` from `arrived` on.
    fn carry(
        &mut self,
        way: Way,
        piece: &[u8],
        flush: Flush,
        all: &[u8],
        arrived: &mut usize,
        cost: &mut Cost,
    ) -> Result<()> {
        let (from, to) = match way {
            Way::ToServer => (&mut self.connector, &mut self.gateway),
            Way::ToClient => (&mut self.gateway, &mut self.connector),
        };
        self.wire.clear();
        cost.raw += piece.len() as u64;
        cost.send_seconds += send(from, piece, flush, &mut self.scratch, &mut self.wire)?;
        cost.wire += self.wire.len() as u64;
        let mut wire = self.wire.as_slice();
        while !wire.is_empty() || to.wants_output_room() {
            let out = &mut self.scratch;
            let began = cpu_seconds_of_thread();
            let used = to.handle_wire(wire, out)?;
            cost.receive_seconds += cpu_seconds_of_thread() - began;
            if used == 0 && out.is_empty() && (!wire.is_empty() || to.wants_output_room()) {
                return Err("a link takes nothing and gives nothing".into());
            }
            if all.get(*arrived..*arrived + out.len()) != Some(out) {
                return Err(format!("other bytes arrived than were sent, behind byte {arrived}").into());
            }
            *arrived += out.len();
            out.clear();
            wire = &wire[used..];
        }
        Ok(())
    }

    /// Heap of one end: that of the larger.
    pub fn link_memory_bytes(&self) -> usize {
        self.gateway.memory_bytes().max(self.connector.memory_bytes())
    }

    /// Heap of what carries the way to the client: the sending and the receiving link, which hold nothing for the other.
    pub fn codec_memory_bytes(&self) -> usize {
        self.gateway.memory_bytes() + self.connector.memory_bytes()
    }

    /// Both ends are told that the session is quiet.
    pub fn release_idle(&mut self) -> Result<()> {
        let mut wire = Vec::new();
        self.gateway.release_idle(&mut wire);
        // A frame that only says so gives no messages.
        self.connector.handle_wire(&wire, &mut Vec::new())?;
        wire.clear();
        self.connector.release_idle(&mut wire);
        self.gateway.handle_wire(&wire, &mut Vec::new())?;
        self.gateway.release_idle(&mut wire);
        Ok(())
    }
}

fn negotiate(dialect: Dialect, algorithms: &str) -> Result<(Agreed, Agreed)> {
    let list = AlgorithmList::parse(algorithms, WIRE_ALGORITHMS)?;
    // As two processes with the default memory limit invite each other.
    let invited = MemoryBudget::default().window_log_invited();
    let answer = Offer::new(dialect, &list).invite_window(invited).answer(&list, invited);
    let connector = match dialect {
        Dialect::Ack => {
            let ack = answer.ack.ok_or("no acknowledgement")?;
            Agreed::from_ack(&list, &ack[message::HEADER_SIZE..])?
        }
        Dialect::Restart => {
            let status = answer.status.ok_or("no status")?;
            let parameter = message::parse_parameter_status(&status[message::HEADER_SIZE..]);
            let (_, value) = parameter.ok_or("no parameter")?;
            Agreed::from_status(&list, std::str::from_utf8(value)?)
        }
    };
    Ok((connector.ok_or("the client did not agree")?, answer.agreed.ok_or("the server did not agree")?))
}

/// Returns the processor seconds of the link alone: not those of the copy that stands for a `recv`.
fn send(
    link: &mut Link,
    mut plain: &[u8],
    flush: Flush,
    out: &mut Vec<u8>,
    wire: &mut Vec<u8>,
) -> Result<f64> {
    let mut seconds = 0.0;
    loop {
        let n = plain.len().min(link.plain_room());
        link.plain_buffer().extend_from_slice(&plain[..n]);
        plain = &plain[n..];
        let flush = if plain.is_empty() { flush } else { Flush::No };
        loop {
            let began = cpu_seconds_of_thread();
            let held = link.pump(flush, out)?.held;
            seconds += cpu_seconds_of_thread() - began;
            wire.append(out);
            if held != Held::OutputFull {
                break;
            }
        }
        if plain.is_empty() {
            return Ok(seconds);
        }
    }
}

fn check_all_arrived(arrived: usize, sent: &[u8]) -> Result<()> {
    if arrived == sent.len() {
        return Ok(());
    }
    Err(format!("{arrived} of {} bytes arrived", sent.len()).into())
}
