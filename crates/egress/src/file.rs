//! The file of daily totals: `formats/egress.md`.
//!
//! JSON in lines, so that `jq` and `grep` read it: a header, a line for each client, database and day, and a last line that proves the
//! others. Invariants
//! * F1 What [`write`] gave, [`read`] takes, and finds the same counters.
//! * F2 A file that lacks a byte, or has another one, is refused; nothing of it is used.
//! * F3 Sizes are checked before anything is kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::day::Day;
use crate::ledger::{Key, Ledger, Limits};
use crate::traffic::{Direction, Kind, Line, Sample, Sum};

/// What the header says.
pub const FORMAT: &str = "pgshrink-egress";
/// Of this code.
pub const VERSION: u32 = 1;
/// Largest file that is read, in bytes: what the largest limits of a gateway come to.
pub const SIZE_MAX: usize = 512 << 20;

/// Why a file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something else, or nothing.
    #[error("expected a first line with \"format\":\"{FORMAT}\", found {found}")]
    NotEgress {
        /// Its beginning.
        found: String,
    },
    /// A newer program wrote it.
    #[error("version {found}, this program reads {VERSION}: use the pgshrink that wrote it, or a newer one")]
    Version {
        /// In the header.
        found: u32,
    },
    /// The last line is not there or does not fit.
    #[error("damaged: {reason}")]
    Damaged {
        /// What was expected and found.
        reason: String,
    },
    /// The checksum is right and a line is not: no version of this program wrote it.
    #[error("line {number}: {reason}")]
    Line {
        /// From 1.
        number: usize,
        /// What was expected and found.
        reason: String,
    },
    /// Larger than [`SIZE_MAX`].
    #[error("{found} bytes, the limit is {SIZE_MAX}")]
    TooLarge {
        /// Its size.
        found: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct Header<'a> {
    format: &'a str,
    version: u32,
    /// For readers: what the estimates are for.
    compression: &'a str,
    /// For readers.
    written: &'a str,
}

/// The header of any version.
#[derive(Deserialize)]
struct AnyHeader {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Trailer {
    lines: u64,
    crc32c: String,
}

/// Bytes, sampled bytes, then bytes, wire bytes and nanoseconds of what the samples stand for.
type Counts = [u64; 5];

#[derive(Serialize, Deserialize)]
struct Row {
    day: String,
    client: String,
    database: String,
    /// Estimates, for readers; made again from `counts` by this program.
    bytes: u64,
    compressed_bytes: u64,
    to_server_bytes: u64,
    to_server_compressed_bytes: u64,
    sampled_bytes: u64,
    cpu_s: f64,
    counts: BTreeMap<String, BTreeMap<String, Counts>>,
}

/// The file of a ledger. `compression` and `written` (a time) are told to readers.
pub fn write(ledger: &Ledger, compression: &str, written: &str) -> Vec<u8> {
    let mut text = String::new();
    put(&mut text, &Header { format: FORMAT, version: VERSION, compression, written });
    let estimates = ledger.estimates();
    for (day, key, estimate) in &estimates {
        let Some(line) = ledger.line(*day, key) else { continue };
        put(
            &mut text,
            &Row {
                day: day.to_string(),
                client: key.client.clone(),
                database: key.database.clone(),
                bytes: estimate.to_client.bytes,
                compressed_bytes: estimate.to_client.compressed_bytes,
                to_server_bytes: estimate.to_server.bytes,
                to_server_compressed_bytes: estimate.to_server.compressed_bytes,
                sampled_bytes: estimate
                    .to_client
                    .sampled_bytes
                    .saturating_add(estimate.to_server.sampled_bytes),
                cpu_s: estimate.cpu_s(),
                counts: counts_of(line),
            },
        );
    }
    let crc32c = format!("{:08x}", crc32c::crc32c(text.as_bytes()));
    put(&mut text, &Trailer { lines: estimates.len() as u64, crc32c });
    text.into_bytes()
}

fn put(text: &mut String, line: &impl Serialize) {
    // Numbers, texts and maps with keys of text: there is nothing in them that JSON cannot say.
    let line = serde_json::to_string(line).unwrap_or_default();
    // A String takes everything.
    let _ = writeln!(text, "{line}");
}

fn counts_of(line: &Line) -> BTreeMap<String, BTreeMap<String, Counts>> {
    let mut counts = BTreeMap::<String, BTreeMap<String, Counts>>::new();
    for direction in Direction::ALL {
        for kind in Kind::ALL {
            let sum @ Sum { bytes, sampled_bytes, sampled } = line.get(direction, kind);
            if sum != Sum::default() {
                let counts = counts.entry(direction.name().to_owned()).or_default();
                let all = [bytes, sampled_bytes, sampled.raw_bytes, sampled.wire_bytes, sampled.cpu_ns];
                counts.insert(kind.name().to_owned(), all);
            }
        }
    }
    counts
}

/// Reads a file. The ledger has `limits`, and all lines of the file even if they are more.
///
/// # Errors
/// Where a single byte is not as it was written.
pub fn read(bytes: &[u8], limits: Limits) -> Result<Ledger, Error> {
    if bytes.len() > SIZE_MAX {
        return Err(Error::TooLarge { found: bytes.len() });
    }
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let header = serde_json::from_slice::<AnyHeader>(first).ok().filter(|header| header.format == FORMAT);
    let header = header.ok_or_else(|| Error::NotEgress { found: beginning(first) })?;
    if header.version != VERSION {
        return Err(Error::Version { found: header.version });
    }
    let (proved, trailer) = trailer(bytes)?;
    let found = crc32c::crc32c(proved);
    let expected = u32::from_str_radix(&trailer.crc32c, 16).ok().filter(|_| trailer.crc32c.len() == 8);
    if expected != Some(found) {
        let reason = format!("expected checksum {}, found {found:08x}", trailer.crc32c);
        return Err(Error::Damaged { reason });
    }
    let mut ledger = Ledger::new(limits);
    let mut lines = 0;
    for (index, text) in proved[..proved.len() - 1].split(|b| *b == b'\n').enumerate().skip(1) {
        let wrong = |reason: String| Error::Line { number: index + 1, reason };
        let row: Row = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let (day, key, line) = taken(&row).map_err(wrong)?;
        if !ledger.insert(day, key, line) {
            return Err(wrong("the same day, client and database as in a line before".to_owned()));
        }
        lines += 1;
    }
    if trailer.lines != lines {
        return Err(Error::Damaged { reason: format!("expected {} lines, found {lines}", trailer.lines) });
    }
    Ok(ledger)
}

/// The last line, and what it proves: all before it.
fn trailer(bytes: &[u8]) -> Result<(&[u8], Trailer), Error> {
    let damaged = |reason: &str| Error::Damaged { reason: reason.to_owned() };
    let whole = bytes
        .strip_suffix(b"\n")
        .ok_or_else(|| damaged("the end of the last line is missing: the file is cut off"))?;
    let begin = whole.iter().rposition(|b| *b == b'\n').ok_or_else(|| damaged("the last line is missing"))?;
    let trailer = serde_json::from_slice(&whole[begin + 1..]);
    let trailer = trailer.map_err(|_| damaged("the last line has no checksum: the file is cut off"))?;
    Ok((&bytes[..=begin], trailer))
}

fn beginning(line: &[u8]) -> String {
    const SIZE_SHOWN: usize = 40;
    if line.is_empty() {
        return "an empty line".to_owned();
    }
    format!("\"{}\"", line[..line.len().min(SIZE_SHOWN)].escape_ascii())
}

fn taken(row: &Row) -> Result<(Day, Key, Line), String> {
    let day: Day = row.day.parse()?;
    let key = Key::new(&row.client, &row.database);
    if key.client != row.client || key.database != row.database || row.client.is_empty() {
        return Err(format!("expected a client and a database of at most 63 bytes, found {:?}", row.client));
    }
    let mut line = Line::default();
    for (direction, kinds) in &row.counts {
        let known = Direction::ALL.into_iter().find(|known| known.name() == direction);
        let direction = known.ok_or_else(|| format!("unknown direction \"{direction}\""))?;
        for (kind, [bytes, sampled_bytes, raw_bytes, wire_bytes, cpu_ns]) in kinds {
            let known = Kind::ALL.into_iter().find(|known| known.name() == kind);
            let kind = known.ok_or_else(|| format!("unknown kind \"{kind}\""))?;
            let sampled = Sample { raw_bytes: *raw_bytes, wire_bytes: *wire_bytes, cpu_ns: *cpu_ns };
            *line.get_mut(direction, kind) = Sum { bytes: *bytes, sampled_bytes: *sampled_bytes, sampled };
        }
    }
    Ok((day, key, line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::DEFAULT_LIMITS;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for (day, client, database, n) in [
            ("2026-11-26", "10.0.0.1", "app", 1u64),
            ("2026-11-27", "10.0.0.1", "app", 7),
            ("2026-11-27", "unix", "we\"ird\n\u{e4}", u64::MAX / 3),
        ] {
            let mut line = Line::default();
            for (i, direction) in Direction::ALL.into_iter().enumerate() {
                for kind in Kind::ALL.into_iter().skip(i) {
                    let sampled = Sample { raw_bytes: n / 2, wire_bytes: n / 5, cpu_ns: n };
                    *line.get_mut(direction, kind) = Sum { bytes: n, sampled_bytes: n / 3, sampled };
                }
            }
            ledger.add(day.parse().unwrap_or_default(), &Key::new(client, database), &line);
        }
        ledger
    }

    fn written() -> Vec<u8> {
        write(&ledger(), "zstd:1", "2026-11-27 10:00:00+00")
    }

    #[test]
    fn what_was_written_is_read() {
        assert_eq!(read(&written(), DEFAULT_LIMITS), Ok(ledger()));
        let empty = Ledger::default();
        assert_eq!(read(&write(&empty, "", ""), DEFAULT_LIMITS), Ok(empty));
    }

    #[test]
    fn a_file_cut_anywhere_or_with_another_byte_is_refused() {
        let file = written();
        for end in 0..file.len() {
            assert!(read(&file[..end], DEFAULT_LIMITS).is_err(), "cut at {end}");
        }
        for at in 0..file.len() {
            for bit in [1u8, 0x20, 0x80] {
                let mut other = file.clone();
                other[at] ^= bit;
                // A checksum may be written in capitals.
                let same = read(&other, DEFAULT_LIMITS) == Ok(ledger());
                assert!(
                    read(&other, DEFAULT_LIMITS).is_err() || (same && bit == 0x20),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }

    #[test]
    fn errors_say_what_was_found() {
        let error = |bytes: &[u8]| read(bytes, DEFAULT_LIMITS).map(|_| ()).map_err(|e| e.to_string());
        let text = |bytes: &[u8]| error(bytes).err().unwrap_or_default();
        assert!(text(b"").ends_with("found an empty line"), "{}", text(b""));
        assert!(text(b"[server]\nx").ends_with("found \"[server]\""), "{}", text(b"[server]\nx"));
        let newer = String::from_utf8_lossy(&written()).replace("\"version\":1", "\"version\":2");
        assert!(text(newer.as_bytes()).starts_with("version 2, this program reads 1"));
        let file = written();
        assert!(text(&file[..file.len() - 60]).contains("cut off"), "{}", text(&file[..file.len() - 60]));
    }

    #[test]
    fn a_line_that_no_version_wrote_is_told_by_its_number() {
        let header =
            format!("{{\"format\":\"{FORMAT}\",\"version\":1,\"compression\":\"\",\"written\":\"\"}}\n");
        let row = |day: &str, kind: &str| {
            format!(
                "{{\"day\":\"{day}\",\"client\":\"c\",\"database\":\"d\",\"bytes\":0,\"compressed_bytes\":0,\
                 \"to_server_bytes\":0,\"to_server_compressed_bytes\":0,\"sampled_bytes\":0,\"cpu_s\":0.0,\
                 \"counts\":{{\"to_client\":{{\"{kind}\":[1,2,3,4,5]}}}}}}\n"
            )
        };
        let sealed = |lines: &[String]| {
            let body = header.clone() + &lines.concat();
            let crc = crc32c::crc32c(body.as_bytes());
            format!("{body}{{\"lines\":{},\"crc32c\":\"{crc:08x}\"}}\n", lines.len())
        };
        let good = row("2026-11-27", "bulk");
        let error = |lines: &[String]| match read(sealed(lines).as_bytes(), DEFAULT_LIMITS) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert_eq!(error(std::slice::from_ref(&good)), "");
        assert!(error(&[good.clone(), row("2026-02-30", "bulk")]).starts_with("line 3: expected a day"));
        assert!(error(&[row("2026-11-27", "bulky")]).starts_with("line 2: unknown kind"));
        assert!(error(&[good.clone(), good]).starts_with("line 3: the same day"));
    }
}
