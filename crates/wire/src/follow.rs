//! Which answer of the server belongs to which SET of the client.
//!
//! A change of `pgshrink.compression` takes effect when the server has answered its statement with CommandComplete, and not
//! before: a statement that the server refuses, or never gets to, changes nothing. [`Requests`] reads the client's messages and says
//! at which [`Place`] of the answers the one to a change will stand; [`Answers`] reads the server's and says when it has come. Both
//! ends of the link do this for themselves, on the same messages.
//!
//! Places are counted as the protocol has them ("Message Flow"). Each Query, FunctionCall and Sync is answered by one ReadyForQuery,
//! as is the login. In front of it, each statement of a Query and each Execute is answered by one CommandComplete,
//! EmptyQueryResponse or PortalSuspended, in order, up to the first ErrorResponse: behind that nothing is answered
//! until ReadyForQuery. Notices, rows and COPY data in between do not count. During COPY FROM STDIN the server skips Sync,
//! so the count goes on from the server's when the client ends the COPY, or when the server begins one that the client
//! has ended without waiting.
//!
//! A statement that is prepared first changes nothing by its Parse: it is kept by name, Bind ties it to a portal, and each
//! Execute of the portal is a change of its own.
//!
//! The name counts at once, since a pipeline uses it before the answer comes, and what was kept under it comes back at ReadyForQuery if
//! the server did not answer with ParseComplete: it refuses a name that is in use, and skips what stands behind an error. Close
//! is treated in the same way.
//!
//! Invariants
//! * F1 A change whose place ReadyForQuery has passed is forgotten.
//! * F2 Only an answer `SET`, `RESET` or `DISCARD ALL` confirms a change. Where the counts go apart (a client that sends a Query
//!   behind an error of the extended protocol without the Sync in between), changes are lost, or made by a later SET. Around a COPY
//!   they may be apart for a while: when its end crosses an error of the server's on the way, or when it was sent blindly behind a
//!   Sync. They meet again at a ReadyForQuery behind which nothing is asked, or at CopyInResponse; changes sent in between are lost.
//! * F3 At most [`EXPECTED_MAX`] changes wait: of more, the newest. How many are there at a time depends on the link's latency, so the ends may
//!   leave out different ones; both are at the same setting in the end if one of the newest is made. Where none is, the end that left
//!   one out says so.
//! * F4 Not followed: DEALLOCATE of one statement or of all of them (a Parse of the same name then counts, but a name that is gone
//!   stays known until then); a portal whose Bind the server refused; of more than [`REPLACED_MAX`] replaced statements that
//!   are not settled, the oldest; a pipeline that binds a name behind the Sync of a Parse that fails.
//! * F5 At most [`PREPARED_MAX`] statements and portals are kept, each with a value of
//!   [`VALUE_SIZE_MAX`](crate::setting::VALUE_SIZE_MAX) bytes at most and a name of [`NAME_SIZE_MAX`]. What is beyond that is
//!   not followed, and the gateway says so.

use std::collections::VecDeque;

use crate::message::{Header, tag};
use crate::setting::{self, Change, Seen};
use crate::watch::{Event, Said, Saying};

/// Changes that wait for their answers.
pub(crate) const EXPECTED_MAX: usize = 16;
/// Prepared statements, and portals, that change the setting.
const PREPARED_MAX: usize = 8;
/// Longest name of a prepared statement or portal that is kept, in bytes: PostgreSQL cuts longer ones in SQL.
const NAME_SIZE_MAX: usize = 64;

/// Replaced statements that may have to come back.
const REPLACED_MAX: usize = 16;
/// Ends of COPY that wait for their begins.
const BLIND_ENDS_MAX: usize = 16;

/// Where an answer to a statement stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// ReadyForQuery messages before it.
    cycle: u64,
    /// Answers to statements since the last of them.
    statement: u32,
}

/// A change, and where its answer will stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) place: Place,
    pub(crate) change: Change,
    /// The same text names the setting in another way as well.
    pub(crate) has_other: bool,
}

#[derive(Debug)]
struct BlindEnd {
    /// Where the next statement's answer was to stand.
    place: Place,
    is_simple: bool,
}

/// What a Parse or Close replaced under a name, until the server has made it.
#[derive(Debug)]
struct Replaced {
    cycle: u64,
    /// How many of the cycle are in front of it.
    before: u32,
    name: Vec<u8>,
    change: Option<Change>,
}

#[derive(Debug)]
struct Prepared {
    name: Vec<u8>,
    change: Change,
    /// Where the next statement's answer was to stand.
    place: Place,
}

/// What the client has asked for.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Where the next statement's answer will stand.
    next: Place,
    /// The last request was a Query or FunctionCall.
    is_simple: bool,
    /// A COPY FROM STDIN is running, whose own answer will stand here.
    copy_in: Option<Place>,
    /// Ends of COPY FROM STDIN whose begin the server has not told yet, in order: sent blindly, or behind a COPY that failed.
    blind_ends: VecDeque<BlindEnd>,
    statements: Vec<Prepared>,
    portals: Vec<Prepared>,
    /// Parse and Close messages since the last Sync.
    prepares: u32,
    replaced: VecDeque<Replaced>,
}

impl Default for Requests {
    fn default() -> Self {
        // The login is answered first.
        let next = Place { cycle: 1, statement: 0 };
        let blind_ends = VecDeque::new();
        let (statements, portals, replaced) = (vec![], vec![], VecDeque::new());
        Self { next, is_simple: false, copy_in: None, blind_ends, statements, portals, prepares: 0, replaced }
    }
}

impl Requests {
    /// One message; `body` is `None` where it is too long to be read. `end` is its end in the stream.
    pub(crate) fn read(&mut self, header: Header, body: Option<&[u8]>, end: u64, events: &mut Vec<Event>) {
        let said = |(what, is_named)| {
            Event::Said(Said { what, tag: header.tag, is_named, size: header.total(), end })
        };
        match header.tag {
            tag::QUERY => {
                let saying = self.query(body, events);
                events.extend(saying.map(|what| said((what, false))));
            }
            tag::FUNCTION_CALL => self.end_cycle(true),
            tag::SYNC => self.end_cycle(self.is_simple),
            tag::PARSE => events.extend(self.parse(body).map(said)),
            tag::BIND => events.extend(self.bind(body).map(said)),
            tag::EXECUTE => events.extend(self.execute(body).map(Event::Expected)),
            tag::CLOSE => match body.and_then(|body| body.split_first()) {
                Some((b'S', name)) => drop(self.prepare(first_string(name), None)),
                Some((_, name)) => {
                    self.prepares = self.prepares.saturating_add(1);
                    keep(&mut self.portals, first_string(name), None, self.next);
                }
                None => self.prepares = self.prepares.saturating_add(1),
            },
            tag::COPY_DONE | tag::COPY_FAIL => self.end_copy(),
            _ => {}
        }
    }

    fn query(&mut self, text: Option<&[u8]>, events: &mut Vec<Event>) -> Option<Saying> {
        let first = self.next;
        self.end_cycle(true);
        let Seen { changes, is_show, has_other } = text.and_then(setting::read)?;
        let count = changes.len();
        for (at, (before, change)) in changes.into_iter().enumerate() {
            let place = Place { statement: first.statement.saturating_add(before), ..first };
            let has_other = has_other && at + 1 == count;
            events.push(Event::Expected(Expected { place, change, has_other }));
        }
        match (is_show, has_other) {
            (true, _) => Some(Saying::Show),
            (_, true) if count == 0 => Some(Saying::Other),
            _ => None,
        }
    }

    /// What the text says, and whether it has a name.
    fn parse(&mut self, body: Option<&[u8]>) -> Option<(Saying, bool)> {
        self.is_simple = false;
        // Of a text that is too long nothing is known; most statements are unnamed.
        let (name, text) = body.and_then(two_strings).unwrap_or_default();
        let seen = setting::read(text).unwrap_or_default();
        let change = seen.changes.into_iter().next().map(|(_, change)| change);
        let fits = self.prepare(name, change);
        match (seen.is_show, seen.has_other || !fits) {
            (true, _) => Some((Saying::Show, !name.is_empty())),
            (_, true) => Some((Saying::Other, !name.is_empty())),
            _ => None,
        }
    }

    /// A statement is made or closed, if the server does it; false when there is no room for a change.
    fn prepare(&mut self, name: &[u8], change: Option<Change>) -> bool {
        let before = self.prepares;
        self.prepares = before.saturating_add(1);
        let old = self.statements.iter().find(|kept| kept.name == name).map(|kept| kept.change.clone());
        if (old.is_some() || change.is_some()) && old != change && name.len() <= NAME_SIZE_MAX {
            if self.replaced.len() == REPLACED_MAX {
                self.replaced.pop_front();
            }
            let (cycle, name) = (self.next.cycle, name.to_vec());
            self.replaced.push_back(Replaced { cycle, before, name, change: old });
        }
        keep(&mut self.statements, name, change, self.next)
    }

    /// A cycle is over, in which the server has made so many of the Parse and Close messages: the others are undone, the last one first.
    fn settle(&mut self, cycle: u64, made: u32) {
        let over = self.replaced.partition_point(|replaced| replaced.cycle <= cycle);
        for replaced in self.replaced.drain(..over).rev() {
            if replaced.cycle == cycle && replaced.before >= made {
                keep(&mut self.statements, &replaced.name, replaced.change, self.next);
            }
        }
    }

    fn bind(&mut self, body: Option<&[u8]>) -> Option<(Saying, bool)> {
        self.is_simple = false;
        if self.statements.is_empty() && self.portals.is_empty() {
            return None;
        }
        let Some((portal, name)) = body.and_then(two_strings) else {
            self.portals.clear();
            return None;
        };
        let statement = self.statements.iter().find(|kept| kept.name == name);
        let change = statement.map(|kept| kept.change.clone());
        let fits = keep(&mut self.portals, portal, change, self.next);
        (!fits).then_some((Saying::Other, true))
    }

    fn execute(&mut self, body: Option<&[u8]>) -> Option<Expected> {
        self.is_simple = false;
        let place = self.next;
        self.next.statement = place.statement.saturating_add(1);
        if self.portals.is_empty() {
            return None;
        }
        let name = body.map(first_string)?;
        let portal = self.portals.iter().find(|kept| kept.name == name)?;
        Some(Expected { place, change: portal.change.clone(), has_other: false })
    }

    fn end_cycle(&mut self, is_simple: bool) {
        self.is_simple = is_simple;
        self.prepares = 0;
        self.next = Place { cycle: self.next.cycle + 1, statement: 0 };
    }

    fn end_copy(&mut self) {
        match self.copy_in.take() {
            Some(own) if self.is_simple => self.next = Place { cycle: own.cycle + 1, statement: 0 },
            Some(own) => self.next = Place { statement: own.statement.saturating_add(1), ..own },
            None => {
                if self.blind_ends.len() == BLIND_ENDS_MAX {
                    self.blind_ends.pop_front();
                }
                self.blind_ends.push_back(BlindEnd { place: self.next, is_simple: self.is_simple });
            }
        }
    }

    /// The server waits for the data of a COPY, whose answer will stand at `own`.
    pub(crate) fn begin_copy(&mut self, own: Place) {
        // An end that was sent before this COPY was asked for belongs to one that never began.
        while let Some(end) = self.blind_ends.pop_front() {
            if end.place > own {
                return self.skip_syncs(own, &end);
            }
        }
        self.copy_in = Some(own);
    }

    /// The client had ended this COPY before it knew that the server waits: the Syncs in front of the end are skipped.
    fn skip_syncs(&mut self, own: Place, end: &BlindEnd) {
        let skipped = (end.place.cycle - own.cycle).saturating_sub(u64::from(end.is_simple));
        let shift = |place: &mut Place| {
            if skipped > 0 && !end.is_simple && place.cycle == end.place.cycle {
                place.statement = place.statement.saturating_add(own.statement).saturating_add(1);
            }
            place.cycle = place.cycle.saturating_sub(skipped);
        };
        shift(&mut self.next);
        self.blind_ends.iter_mut().for_each(|end| shift(&mut end.place));
    }

    /// The server is ready, and its next answer will stand at `next`. It does not answer what was not asked: where it
    /// seems to, a Sync was counted as skipped that was not, since the COPY had failed.
    /// `made` counts its ParseComplete and CloseComplete messages since it was ready before.
    pub(crate) fn handle_ready(&mut self, next: Place, made: u32) {
        self.copy_in = None;
        self.settle(next.cycle.saturating_sub(1), made);
        self.next = self.next.max(next);
    }

    /// DISCARD ALL, whose answer stands at `place`, drops every statement that was prepared before it. The client
    /// may have sent others meanwhile.
    pub(crate) fn discard(&mut self, place: Place) {
        self.statements.retain(|prepared| prepared.place > place);
        self.portals.retain(|prepared| prepared.place > place);
        self.replaced.retain(|replaced| replaced.cycle >= place.cycle);
    }
}

/// Replaces what is kept under the name; false when there is no room for a change.
fn keep(kept: &mut Vec<Prepared>, name: &[u8], change: Option<Change>, place: Place) -> bool {
    kept.retain(|prepared| prepared.name != name);
    let Some(change) = change else { return true };
    let fits = kept.len() < PREPARED_MAX && name.len() <= NAME_SIZE_MAX;
    if fits {
        kept.push(Prepared { name: name.to_vec(), change, place });
    }
    fits
}

/// A string without its closing zero byte, and what follows that.
fn split_string(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(0, body)?;
    Some((&body[..end], &body[end + 1..]))
}

fn first_string(body: &[u8]) -> &[u8] {
    split_string(body).map_or(body, |(first, _)| first)
}

fn two_strings(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = split_string(body)?;
    Some((first, split_string(rest)?.0))
}

/// What the server has answered.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Where the next answer to a statement stands.
    next: Place,
    /// In order of their places.
    expected: VecDeque<Expected>,
    /// ParseComplete and CloseComplete messages since the last ReadyForQuery.
    made: u32,
}

impl Answers {
    /// Where too many wait, the oldest is left out, and this returns true: the newest that is made counts in the end.
    pub(crate) fn expect(&mut self, expected: Expected) -> bool {
        let is_full = self.expected.len() == EXPECTED_MAX;
        if is_full {
            self.expected.pop_front();
        }
        self.expected.push_back(expected);
        is_full
    }

    /// Changes that wait for their answers.
    pub(crate) fn expected(&self) -> impl Iterator<Item = &Change> {
        self.expected.iter().map(|expected| &expected.change)
    }

    /// One message.
    pub(crate) fn read(&mut self, header: Header, body: Option<&[u8]>, events: &mut Vec<Event>) {
        match header.tag {
            tag::COMMAND_COMPLETE | tag::EMPTY_QUERY_RESPONSE | tag::PORTAL_SUSPENDED => {
                let place = self.next;
                self.next.statement = place.statement.saturating_add(1);
                while self.expected.front().is_some_and(|first| first.place <= place) {
                    let Some(first) = self.expected.pop_front() else { return };
                    let command =
                        body.filter(|_| header.tag == tag::COMMAND_COMPLETE && first.place == place);
                    if let Some(b"SET\0" | b"RESET\0" | b"DISCARD ALL\0") = command {
                        let discards = command == Some(b"DISCARD ALL\0");
                        events.push(Event::Confirmed { expected: first, discards });
                    }
                }
            }
            tag::READY_FOR_QUERY => {
                self.next = Place { cycle: self.next.cycle + 1, statement: 0 };
                self.expected.retain(|expected| expected.place >= self.next);
                let made = std::mem::take(&mut self.made);
                let is_settled = self.expected.is_empty();
                events.push(Event::Ready { idle: body == Some(b"I"), next: self.next, made, is_settled });
            }
            tag::PARSE_COMPLETE | tag::CLOSE_COMPLETE => self.made = self.made.saturating_add(1),
            tag::COPY_IN_RESPONSE => events.push(Event::CopyIn { own: self.next }),
            tag::COPY_BOTH_RESPONSE => events.push(Event::CopyBoth),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{self, message};

    /// Both directions of one end, and what it has taken over.
    #[derive(Default)]
    struct Talk {
        requests: Requests,
        answers: Answers,
        taken: Vec<String>,
        said: Vec<Saying>,
    }

    impl Talk {
        /// Behind the login.
        fn begun() -> Self {
            let mut talk = Self::default();
            talk.server("Z");
            talk
        }

        fn handle(&mut self, events: Vec<Event>) {
            for event in events {
                match event {
                    Event::Expected(expected) => drop(self.answers.expect(expected)),
                    Event::Confirmed { expected, discards } => {
                        if discards {
                            self.requests.discard(expected.place);
                        }
                        self.taken.push(format!("{:?}", expected.change));
                    }
                    Event::Said(said) => self.said.push(said.what),
                    Event::CopyIn { own } => self.requests.begin_copy(own),
                    Event::Ready { next, made, .. } => self.requests.handle_ready(next, made),
                    Event::CopyBoth => {}
                }
            }
        }

        fn client(&mut self, tag: u8, body: &str) {
            let bytes = message(tag, body.as_bytes());
            let header = message::header(&bytes).unwrap().unwrap();
            let mut events = vec![];
            self.requests.read(header, Some(body.as_bytes()), 0, &mut events);
            self.handle(events);
        }

        /// `tag:body` each; zero bytes are written as `|`.
        fn clients(&mut self, words: &[&str]) {
            for word in words {
                let (tag, body) = word.split_at(1);
                self.client(tag.as_bytes()[0], &body.replace('|', "\0"));
            }
        }

        /// Tags; `C` is CommandComplete of SET, `c` of SELECT, `r` of RESET, `d` of DISCARD ALL, `Z` ReadyForQuery.
        fn server(&mut self, tags: &str) {
            for tag in tags.bytes() {
                let (tag, body): (u8, &[u8]) = match tag {
                    b'C' => (b'C', b"SET\0"),
                    b'c' => (b'C', b"SELECT 1\0"),
                    b'r' => (b'C', b"RESET\0"),
                    b'd' => (b'C', b"DISCARD ALL\0"),
                    b'Z' => (b'Z', b"I"),
                    other => (other, b""),
                };
                let header = message::header(&message(tag, body)).unwrap().unwrap();
                let mut events = vec![];
                self.answers.read(header, Some(body), &mut events);
                self.handle(events);
            }
        }

        /// What was taken over since the last call.
        fn taken(&mut self) -> String {
            let texts = std::mem::take(&mut self.taken);
            texts.join(" ").replace("Value(\"", "").replace("\")", "")
        }
    }

    const SET_A: &str = "QSET pgshrink.compression = 'a'|";

    #[test]
    fn a_change_counts_when_the_server_has_answered_its_statement() {
        let mut talk = Talk::begun();
        talk.clients(&[SET_A]);
        assert_eq!(talk.taken(), "");
        talk.server("SNC");
        assert_eq!(talk.taken(), "a");
        talk.server("Z");
        let several = "QSET x = 1; SET pgshrink.compression = 'a'; SELECT 1;; RESET pgshrink.compression|";
        talk.clients(&[several]);
        talk.server("C");
        assert_eq!(talk.taken(), "", "this is another setting's");
        talk.server("CTDDc");
        assert_eq!(talk.taken(), "a");
        talk.server("rZ");
        assert_eq!(talk.taken(), "Default");
    }

    #[test]
    fn a_change_that_the_server_refuses_or_never_reaches_is_forgotten() {
        let mut talk = Talk::begun();
        for (query, answers) in [
            (SET_A, "EZ"),
            ("QSELECT 1/0; SET pgshrink.compression = 'a'|", "TEZ"),
            ("QSET x = 1; SET pgshrink.compression = 'a'|", "CEZ"),
        ] {
            talk.clients(&[query]);
            talk.server(answers);
            assert_eq!(talk.answers.expected.len(), 0, "{query}");
            // The next one's answer must not be taken for it.
            talk.clients(&["QSET other = 1|"]);
            talk.server("CZ");
            assert_eq!(talk.taken(), "", "{query}");
        }
        // Queries sent without waiting.
        talk.clients(&["QSET x = 1|", SET_A, "QSET x = 1|", "QSET pgshrink.compression = 'b'|"]);
        talk.server("CZEZCZ");
        assert_eq!(talk.taken(), "");
        talk.server("CZ");
        assert_eq!(talk.taken(), "b");
    }

    #[test]
    fn a_prepared_change_counts_each_time_it_is_executed() {
        let mut talk = Talk::begun();
        talk.clients(&["Ps1|SET pgshrink.compression = 'a'||", "DSs1|", "S"]);
        talk.server("1tnZ");
        assert_eq!(talk.taken(), "", "it is only prepared");
        for _ in 0..2 {
            talk.clients(&["B|s1|", "E|", "S"]);
            talk.server("2CZ");
            assert_eq!(talk.taken(), "a");
        }
        talk.clients(&["B|s1|", "E|", "S"]);
        talk.server("2EZ");
        talk.clients(&["P|SET x = 1||", "B||", "E|", "S", "B|s1|", "E|", "S"]);
        talk.server("12CZ");
        assert_eq!(talk.taken(), "");
        talk.server("2CZ");
        assert_eq!(talk.taken(), "a");
        talk.clients(&["CSs1|", "Ps1|SET x = 2||", "Bp|s1|", "Ep|", "S"]);
        talk.server("312CZ");
        assert_eq!(talk.taken(), "");
        assert!(talk.said.is_empty());
    }

    #[test]
    fn a_name_stands_for_what_the_server_has_prepared_under_it() {
        let mut talk = Talk::begun();
        let run = |talk: &mut Talk| {
            talk.clients(&["B|s1|", "E|", "S"]);
            talk.server("2CZ");
            talk.taken()
        };
        let (a, b) = ("Ps1|SET pgshrink.compression = 'a'||", "Ps1|SET pgshrink.compression = 'b'||");
        let other = "Ps1|SET x = 1||";
        // One series each, its answers, and what the name stands for behind it.
        for (series, answers, made) in [
            (&[other, "S"][..], "1Z", ""),
            (&[a, "S"], "EZ", ""),
            (&["CSs1|", a, "S"], "31Z", "a"),
            (&[other, "S"], "EZ", "a"),
            (&["P|SELEC||", "CSs1|", "S"], "EZ", "a"),
            (&["P|SELEC||", "CSs1|", b, "S"], "EZ", "a"),
            (&["CPp|", "CSs1|", b, "CSs1|", "S"], "331EZ", "b"),
            (&["CSs1|", a, "CSs1|", b, "CSs1|", "S"], "313EZ", ""),
            (&[a, "S"], "1Z", "a"),
            (&["Q DEALLOCATE s1|", b, "S"], "cZ1Z", "b"),
        ] {
            talk.clients(series);
            talk.server(answers);
            assert_eq!(run(&mut talk), made, "{series:?}");
            assert!(talk.requests.replaced.is_empty());
        }
        talk.clients(&[a, "CSs1|"].repeat(REPLACED_MAX));
        assert_eq!(talk.requests.replaced.len(), REPLACED_MAX);
    }

    #[test]
    fn discard_all_drops_what_was_prepared_before_it() {
        let mut talk = Talk::begun();
        let run = ["B|s1|", "E|", "S"];
        let [a, b] = ["a", "b"].map(|value| format!("Ps1|SET pgshrink.compression = '{value}'||"));
        talk.clients(&[&a, "S"]);
        talk.server("1Z");
        // Prepared anew before the answer comes.
        talk.clients(&["QDISCARD ALL|", &b, "S"]);
        talk.server("dZ1Z");
        talk.clients(&run);
        talk.server("2CZ");
        assert_eq!(talk.taken(), "Default b");
        talk.clients(&["P|DISCARD ALL||", "B||", "E|", &a, "S"]);
        talk.server("12d1Z");
        talk.clients(&run);
        talk.server("2CZ");
        assert_eq!(talk.taken(), "Default a");
        talk.clients(&["QDISCARD ALL|"]);
        talk.server("dZ");
        assert!(talk.requests.statements.is_empty() && talk.requests.portals.is_empty());
    }

    #[test]
    fn in_a_pipeline_every_execute_has_its_own_answer() {
        let mut talk = Talk::begun();
        let set_x = ["P|SET x = 1||", "B||", "E|"];
        let set_a = ["P|SET pgshrink.compression = 'a'||", "B||", "E|"];
        let all = [&set_x[..], &["E|"], &set_a, &set_x, &["S"], &set_a, &["S"]].concat();
        talk.clients(&all);
        talk.server("12Cs12");
        assert_eq!(talk.taken(), "");
        talk.server("C");
        assert_eq!(talk.taken(), "a");
        // The one behind the error was skipped; that of the next series is answered.
        talk.server("12EZ12");
        assert_eq!(talk.taken(), "");
        talk.server("CZ");
        assert_eq!(talk.taken(), "a");
        talk.clients(&[&set_x[..], &set_a, &["S"], &set_x, &["S"]].concat());
        talk.server("12EZ12CZ");
        assert_eq!(talk.taken(), "", "an error in front of it");
    }

    #[test]
    fn copies_in_between_do_not_move_the_count() {
        let mut talk = Talk::begun();
        talk.clients(&["QCOPY t FROM STDIN; SET pgshrink.compression = 'a'|"]);
        talk.server("G");
        talk.clients(&["d", "d", "c"]);
        talk.server("cCZ");
        assert_eq!(talk.taken(), "a");
        // The first Sync is skipped by the server.
        let copy = ["P|COPY t FROM STDIN||", "B||", "E|", "S"];
        for answers in ["cZ", "EZ"] {
            talk.clients(&copy);
            talk.server("12G");
            talk.clients(&["d", "c", "S"]);
            talk.server(answers);
            talk.clients(&[SET_A]);
            talk.server("CZ");
            assert_eq!(talk.taken(), "a", "{answers}");
        }
        talk.clients(&copy[..3]);
        talk.server("12G");
        talk.clients(&["c", "P|SET pgshrink.compression = 'b'||", "B||", "E|", "S"]);
        talk.server("c12CZ");
        assert_eq!(talk.taken(), "b");
        talk.clients(&["QCOPY t FROM STDIN|"]);
        talk.server("GEZ");
        talk.clients(&["d", "c", SET_A]);
        talk.server("CZ");
        assert_eq!(talk.taken(), "a", "the server ended the COPY first");
    }

    #[test]
    fn the_counts_meet_again_behind_a_copy_that_was_sent_blindly_or_failed_on_the_way() {
        let copy = ["P|COPY t FROM STDIN||", "B||", "E|", "S"];
        // What the client sends and the server answers, in turns.
        let cases: [&[(&[&str], &str)]; 6] = [
            // Ended before the server's CopyInResponse came, with a Sync that it skips and without.
            &[(&copy, ""), (&["d", "c", "S"], "12GcZ")],
            &[(&copy[..3], ""), (&["d", "c", "S"], "12GcZ")],
            &[(&copy, ""), (&["d", "c"], "12G"), (&["S"], "cZ")],
            // The server fails before it reads the Sync.
            &[(&copy, "12G"), (&["d", "c", "S"], "EZZ")],
            // Many in one go; some of them fail.
            &[(&["QCOPY t FROM STDIN|", "d", "c"].repeat(6), "GcZEZGcZ"), (&[], "GcZGcZEZ")],
            &[(&["QCOPY t FROM STDIN|", "c", "QCOPY t FROM STDIN|"], "G"), (&["c"], "cZGcZ")],
        ];
        for case in cases {
            let mut talk = Talk::begun();
            for (client, server) in case {
                talk.clients(client);
                talk.server(server);
            }
            for _ in 0..2 {
                talk.clients(&[SET_A]);
                talk.server("CZ");
                assert_eq!(talk.taken(), "a", "{case:?}");
            }
            assert_eq!(talk.requests.next, talk.answers.next, "{case:?}");
        }
        let mut talk = Talk::begun();
        talk.clients(&["c"; 100]);
        assert_eq!(talk.requests.blind_ends.len(), BLIND_ENDS_MAX);
    }

    #[test]
    fn an_answer_that_is_no_set_confirms_nothing() {
        let mut talk = Talk::begun();
        // The server skips the Query behind the error, which makes the counts differ by one from here on.
        talk.clients(&["P|SELECT 1/0||", "B||", "E|", SET_A, "S"]);
        talk.server("1EZ");
        talk.clients(&[SET_A]);
        talk.server("CZ");
        talk.clients(&["QSELECT 1|"]);
        talk.server("cZ");
        assert_eq!(talk.taken(), "");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_client_is_told() {
        let mut talk = Talk::begun();
        for name in 0..PREPARED_MAX {
            talk.clients(&[&format!("Ps{name}|SET pgshrink.compression = 'a'||")]);
        }
        assert!(talk.said.is_empty());
        talk.clients(&["Pone more|SET pgshrink.compression = 'a'||"]);
        let long = format!("P{}|RESET ALL||", "x".repeat(NAME_SIZE_MAX + 1));
        talk.clients(&[&long]);
        assert_eq!(talk.said, [Saying::Other, Saying::Other]);
        talk.clients(&["S", "QDISCARD ALL|"]);
        talk.server("1Zd");
        assert_eq!((talk.taken().as_str(), talk.requests.statements.len()), ("Default", 0));
    }

    #[test]
    fn of_too_many_changes_the_newest_wait_and_the_last_one_made_counts() {
        // All are sent before an answer comes, as over a link with latency, or each is answered at once.
        for answers in ["C", "CE", "ECC", "CCE"] {
            let (mut late, mut soon) = (Talk::begun(), Talk::begun());
            for (at, answer) in (0..4 * EXPECTED_MAX).zip(answers.bytes().cycle()) {
                let set = format!("QSET pgshrink.compression = '{at}'|");
                late.clients(&[&set]);
                soon.clients(&[&set]);
                soon.server(&format!("{}Z", answer as char));
            }
            for answer in answers.bytes().cycle().take(4 * EXPECTED_MAX) {
                late.server(&format!("{}Z", answer as char));
            }
            let last = |talk: &mut Talk| talk.taken().rsplit(' ').next().map(str::to_owned);
            assert_eq!(last(&mut late), last(&mut soon), "{answers}");
        }
    }
}
