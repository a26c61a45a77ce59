//! Files that `formats/egress/reference.py` wrote from the description of the format.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pgshrink_egress::file::{Error, read, write};
use pgshrink_egress::{DEFAULT_LIMITS, Day, Direction, Key, Kind, Ledger, Line, Sample, Sum};

fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/egress").join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let named =
        |path: &PathBuf| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap());
    paths.iter().map(named).collect()
}

fn line(counts: &[(Direction, Kind, [u64; 5])]) -> Line {
    let mut line = Line::default();
    for (direction, kind, [bytes, sampled_bytes, raw_bytes, wire_bytes, cpu_ns]) in counts.iter().copied() {
        let sampled = Sample { raw_bytes, wire_bytes, cpu_ns };
        *line.get_mut(direction, kind) = Sum { bytes, sampled_bytes, sampled };
    }
    line
}

/// What is in the file of this name, without lines that count nothing.
fn expected(name: &str) -> Ledger {
    use Direction::{ToClient, ToServer};
    let bulk = line(&[(ToClient, Kind::Bulk, [1000, 400, 800, 100, 5000])]);
    let all = line(&[
        (ToClient, Kind::Start, [1, 2, 3, 4, 5]),
        (ToClient, Kind::Replies, [6, 7, 8, 9, 10]),
        (ToClient, Kind::Bulk, [u64::MAX, 0, 0, 0, 0]),
        (ToClient, Kind::Replication, [11, 0, 0, 0, 0]),
        (ToServer, Kind::Start, [12, 13, 14, 15, 16]),
    ]);
    let first = ("2026-11-26", "10.0.0.5", "app".to_owned(), bulk);
    let lines = match name {
        "none" => vec![],
        "one" => vec![first],
        "days" => vec![
            first,
            ("2026-11-27", "unix", "we\"ird\n\u{e4}".to_owned(), all),
            ("2024-02-29", "2001:db8::1", "d".repeat(63), bulk),
        ],
        _ => panic!("{name}: nobody says what is in it"),
    };
    let mut ledger = Ledger::default();
    for (day, client, database, line) in lines {
        ledger.add(day.parse::<Day>().unwrap(), &Key::new(client, &database), &line);
    }
    ledger
}

#[test]
fn golden_files_have_what_the_description_says() {
    let found = files("golden");
    assert_eq!(found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["days", "none", "one"]);
    for (name, bytes) in found {
        let ledger = read(&bytes, DEFAULT_LIMITS).unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = expected(&name);
        let texts = |ledger: &Ledger| -> BTreeSet<String> {
            let estimates = ledger.estimates();
            let lines =
                estimates.iter().filter_map(|(day, key, _)| Some((day, key, ledger.line(*day, key)?)));
            lines.filter(|(_, _, line)| !line.is_empty()).map(|line| format!("{line:?}")).collect()
        };
        assert_eq!(texts(&ledger), texts(&expected), "{name}");
        let again = read(&write(&ledger, "zstd:1", "now"), DEFAULT_LIMITS).unwrap();
        assert_eq!(again, ledger, "{name}: written anew");
    }
}

#[test]
fn files_that_must_be_refused_are_refused_for_their_reason() {
    let found = files("golden-errors");
    assert_eq!(found.len(), 17);
    for (name, bytes) in found {
        let error = read(&bytes, DEFAULT_LIMITS).map(|_| ()).expect_err(&name);
        let kind = match &error {
            Error::NotEgress { .. } => "not-egress",
            Error::Version { .. } => "version",
            Error::Damaged { .. } => "damaged",
            Error::Line { .. } => "line",
            _ => "another",
        };
        assert!(name.starts_with(kind), "{name}: {error}");
    }
}
