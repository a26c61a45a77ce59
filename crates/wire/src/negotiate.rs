//! Who compresses with what: startup keys, answers and the level rules of the two dialects.
//!
//! | | [`Dialect::Ack`] | [`Dialect::Restart`] |
//! |---|---|---|
//! | startup key | `_pq_.compression` | `_pq_.libpq_compression` |
//! | value | `zstd:1,lz4:2,zlib` (text behind `;` is reserved) | `zstd:level=3;lz4:level=0` |
//! | answer | `z`, the agreed list, before authentication | ParameterStatus after AuthenticationOk |
//! | sends with | the agreed list, client's order, cheaper level of the two | its own list, first that the peer reads |
//!
//! Layouts: `formats/wire.md`. The list grammar of the first dialect is [`AlgorithmList`]'s; the second dialect's
//! is read and printed here and nowhere else.

use pgshrink_codec::{Algorithm, AlgorithmList, Choice};

use crate::error::Error;
use crate::message::{self, tag};
use crate::policy::{WINDOW_LOG_AUTO_MAX, WINDOW_LOG_DEFAULT};
use crate::startup::StartupPacket;

/// What travels compressed on the wire, best first.
pub const WIRE_ALGORITHMS: &[Algorithm] = &[Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib];
/// Longest offer looked at, in bytes.
pub const OFFER_SIZE_MAX: usize = 1024;

/// The item of an ack offer, and of its answer, that says: rows in frames are packed (`formats/wire.md`). Other implementations skip
/// it as an algorithm they do not know.
pub const PACKED_ROWS: &str = "rows";

/// The item of an ack offer, and of its answer, that says how large a zstd window its sender invites the other end to use, as a power
/// of two: `window:22`.
pub const WINDOW: &str = "window";
/// What a part 3 client takes: its decoders are made for this much.
const RESTART_CLIENT_WINDOW_LOG: u32 = 23;

/// How the peer asks for compression and frames it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// CompressionAck, SetCompressionMethod, CompressedData ("part 2", December 2021).
    Ack,
    /// One frame type with a restart byte ("part 3", December 2023).
    Restart,
}

impl Dialect {
    /// The startup parameter that asks for it.
    pub const fn key(self) -> &'static str {
        match self {
            Dialect::Ack => "_pq_.compression",
            Dialect::Restart => "_pq_.libpq_compression",
        }
    }

    /// The name in options, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Ack => "ack",
            Dialect::Restart => "restart",
        }
    }

    /// By [`Dialect::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        [Dialect::Ack, Dialect::Restart].into_iter().find(|d| d.name() == name)
    }
}

/// The ParameterStatus that answers [`Dialect::Restart`].
pub const RESTART_STATUS_NAME: &str = "libpq_compression";

/// What a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// By its key.
    pub dialect: Dialect,
    /// The value as sent.
    pub text: String,
}

/// What a server answers.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `None`: the session stays plain.
    pub agreed: Option<Agreed>,
    /// [`Dialect::Ack`]: a CompressionAck to send at once, before authentication.
    pub ack: Option<Vec<u8>>,
    /// [`Dialect::Restart`]: a ParameterStatus to send behind AuthenticationOk.
    pub status: Option<Vec<u8>>,
    /// Items of the offer that mean nothing here.
    pub unknown: Vec<String>,
}

impl Offer {
    /// An offer to put into a startup packet.
    ///
    /// An ack offer also says that this end understands packed rows ([`PACKED_ROWS`]).
    pub fn new(dialect: Dialect, list: &AlgorithmList) -> Self {
        let text = match dialect {
            Dialect::Ack => format!("{list},{PACKED_ROWS}"),
            Dialect::Restart => print_restart(list),
        };
        Self { dialect, text }
    }

    /// The same offer, without packed rows if an end does not want them.
    #[must_use]
    pub fn allow_packed_rows(self, allowed: bool) -> Self {
        match self.dialect {
            Dialect::Ack if !allowed => Self { text: take_packed_rows(&self.text).0, ..self },
            _ => self,
        }
    }

    /// The same offer, with the zstd window that this end invites its peer to use.
    #[must_use]
    pub fn invite_window(self, window_log: u32) -> Self {
        match self.dialect {
            Dialect::Ack => Self { text: format!("{},{WINDOW}:{window_log}", self.text), ..self },
            Dialect::Restart => self,
        }
    }

    /// Takes our keys out of a startup packet; the first one present is the offer.
    pub fn take(packet: &mut StartupPacket) -> Option<Self> {
        let mut found = None;
        for dialect in [Dialect::Ack, Dialect::Restart] {
            if let Some(value) = packet.remove(dialect.key()) {
                let text = String::from_utf8_lossy(&value[..value.len().min(OFFER_SIZE_MAX)]).into_owned();
                found.get_or_insert(Self { dialect, text });
            }
        }
        found
    }

    /// Adds the offer to a startup packet.
    pub fn put(&self, packet: &mut StartupPacket) {
        packet.set(self.dialect.key(), self.text.as_bytes());
    }

    /// What a server that allows `allowed` makes of it. Unknown names and impossible levels are skipped, never
    /// an error: a newer client must be able to ask an older server.
    ///
    /// `window_log` is the zstd window that this server invites its client to use.
    pub fn answer(&self, allowed: &AlgorithmList, window_log: u32) -> Answer {
        match self.dialect {
            Dialect::Ack => self.answer_ack(allowed, window_log),
            Dialect::Restart => self.answer_restart(allowed),
        }
    }

    fn answer_ack(&self, allowed: &AlgorithmList, window_log: u32) -> Answer {
        let text = self.text.split(';').next().unwrap_or_default();
        let (text, packs_rows) = take_packed_rows(text);
        let (text, invited) = take_window(&text);
        let (asked, unknown) = AlgorithmList::parse_lenient(&text, WIRE_ALGORITHMS);
        let agreed: Vec<Choice> = asked
            .iter()
            .filter_map(|mine| {
                let theirs = find(allowed, mine.algorithm)?;
                Some(Choice { level: mine.algorithm.cheaper(mine.level, theirs.level), ..*mine })
            })
            .collect();
        // No known algorithm at all: a peer of another proposal may have asked, so say nothing.
        let ack = (!asked.is_empty()).then(|| {
            let mut body = join(&agreed).into_bytes();
            if packs_rows && !agreed.is_empty() {
                body.push(b',');
                body.extend_from_slice(PACKED_ROWS.as_bytes());
            }
            if invited.is_some() && !agreed.is_empty() {
                body.extend_from_slice(format!(",{WINDOW}:{window_log}").as_bytes());
            }
            body.push(0);
            message::message(tag::COMPRESSION_ACK, &body)
        });
        let agreed = Agreed::new(Dialect::Ack, agreed.clone(), agreed).map(|agreed| Agreed {
            packs_rows,
            send_window_log_max: invited,
            ..agreed.with_ceiling(allowed)
        });
        Answer { agreed, ack, status: None, unknown }
    }

    fn answer_restart(&self, allowed: &AlgorithmList) -> Answer {
        let parsed = parse_restart(&self.text);
        let send = usable(allowed, &parsed.decompress);
        let receive = usable(allowed, &parsed.compress);
        let any = !send.is_empty() || !receive.is_empty();
        let status = any.then(|| message::parameter_status(RESTART_STATUS_NAME, &print_restart(allowed)));
        let agreed = Agreed::new(Dialect::Restart, send, receive).map(|agreed| Agreed {
            send_window_log_max: Some(RESTART_CLIENT_WINDOW_LOG),
            ..agreed.with_ceiling(allowed)
        });
        Answer { agreed, ack: None, status, unknown: parsed.unknown }
    }
}

/// What both ends may use on a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    dialect: Dialect,
    /// What this end may send, best first. Under [`Dialect::Ack`] its positions are the wire's indexes.
    send: Vec<Choice>,
    receive: Vec<Choice>,
    /// A server's list: no setting may ask for more. Empty at a client, whose own processor it is.
    ceiling: Vec<Choice>,
    /// Rows in frames are packed, in both directions.
    packs_rows: bool,
    /// The zstd window that the peer invites to, as a power of two. A peer that says nothing may have a decoder for no more
    /// than the default, or no memory for more.
    send_window_log_max: Option<u32>,
}

impl Agreed {
    fn new(dialect: Dialect, send: Vec<Choice>, receive: Vec<Choice>) -> Option<Self> {
        (!send.is_empty() || !receive.is_empty()).then_some(Self {
            dialect,
            send,
            receive,
            ceiling: Vec::new(),
            packs_rows: false,
            send_window_log_max: None,
        })
    }

    fn with_ceiling(mut self, allowed: &AlgorithmList) -> Self {
        self.ceiling = allowed.iter().copied().collect();
        self
    }

    /// The client's end of [`Dialect::Ack`] from the body of the server's CompressionAck. `None`: plain.
    pub fn from_ack(offered: &AlgorithmList, body: &[u8]) -> Result<Option<Self>, Error> {
        let text = body.strip_suffix(b"\0").and_then(|b| std::str::from_utf8(b).ok());
        let Some(text) = text else {
            return Err(Error::protocol("CompressionAck", "a list of algorithms", "something else"));
        };
        if text.is_empty() {
            return Ok(None);
        }
        let (text, packs_rows) = take_packed_rows(text);
        let (text, send_window_log_max) = take_window(&text);
        let list = AlgorithmList::parse(&text, WIRE_ALGORITHMS).map_err(|e| {
            Error::protocol("CompressionAck", "algorithms this client offered", e.to_string())
        })?;
        if let Some(stray) = list.iter().find(|c| find(offered, c.algorithm).is_none()) {
            return Err(Error::protocol(
                "CompressionAck",
                format!("a part of '{offered}'"),
                format!("'{}'", stray.algorithm.name()),
            ));
        }
        let agreed: Vec<Choice> = list.iter().copied().collect();
        let agreed = Self::new(Dialect::Ack, agreed.clone(), agreed);
        Ok(agreed.map(|agreed| Agreed { packs_rows, send_window_log_max, ..agreed }))
    }

    /// The client's end of [`Dialect::Restart`] from the server's ParameterStatus. `None`: plain.
    pub fn from_status(offered: &AlgorithmList, value: &str) -> Option<Self> {
        let theirs = parse_restart(value);
        let send = usable(offered, &theirs.decompress);
        let receive = usable(offered, &theirs.compress);
        Self::new(Dialect::Restart, send, receive)
    }

    /// How frames look.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// True when rows in frames are packed.
    pub fn packs_rows(&self) -> bool {
        self.packs_rows
    }

    /// True when the peer takes a frame that gives no output and only says that its sender forgets what it sent, so that the peer can
    /// drop it. In the restart dialect every reader does: part 3's reads on until something comes. In the ack dialect only a pgshrink
    /// is known to, and to say nothing else by such a frame itself.
    pub(crate) fn takes_frame_ends(&self) -> bool {
        self.dialect == Dialect::Restart || self.packs_rows || self.send_window_log_max.is_some()
    }

    /// The largest zstd window that this end should choose by itself, as a power of two.
    pub fn send_window_log_max(&self) -> u32 {
        self.send_window_log_max.unwrap_or(WINDOW_LOG_DEFAULT)
    }

    /// What this end may send, best first.
    pub fn send(&self) -> &[Choice] {
        &self.send
    }

    /// The algorithm a frame names: an index into the acknowledged list, or a code of the restart dialect.
    pub(crate) fn algorithm_of_code(&self, code: u8) -> Option<Algorithm> {
        match self.dialect {
            Dialect::Ack => self.receive.get(usize::from(code)).map(|c| c.algorithm),
            Dialect::Restart => {
                let algorithm = *RESTART_CODES.iter().find(|(_, c)| *c == code).map(|(a, _)| a)?;
                self.receive.iter().any(|c| c.algorithm == algorithm).then_some(algorithm)
            }
        }
    }

    /// The algorithm that a code of this end's own frames names.
    pub(crate) fn send_algorithm_of_code(&self, code: u8) -> Option<Algorithm> {
        let mut algorithms = self.send.iter().map(|choice| choice.algorithm);
        algorithms.find(|algorithm| self.code_of_algorithm(*algorithm) == Some(code))
    }

    /// The other way round, for what this end sends.
    pub(crate) fn code_of_algorithm(&self, algorithm: Algorithm) -> Option<u8> {
        match self.dialect {
            Dialect::Ack => {
                let index = self.send.iter().position(|c| c.algorithm == algorithm)?;
                u8::try_from(index).ok()
            }
            Dialect::Restart => RESTART_CODES.iter().find(|(a, _)| *a == algorithm).map(|(_, c)| *c),
        }
    }

    /// How many methods a peer may name.
    pub(crate) fn receive_text(&self) -> String {
        join(&self.receive)
    }

    /// The choice a setting comes to: what it asks for, with no higher level than the server allows.
    pub fn choose(&self, text: &str) -> Result<Option<Choice>, Error> {
        let held = |asked: Choice| {
            let ceiling = self.ceiling.iter().find(|c| c.algorithm == asked.algorithm);
            let level = ceiling.map_or(asked.level, |c| asked.algorithm.cheaper(asked.level, c.level));
            Choice { level, ..asked }
        };
        Ok(self.asked(text)?.map(held))
    }

    /// What a setting asks for: its first item that was agreed, `None` for `off`.
    pub(crate) fn asked(&self, text: &str) -> Result<Option<Choice>, Error> {
        let text = text.trim();
        if ["off", "none", "plain"].iter().any(|off| text.eq_ignore_ascii_case(off)) {
            return Ok(None);
        }
        let setting = |reason: String| Error::Setting { given: text.to_string(), reason };
        if text.is_empty() || ["on", "default"].iter().any(|on| text.eq_ignore_ascii_case(on)) {
            return Ok(self.send.first().copied());
        }
        let list = AlgorithmList::parse(text, WIRE_ALGORITHMS).map_err(|e| setting(e.to_string()))?;
        let item = list.iter().find(|item| self.send.iter().any(|c| c.algorithm == item.algorithm));
        let Some(item) = item else {
            return Err(setting(format!(
                "none of it was agreed for this session; agreed: {}",
                join(&self.send)
            )));
        };
        Ok(Some(*item))
    }

    /// For logs: what each end may send.
    pub fn describe(&self) -> String {
        if self.send == self.receive {
            join(&self.send)
        } else {
            format!("send {} receive {}", join(&self.send), join(&self.receive))
        }
    }
}

/// Bytes of the restart dialect; 0 continues the running stream.
const RESTART_CODES: &[(Algorithm, u8)] = &[(Algorithm::Zlib, 1), (Algorithm::Lz4, 2), (Algorithm::Zstd, 3)];
/// The restart dialect's name for the zlib format.
const RESTART_ZLIB_NAME: &str = "gzip";

#[derive(Debug, Default)]
struct RestartList {
    compress: Vec<Algorithm>,
    decompress: Vec<Algorithm>,
    unknown: Vec<String>,
}

fn parse_restart(text: &str) -> RestartList {
    let mut list = RestartList::default();
    for item in text.split(';').map(str::trim).filter(|i| !i.is_empty()) {
        let (name, options) = item.split_once(':').unwrap_or((item, ""));
        let known = if name.eq_ignore_ascii_case(RESTART_ZLIB_NAME) {
            Some(Algorithm::Zlib)
        } else {
            Algorithm::from_name(name).filter(|a| WIRE_ALGORITHMS.contains(a))
        };
        let Some(algorithm) = known else {
            list.unknown.push(item.to_string());
            continue;
        };
        let (mut compress, mut decompress) = (true, true);
        for option in options.split(',').map(str::trim) {
            match option.split_once('=').map_or((option, "on"), |(k, v)| (k.trim(), v.trim())) {
                ("compress", value) => compress = is_on(value),
                ("decompress", value) => decompress = is_on(value),
                // The level is the peer's own business: each end sends with its own.
                _ => {}
            }
        }
        if compress && !list.compress.contains(&algorithm) {
            list.compress.push(algorithm);
        }
        if decompress && !list.decompress.contains(&algorithm) {
            list.decompress.push(algorithm);
        }
    }
    list
}

fn is_on(value: &str) -> bool {
    !["off", "false", "no", "0"].iter().any(|off| value.eq_ignore_ascii_case(off))
}

fn print_restart(list: &AlgorithmList) -> String {
    let items: Vec<String> = list
        .iter()
        .map(|c| {
            let name = if c.algorithm == Algorithm::Zlib { RESTART_ZLIB_NAME } else { c.algorithm.name() };
            format!("{name}:level={}", c.level.0)
        })
        .collect();
    items.join(";")
}

fn find(list: &AlgorithmList, algorithm: Algorithm) -> Option<Choice> {
    list.iter().find(|c| c.algorithm == algorithm).copied()
}

/// The list without the item [`PACKED_ROWS`], and whether it was there.
fn take_packed_rows(text: &str) -> (String, bool) {
    let is_rows = |item: &&str| item.trim().eq_ignore_ascii_case(PACKED_ROWS);
    let others: Vec<&str> = text.split(',').filter(|item| !is_rows(item)).collect();
    (others.join(","), text.split(',').any(|item| is_rows(&item)))
}

/// The list without the item [`WINDOW`], and what it says if that is possible.
fn take_window(text: &str) -> (String, Option<u32>) {
    let mut window_log = None;
    let others = text.split(',').filter(|item| match item.trim().split_once(':') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case(WINDOW) => {
            let value = value.trim().parse().ok();
            window_log = value.filter(|log| (WINDOW_LOG_DEFAULT..=WINDOW_LOG_AUTO_MAX).contains(log));
            false
        }
        _ => true,
    });
    (others.collect::<Vec<_>>().join(","), window_log)
}

fn usable(own: &AlgorithmList, peer: &[Algorithm]) -> Vec<Choice> {
    own.iter().filter(|c| peer.contains(&c.algorithm)).copied().collect()
}

fn join(choices: &[Choice]) -> String {
    choices.iter().map(Choice::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> AlgorithmList {
        AlgorithmList::parse(text, WIRE_ALGORITHMS).unwrap()
    }

    fn ack(offer: &str, allowed: &str) -> (Option<String>, Option<Vec<u8>>) {
        let offer = Offer { dialect: Dialect::Ack, text: offer.into() };
        let answer = offer.answer(&list(allowed), 19);
        (answer.agreed.map(|a| a.describe()), answer.ack)
    }

    #[test]
    fn the_agreed_list_keeps_the_clients_order_and_the_cheaper_level() {
        let (agreed, reply) = ack("zlib:9,zstd:9,lz4:2", "zstd:1,lz4:5,zlib:3");
        assert_eq!(agreed.as_deref(), Some("zlib:3,zstd:1,lz4:5"));
        assert_eq!(reply.as_deref(), Some(&b"z\0\0\0\x18zlib:3,zstd:1,lz4:5\0"[..]));
    }

    #[test]
    fn nothing_in_common_gives_an_empty_ack_and_nothing_known_gives_none() {
        assert_eq!(ack("zlib", "zstd:1"), (None, Some(b"z\0\0\0\x05\0".to_vec())));
        assert_eq!(ack("brotli:3", "zstd:1"), (None, None));
        assert_eq!(ack("lz4;future", "lz4").0.as_deref(), Some("lz4:1"));
    }

    #[test]
    fn the_restart_dialect_lets_each_end_send_with_its_own_level() {
        let offer = Offer { dialect: Dialect::Restart, text: "zstd:level=9;lz4:compress=off".into() };
        let answer = offer.answer(&list("lz4:3,zstd:1"), 19);
        let agreed = answer.agreed.unwrap();
        assert_eq!(agreed.describe(), "send lz4:3,zstd:1 receive zstd:1");
        assert!(answer.status.unwrap().ends_with(b"libpq_compression\0lz4:level=3;zstd:level=1\0"));
        let client = Agreed::from_status(&list("zstd:9"), "gzip:level=-1;lz4:level=0;zstd:level=3").unwrap();
        assert_eq!(client.describe(), "zstd:9");
        assert_eq!(Agreed::from_status(&list("zlib"), "gzip:level=-1").unwrap().describe(), "zlib:6");
    }

    #[test]
    fn packed_rows_are_used_when_both_ends_say_so() {
        let offered = list("zstd:1,lz4");
        let answer = Offer::new(Dialect::Ack, &offered).answer(&offered, 19);
        assert!(answer.agreed.unwrap().packs_rows() && answer.unknown.is_empty());
        let ack = answer.ack.unwrap();
        assert!(ack.ends_with(b"zstd:1,lz4:1,rows\0"));
        let client = Agreed::from_ack(&offered, &ack[5..]).unwrap().unwrap();
        assert!(client.packs_rows());
        assert_eq!(client.describe(), "zstd:1,lz4:1");
        let without = Offer::new(Dialect::Ack, &offered).allow_packed_rows(false);
        assert_eq!(without.text, "zstd:1,lz4:1");
        let answer = without.answer(&offered, 19);
        assert!(!answer.agreed.unwrap().packs_rows() && answer.ack.unwrap().ends_with(b"zstd:1,lz4:1\0"));
        assert_eq!(ack_text("rows,zlib", "zstd"), b"\0", "nothing in common is nothing");
        assert!(!Offer::new(Dialect::Restart, &offered).answer(&offered, 19).agreed.unwrap().packs_rows());
    }

    #[test]
    fn each_end_says_how_large_a_window_it_invites_to() {
        let offered = list("zstd:1,lz4");
        let offer = Offer::new(Dialect::Ack, &offered).invite_window(23);
        assert_eq!(offer.text, "zstd:1,lz4:1,rows,window:23");
        let answer = offer.answer(&offered, 21);
        assert_eq!((answer.agreed.unwrap().send_window_log_max(), answer.unknown), (23, vec![]));
        let ack = answer.ack.unwrap();
        assert!(ack.ends_with(b"zstd:1,lz4:1,rows,window:21\0"));
        let client = Agreed::from_ack(&offered, &ack[5..]).unwrap().unwrap();
        assert_eq!((client.send_window_log_max(), client.packs_rows()), (21, true));
        // Who says nothing, or nonsense, is not asked for more than the default.
        for text in ["zstd:1", "zstd:1,window:40", "zstd:1,window:x"] {
            let answer = Offer { dialect: Dialect::Ack, text: text.into() }.answer(&offered, 23);
            assert_eq!(answer.agreed.unwrap().send_window_log_max(), 19, "{text}");
            assert!(!answer.ack.unwrap().ends_with(b",window:23\0"), "{text}");
        }
        let restart = Offer::new(Dialect::Restart, &offered).invite_window(23);
        assert_eq!(restart.answer(&offered, 23).agreed.unwrap().send_window_log_max(), 23);
        let client = Agreed::from_status(&offered, "zstd:level=1").unwrap();
        assert_eq!(client.send_window_log_max(), 19, "its server's memory is not known");
    }

    fn ack_text(offer: &str, allowed: &str) -> Vec<u8> {
        ack(offer, allowed).1.unwrap()[5..].to_vec()
    }

    #[test]
    fn an_ack_that_was_not_offered_is_an_error() {
        assert!(Agreed::from_ack(&list("zstd"), b"lz4:1\0").is_err());
        assert!(Agreed::from_ack(&list("zstd"), b"zstd:1").is_err());
        assert_eq!(Agreed::from_ack(&list("zstd"), b"\0"), Ok(None));
    }

    #[test]
    fn an_offer_travels_in_the_startup_packet() {
        let mut packet = StartupPacket { protocol: 3 << 16, parameters: vec![] };
        for (dialect, text) in [
            (Dialect::Ack, "zstd:1,lz4:2,zlib:6,rows"),
            (Dialect::Restart, "zstd:level=1;lz4:level=2;gzip:level=6"),
        ] {
            let offer = Offer::new(dialect, &list("zstd:1,lz4:2,zlib"));
            offer.put(&mut packet);
            assert_eq!(Offer::take(&mut packet), Some(Offer { dialect, text: text.into() }));
            assert!(packet.parameters.is_empty());
        }
    }

    #[test]
    fn a_setting_can_only_choose_among_what_was_agreed() {
        let offer = Offer { dialect: Dialect::Ack, text: "zstd:1,lz4:1".into() };
        let agreed = offer.answer(&list("zstd:3,lz4:1,zlib"), 19).agreed.unwrap();
        let ok = |text| agreed.choose(text).unwrap().map(|c| c.to_string());
        assert_eq!(ok("off"), None);
        assert_eq!(ok("on").as_deref(), Some("zstd:1"));
        assert_eq!(ok("zlib,lz4:4").as_deref(), Some("lz4:4"));
        assert_eq!(ok("zstd:19").as_deref(), Some("zstd:3"));
        assert!(agreed.choose("zlib").unwrap_err().to_string().contains("agreed: zstd:1,lz4:1"));
        assert!(agreed.choose("zst").is_err());
    }
}
