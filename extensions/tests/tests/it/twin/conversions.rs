//! What only our server is told: conversions of tables in both directions, while sessions work on them. They change no
//! row, so the twin need not know, and what comes of each is not looked at.

use std::path::Path;
use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Rng};

use super::link::Link;
use super::pair::{Halt, Step, Twins};
use super::story::SERVER;

const SETTINGS: [&str; 6] = ["zstd:1", "zstd:9", "lz4", "pglz", "zlib:1", "snappy"];

/// The session that asks for them.
#[derive(Debug)]
pub struct Conversions {
    ours: Link,
    /// Whether `cfs.node_compression` changes too.
    node: bool,
}

impl Conversions {
    pub fn new(twins: &Twins, node: bool) -> Conversions {
        let mut ours = Link::new(twins.ours.psql());
        // Tables may be locked by sessions whose turn comes later.
        let hello =
            "set lock_timeout = '100ms'; set statement_timeout = '20s'; set search_path = public, tools";
        assert!(ours.ask(hello).is_some_and(|said| !said.failed()));
        Conversions { ours, node }
    }

    /// One statement, about one of these tables or a database.
    pub fn one(&mut self, twins: &Twins, rng: &mut Rng, tables: &[String]) -> Step<()> {
        let sql = choose(rng, tables, self.node);
        twins.story.tell(SERVER, &format!("ours: {sql}"));
        let said = self.ours.ask(&sql).ok_or(Halt::Crash)?;
        if said.failed() {
            twins.story.tell(SERVER, &format!("  is refused: {}", said.message));
        }
        Ok(())
    }
}

fn choose(rng: &mut Rng, tables: &[String], node: bool) -> String {
    let table = if tables.is_empty() { "t0" } else { rng.pick(tables).as_str() };
    let setting = *rng.pick(&SETTINGS);
    match rng.below(24) {
        0..8 => format!("select cfs_compress_relation('{table}', '{setting}')"),
        8..14 => format!("select cfs_decompress_relation('{table}')"),
        14..16 => format!("select cfs_cancel('{table}')"),
        16 => format!("select cfs_set('{table}', null)"),
        17 => format!("select cfs_set('{table}', '{setting}')"),
        18 => format!("select cfs_wait('{table}', '{} ms')", rng.between(50, 1500)),
        19 | 20 => format!("select pg_sleep({})", rng.pick(&["0.01", "0.1", "0.5"])),
        21 if node => {
            let value = if rng.chance(50) { "" } else { setting };
            format!("alter system set cfs.node_compression = '{value}';\nselect pg_reload_conf()")
        }
        21 | 22 => format!("select cfs_compress_database('d{}', '{setting}')", rng.below(4)),
        _ => format!("select cfs_decompress_database('d{}')", rng.below(4)),
    }
}

/// Waits until all files have come where they go.
pub fn settle(ours: &Cluster) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let ask = "select path, direction, state, pages, pages_done, waits_for from tools.cfs_progress";
        let waiting = ours.sql(ask).map_err(|error| error.to_string())?;
        let bases = bases(&ours.data_dir());
        if waiting.is_empty() && bases.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(120) {
            return Err(format!("conversions do not end:\n{waiting}\n{}", bases.join("\n")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Bases of containers, and what is being exchanged.
fn bases(data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut stack = vec![data.join("base"), data.join("pg_tblspc")];
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name == "base.pgshrink" || name.contains(".pgshrink-new.") {
                found.push(path.display().to_string());
            }
            if path.is_dir() {
                stack.push(path);
            }
        }
    }
    found
}
