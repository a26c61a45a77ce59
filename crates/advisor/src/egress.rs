//! What crossed the gateway: the file of `pgshrink gateway --observe` as a part of the report.
//!
//! The format is `pgshrink-egress`'s; here its lines become the report's.

use std::cmp::Reverse;

use pgshrink_egress::{DEFAULT_LIMITS, Estimate, file};

use crate::finding::{EgressLine, EgressSummary};

pub use pgshrink_egress::file::Error;

/// The content of an `observe_file`. Lines come with the largest saving to the client first.
///
/// # Errors
/// If the file is damaged, cut off, of a newer version, or something else.
pub fn parse(bytes: &[u8]) -> Result<EgressSummary, Error> {
    let ledger = file::read(bytes, DEFAULT_LIMITS)?;
    let mut total = Estimate::default();
    let mut lines: Vec<EgressLine> = Vec::with_capacity(ledger.len());
    for (day, key, estimate) in ledger.estimates() {
        total.add(&estimate);
        let Estimate { to_client, to_server } = estimate;
        lines.push(EgressLine {
            day: day.to_string(),
            client: key.client.clone(),
            database: key.database.clone(),
            bytes: to_client.bytes,
            compressed_bytes: to_client.compressed_bytes,
            to_server_bytes: to_server.bytes,
            to_server_compressed_bytes: to_server.compressed_bytes,
            sampled_bytes: to_client.sampled_bytes.saturating_add(to_server.sampled_bytes),
            cpu_s: estimate.cpu_s(),
        });
    }
    // Stable: of equal savings the newest day stays first.
    lines.sort_by_key(|line| Reverse((line.bytes.saturating_sub(line.compressed_bytes), line.bytes)));
    Ok(EgressSummary {
        days: u32::try_from(ledger.days()).unwrap_or(u32::MAX),
        bytes: total.to_client.bytes,
        compressed_bytes: total.to_client.compressed_bytes,
        to_server_bytes: total.to_server.bytes,
        to_server_compressed_bytes: total.to_server.compressed_bytes,
        sampled_bytes: total.to_client.sampled_bytes.saturating_add(total.to_server.sampled_bytes),
        cpu_s: total.cpu_s(),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_egress::{Direction, Key, Kind, Ledger, Line, Sample, Sum};

    fn file_of(lines: &[(&str, &str, u64, u64)]) -> Vec<u8> {
        let mut ledger = Ledger::default();
        for (day, client, bytes, wire) in lines {
            let mut line = Line::default();
            let sampled = Sample { raw_bytes: *bytes, wire_bytes: *wire, cpu_ns: 500_000_000 };
            *line.get_mut(Direction::ToClient, Kind::Bulk) =
                Sum { bytes: *bytes, sampled_bytes: *bytes, sampled };
            *line.get_mut(Direction::ToServer, Kind::Start) = Sum { bytes: 10, ..Sum::default() };
            ledger.add(day.parse().unwrap_or_default(), &Key::new(client, "app"), &line);
        }
        file::write(&ledger, "zstd:1", "2026-11-27 00:00:00.000+00")
    }

    #[test]
    fn lines_come_with_the_largest_saving_first_and_sums_are_theirs() -> Result<(), Error> {
        let summary = parse(&file_of(&[
            ("2026-11-26", "10.0.0.1", 1000, 300),
            ("2026-11-27", "10.0.0.1", 1000, 900),
            ("2026-11-27", "unix", 5000, 4500),
        ]))?;
        let order: Vec<_> =
            summary.lines.iter().map(|l| (l.day.as_str(), l.client.as_str(), l.bytes)).collect();
        let expected = [
            ("2026-11-26", "10.0.0.1", 1000),
            ("2026-11-27", "unix", 5000),
            ("2026-11-27", "10.0.0.1", 1000),
        ];
        assert_eq!(order, expected);
        assert_eq!((summary.days, summary.bytes, summary.compressed_bytes), (2, 7000, 5700));
        assert_eq!((summary.to_server_bytes, summary.to_server_compressed_bytes), (30, 30));
        assert_eq!((summary.sampled_bytes, summary.cpu_s), (7000, 1.5));
        Ok(())
    }

    #[test]
    fn a_file_that_is_cut_off_is_an_error() {
        let whole = file_of(&[("2026-11-26", "10.0.0.1", 1000, 300)]);
        assert!(matches!(parse(&whole[..whole.len() - 3]), Err(Error::Damaged { .. })));
        assert!(matches!(parse(b"{}"), Err(Error::NotEgress { .. })));
    }
}
