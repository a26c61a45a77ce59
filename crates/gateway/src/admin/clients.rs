//! SHOW CLIENTS: everything about each session, the most asked first.

use super::show::{peer_text, seconds, session_state, timestamp};
use super::table::{Column, Kind, Row, Value};
use crate::registry::{DirectionTotals, Phase, Registry, Session};

const RATIO: Kind = Kind::Fixed(2);
const SECONDS: Kind = Kind::Fixed(3);
/// Longest text shown of what a client says of itself, in characters.
const TEXT_LENGTH_MAX: usize = 63;

pub(super) const COLUMNS: &[Column] = &[
    ("id", Kind::Int),
    ("user", Kind::Text),
    ("database", Kind::Text),
    ("client", Kind::Text),
    ("server", Kind::Text),
    ("state", Kind::Text),
    ("sending", Kind::Text),
    ("to_client_ratio", RATIO),
    ("to_server_ratio", RATIO),
    ("application_name", Kind::Text),
    ("server_pid", Kind::Int),
    ("connected_at", Kind::Text),
    ("quiet_s", Kind::Fixed(1)),
    ("via", Kind::Text),
    ("client_tls", Kind::Text),
    ("server_tls", Kind::Text),
    ("dialect", Kind::Text),
    ("agreed", Kind::Text),
    ("plain_because", Kind::Text),
    ("given_up", Kind::Bool),
    ("queries", Kind::Int),
    ("memory_bytes", Kind::Int),
    ("to_client_raw", Kind::Int),
    ("to_client_wire", Kind::Int),
    ("to_client_frames", Kind::Int),
    ("to_client_fallbacks", Kind::Int),
    ("to_client_untried", Kind::Int),
    ("to_client_codec_s", SECONDS),
    ("to_server_raw", Kind::Int),
    ("to_server_wire", Kind::Int),
    ("to_server_frames", Kind::Int),
    ("to_server_fallbacks", Kind::Int),
    ("to_server_untried", Kind::Int),
    ("to_server_codec_s", SECONDS),
];

pub(super) fn rows(registry: &Registry) -> Vec<Row> {
    let mut sessions = registry.sessions();
    sessions.sort_by_key(|s| s.id);
    sessions.iter().map(|s| row(s)).collect()
}

fn row(session: &Session) -> Row {
    let identity = session.identity();
    let text = |value: Option<&str>| Value::from(value.map(clean));
    let number = |value: u32| Value::from((value != 0).then_some(u64::from(value)));
    let compression = session.compression();
    let (up, down) = (session.counters.to_server.snapshot(), session.counters.to_client.snapshot());
    let past_login = session.phase() != Phase::Login;
    let mut row = vec![
        session.id.into(),
        text(identity.map(|i| i.user.as_str())),
        text(identity.map(|i| i.database.as_str())),
        peer_text(session.peer()),
        text(identity.map(|i| i.server.as_str())),
        session_state(session).into(),
        past_login.then(|| session.sending()).into(),
        down.ratio().into(),
        up.ratio().into(),
        text(identity.map(|i| i.application.as_str())),
        number(session.backend_pid()),
        timestamp(session.started_at).into(),
        session.quiet().as_secs_f64().into(),
        session.via().map(|proxy| proxy.to_string()).into(),
        text(identity.and_then(|i| i.client_tls.as_deref())),
        text(identity.and_then(|i| i.server_tls.as_deref())),
        text(compression.as_ref().map(|c| c.dialect)),
        text(compression.as_ref().map(|c| c.agreed.as_str())),
        text(session.plain()),
        session.is_given_up().into(),
        session.counters.queries().into(),
        (session.memory_bytes() as u64).into(),
    ];
    row.extend(direction(&down));
    row.extend(direction(&up));
    row
}

fn direction(d: &DirectionTotals) -> [Value; 6] {
    [
        d.raw_bytes.into(),
        d.wire_bytes.into(),
        d.frames.into(),
        d.plain_fallbacks.into(),
        d.untried_groups.into(),
        seconds(d.codec_ns).into(),
    ]
}

/// What a client says of itself ends on an operator's terminal: short, and without control characters.
pub(super) fn clean(text: &str) -> String {
    text.chars().take(TEXT_LENGTH_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_write_to_the_operators_terminal() {
        assert_eq!(clean("a\x1b[2Jb\n\u{9b}"), "a?[2Jb??");
        assert_eq!(clean(&"x".repeat(100)).len(), TEXT_LENGTH_MAX);
    }
}
