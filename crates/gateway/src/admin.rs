//! The admin console, in the manner of pgbouncer: `psql -p 6432 pgshrink -c 'SHOW STATS'`.
//!
//! A client that connects to the database of `admin.database` talks to this process instead of a server. Owns who
//! may ([`access`]), the language ([`command`]), the answers ([`show`], [`clients`]) and what can be changed ([`run`]).
//! It holds no state of its own: everything shown is the [registry](crate::registry)'s.
//!
//! A console is no session: it stands in no list, counts towards no limit but its own, and a drain does not wait for it,
//! so an operator can watch the last sessions leave.

mod access;
mod clients;
mod command;
mod run;
mod savings;
mod scram;
mod session;
pub(crate) mod settings;
pub(crate) mod show;
mod table;

use std::sync::Arc;
use std::time::Duration;

use pgshrink_wire::startup::{PROTOCOL_3_0, StartupPacket};
use pgshrink_wire::{Dialect, message};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

pub(crate) use access::{Access, Grant};

use crate::error::{Failure, Refusal, sqlstate};
use crate::handshake::leg::Leg;
use crate::lifecycle::Control;
use crate::places::Place;
use crate::registry::Registry;
use crate::stream::Peer;

/// The version shown and reported.
pub(crate) const VERSION: &str = concat!("pgshrink ", env!("CARGO_PKG_VERSION"));
/// What drivers take for the server's version: a PostgreSQL they all support, and who is meant.
const SERVER_VERSION: &str = concat!("13.0 (pgshrink ", env!("CARGO_PKG_VERSION"), ")");
/// Consoles open at once. Those who may change things get in beyond it.
const CONSOLES_MAX: usize = 32;
/// How long a password exchange may take. psql does not hold the connection while it asks its user.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// A client whose startup packet asks for the console.
pub(crate) struct Caller<'a> {
    /// Its connection.
    pub(crate) client: &'a mut Leg,
    /// Where it comes from.
    pub(crate) peer: Peer,
    /// What it asked for.
    pub(crate) packet: &'a StartupPacket,
    /// When its login is given up at the latest.
    pub(crate) deadline: Instant,
}

/// Serves a caller to its end.
pub(crate) async fn serve(
    mut caller: Caller<'_>,
    access: &Access,
    registry: &Arc<Registry>,
    control: &mpsc::UnboundedSender<Control>,
) -> Result<(), Failure> {
    let grant = log_in(&mut caller, access, registry).await?;
    let Caller { client, peer, packet, .. } = caller;
    // Whoever could stop the process anyway is let in however many others look.
    let places = if grant == Grant::Change { usize::MAX } else { CONSOLES_MAX };
    let Some(_open) = registry.process.open_console(places) else {
        return Err(Refusal::new(sqlstate::TOO_MANY_CONNECTIONS, "too many consoles are open")
            .detail(format!("The limit is {CONSOLES_MAX}."))
            .into());
    };
    let user = String::from_utf8_lossy(packet.user()).into_owned();
    tracing::info!(client = %peer, user, %grant, "console opened");
    let greeting = greeting(packet, &user).map_err(|reason| Refusal::new("58000", reason))?;
    let orders = run::Orders { registry, control };
    let ended = session::Console::new(client, orders, grant).talk(greeting).await;
    tracing::info!(client = %peer, user, "console closed");
    ended
}

/// Finds out what the client may do. Those who have to prove it hold a place of a pool of their own meanwhile, so that guessing
/// takes no place of a console that is open, and is paid for by whoever guesses.
async fn log_in(caller: &mut Caller<'_>, access: &Access, registry: &Registry) -> Result<Grant, Failure> {
    let Caller { client, peer, packet, deadline } = caller;
    let peer = *peer;
    let place = registry.pools.console_logins.take(peer);
    if place.is_none() && !access.is_trusted(peer) {
        return Err(Refusal::new(sqlstate::TOO_MANY_CONNECTIONS, "too many logins to the console at once")
            .hint("The gateway's own user and root need no password over the Unix socket, and are always admitted.")
            .into());
    }
    if let Some(answer) = negotiate(packet) {
        client.send(&answer).await?;
    }
    let deadline = (*deadline).min(Instant::now() + LOGIN_LIMIT);
    match timeout_at(deadline, access.admit(client, peer, packet)).await {
        Ok(Err(Failure::Refused(refusal))) if refusal.sqlstate == sqlstate::INVALID_PASSWORD => {
            tokio::time::sleep(wrong_password_delay(place.as_ref().map_or(0, Place::among))).await;
            Err(refusal.into())
        }
        Ok(admitted) => admitted,
        Err(_) => Err(Refusal::new(sqlstate::CONNECTION_FAILURE, "login took too long").into()),
    }
}

/// What a wrong password costs its sender: the more are tried at once, the longer each takes, so that all together get no
/// more than 32 tries a second.
fn wrong_password_delay(at_once: usize) -> Duration {
    Duration::from_secs(1 + at_once as u64 / 32)
}

/// NegotiateProtocolVersion, where a client asks for a newer protocol or for options: here is 3.0, without any.
/// Newer libpqs insist on the answer.
fn negotiate(packet: &StartupPacket) -> Option<Vec<u8>> {
    let own = [Dialect::Ack.key(), Dialect::Restart.key()];
    let options: Vec<&[u8]> = packet
        .parameters
        .iter()
        .map(|(name, _)| name.as_slice())
        .filter(|name| name.starts_with(b"_pq_.") && !own.iter().any(|key| key.as_bytes() == *name))
        .collect();
    if packet.protocol == PROTOCOL_3_0 && options.is_empty() {
        return None;
    }
    let mut body = PROTOCOL_3_0.to_be_bytes().to_vec();
    body.extend_from_slice(&(options.len() as u32).to_be_bytes());
    options.iter().for_each(|name| body.extend_from_slice(&[name, &b"\0"[..]].concat()));
    Some(message::message(message::tag::NEGOTIATE_PROTOCOL_VERSION, &body))
}

/// AuthenticationOk and what drivers want to know before they ask anything.
fn greeting(packet: &StartupPacket, user: &str) -> Result<Vec<u8>, String> {
    let application = packet.get("application_name").unwrap_or_default();
    let mut out = access::ok();
    for (name, value) in [
        ("server_version", SERVER_VERSION),
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("application_name", &String::from_utf8_lossy(application)),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("TimeZone", "UTC"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "off"),
        ("session_authorization", user),
    ] {
        out.extend(message::parameter_status(name, value));
    }
    // Drivers insist on a key. A cancel request with it finds no session, and there is nothing to cancel.
    let key = [std::process::id().to_be_bytes(), scram::random::<4>()?].concat();
    out.extend(message::message(message::tag::BACKEND_KEY_DATA, &key));
    Ok(out)
}
