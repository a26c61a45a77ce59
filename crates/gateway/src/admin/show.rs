//! The tables of SHOW.

use std::time::{Duration, SystemTime};

use pgshrink_egress::calendar;
use pgshrink_wire::Role;

use super::command::{TOPICS, Topic};
use super::table::{Column, Kind, Row, Value};
use crate::registry::{DIALECTS, DirectionTotals, Phase, Reason, Registry, Session, Totals};
use crate::stream::Peer;

const RATIO: Kind = Kind::Fixed(2);
const SECONDS: Kind = Kind::Fixed(3);

/// Columns of a topic; known without asking, as the extended protocol describes before it executes.
pub(super) fn columns(topic: Topic) -> &'static [Column] {
    match topic {
        Topic::Help => &[("command", Kind::Text), ("meaning", Kind::Text)],
        Topic::Version => &[("version", Kind::Text)],
        Topic::State | Topic::Memory => &[("name", Kind::Text), ("value", Kind::Text)],
        Topic::Stats => STATS,
        Topic::StatsTotals => STATS_TOTALS,
        Topic::Savings => super::savings::COLUMNS,
        Topic::Events => &[("event", Kind::Text), ("reason", Kind::Text), ("count", Kind::Int)],
        Topic::Clients => super::clients::COLUMNS,
        Topic::Servers => SERVERS,
        Topic::Config => {
            &[("key", Kind::Text), ("value", Kind::Text), ("default", Kind::Text), ("changeable", Kind::Bool)]
        }
        Topic::Listeners => &[("address", Kind::Text), ("kind", Kind::Text), ("accepted", Kind::Int)],
    }
}

/// Rows of a topic.
pub(super) fn rows(topic: Topic, registry: &Registry) -> Vec<Row> {
    match topic {
        Topic::Help => help(registry.process.role),
        Topic::Version => vec![vec![super::VERSION.into()]],
        Topic::State => state(registry),
        Topic::Stats => stats(&registry.totals()),
        Topic::StatsTotals => stats_totals(registry),
        Topic::Savings => super::savings::rows(registry),
        Topic::Events => events(registry),
        Topic::Clients => super::clients::rows(registry),
        Topic::Servers => servers(registry),
        Topic::Config => config(registry),
        Topic::Memory => memory(registry),
        Topic::Listeners => listeners(registry),
    }
}

const STATS: &[Column] = &[
    ("direction", Kind::Text),
    ("raw_bytes", Kind::Int),
    ("wire_bytes", Kind::Int),
    ("ratio", RATIO),
    ("saved_percent", Kind::Fixed(1)),
    ("frames", Kind::Int),
    ("framed_bytes", Kind::Int),
    ("plain_fallbacks", Kind::Int),
    ("untried", Kind::Int),
    ("codec_seconds", SECONDS),
];

const STATS_TOTALS: &[Column] = &[
    ("server", Kind::Text),
    STATS[0],
    STATS[1],
    STATS[2],
    STATS[3],
    STATS[4],
    STATS[5],
    STATS[6],
    STATS[7],
    STATS[8],
    STATS[9],
];

const SERVERS: &[Column] = &[
    ("server", Kind::Text),
    ("address", Kind::Text),
    ("serves", Kind::Text),
    ("sslmode", Kind::Text),
    ("sessions", Kind::Int),
    ("ended", Kind::Int),
    ("ack", Kind::Int),
    ("restart", Kind::Int),
    ("plain", Kind::Int),
    ("connect_failures", Kind::Int),
    ("queries", Kind::Int),
    ("raw_bytes", Kind::Int),
    ("wire_bytes", Kind::Int),
    ("ratio", RATIO),
];

fn help(role: Role) -> Vec<Row> {
    let sends = match role {
        Role::Gateway => "what the gateway sends to its clients",
        Role::Connector => "what the connector sends to its gateway",
    };
    let set = format!(
        "Changes, on live sessions, {sends}. The list: algorithms that were agreed, in order of preference."
    );
    let row = |command: &str, meaning: &str| vec![command.into(), meaning.into()];
    let mut rows: Vec<Row> =
        TOPICS.iter().map(|(word, _, text)| row(&format!("SHOW {word}"), text)).collect();
    rows.extend([
        row("SET COMPRESSION <id|ALL> '<list|off|on>'", &set),
        row("KILL <id>", "Ends a session; its client is told why."),
        row("PAUSE", "New sessions wait, for at most timeouts.login_timeout_s; existing ones continue."),
        row("RESUME", "Ends PAUSE."),
        row("RELOAD", "Reads the configuration again, as SIGHUP does. Existing sessions keep theirs."),
        row("SHUTDOWN", "Lets sessions finish, as SIGTERM does, for at most timeouts.drain_timeout_s."),
        row("SHUTDOWN IMMEDIATE", "Ends all sessions at once."),
    ]);
    rows
}

fn state(registry: &Registry) -> Vec<Row> {
    let process = &registry.process;
    let phase = match (registry.is_draining(), process.is_paused()) {
        (true, _) => "draining",
        (false, true) => "paused",
        (false, false) => "running",
    };
    let sessions = registry.sessions();
    let count = |phase| sessions.iter().filter(|s| s.phase() == phase).count();
    let row = |name: &str, value: String| vec![name.into(), value.into()];
    vec![
        row("role", role_name(process.role).into()),
        row("phase", phase.into()),
        row("version", super::VERSION.into()),
        row("pid", std::process::id().to_string()),
        row("started", timestamp(process.started_at)),
        row("uptime_s", process.started.elapsed().as_secs().to_string()),
        row("sessions", count(Phase::Active).to_string()),
        row("arrivals", registry.pools.arrivals.taken().to_string()),
        row("logins", count(Phase::Login).to_string()),
        row("closing", count(Phase::Closing).to_string()),
    ]
}

/// `gateway` or `connector`.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Gateway => "gateway",
        Role::Connector => "connector",
    }
}

fn direction_row(name: &str, d: &DirectionTotals) -> Row {
    let saved = if d.raw_bytes == 0 { 0.0 } else { 100.0 * (1.0 - d.wire_bytes as f64 / d.raw_bytes as f64) };
    vec![
        name.into(),
        d.raw_bytes.into(),
        d.wire_bytes.into(),
        d.ratio().into(),
        saved.into(),
        d.frames.into(),
        d.framed_raw_bytes.into(),
        d.plain_fallbacks.into(),
        d.untried_groups.into(),
        seconds(d.codec_ns).into(),
    ]
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

fn stats(totals: &Totals) -> Vec<Row> {
    let mut both = totals.to_client;
    both.add(totals.to_server);
    vec![
        direction_row("to_client", &totals.to_client),
        direction_row("to_server", &totals.to_server),
        direction_row("both", &both),
    ]
}

fn stats_totals(registry: &Registry) -> Vec<Row> {
    let totals = registry.totals_by_server();
    let named = totals.iter().filter(|(name, _)| !name.is_empty());
    named
        .flat_map(|(name, t)| stats(t).into_iter().map(move |row| [vec![name.as_str().into()], row].concat()))
        .collect()
}

fn events(registry: &Registry) -> Vec<Row> {
    use std::sync::atomic::Ordering::Relaxed;
    let events = &registry.events;
    let row = |event: &str, reason: Option<&str>, count: u64| vec![event.into(), reason.into(), count.into()];
    let group = |event, reasons: Vec<Reason>| {
        reasons.into_iter().map(move |(reason, count)| row(event, Some(reason), count))
    };
    let mut rows = vec![
        row("connection accepted", None, events.accepted.load(Relaxed)),
        row("session began", None, events.sessions.load(Relaxed)),
        row("session compressed", None, events.compressed.load(Relaxed)),
        row("cancel request", None, events.cancels.load(Relaxed)),
    ];
    rows.extend(group("session plain", events.plain()));
    rows.push(row("offer with unknown item", None, events.unknown_algorithms.load(Relaxed)));
    rows.extend(group("connection refused", events.refused()));
    rows.extend(group("login failed", events.login_failures()));
    rows.extend(group("hostile input", events.hostile()));
    rows
}

fn servers(registry: &Registry) -> Vec<Row> {
    let totals = registry.totals_by_server();
    let servers = registry.process.servers();
    let gone = totals.keys().filter(|name| !name.is_empty() && !servers.iter().any(|s| s.name == **name));
    let known = servers.iter().map(|s| (&s.name, Some(s)));
    known
        .chain(gone.map(|name| (name, None)))
        .map(|(name, info)| {
            let t = totals.get(name).cloned().unwrap_or_default();
            let mut both = t.to_client;
            both.add(t.to_server);
            debug_assert_eq!(DIALECTS, ["ack", "restart", "plain"]);
            vec![
                name.as_str().into(),
                info.map(|i| i.address.clone()).into(),
                info.map_or("no longer configured", |i| &i.serves).into(),
                info.map(|i| i.sslmode).into(),
                t.live.into(),
                t.ended.into(),
                t.by_dialect[0].into(),
                t.by_dialect[1].into(),
                t.by_dialect[2].into(),
                t.connect_failures.into(),
                t.queries.into(),
                both.raw_bytes.into(),
                both.wire_bytes.into(),
                both.ratio().into(),
            ]
        })
        .collect()
}

fn config(registry: &Registry) -> Vec<Row> {
    let settings = registry.process.settings();
    settings
        .iter()
        .map(|s| {
            vec![
                s.key.as_str().into(),
                s.value.as_str().into(),
                s.default.as_str().into(),
                s.reloadable.into(),
            ]
        })
        .collect()
}

fn memory(registry: &Registry) -> Vec<Row> {
    let budget = &registry.process.budget;
    let sessions = registry.sessions();
    let sizes: Vec<u64> = sessions.iter().map(|s| s.memory_bytes() as u64).collect();
    let largest = sessions.iter().max_by_key(|s| s.memory_bytes()).filter(|s| s.memory_bytes() > 0);
    let sum: u64 = sizes.iter().sum();
    let resident = crate::metrics::process::usage().map_or(0, |u| u.resident_bytes);
    let row = |name: &str, value: String| vec![name.into(), value.into()];
    vec![
        row("codec_memory_bytes", budget.used().to_string()),
        row("codec_memory_limit_bytes", budget.limit().to_string()),
        row("sessions", sizes.len().to_string()),
        row("session_memory_bytes", sum.to_string()),
        row("session_memory_average_bytes", (sum / (sizes.len() as u64).max(1)).to_string()),
        row("session_memory_largest_bytes", sizes.iter().max().copied().unwrap_or(0).to_string()),
        row("session_memory_largest_id", largest.map_or_else(String::new, |s| s.id.to_string())),
        row("process_resident_bytes", resident.to_string()),
    ]
}

fn listeners(registry: &Registry) -> Vec<Row> {
    let row = |l: &crate::registry::Listener| -> Row {
        vec![l.address.as_str().into(), l.kind.into(), l.accepted().into()]
    };
    registry.process.listeners().iter().map(|l| row(l)).collect()
}

/// `2026-11-21 12:34:56.789+00`, as PostgreSQL prints a timestamp in UTC.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = calendar::civil(days as i64);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}+00", since.subsec_millis())
}

/// A client's address for a cell.
pub(super) fn peer_text(peer: Peer) -> Value {
    peer.to_string().into()
}

/// What a session does, in the words of `pg_stat_activity`.
pub(crate) fn session_state(session: &Session) -> &'static str {
    match (session.phase(), session.transaction()) {
        (Phase::Login, _) => "login",
        (Phase::Closing, _) => "closing",
        (Phase::Active, b'I') => "idle",
        (Phase::Active, b'T') => "idle in transaction",
        (Phase::Active, b'E') => "idle in transaction (aborted)",
        (Phase::Active, _) => "active",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_those_of_the_calendar() {
        let at = |s| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01 00:00:00.000+00");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59.000+00");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00.000+00");
        assert_eq!(at(1_795_264_496), "2026-11-21 12:34:56.000+00");
    }
}
