//! Moving bytes between a client and a server after the handshake.
//!
//! One [`Pump`] is one session: both directions in one task, without locks, queues or per-read allocation. Two flows of
//! [`flow`], each `copy`, `compress` or `expand`; this file owns what concerns both: the order of things, commands,
//! timers and the end.
//!
//! Invariants
//! * P1 Bytes are never kept while they could be written, except rows that wait for their last part for at most 1 ms.
//!   In the middle of a bulk transfer that is cut inside a message, the socket wakes this task only for
//!   [`gather::GATHER_SIZE`] bytes, or after the same time.
//! * P2 A flow reads only when everything it read before is written: what one session holds is bounded by one read
//!   (256 KiB) and the engine's own limits.
//! * P3 The end of one direction does not end the other: half-closed connections keep working.
//! * P4 What the server said last reaches the client, also when the server no longer takes input.

mod flow;
mod gather;
mod peers;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pgshrink_codec::Choice;
use pgshrink_egress::Direction;
use pgshrink_wire::link::HOLD_MS_MAX;
use pgshrink_wire::message::{message, tag};
use pgshrink_wire::{Conversation, Link, Role};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::error::{Refusal, sqlstate};
use crate::handshake::Ready;
use crate::handshake::leg::Leg;
use crate::observe::Meter;
use crate::registry::{Compression, Session, command};
use crate::scratch;
use crate::stream::Stream;
use flow::{Fault, Flow, Turn, Wait};
use peers::{PeerWatch, Seen};

/// How long a client may go on sending after its server has closed; the server reads nothing any more.
const SERVER_GONE_LIMIT: Duration = Duration::from_secs(10);

/// How a session ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides closed.
    Finished,
    /// The client's connection failed.
    ClientLost(io::Error),
    /// The server's connection failed.
    ServerLost(io::Error),
    /// This process ends the session.
    Refused(Refusal),
}

/// A session that moves bytes.
pub(crate) struct Pump {
    client: Stream,
    server: Stream,
    /// Client to server.
    up: Flow,
    /// Server to client.
    down: Flow,
    engine: Option<(Role, Box<Link>)>,
    /// Counts what goes unchanged, if savings are measured.
    meter: Option<Box<Meter>>,
    talk: Conversation,
    session: Arc<Session>,
    client_watch: PeerWatch,
    server_watch: PeerWatch,
    timers: Timers,
    /// What the registry was last told of what this end sends with.
    sending: Option<Option<Choice>>,
    /// Bytes moved when it was last told that something moves.
    moved: u64,
}

#[derive(Default)]
struct Timers {
    hold: Option<Pin<Box<Sleep>>>,
    hold_armed: bool,
    gone: Option<Pin<Box<Sleep>>>,
}

impl Pump {
    pub(crate) fn new(role: Role, ready: Ready, session: Arc<Session>) -> Self {
        let Ready { client, server, link, meter } = ready;
        Self {
            up: Flow::new(client.ahead),
            down: Flow::new(server.ahead),
            client: client.stream,
            server: server.stream,
            engine: link.map(|link| (role, link)),
            meter,
            talk: Conversation::default(),
            session,
            client_watch: PeerWatch::default(),
            server_watch: PeerWatch::default(),
            timers: Timers::default(),
            sending: None,
            moved: 0,
        }
    }

    /// Runs to the end of the session. `on_key` gets the server's cancel key when it comes.
    pub(crate) async fn run(&mut self, mut on_key: impl FnMut(Vec<u8>)) -> End {
        poll_fn(|cx| {
            self.session.listen(cx.waker());
            Poll::Ready(())
        })
        .await;
        poll_fn(|cx| {
            let end = self.poll(cx);
            if let Some(key) = self.talk.take_key() {
                on_key(key);
            }
            end
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let commands = self.session.commands();
        if commands != 0
            && let Some(end) = self.obey(commands)
        {
            return Poll::Ready(end);
        }
        let moved = scratch::with(|scratch| self.turn(cx, scratch));
        self.publish();
        match moved {
            Err(end) => return Poll::Ready(end),
            Ok(true) => return Poll::Ready(End::Finished),
            Ok(false) => {}
        }
        if commands & command::DRAIN != 0 && self.can_end() {
            return Poll::Ready(End::Refused(self.shutdown_refusal()));
        }
        self.poll_timers(cx)
    }

    /// One turn of both flows; `Ok(true)` when both have ended.
    fn turn(&mut self, cx: &mut Context<'_>, scratch: &mut scratch::Scratch) -> Result<bool, End> {
        let due = self.timers.take_hold_due();
        let up = match self.turn_up(cx, scratch, due) {
            Ok(ended) => ended,
            // P4: a server that takes no more may still have something to say.
            Err(Fault::Write(_)) => self.up.give_up(),
            Err(Fault::Read(e)) => {
                self.server.reset_on_close();
                return Err(End::ClientLost(e));
            }
            Err(Fault::Engine(e)) => return Err(End::Refused(e.into())),
        };
        match self.turn_down(cx, scratch, due) {
            Ok(down) => {
                self.timers.arm_hold(self.up.wait, self.down.wait);
                Ok(up && down)
            }
            Err(Fault::Write(e)) => Err(End::ClientLost(e)),
            Err(Fault::Read(e)) => Err(End::ServerLost(e)),
            Err(Fault::Engine(e)) => Err(End::Refused(e.into())),
        }
    }

    fn turn_up(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut scratch::Scratch,
        due: bool,
    ) -> Result<bool, Fault> {
        let Self { client, server, up, engine, meter, talk, session, .. } = self;
        let mut turn = Turn { cx, from: client, to: server, scratch };
        match engine {
            _ if up.has_ended() => Ok(true),
            None => {
                let ended = up.copy(&mut turn, due, |bytes| {
                    session.counters.to_server.moved(bytes.len());
                    if let Some(meter) = meter {
                        meter.see(Direction::ToServer, bytes, talk);
                    }
                    talk.see_client(bytes)
                });
                rest(meter, Direction::ToServer, up);
                ended
            }
            Some((Role::Gateway, link)) => up.expand(&mut turn, link, |bytes| talk.see_client(bytes)),
            Some((Role::Connector, link)) => {
                up.compress(&mut turn, link, due, |bytes| talk.see_client(bytes))
            }
        }
    }

    fn turn_down(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut scratch::Scratch,
        due: bool,
    ) -> Result<bool, Fault> {
        let Self { client, server, down, engine, meter, talk, session, .. } = self;
        let mut turn = Turn { cx, from: server, to: client, scratch };
        match engine {
            _ if down.has_ended() => Ok(true),
            None => {
                let ended = down.copy(&mut turn, due, |bytes| {
                    session.counters.to_client.moved(bytes.len());
                    if let Some(meter) = meter {
                        meter.see(Direction::ToClient, bytes, talk);
                    }
                    talk.see_server(bytes)
                });
                rest(meter, Direction::ToClient, down);
                ended
            }
            Some((Role::Connector, link)) => down.expand(&mut turn, link, |bytes| talk.see_server(bytes)),
            Some((Role::Gateway, link)) => {
                down.compress(&mut turn, link, due, |bytes| talk.see_server(bytes))
            }
        }
    }

    fn can_end(&self) -> bool {
        self.talk.can_end()
            && self.up.is_clean()
            && self.down.is_clean()
            && self
                .engine
                .as_ref()
                .is_none_or(|(_, link)| link.wire_at_message_boundary() && link.peer_at_message_boundary())
    }

    /// The two sides and what to tell each at the end: the client what it has not got yet and the reason where a
    /// message may stand, the server a Terminate.
    pub(crate) fn into_last_words(mut self, refusal: &Refusal) -> [(Leg, Vec<u8>); 2] {
        let boundary = match &self.engine {
            Some((Role::Gateway, link)) => link.wire_at_message_boundary(),
            _ => self.talk.server_at_boundary(),
        };
        let mut to_client = self.down.take_unsent();
        if boundary {
            to_client.extend_from_slice(&refusal.to_bytes());
        }
        let to_server = if self.can_end() { message(tag::TERMINATE, &[]) } else { Vec::new() };
        [(Leg::new(self.client, "client"), to_client), (Leg::new(self.server, "server"), to_server)]
    }

    /// What the client gets when this process ends.
    fn shutdown_refusal(&self) -> Refusal {
        let message = "terminating connection because the gateway is shutting down";
        let refusal = Refusal::new(sqlstate::ADMIN_SHUTDOWN, message);
        if self.can_end() {
            return refusal.hint("Reconnect: no transaction was open.");
        }
        refusal.detail("A transaction or statement was in progress.").hint(
            "Reconnect and repeat it: what was not committed is undone. A COMMIT without an answer may have taken effect.",
        )
    }

    fn obey(&mut self, commands: u32) -> Option<End> {
        if commands & command::RELEASE != 0 && self.session.take(command::RELEASE) {
            self.release();
        }
        if commands & command::LOOK != 0
            && self.session.take(command::LOOK)
            && let Some(end) = self.look_at_peers()
        {
            return Some(end);
        }
        if commands & command::KILL != 0 {
            return Some(End::Refused(
                self.session.take_refusal().unwrap_or_else(|| self.shutdown_refusal()),
            ));
        }
        if commands & command::COMPRESSION != 0
            && let Some((text, reply)) = self.session.take_request()
        {
            let answer = match &mut self.engine {
                Some((_, link)) => {
                    let answer = link.set_compression(&text).map_err(|e| e.to_string());
                    note_sending(&self.session, link, &mut self.sending);
                    answer
                }
                None => Err("this session has no agreed compression".to_string()),
            };
            // The console may have gone away meanwhile.
            let _ = reply.send(answer);
        }
        None
    }

    /// Ends a session one of whose peers has gone without a word.
    fn look_at_peers(&mut self) -> Option<End> {
        let (now, limit) = (std::time::Instant::now(), self.session.user_timeout());
        let client = self.client_watch.look(now, self.client.acknowledgement(), limit);
        let server = self.server_watch.look(now, self.server.acknowledgement(), limit);
        self.session.set_unacknowledged([client, server].contains(&Seen::Waits));
        let gone = || {
            let text = format!("no acknowledgement for {} s (tcp.user_timeout_s)", limit.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        match (client, server) {
            (Seen::Gone, _) => {
                self.server.reset_on_close();
                Some(End::ClientLost(gone()))
            }
            (_, Seen::Gone) => Some(End::ServerLost(gone())),
            _ => None,
        }
    }

    /// Makes this turn's numbers visible.
    fn publish(&mut self) {
        let session = &self.session;
        let answered = self.talk.queries() != session.counters.queries();
        if answered {
            session.counters.set_queries(self.talk.queries());
        }
        if let Some((role, link)) = &self.engine {
            let stats = link.stats();
            let (out, into) = match role {
                Role::Gateway => (&session.counters.to_client, &session.counters.to_server),
                Role::Connector => (&session.counters.to_server, &session.counters.to_client),
            };
            out.store(&stats.outbound);
            into.store(&stats.inbound);
            session.set_memory_bytes(link.memory_bytes());
            session.set_given_up(link.is_given_up());
            if answered {
                note_sending(session, link, &mut self.sending);
            }
        }
        let moved = self.up.total() + self.down.total();
        if moved != self.moved {
            self.moved = moved;
            session.touch();
        }
        // Last: who sees a session idle sees its numbers as well.
        session.set_transaction(self.talk.status());
    }

    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.down.has_ended() && !self.up.has_ended() {
            let gone = self.timers.gone.get_or_insert_with(|| Box::pin(sleep(SERVER_GONE_LIMIT)));
            if gone.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Finished);
            }
        }
        if self.timers.poll_hold(cx) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// The session is quiet. What there is to say of it leaves with this turn.
    fn release(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.release();
        }
        let Some((role, link)) = &mut self.engine else { return };
        let flow = match role {
            Role::Gateway => &mut self.down,
            Role::Connector => &mut self.up,
        };
        if let Some(out) = flow.outgoing() {
            link.release_idle(out);
        }
    }
}

/// Tells the meter where a session that is compressed would have sent what it has.
fn rest(meter: &mut Option<Box<Meter>>, direction: Direction, flow: &Flow) {
    if let Some(meter) = meter
        && flow.drained
    {
        meter.rest(direction);
    }
}

/// Tells the registry what this end sends with, when that has changed.
fn note_sending(session: &Session, link: &Link, last: &mut Option<Option<Choice>>) {
    if *last != Some(link.sending()) {
        *last = Some(link.sending());
        session.set_compression(Some(Compression {
            dialect: link.agreed().dialect().name(),
            agreed: link.agreed().describe(),
            sending: link.compression(),
        }));
    }
}

impl Timers {
    /// True once when something has waited long enough.
    fn take_hold_due(&mut self) -> bool {
        let due = self.hold_armed && self.hold.as_ref().is_some_and(|hold| hold.is_elapsed());
        self.hold_armed &= !due;
        due
    }

    /// Begins, goes on with or ends the waiting. What waits already is not made to wait longer by what begins to.
    fn arm_hold(&mut self, up: Wait, down: Wait) {
        let (begins, goes_on) = ([up, down].contains(&Wait::Begins), [up, down].contains(&Wait::GoesOn));
        if !begins && !goes_on {
            self.hold_armed = false;
        } else if !self.hold_armed || (begins && !goes_on) {
            let until = Instant::now() + Duration::from_millis(HOLD_MS_MAX);
            match &mut self.hold {
                Some(hold) => hold.as_mut().reset(until),
                None => self.hold = Some(Box::pin(sleep_until(until))),
            }
            self.hold_armed = true;
        }
    }

    /// Runs the hold timer while something waits; true when it has just run out.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> bool {
        self.hold_armed && self.hold.as_mut().is_some_and(|hold| hold.as_mut().poll(cx).is_ready())
    }
}
