//! Samples of relation files, with the rights of the parallel route.
//!
//! Places lie at equal distances in all relation files put one behind the other, so that each byte of the cluster is as likely
//! as any other. A cluster with very many files is represented by some of them.

use super::{PIECE_BYTES, PIECES_MAX, Piece};
use pgshrink_backup::BackupPath;
use pgshrink_backup::chunk::Content;
use pgshrink_backup::files::content;
use pgshrink_backup::pack::Area;
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::{Connection, Reply, Statement};
use std::time::{Duration, Instant};

/// Files whose sizes are asked for, at most.
const FILES_MAX: usize = 20_000;
/// How long a statement may take.
const STATEMENT_TIME: &str = "SET statement_timeout = '1s'";
/// What the server reads at once to measure how fast it reads, and how often.
const READ_BYTES: u64 = 8 << 20;
const READS_MAX: usize = 3;

/// Main forks of relations.
const FILES: &str = "WITH place(directory) AS ( \
    SELECT 'base/' || name FROM pg_catalog.pg_ls_dir('base', true, false) AS found(name) WHERE name ~ '^[0-9]+$' \
    UNION ALL SELECT 'pg_tblspc/' || space || '/' || version || '/' || name \
    FROM pg_catalog.pg_ls_dir('pg_tblspc', true, false) AS spaces(space) \
    CROSS JOIN LATERAL pg_catalog.pg_ls_dir('pg_tblspc/' || space, true, false) AS versions(version) \
    CROSS JOIN LATERAL pg_catalog.pg_ls_dir('pg_tblspc/' || space || '/' || version, true, false) AS found(name) \
    WHERE space ~ '^[0-9]+$' AND version ~ '^PG_' AND name ~ '^[0-9]+$'), \
    file(path) AS (SELECT directory || '/' || name FROM place \
    CROSS JOIN LATERAL pg_catalog.pg_ls_dir(directory, true, false) AS found(name) \
    WHERE name ~ '^[0-9]+([.][0-9]+)?$' ORDER BY pg_catalog.hashtext(directory || '/' || name), 1";
const SIZES: &str = "SELECT path, stat.size FROM file CROSS JOIN LATERAL pg_catalog.pg_stat_file(path, true) AS stat \
    WHERE NOT stat.isdir AND stat.size > 0";
const READ: &str = "SELECT pg_catalog.pg_read_binary_file($1, $2::bigint, $3::bigint, true)";
const LENGTH: &str =
    "SELECT pg_catalog.length(pg_catalog.pg_read_binary_file($1, $2::bigint, $3::bigint, true))";
/// Of a Linux machine. Only a superuser may read it for sure.
const PROCESSORS: &str = "SELECT pg_catalog.count(*) FROM pg_catalog.regexp_split_to_table( \
    pg_catalog.pg_read_file('/proc/cpuinfo', 0, 1048576, true), E'\\n') AS line WHERE line LIKE 'processor%:%'";
/// Of a Linux machine since it was started; containers on it have the same.
const BOOT: &str = "SELECT pg_catalog.btrim(pg_catalog.pg_read_file('/proc/sys/kernel/random/boot_id', 0, 64, true), E'\\n')";
const BOOT_HERE: &str = "/proc/sys/kernel/random/boot_id";
const IS_SUPERUSER: &str = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user";

/// What was found.
pub(super) struct Found {
    pub(super) pieces: Vec<Piece>,
    /// Bytes per second that the server reads.
    pub(super) read: Option<f64>,
}

/// Reads pieces until there are enough, or the time is over.
pub(super) fn sample(connection: &mut Connection, until: Instant) -> Result<Found, Error> {
    connection.simple_query(STATEMENT_TIME)?;
    let sql = format!("{FILES} LIMIT {FILES_MAX}) {SIZES}");
    let listed = connection.simple_query(&sql)?.pop().unwrap_or_default();
    let files: Vec<(String, u64)> = (0..listed.row_count())
        .filter_map(|row| Some((listed.text(row, 0)?.to_owned(), listed.text(row, 1)?.parse().ok()?)))
        .collect();
    let read = read_rate(connection, &files)?;
    let statement = connection.prepare(READ)?;
    let mut pieces = Vec::new();
    for (path, offset) in places(&files) {
        if Instant::now() > until {
            break;
        }
        let Some(raw) = ask(connection, &statement, (path, offset, PIECE_BYTES as u64))? else { continue };
        let first_block =
            match BackupPath::new(path.as_bytes()).map(|path| content(Area::Data, &path, offset)) {
                Ok(Content::Pages { first_block }) => Some(first_block),
                _ => None,
            };
        if !raw.is_empty() && raw.len() <= PIECE_BYTES {
            pieces.push(Piece { first_block, raw });
        }
    }
    Ok(Found { pieces, read })
}

/// The server's machine, as far as the role may know.
#[derive(Default)]
pub(super) struct Machine {
    /// How many processors it has.
    pub(super) processors: Option<u32>,
    /// Whether it is this one.
    pub(super) is_here: Option<bool>,
}

/// Asks for it.
pub(super) fn machine(connection: &mut Connection) -> Machine {
    let mut ask = |sql| Some(connection.simple_query(sql).ok()?.pop()?.text(0, 0)?.to_owned());
    if ask(IS_SUPERUSER).as_deref() != Some("t") {
        return Machine::default();
    }
    let processors = ask(PROCESSORS).and_then(|count| count.parse().ok()).filter(|count| *count > 0);
    let here = std::fs::read_to_string(BOOT_HERE).ok();
    let is_here = ask(BOOT).zip(here).map(|(there, here)| there == here.trim());
    Machine { processors, is_here }
}

/// Has the server read some larger pieces and send their lengths. The median of the rates.
fn read_rate(connection: &mut Connection, files: &[(String, u64)]) -> Result<Option<f64>, Error> {
    let large: Vec<_> = files.iter().filter(|(_, size)| *size >= READ_BYTES).collect();
    if large.is_empty() {
        return Ok(None);
    }
    let statement = connection.prepare(LENGTH)?;
    let mut rates = Vec::new();
    for at in 0..READS_MAX {
        let (path, size) = large[at * large.len() / READS_MAX];
        let offset = (size - READ_BYTES) / READS_MAX as u64 * at as u64;
        // The way there and back is not reading.
        let began = Instant::now();
        ask(connection, &statement, (path, offset, 0))?;
        let (empty, began) = (began.elapsed(), Instant::now());
        ask(connection, &statement, (path, offset, READ_BYTES))?;
        let took = began.elapsed().saturating_sub(empty).max(Duration::from_micros(1));
        rates.extend(super::rate(READ_BYTES, took));
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates.get(rates.len() / 2).copied())
}

/// The only value of a request's answer.
fn ask(
    connection: &mut Connection,
    statement: &Statement,
    (path, offset, bytes): (&str, u64, u64),
) -> Result<Option<Vec<u8>>, Error> {
    let [offset, bytes] = [offset, bytes].map(|number| number.to_string());
    let mut pipeline = connection.pipeline()?;
    pipeline.request(statement, &[Some(path.as_bytes()), Some(offset.as_bytes()), Some(bytes.as_bytes())])?;
    let mut found = None;
    while let Some(reply) = pipeline.next()? {
        if let Reply::Row(row) = reply {
            found = row.values().next().flatten().map(<[u8]>::to_vec);
        }
    }
    Ok(found)
}

/// Places in files, each with its offset. The first ones are spread over all of it, as there may be no time for more.
fn places(files: &[(String, u64)]) -> Vec<(&str, u64)> {
    let piece = PIECE_BYTES as u64;
    let total: u64 = files.iter().fold(0, |total, (_, size)| total.saturating_add(*size));
    let mut found: Vec<(&str, u64)> = Vec::new();
    for index in 0..PIECES_MAX {
        let part = index.reverse_bits() >> (usize::BITS - PIECES_MAX.ilog2());
        let mut at = (u128::from(total) * (2 * part as u128 + 1) / (2 * PIECES_MAX as u128)) as u64;
        for (path, size) in files {
            if at < *size {
                let place = (path.as_str(), at / piece * piece);
                if !found.contains(&place) {
                    found.push(place);
                }
                break;
            }
            at -= size;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_over_all_bytes_and_none_is_taken_twice() {
        let file = |name: &str, size| (name.to_owned(), size);
        assert_eq!(places(&[]), []);
        assert_eq!(places(&[file("a", 8192)]), [("a", 0)]);
        let files = [file("a", 1 << 20), file("b", 1 << 30), file("c", 8192), file("d", 1 << 30)];
        let found = places(&files);
        assert_eq!(found.len(), PIECES_MAX);
        let of = |name| found.iter().filter(|(path, _)| *path == name).count();
        assert_eq!((of("b"), of("d")), (PIECES_MAX / 2, PIECES_MAX / 2));
        assert_ne!(found[0].0, found[1].0, "the first two are far from each other");
        assert!(found.iter().all(|(_, offset)| offset % 8192 == 0 && *offset < 1 << 30));
        let huge = [file("a", u64::MAX), file("b", u64::MAX)];
        assert!(places(&huge).len() <= PIECES_MAX);
    }
}
