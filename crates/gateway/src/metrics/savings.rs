//! What compression would have saved since the process began, with `observe`. Clients beyond `observe_clients` are one label.

use std::fmt::Error;
use std::time::UNIX_EPOCH;

use pgshrink_egress::{Estimate, Figure, Key};
use prometheus_client::registry::Unit;

use super::page::{Labels, Writer, one};
use crate::registry::Registry;

/// Nothing where nothing was ever observed.
pub(super) fn write(w: &mut Writer<'_>, registry: &Registry) -> Result<(), Error> {
    let Some(report) = registry.observer.report() else { return Ok(()) };
    let lines: Vec<(&Key, Estimate)> =
        report.since_start.estimates().into_iter().map(|(_, key, estimate)| (key, estimate)).collect();
    let bytes = Some(&Unit::Bytes);
    w.counter(
        "pgshrink_observed",
        bytes,
        "Bytes that went through uncompressed while they were observed.",
        each(&lines, |figure| figure.bytes),
    )?;
    w.counter(
        "pgshrink_observed_sampled",
        bytes,
        "Of these, bytes that were measured; the estimates extrapolate them.",
        each(&lines, |figure| figure.sampled_bytes),
    )?;
    // Gauges: an estimate may go down when more has been measured.
    w.gauge(
        "pgshrink_observed_compressed",
        bytes,
        "Size of these bytes with compression, estimated.",
        each(&lines, |figure| figure.compressed_bytes as f64),
    )?;
    w.gauge(
        "pgshrink_observed_cpu",
        Some(&Unit::Seconds),
        "Processor time that compression would have cost this process, estimated.",
        each(&lines, |figure| figure.cpu_ns as f64 / 1e9),
    )?;
    w.counter(
        "pgshrink_observe_sampling",
        Some(&Unit::Seconds),
        "Processor time used for measuring.",
        one(report.sampling.as_secs_f64()),
    )?;
    w.counter(
        "pgshrink_observe_dropped_samples",
        None,
        "Samples skipped because of the processor time limit.",
        one(report.dropped),
    )?;
    w.counter(
        "pgshrink_observe_write_failures",
        None,
        "Writes of observe_file that failed.",
        one(report.write_failures),
    )?;
    let written = report.written.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    w.gauge(
        "pgshrink_observe_written_time",
        Some(&Unit::Seconds),
        "Last write of observe_file, in seconds since 1970; 0 without a file.",
        one(written.unwrap_or_default().as_secs_f64()),
    )
}

fn each<N>(lines: &[(&Key, Estimate)], value: impl Fn(&Figure) -> N) -> Vec<(Labels, N)> {
    let labels = |key: &Key, direction: &str| {
        vec![
            ("client", key.client.clone()),
            ("database", key.database.clone()),
            ("direction", direction.to_owned()),
        ]
    };
    let both = |(key, estimate): &(&Key, Estimate)| {
        [
            (labels(key, "to_client"), value(&estimate.to_client)),
            (labels(key, "to_server"), value(&estimate.to_server)),
        ]
    };
    lines.iter().flat_map(both).collect()
}
