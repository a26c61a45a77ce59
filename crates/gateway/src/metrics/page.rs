//! The metrics, in the OpenMetrics text format.
//!
//! Counters are sums over all sessions since the start and never go down. Label values come from closed lists and from
//! the configuration (`server`), never from what clients say, so the page stays small; but for what `observe` counts by client and
//! database, which has a limit of its own.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::process::{Usage, usage};
use crate::admin::show::{role_name, session_state};
use crate::registry::{DIALECTS, DirectionTotals, Label, Reason, Registry, Sending, Totals};

/// The media type of the page.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Sessions by state: those of `pg_stat_activity`, and the time before and after.
const STATES: [&str; 6] =
    ["login", "active", "idle", "idle in transaction", "idle in transaction (aborted)", "closing"];

pub(super) type Labels = Vec<(&'static str, String)>;

/// The page as it stands now.
pub(super) fn render(registry: &Arc<Registry>) -> Result<String, Error> {
    let mut families = prometheus_client::registry::Registry::default();
    families.register_collector(Box::new(Page(registry.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &families)?;
    Ok(text)
}

struct Page(Arc<Registry>);

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Page")
    }
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = Writer(encoder);
        let registry = &*self.0;
        about(&mut writer, registry)?;
        let mut totals = registry.totals_by_server();
        // What never reached a server has no traffic to show.
        totals.remove("");
        traffic(&mut writer, &totals)?;
        sent(&mut writer, &totals)?;
        sessions(&mut writer, registry, &totals)?;
        connections(&mut writer, registry, &totals)?;
        memory(&mut writer, registry)?;
        super::savings::write(&mut writer, registry)?;
        match usage() {
            Some(usage) => process(&mut writer, registry, &usage),
            None => Ok(()),
        }
    }
}

pub(super) struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    pub(super) fn counter<N: EncodeCounterValue>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, N)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            } else {
                metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
        }
        Ok(())
    }

    pub(super) fn gauge<N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, N)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in samples {
            if labels.is_empty() {
                metric.encode_gauge(&value)?;
            } else {
                metric.encode_family(&labels)?.encode_gauge(&value)?;
            }
        }
        Ok(())
    }

    fn reasons(
        &mut self,
        name: &str,
        label: &'static str,
        help: &str,
        reasons: Vec<Reason>,
    ) -> Result<(), Error> {
        self.counter(name, None, help, reasons.into_iter().map(|(r, n)| (vec![(label, r.to_string())], n)))
    }
}

pub(super) fn one<N>(value: N) -> [(Labels, N); 1] {
    [(Vec::new(), value)]
}

fn about(w: &mut Writer<'_>, registry: &Registry) -> Result<(), Error> {
    let labels = vec![
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("role", role_name(registry.process.role).to_string()),
    ];
    w.0.encode_descriptor("pgshrink_build", "Version and role.", None, MetricType::Info)?
        .encode_info(&labels)?;
    let flag = |on| one(i64::from(on));
    w.gauge(
        "pgshrink_draining",
        None,
        "1 while sessions finish and none begin.",
        flag(registry.is_draining()),
    )?;
    w.gauge(
        "pgshrink_paused",
        None,
        "1 while new sessions wait for RESUME.",
        flag(registry.process.is_paused()),
    )
}

/// A row for each server and direction.
fn per_direction<N>(
    totals: &BTreeMap<String, Totals>,
    value: impl Fn(&DirectionTotals) -> N,
) -> Vec<(Labels, N)> {
    let labels = |server: &String, direction: &str| {
        vec![("server", server.clone()), ("direction", direction.to_string())]
    };
    totals
        .iter()
        .flat_map(|(server, t)| {
            [
                (labels(server, "to_client"), value(&t.to_client)),
                (labels(server, "to_server"), value(&t.to_server)),
            ]
        })
        .collect()
}

fn traffic(w: &mut Writer<'_>, totals: &BTreeMap<String, Totals>) -> Result<(), Error> {
    let bytes = Some(&Unit::Bytes);
    w.counter("pgshrink_raw", bytes, "Bytes of the plain protocol.", per_direction(totals, |d| d.raw_bytes))?;
    w.counter(
        "pgshrink_wire",
        bytes,
        "Bytes on the compressed side.",
        per_direction(totals, |d| d.wire_bytes),
    )?;
    w.counter(
        "pgshrink_framed_raw",
        bytes,
        "Plain bytes that travelled inside compressed frames.",
        per_direction(totals, |d| d.framed_raw_bytes),
    )?;
    w.counter("pgshrink_frames", None, "Compressed frames.", per_direction(totals, |d| d.frames))?;
    w.counter(
        "pgshrink_plain_fallbacks",
        None,
        "Groups of messages that were tried, did not shrink, and were sent uncompressed.",
        per_direction(totals, |d| d.plain_fallbacks),
    )?;
    w.counter(
        "pgshrink_untried_groups",
        None,
        "Groups of messages that were sent uncompressed without trying: too small, incompressible at a glance, given up, \
         switched off, or no memory.",
        per_direction(totals, |d| d.untried_groups),
    )?;
    w.counter(
        "pgshrink_codec",
        Some(&Unit::Seconds),
        "Elapsed time in compression and decompression, including waits for a processor; small frames are sampled.",
        per_direction(totals, |d| d.codec_ns as f64 / 1e9),
    )?;
    w.counter(
        "pgshrink_queries",
        None,
        "Queries answered (ReadyForQuery messages).",
        totals.iter().map(|(server, t)| (vec![("server", server.clone())], t.queries)),
    )
}

/// What this end sent, by what it sent with. What it receives is its peer's choice.
fn sent(w: &mut Writer<'_>, totals: &BTreeMap<String, Totals>) -> Result<(), Error> {
    let per_algorithm = |pick: fn((u64, u64)) -> u64| -> Vec<(Labels, u64)> {
        let row = |server: &String, t: &Totals, sending: Sending| {
            let labels = vec![("server", server.clone()), ("algorithm", sending.name().to_string())];
            (labels, pick(t.sent_by.get(sending)))
        };
        totals.iter().flat_map(|(server, t)| Sending::ALL.iter().map(move |s| row(server, t, *s))).collect()
    };
    let bytes = Some(&Unit::Bytes);
    w.counter(
        "pgshrink_sent_raw",
        bytes,
        "Plain bytes that this end sent, by algorithm.",
        per_algorithm(|b| b.0),
    )?;
    w.counter(
        "pgshrink_sent_wire",
        bytes,
        "Bytes this end put on the compressed side.",
        per_algorithm(|b| b.1),
    )
}

fn sessions(w: &mut Writer<'_>, registry: &Registry, totals: &BTreeMap<String, Totals>) -> Result<(), Error> {
    let live = registry.sessions();
    let by_state = STATES.iter().map(|state| {
        let count = live.iter().filter(|s| session_state(s) == *state).count();
        (vec![("state", state.to_string())], count as i64)
    });
    w.gauge("pgshrink_sessions", None, "Sessions by state.", by_state)?;
    let arrivals = registry.pools.arrivals.taken() as i64;
    w.gauge(
        "pgshrink_arrivals",
        None,
        "Connections that have not sent a startup packet yet.",
        one(arrivals),
    )?;
    let mut sending: BTreeMap<(&str, &str), i64> = totals
        .keys()
        .flat_map(|server| Sending::ALL.iter().map(move |s| ((server.as_str(), s.name()), 0)))
        .collect();
    for session in live.iter().filter(|s| s.is_past_login()) {
        let key = (session.server(), Sending::of(&session.sending()).name());
        if let Some(count) = sending.get_mut(&key) {
            *count += 1;
        }
    }
    let rows = sending.into_iter().map(|((server, algorithm), n)| {
        (vec![("server", server.to_string()), ("algorithm", algorithm.to_string())], n)
    });
    w.gauge("pgshrink_sessions_sending", None, "Sessions by what this end sends with.", rows)?;
    let given_up = live.iter().filter(|s| s.is_given_up()).count() as i64;
    w.gauge(
        "pgshrink_sessions_given_up",
        None,
        "Sessions whose data does not shrink: compression is only probed.",
        one(given_up),
    )?;
    let began = totals.iter().flat_map(|(server, t)| {
        let labels = |dialect: &str| vec![("server", server.clone()), ("dialect", dialect.to_string())];
        DIALECTS.iter().zip(t.by_dialect).map(move |(d, n)| (labels(d), n)).collect::<Vec<_>>()
    });
    w.counter("pgshrink_sessions_began", None, "Sessions past authentication, by dialect.", began)?;
    w.reasons(
        "pgshrink_sessions_plain",
        "reason",
        "Sessions without compression, by reason.",
        registry.events.plain(),
    )
}

fn connections(
    w: &mut Writer<'_>,
    registry: &Registry,
    totals: &BTreeMap<String, Totals>,
) -> Result<(), Error> {
    use std::sync::atomic::Ordering::Relaxed;
    let events = &registry.events;
    w.counter(
        "pgshrink_connections_accepted",
        None,
        "Connections accepted.",
        one(events.accepted.load(Relaxed)),
    )?;
    w.reasons("pgshrink_connections_refused", "reason", "Clients turned away, by reason.", events.refused())?;
    w.reasons(
        "pgshrink_login_failures",
        "reason",
        "Logins that failed before AuthenticationOk, by reason.",
        events.login_failures(),
    )?;
    w.reasons(
        "pgshrink_hostile_inputs",
        "kind",
        "Input that broke the protocol or a limit.",
        events.hostile(),
    )?;
    w.counter(
        "pgshrink_cancel_requests",
        None,
        "Cancel requests relayed.",
        one(events.cancels.load(Relaxed)),
    )?;
    w.counter(
        "pgshrink_unknown_algorithms",
        None,
        "Items of clients' offers that this version does not know.",
        one(events.unknown_algorithms.load(Relaxed)),
    )?;
    w.counter(
        "pgshrink_server_connect_failures",
        None,
        "Attempts to reach a server that failed.",
        totals.iter().map(|(server, t)| (vec![("server", server.clone())], t.connect_failures)),
    )
}

fn memory(w: &mut Writer<'_>, registry: &Registry) -> Result<(), Error> {
    let bytes = Some(&Unit::Bytes);
    let budget = &registry.process.budget;
    let held: usize = registry.sessions().iter().map(|s| s.memory_bytes()).sum();
    w.gauge(
        "pgshrink_codec_memory",
        bytes,
        "Memory leased to encoders and decoders.",
        one(budget.used() as i64),
    )?;
    w.gauge(
        "pgshrink_codec_memory_limit",
        bytes,
        "limits.max_codec_memory_mib.",
        one(budget.limit() as i64),
    )?;
    w.gauge("pgshrink_session_memory", bytes, "Codecs and buffers of all sessions.", one(held as i64))
}

/// Names that Prometheus' client libraries agree on.
fn process(w: &mut Writer<'_>, registry: &Registry, usage: &Usage) -> Result<(), Error> {
    let started = registry.process.started_at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    w.counter("process_cpu", Some(&Unit::Seconds), "CPU time of this process.", one(usage.cpu_seconds))?;
    w.gauge(
        "process_resident_memory",
        Some(&Unit::Bytes),
        "Resident memory.",
        one(usage.resident_bytes as i64),
    )?;
    w.gauge("process_open_fds", None, "Open file descriptors.", one(usage.open_fds as i64))?;
    w.gauge("process_max_fds", None, "Maximum number of open file descriptors.", one(usage.max_fds as f64))?;
    w.gauge(
        "process_start_time",
        Some(&Unit::Seconds),
        "Start, in seconds since 1970.",
        one(started.as_secs_f64()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Compression, Identity, Registered};
    use crate::stream::Peer;
    use pgshrink_wire::{MemoryBudget, Role};

    fn value(page: &str, sample: &str) -> Option<f64> {
        page.lines().find_map(|l| l.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
    }

    fn registry() -> Arc<Registry> {
        Arc::new(Registry::new(Role::Gateway, MemoryBudget::default()))
    }

    fn session(registry: &Arc<Registry>) -> Registered {
        let mut entry = registry.enter(Peer::Unix { uid: 1 });
        assert_eq!(entry.become_session(1, 0), Ok(()));
        entry
    }

    fn identity(server: &str) -> Identity {
        Identity { server: server.into(), user: "u\"\n".into(), ..Identity::default() }
    }

    #[test]
    fn counters_do_not_go_down_when_a_session_ends_or_changes_its_algorithm() {
        let registry = registry();
        let entry = session(&registry);
        let compression = |sending: &str| Compression {
            dialect: "ack",
            agreed: "zstd:1,lz4:1".into(),
            sending: sending.into(),
        };
        entry.session.set_identity(identity("a"));
        entry.session.set_compression(Some(compression("zstd:1")));
        entry.session.counters.to_client.moved(1000);
        entry.session.set_compression(Some(compression("lz4:1")));
        entry.session.counters.to_client.moved(10);
        let sample = r#"pgshrink_raw_bytes_total{server="a",direction="to_client"}"#;
        let zstd = r#"pgshrink_sent_raw_bytes_total{server="a",algorithm="zstd"}"#;
        let lz4 = r#"pgshrink_sent_raw_bytes_total{server="a",algorithm="lz4"}"#;
        let live = r#"pgshrink_sessions_sending{server="a",algorithm="lz4"}"#;
        let began = r#"pgshrink_sessions_began_total{server="a",dialect="ack"}"#;
        let read = |names: [&str; 5]| {
            let page = render(&registry).unwrap();
            names.map(|name| value(&page, name))
        };
        let names = [sample, zstd, lz4, live, began];
        assert_eq!(read(names), [1010.0, 1000.0, 10.0, 1.0, 1.0].map(Some));
        drop(entry);
        // The gauge's server is no longer known: it has no configuration here, but its sums stay.
        assert_eq!(read(names), [1010.0, 1000.0, 10.0, 0.0, 1.0].map(Some));
    }

    #[test]
    fn nothing_a_client_says_becomes_a_label() {
        let registry = registry();
        let entry = session(&registry);
        entry.session.set_identity(identity("we\"ird\\na"));
        entry.session.set_plain("nothing_common");
        let page = render(&registry).unwrap();
        assert!(!page.contains("user"), "{page}");
        assert!(page.contains(r#"server="we\"ird\\na""#), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn every_family_says_what_it_is_once() {
        let page = render(&registry()).unwrap();
        let names = |start: &str| -> Vec<String> {
            page.lines().filter_map(|l| l.strip_prefix(start)?.split(' ').next().map(String::from)).collect()
        };
        let (help, types) = (names("# HELP "), names("# TYPE "));
        assert_eq!(help, types);
        let mut unique = help.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), help.len());
        assert!(help.len() > 25, "{}", help.len());
        for name in &help {
            assert!(name.starts_with("pgshrink_") || name.starts_with("process_"), "{name}");
        }
    }

    #[test]
    fn every_state_of_a_session_has_a_row() {
        let registry = registry();
        let entry = session(&registry);
        for phase in
            [crate::registry::Phase::Login, crate::registry::Phase::Active, crate::registry::Phase::Closing]
        {
            for status in [0, b'I', b'T', b'E'] {
                entry.session.set_phase(phase);
                entry.session.set_transaction(status);
                assert!(STATES.contains(&session_state(&entry.session)));
            }
        }
    }
}
