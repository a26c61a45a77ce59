//! A session that has tables converted in both directions while the others work on them: turned round, dropped, cut and moved
//! in the middle. It changes no row, so it has no part in what the server acknowledges.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Rng};

use super::check::leftovers;
use super::recording::{Kind, Record};

/// What it has converted. Those of `change_tables` come and go.
const TABLES: [&str; 12] =
    ["account", "account", "history", "history", "note", "note", "made", "d0", "d1", "d2", "d3", "fleeting"];
const SETTINGS: [&str; 5] = ["zstd:1", "zstd:9", "lz4", "pglz", "zstd:3"];

/// A table gets the form that its tablespace does not give it.
pub fn other_form(table: &str) -> String {
    format!(
        "select case when reltablespace = 0 then cfs_compress_relation(oid) else cfs_decompress_relation(oid) end
            from pg_class where relname = '{table}'"
    )
}

/// Settings beside those of every server.
pub fn settings(rng: &mut Rng) -> Vec<(&'static str, &'static str)> {
    vec![
        ("cfs.naptime", "1s"),
        ("cfs.convert_workers", *rng.pick(&["1", "2"])),
        // Pages of a file are on their way for some seconds, or some milliseconds.
        ("cfs.convert_rate", *rng.pick(&["0", "500kB", "2MB", "20MB"])),
    ]
}

/// The next statement, and how long to wait after it.
pub fn next(rng: &mut Rng) -> (String, Duration) {
    let table = *rng.pick(&TABLES);
    let setting = *rng.pick(&SETTINGS);
    let sql = match rng.below(20) {
        0..7 => format!("select cfs_compress_relation('{table}', '{setting}')"),
        7..13 => format!("select cfs_decompress_relation('{table}')"),
        13..15 => format!("select cfs_cancel('{table}')"),
        15 => format!("select cfs_set('{table}', null)"),
        16 => format!("select cfs_set('{table}', '{setting}')"),
        17 => format!("select cfs_wait('{table}', '{} ms')", rng.between(100, 2000)),
        18 => format!("select cfs_compress_database('{}', '{setting}')", rng.pick(&["postgres", "pattern"])),
        _ => format!("select cfs_decompress_database('{}')", rng.pick(&["postgres", "pattern"])),
    };
    let pause = match rng.below(3) {
        0 => rng.below(30),
        1 => rng.below(300),
        _ => rng.below(1500),
    };
    (sql, Duration::from_millis(pause as u64))
}

/// Whether the record is a step of a conversion after which a loss of power is worth a look: links, exchanges, and
/// what has a name that only conversions have.
pub fn is_step(record: &Record<'_>) -> bool {
    let is_of_conversion = |path: &str| path.ends_with("/base.pgshrink") || path.contains(".pgshrink-new.");
    match record.kind {
        Kind::Exchange => true,
        Kind::Link => is_of_conversion(record.second_path()),
        Kind::Create | Kind::Unlink => record.path().ends_with("/base.pgshrink"),
        _ => false,
    }
}

/// What a server on an image does about conversions, beside being checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Files stay on their way.
    Stay,
    /// They go on, as fast as they can.
    GoOn,
}

impl Then {
    pub fn random(rng: &mut Rng) -> Then {
        if rng.chance(40) { Then::GoOn } else { Then::Stay }
    }

    /// Has a server that does not run do so.
    pub fn set(self, data: &Path) {
        let line = match self {
            Then::Stay => "cfs.convert = off\n",
            Then::GoOn => "cfs.convert_rate = 0\n",
        };
        let mut settings = OpenOptions::new().append(true).open(data.join("postgresql.conf")).unwrap();
        settings.write_all(line.as_bytes()).unwrap();
    }

    /// What is left that should not be, when files have come where they go. What a process is making or exchanging at the
    /// moment is gone a moment later.
    pub fn leftovers(self, cluster: &Cluster, location: &Path) -> Vec<String> {
        const PATIENCE: Duration = Duration::from_secs(90);
        if self == Then::Stay {
            return leftovers(cluster, location, &[".pgshrink-new.", ".pgshrink-old."]);
        }
        let begun = Instant::now();
        loop {
            let mut wrong = leftovers(cluster, location, &[".pgshrink-new.", ".pgshrink-old."]);
            wrong.extend(bases(cluster, location));
            // Those of no relation stay: a server does not know of files whose removal was lost.
            let files =
                "select path, direction, state, waits_for from cfs_progress where relation is not null";
            match cluster.sql(files) {
                Ok(files) => {
                    wrong.extend(files.lines().map(|file| format!("is on its way for ever: {file}")))
                }
                Err(error) => return vec![format!("progress: {error}")],
            }
            if wrong.is_empty() || begun.elapsed() > PATIENCE {
                if !wrong.is_empty() {
                    wrong.push(known(cluster));
                }
                return wrong;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Bases of relations' files, in the database that is asked.
fn bases(cluster: &Cluster, location: &Path) -> Vec<String> {
    let files =
        cluster.sql("select pg_relation_filenode(oid) from pg_class where oid >= 16384").unwrap_or_default();
    let is_known = |base: &String| {
        let name =
            base.split("/base.pgshrink").next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let number = name.split(['.', '_']).next().unwrap_or_default();
        files.lines().any(|file| file == number)
    };
    leftovers(cluster, location, &["base.pgshrink"]).into_iter().filter(is_known).collect()
}

/// What a reader of a report wants to know: files of relations, and the settings in force.
fn known(cluster: &Cluster) -> String {
    let files =
        "select string_agg(oid::regclass || ' ' || relfilenode || ' ' || reltablespace, ', ') from pg_class
        where oid >= 16384 and relfilenode <> 0";
    let settings = "select string_agg(name || ' ' || in_force, ', ') from cfs_tablespaces";
    let labels = "select string_agg(objoid::regclass || ' ' || label, ', ') from pg_seclabel";
    let ask = |sql| cluster.sql(sql).unwrap_or_else(|error| error.to_string());
    format!("files: {}\nsettings: {}\nlabels: {}", ask(files), ask(settings), ask(labels))
}
