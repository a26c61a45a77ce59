//! SHOW SAVINGS: what compression would have saved, the newest day first.

use pgshrink_egress::Estimate;

use super::clients::clean;
use super::table::{Column, Kind, Row};
use crate::registry::Registry;

const PERCENT: Kind = Kind::Fixed(1);

pub(super) const COLUMNS: &[Column] = &[
    ("day", Kind::Text),
    ("client", Kind::Text),
    ("database", Kind::Text),
    ("bytes", Kind::Int),
    ("compressed_bytes", Kind::Int),
    ("saved_bytes", Kind::Int),
    ("saved_percent", PERCENT),
    ("cpu_seconds", Kind::Fixed(3)),
    ("sampled_percent", Kind::Fixed(2)),
    ("to_server_bytes", Kind::Int),
    ("to_server_compressed_bytes", Kind::Int),
];

/// A row for each line, and one for all. Without `observe` there is only that one, and nothing in it.
pub(super) fn rows(registry: &Registry) -> Vec<Row> {
    let report = registry.observer.report().unwrap_or_default();
    let mut total = Estimate::default();
    let mut rows: Vec<Row> = Vec::new();
    for (day, key, estimate) in report.days.estimates() {
        total.add(&estimate);
        rows.push(row(&day.to_string(), &clean(&key.client), &clean(&key.database), &estimate));
    }
    rows.push(row("all", "", "", &total));
    rows
}

fn row(day: &str, client: &str, database: &str, estimate: &Estimate) -> Row {
    let Estimate { to_client, to_server } = estimate;
    let saved = to_client.saved_bytes();
    let percent = if to_client.bytes == 0 { 0.0 } else { 100.0 * saved as f64 / to_client.bytes as f64 };
    vec![
        day.into(),
        client.into(),
        database.into(),
        to_client.bytes.into(),
        to_client.compressed_bytes.into(),
        saved.into(),
        percent.into(),
        estimate.cpu_s().into(),
        estimate.sampled_percent().into(),
        to_server.bytes.into(),
        to_server.compressed_bytes.into(),
    ]
}
