//! Captured sessions: what was said on a wire, message by message.
//!
//! A [`Reader`] is fed one connection's bytes as they went over the wire, in both directions and in the order they were
//! captured. It reads the startup packet, follows the negotiation and gives each message, decoded where it travelled in a
//! frame. What cannot be read is a [`Finding`] as well: bytes behind TLS, and frames that refer to what was sent before the
//! capture began.
//!
//! A file of a relay is a sequence of [`record_header`]s, each followed by its bytes (`formats/wire.md`, golden files).

use std::sync::Arc;

use pgshrink_codec::AlgorithmList;

use crate::budget::MemoryBudget;
use crate::error::Error;
use crate::link::{Link, LinkConfig, Role};
use crate::message::{Header, tag};
use crate::negotiate::{Agreed, Dialect, Offer, WIRE_ALGORITHMS};
use crate::startup::{First, StartupPacket, parse_first};
use crate::walk::{Found, Walk, message_at};

/// Bytes before each record of a relay's file.
pub const RECORD_HEADER_SIZE: usize = 17;
/// Largest record read; relays record what one read gave them.
pub const RECORD_SIZE_MAX: u32 = 64 << 20;
/// Bytes of a split message's body that are kept; of a whole one all are there.
const BODY_KEPT: usize = 1 << 10;

/// Who sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The client.
    ToServer,
    /// The server.
    ToClient,
}

/// What precedes the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordHeader {
    /// Who sent it.
    pub way: Way,
    /// Which connection.
    pub connection: u32,
    /// When, in seconds since the relay started.
    pub seconds: f64,
    /// Bytes that follow.
    pub size: u32,
}

/// Reads a record's header: big-endian `u8 direction, u32 connection, f64 seconds, u32 size`.
pub fn record_header(bytes: &[u8; RECORD_HEADER_SIZE]) -> Result<RecordHeader, Error> {
    let [way, c0, c1, c2, c3, s0, s1, s2, s3, s4, s5, s6, s7, l0, l1, l2, l3] = *bytes;
    let way = match way {
        0 => Way::ToServer,
        1 => Way::ToClient,
        other => {
            return Err(Error::protocol("capture record", "a direction of 0 or 1", other.to_string()));
        }
    };
    let size = u32::from_be_bytes([l0, l1, l2, l3]);
    if size > RECORD_SIZE_MAX {
        let (allowed, found) = (RECORD_SIZE_MAX.into(), size.into());
        return Err(Error::Limit { what: "size of a capture record", allowed, found });
    }
    let seconds = f64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]);
    Ok(RecordHeader { way, connection: u32::from_be_bytes([c0, c1, c2, c3]), seconds, size })
}

/// Something found in a connection.
#[derive(Debug)]
pub enum Finding<'a> {
    /// An untyped packet at the connection's begin.
    First(&'a First),
    /// What the two ends agreed on; `None`: the session is plain.
    Agreed(Option<&'a Agreed>),
    /// A message; the first bytes of its body, at least, and all of it unless it was split.
    Message(Way, Header, &'a [u8]),
    /// Nothing more of this direction can be read.
    Unreadable(Way, Unreadable),
}

/// Why a direction cannot be read any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// The two ends went on with TLS.
    Tls,
    /// The connection's begin is not in the capture, so neither what was agreed nor the context of its frames is known.
    BeginsInside,
    /// The bytes are not the protocol, or a frame refers to something that is not in the capture.
    Error(Error),
}

/// One connection of a capture.
#[derive(Debug)]
pub struct Reader {
    stage: Stage,
    up: Direction,
    down: Direction,
}

#[derive(Debug)]
enum Stage {
    /// The client's first packet is due.
    First,
    /// The server's one byte about TLS or GSS encryption is due.
    EncryptionAnswer,
    /// The server's first message says what of the ack dialect is agreed.
    AckAnswer(AlgorithmList),
    /// Both directions are walked.
    Session,
}

#[derive(Debug, Default)]
struct Direction {
    /// Bytes that wait for the stage that reads them.
    waiting: Vec<u8>,
    link: Option<Box<Link>>,
    walk: Walk,
    unreadable: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self { stage: Stage::First, up: Direction::default(), down: Direction::default() }
    }
}

impl Reader {
    /// The connection's next bytes.
    pub fn feed(&mut self, way: Way, bytes: &[u8], mut on: impl FnMut(Finding<'_>)) {
        match way {
            Way::ToServer => self.up.waiting.extend_from_slice(bytes),
            Way::ToClient => self.down.waiting.extend_from_slice(bytes),
        }
        while self.step(&mut on) {}
    }

    /// True when both directions end between two messages.
    pub fn is_whole(&self) -> bool {
        let whole = |direction: &Direction| {
            direction.unreadable || direction.waiting.is_empty() && direction.is_between()
        };
        whole(&self.up) && whole(&self.down)
    }

    /// Reads on; true when there may be more to read.
    fn step(&mut self, on: &mut impl FnMut(Finding<'_>)) -> bool {
        match &self.stage {
            Stage::First => {
                if !self.down.waiting.is_empty() {
                    return self.give_up(Unreadable::BeginsInside, on);
                }
                match parse_first(&self.up.waiting) {
                    Ok(None) => false,
                    Ok(Some((first, used))) => {
                        self.up.waiting.drain(..used);
                        on(Finding::First(&first));
                        self.begin(first, on)
                    }
                    // A message of a running session has the form of no first packet.
                    Err(_) => self.give_up(Unreadable::BeginsInside, on),
                }
            }
            Stage::EncryptionAnswer => match self.down.waiting.first() {
                None => false,
                Some(b'S' | b'G') => self.give_up(Unreadable::Tls, on),
                Some(_) => {
                    self.down.waiting.remove(0);
                    self.stage = Stage::First;
                    true
                }
            },
            Stage::AckAnswer(offered) => match ack_answer(offered, &self.down.waiting) {
                Ok(None) => false,
                Ok(Some((agreed, used))) => {
                    self.down.waiting.drain(..used);
                    on(Finding::Agreed(agreed.as_ref()));
                    self.open(agreed)
                }
                Err(error) => self.give_up(Unreadable::Error(error), on),
            },
            Stage::Session => {
                self.up.read(Way::ToServer, on);
                self.down.read(Way::ToClient, on);
                false
            }
        }
    }

    fn begin(&mut self, first: First, on: &mut impl FnMut(Finding<'_>)) -> bool {
        match first {
            First::Startup(mut packet) => self.negotiate(&mut packet),
            First::TlsClientHello => self.give_up(Unreadable::Tls, on),
            First::Ssl | First::Gss => {
                self.stage = Stage::EncryptionAnswer;
                true
            }
            // The server says nothing.
            First::Cancel(_) => false,
        }
    }

    fn negotiate(&mut self, packet: &mut StartupPacket) -> bool {
        let everything = AlgorithmList::parse("zstd,lz4,zlib", WIRE_ALGORITHMS).unwrap_or_default();
        match Offer::take(packet) {
            None => self.open(None),
            Some(offer) if offer.dialect == Dialect::Ack => {
                self.stage = Stage::AckAnswer(everything);
                true
            }
            // Frames name their algorithm by themselves.
            Some(_) => {
                self.open(Agreed::from_status(&everything, &Offer::new(Dialect::Restart, &everything).text))
            }
        }
    }

    fn open(&mut self, agreed: Option<Agreed>) -> bool {
        self.stage = Stage::Session;
        let config = Arc::new(LinkConfig::default());
        let link = |role, agreed| Box::new(Link::new(role, agreed, config.clone(), MemoryBudget::default()));
        self.up.link = agreed.clone().map(|agreed| link(Role::Gateway, agreed));
        self.down.link = agreed.map(|agreed| link(Role::Connector, agreed));
        true
    }

    fn give_up(&mut self, why: Unreadable, on: &mut impl FnMut(Finding<'_>)) -> bool {
        self.stage = Stage::Session;
        self.up.give_up(Way::ToServer, why.clone(), on);
        self.down.give_up(Way::ToClient, why, on);
        false
    }
}

/// What the server's first message says about compression, and how much of it is taken.
fn ack_answer(offered: &AlgorithmList, bytes: &[u8]) -> Result<Option<(Option<Agreed>, usize)>, Error> {
    let Some(Found { header, body }) = message_at(bytes, 0)? else { return Ok(None) };
    if header.tag != tag::COMPRESSION_ACK {
        return Ok(Some((None, 0)));
    }
    let Some(body) = body else { return Ok(None) };
    Ok(Some((Agreed::from_ack(offered, body)?, header.total())))
}

impl Direction {
    fn is_between(&self) -> bool {
        self.walk.at_boundary() && self.link.as_ref().is_none_or(|link| link.peer_at_message_boundary())
    }

    fn give_up(&mut self, way: Way, why: Unreadable, on: &mut impl FnMut(Finding<'_>)) {
        self.waiting = Vec::new();
        if !std::mem::replace(&mut self.unreadable, true) {
            on(Finding::Unreadable(way, why));
        }
    }

    /// Decodes and walks what is waiting.
    fn read(&mut self, way: Way, on: &mut impl FnMut(Finding<'_>)) {
        let bytes = std::mem::take(&mut self.waiting);
        if self.unreadable {
            return;
        }
        let Some(link) = &mut self.link else {
            if let Err(error) = walk(&mut self.walk, &bytes, way, on) {
                self.give_up(way, Unreadable::Error(error), on);
            }
            return;
        };
        let (mut rest, mut out) = (&bytes[..], Vec::new());
        let mut failed = None;
        while !rest.is_empty() || link.wants_output_room() {
            out.clear();
            let used = link.handle_wire(rest, &mut out);
            match walk(&mut self.walk, &out, way, on).and(used) {
                Ok(used) => rest = &rest[used..],
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = failed {
            self.give_up(way, Unreadable::Error(error), on);
        }
    }
}

fn walk(walk: &mut Walk, bytes: &[u8], way: Way, on: &mut impl FnMut(Finding<'_>)) -> Result<(), Error> {
    walk.feed(bytes, |_| Ok(Some(BODY_KEPT)), |m| on(Finding::Message(way, m.header, m.body)))
}
