//! The engine of one session: what it sends compressed, what it receives compressed, and what ties the two.
//!
//! A [`Link`] begins right behind AuthenticationOk, on either end. It has a **plain side** (the server at a gateway,
//! the client at a connector) and a **wire side**, where frames travel. Methods are getters, `handle_*` for what
//! came, `pump` for what is to go.
//!
//! What it promises
//! * L1 The wire carries at most as many bytes as the plain session would, at every message boundary and in each
//!   direction; the negotiation itself (startup key, CompressionAck or ParameterStatus) is the stated constant.
//! * L2 Every whole message that was given to `pump` with [`Flush::Idle`] is in its output, except rows of a bulk transfer
//!   whose last row is still incomplete: these wait for [`HOLD_MS_MAX`] at most. A message longer than a frame travels
//!   frame by frame.
//! * L3 `SET pgshrink.compression` changes this end's sending from the next group on, once the server has confirmed it.
//!
//! Formats: `formats/wire.md`.

use std::ops::Range;
use std::sync::Arc;

use pgshrink_codec::Choice;

use crate::budget::MemoryBudget;
use crate::error::Error;
use crate::follow::{Answers, EXPECTED_MAX, Expected, Place, Requests};
use crate::inbound::Inbound;
use crate::message::{Report, message, tag};
use crate::negotiate::Agreed;
use crate::outbound::Outbound;
use crate::policy::Policy;
use crate::setting::{Change, SETTING_NAME, STATEMENT_SIZE_MAX};
use crate::stats::{Clock, LinkStats};
use crate::watch::{Event, Said, Saying, Sender};

/// What a NOTICE says of statements that are not followed.
const OTHER_FORM: &str = "The statement uses the setting in a way that the gateway does not support.";
const FOLLOWED_FORMS: &str =
    "Use SET pgshrink.compression = '...', or SHOW pgshrink.compression as a separate statement.";

/// How long rows may wait for the rest of an incomplete one, in milliseconds.
pub const HOLD_MS_MAX: u64 = 1;

/// Which end of the wire this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Beside the server.
    Gateway,
    /// Beside the client.
    Connector,
}

/// What the caller knows of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// There may be more to read right now.
    No,
    /// Reading would block.
    Idle,
    /// The hold time has passed.
    Force,
    /// The source has ended: nothing is kept, whole or not.
    End,
}

/// Why `pump` stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Everything that can go is in the output.
    Nothing,
    /// Rows wait for the rest of the last one: pump again with [`Flush::Force`] within [`HOLD_MS_MAX`] unless more comes.
    PartOfMessage,
    /// Write the output, then pump again.
    OutputFull,
}

/// What one call of `pump` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pumped {
    /// Why it stopped.
    pub held: Held,
    /// Compressed frames it put into the output.
    pub frames: u64,
}

/// Caps on what a session holds and on what a peer may send, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Plain bytes kept before `plain_room` is 0; where a frame is larger, a frame and the start of what follows it.
    pub pending_max: usize,
    /// Output size at which `pump` and `handle_wire` stop; one frame or message part may pass it.
    pub out_max: usize,
    /// Payload of a frame a peer may send.
    pub frame_wire_max: usize,
    /// Raw bytes a peer's frame may expand to.
    pub frame_raw_max: usize,
    /// Largest zstd window a peer may declare, as a power of two.
    pub window_log_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pending_max: 256 << 10,
            out_max: 256 << 10,
            frame_wire_max: 2 << 20,
            frame_raw_max: 16 << 20,
            window_log_max: 23,
        }
    }
}

/// Shared by all sessions of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkConfig {
    /// How this end sends.
    pub policy: Policy,
    /// What it holds and accepts.
    pub limits: Limits,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Link {
    role: Role,
    agreed: Agreed,
    outbound: Outbound,
    inbound: Inbound,
    /// The setting in the startup packet, which RESET goes back to.
    begun_with: Option<String>,
    /// A change was left out, and none behind it has been made.
    left_out: bool,
    /// A notice of the connector's own, for the next message boundary towards the client.
    owed: Option<Vec<u8>>,
}

impl Link {
    /// A link for a session whose ends have agreed.
    pub fn new(role: Role, agreed: Agreed, config: Arc<LinkConfig>, budget: MemoryBudget) -> Self {
        let (sends, receives) = match role {
            Role::Gateway => (Sender::Server, Sender::Client),
            Role::Connector => (Sender::Client, Sender::Server),
        };
        Self {
            role,
            outbound: Outbound::new(sends, agreed.clone(), config.clone(), &budget),
            inbound: Inbound::new(receives, agreed.clone(), config, &budget),
            agreed,
            begun_with: None,
            left_out: false,
            owed: None,
        }
    }

    /// Times the codec by `clock`, for the counters; without one nothing is timed.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.outbound.clock = Some(clock);
        self.inbound.clock = Some(clock);
        self
    }

    /// Where plain bytes are appended; see [`Link::plain_room`].
    pub fn plain_buffer(&mut self) -> &mut Vec<u8> {
        self.outbound.buffer()
    }

    /// How many plain bytes may be appended now.
    pub fn plain_room(&self) -> usize {
        self.outbound.room()
    }

    /// True while decoded bytes wait for room: call `handle_wire` again when the output is written.
    pub fn wants_output_room(&self) -> bool {
        self.inbound.wants_output_room()
    }

    /// True when a message of this end's own may be put on the wire side now.
    pub fn wire_at_message_boundary(&self) -> bool {
        self.outbound.at_boundary()
    }

    /// True when the peer has ended its last message and frame: a close here cuts nothing.
    pub fn peer_at_message_boundary(&self) -> bool {
        self.inbound.at_boundary()
    }

    /// What was agreed.
    pub fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// What this end sends with now; `None` when it sends plain.
    pub fn sending(&self) -> Option<Choice> {
        self.outbound.choice()
    }

    /// The same as text; `off` when it sends plain.
    pub fn compression(&self) -> String {
        self.outbound.choice().map_or_else(|| "off".to_string(), |c: Choice| c.to_string())
    }

    /// True while this end has given up compressing and only probes.
    pub fn is_given_up(&self) -> bool {
        self.outbound.is_given_up()
    }

    /// Counters so far.
    pub fn stats(&self) -> LinkStats {
        LinkStats { outbound: self.outbound.stats, inbound: self.inbound.stats }
    }

    /// Heap held for codecs and buffers, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.outbound.memory_bytes() + self.inbound.memory_bytes()
    }

    /// Wire bytes came. Returns how many were taken; plain bytes are appended to `out`. Any error is final.
    pub fn handle_wire(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        let before = out.len();
        let used = self.inbound.handle_wire(input, out)?;
        // Taken out and put back empty: most turns bring one, and none should cost an allocation.
        let mut events = std::mem::take(&mut self.inbound.events);
        for event in events.drain(..) {
            match event {
                Event::Said(said) => {
                    // Counted from the end, so that an answer put in place before does not matter.
                    let end = out.len() - (self.inbound.given() - said.end) as usize;
                    let begin = end.checked_sub(said.size).filter(|begin| *begin >= before);
                    self.handle_said(&said, begin.map(|begin| begin..end), out);
                }
                Event::Ready { idle, next, made, is_settled } => {
                    self.outbound.set_copy_both(false);
                    if idle {
                        self.outbound.end_transaction();
                    }
                    self.handle_ready(next, made, is_settled);
                }
                Event::CopyBoth => self.outbound.set_copy_both(true),
                event => self.handle_change(event),
            }
        }
        self.inbound.events = events;
        if self.owed.is_some() && self.inbound.is_between_messages() {
            out.extend(self.owed.take().unwrap_or_default());
        }
        Ok(used)
    }

    /// Appends to `out` what is to go over the wire.
    pub fn pump(&mut self, flush: Flush, out: &mut Vec<u8>) -> Result<Pumped, Error> {
        let before = self.outbound.stats.frames;
        let held = loop {
            let held = self.outbound.pump(flush, out)?;
            let mut events = std::mem::take(&mut self.outbound.events);
            for event in events.drain(..) {
                match event {
                    Event::Ready { next, made, is_settled, .. } => self.handle_ready(next, made, is_settled),
                    event => self.handle_change(event),
                }
            }
            self.outbound.events = events;
            if let Some(held) = held {
                break held;
            }
        };
        Ok(Pumped { held, frames: self.outbound.stats.frames - before })
    }

    /// Changes what this end sends with: `off`, `on`, or a list of which the first agreed item is taken.
    /// Returns what is in force now.
    pub fn set_compression(&mut self, text: &str) -> Result<String, Error> {
        let choice = self.agreed.choose(text)?;
        self.outbound.set_choice(choice);
        Ok(self.compression())
    }

    /// The session is quiet: give back buffers, the encoder, and the decoder's window where the peer has closed it.
    ///
    /// What is appended to `out` goes over the wire: it tells a peer of our own kind that this end's window is not
    /// needed any more.
    pub fn release_idle(&mut self, out: &mut Vec<u8>) {
        self.outbound.release_idle(out);
        self.inbound.release_idle();
    }

    /// `pgshrink.compression` stood in the startup packet.
    pub fn begin_with(&mut self, text: &str) {
        if self.set_by_client(text) {
            self.begun_with = Some(text.to_owned());
        }
    }

    /// What the client's direction knows.
    fn requests(&mut self) -> &mut Requests {
        match self.role {
            Role::Gateway => &mut self.inbound.walker.watch.requests,
            Role::Connector => &mut self.outbound.watch.requests,
        }
    }

    /// What the server's direction knows.
    fn answers(&mut self) -> &mut Answers {
        match self.role {
            Role::Gateway => &mut self.outbound.watch.answers,
            Role::Connector => &mut self.inbound.walker.watch.answers,
        }
    }

    /// What leads to a change, from either direction.
    fn handle_change(&mut self, event: Event) {
        match event {
            Event::Expected(expected) => self.left_out |= self.answers().expect(expected),
            Event::Confirmed { expected: Expected { place, change, has_other }, discards } => {
                if discards {
                    self.requests().discard(place);
                }
                let is_made = match &change {
                    Change::Default => self.reset(),
                    Change::Value(text) => self.set_by_client(text),
                };
                self.left_out &= !is_made;
                if has_other {
                    self.notice(OTHER_FORM, Some(FOLLOWED_FORMS));
                }
            }
            Event::CopyIn { own } => self.requests().begin_copy(own),
            Event::Said(_) | Event::Ready { .. } | Event::CopyBoth => {}
        }
    }

    /// The client said something about the setting; `at` is its message in `out`, unless it began in an earlier call.
    fn handle_said(&mut self, said: &Said, at: Option<Range<usize>>, out: &mut Vec<u8>) {
        match (said.what, at, self.role) {
            (Saying::Show, Some(at), Role::Gateway) if !said.is_named => {
                let sql = format!("SELECT '{}'::text AS \"{SETTING_NAME}\"\0", self.compression_at_show());
                let body = match said.tag {
                    // An unnamed statement, without parameters.
                    tag::PARSE => [b"\0", sql.as_bytes(), &[0, 0]].concat(),
                    _ => sql.into_bytes(),
                };
                drop(out.splice(at, message(said.tag, &body)));
            }
            (Saying::Show | Saying::Other, ..) => self.notice(OTHER_FORM, Some(FOLLOWED_FORMS)),
            (Saying::TooLong, ..) => {
                let kib = STATEMENT_SIZE_MAX >> 10;
                let detail = format!(
                    "The query text contains the setting and is longer than {kib} KiB; the gateway does not parse it."
                );
                self.notice(&detail, Some(FOLLOWED_FORMS));
            }
        }
    }

    /// What will be in force when the server gets to a SHOW that is sent now: statements before it may still wait for their answers.
    /// A failure of one of them would be that of the SHOW as well, unless they are in different series.
    fn compression_at_show(&mut self) -> String {
        let waiting: Vec<Change> = self.answers().expected().cloned().collect();
        let chosen = |change: &Change| match change {
            Change::Default => self.agreed.choose(self.default_text()),
            Change::Value(text) => self.agreed.choose(text),
        };
        let last = waiting.iter().filter_map(|change| chosen(change).ok()).next_back();
        last.unwrap_or(self.sending()).map_or_else(|| "off".to_owned(), |choice| choice.to_string())
    }

    /// What RESET goes back to.
    fn default_text(&self) -> &str {
        self.begun_with.as_deref().unwrap_or("on")
    }

    /// RESET and what comes to the same. It was said before what this can give, so nothing is said. True: it is made.
    fn reset(&mut self) -> bool {
        let text = self.default_text().to_owned();
        // Neither of them is refused.
        self.set_compression(&text).is_ok()
    }

    /// Makes a change and tells the client where it did not do what it says; false when it did nothing.
    fn set_by_client(&mut self, text: &str) -> bool {
        let asked = self.agreed.asked(text);
        match (self.set_compression(text), asked) {
            // The server takes any text for a placeholder setting, so the gateway is the one that answers the user.
            (Err(error), _) => {
                self.report(&Report {
                    severity: "WARNING",
                    sqlstate: error.sqlstate(),
                    message: &error.to_string(),
                    detail: Some(&format!("The session continues with {}.", self.compression())),
                    hint: Some("Use off, on, or a list such as zstd:3,lz4."),
                });
                false
            }
            (Ok(_), Ok(Some(asked))) if self.sending() != Some(asked) => {
                let detail = format!("{asked} was requested; the gateway allows no higher level.");
                self.notice(&detail, None);
                true
            }
            _ => true,
        }
    }

    /// Tells the client what is in force.
    fn notice(&mut self, detail: &str, hint: Option<&str>) {
        self.report(&Report {
            severity: "NOTICE",
            sqlstate: "00000",
            message: &format!("{SETTING_NAME} is {} in this session", self.compression()),
            detail: Some(detail),
            hint,
        });
    }

    /// The server is ready for the next cycle.
    fn handle_ready(&mut self, next: Place, made: u32, is_settled: bool) {
        self.requests().handle_ready(next, made);
        if self.left_out && is_settled {
            self.left_out = false;
            self.tell_left_out();
        }
    }

    /// Each end says for itself that it may have missed a change: the other one may have seen it.
    fn tell_left_out(&mut self) {
        let end = match self.role {
            Role::Gateway => "gateway",
            Role::Connector => "connector",
        };
        let report = Report {
            severity: "NOTICE",
            sqlstate: "00000",
            message: &format!("the {end} sends with {SETTING_NAME} = {} in this session", self.compression()),
            detail: Some(&format!(
                "More than {EXPECTED_MAX} changes were waiting for their answers, and the last \
                 {EXPECTED_MAX} of them had no effect; it is unknown whether an earlier one took effect."
            )),
            hint: Some("Set it again."),
        };
        match self.role {
            Role::Gateway => self.outbound.inject(report.notice_response()),
            Role::Connector => self.owed = Some(report.notice_response()),
        }
    }

    /// The gateway answers for both ends.
    fn report(&mut self, report: &Report<'_>) {
        if self.role == Role::Gateway {
            self.outbound.inject(report.notice_response());
        }
    }
}
