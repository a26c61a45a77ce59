//! Transactions on documents that fit into memory, and on more than fits.

use std::fs;
use std::path::{Path, PathBuf};

use pgshrink_bench_report::{Result, Table, Unit};

use super::load::Form;
use super::pgbench::{Measured, SCRIPTS, TPS_MIN, measure};
use super::small::{Settings, Small};
use super::{Bench, Found, judge};

/// Bytes of jsonb of each corpus, repeated if it has fewer.
const FULL_BYTES: u64 = 192 << 20;
const QUICK_BYTES: u64 = 24 << 20;
/// Of the server itself: its processes, its buffers, and what pgbench's sessions hold.
const SERVER_BYTES: u64 = 64 << 20;
/// The limit leaves room for this part of the smaller jsonb table.
const SHARE: f64 = 0.25;
const CORPORA: [&str; 4] = ["cve_record", "windows_events", "deb_package", "log_line"];
const WHERE: [&str; 2] = ["in memory", "beyond it"];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let mut table = empty();
    // By where the data is, by script.
    let mut found: [[Found; SCRIPTS.len()]; 2] = Default::default();
    let bytes = if bench.full() { FULL_BYTES } else { QUICK_BYTES };
    for name in CORPORA {
        let settings = Settings { buffers: "2GB", bytes_max: bytes, is_repeated: true };
        let small = Small::start(bench.full(), &[name], settings)?;
        let count = small.corpora[0].1;
        small.store.cluster().sql("alter system set synchronous_commit = off; select pg_reload_conf()")?;
        let mut sizes = Vec::new();
        for form in Form::LIVE {
            sizes.push(small.size(form, name)?);
        }
        let limit = SERVER_BYTES + (sizes[0].min(sizes[1]) * SHARE) as u64;
        for ((data, found), is_limited) in WHERE.iter().zip(&mut found).zip([false, true]) {
            let group = if is_limited { Some(squeeze(&small, limit)?) } else { None };
            if !is_limited {
                small.warm(name)?;
            }
            for ((script, text), found) in SCRIPTS.into_iter().zip(found) {
                let tps = measure(bench, 5, &small, name, (count, text))?;
                let limit = if group.is_some() { limit as f64 } else { f64::NAN };
                Measured { name, script, sizes: &sizes, tps }.tell(Some((*data, limit)), &mut table, found);
            }
            // Stops the server first, which has to leave the group before that can go.
            if let Some(group) = group {
                small.store.cluster().stop(pgshrink_testkit::Stop::Fast)?;
                group.remove()?;
            }
        }
    }
    for (data, found) in WHERE.iter().zip(found) {
        for (((script, _), limit), found) in SCRIPTS.into_iter().zip(TPS_MIN).zip(found) {
            let (found, met) = judge(found, limit, false);
            let what = format!("pgbench {script}, TPS to jsonb, data {data}");
            table.verdict(&what, &format!("at least {limit:.1}"), found, met);
        }
    }
    Ok(table)
}

fn empty() -> Table {
    let about = "pgbench with prepared statements, 4 clients, on a table `(id primary key, doc)`: *select* asks a random document for one key, \
        *update* adds a member to one. fsync is on, synchronous_commit off: a disk that others use too would drown the difference. *in memory*: shared buffers of 2 GB hold all tables. *beyond it*: shared buffers of 16 MB, and \
        the server is in a control group whose memory, the kernel's cache of its files included, is limited to 64 MB and a quarter of \
        the smaller jsonb table; it begins with nothing in that cache. Corpora are repeated until they have \
        192 MiB of jsonb. A round takes three seconds (one in a short run) and has new sessions. TPS of zson to that of jsonb, round by round in turn; median, least and most of the rounds.";
    let columns = [
        ("corpus", Unit::Text),
        ("data", Unit::Text),
        ("script", Unit::Text),
        ("codec", Unit::Text),
        ("jsonb pglz", Unit::Bytes),
        ("jsonb lz4", Unit::Bytes),
        ("zson", Unit::Bytes),
        ("limit", Unit::Bytes),
        ("jsonb lz4 TPS", Unit::PerSecond),
        ("zson to pglz", Unit::Ratio),
        ("zson to lz4", Unit::Ratio),
    ];
    Table::new("memory", "Transactions in memory and beyond it", about, &columns)
}

/// Restarts the server with few buffers and nothing in memory, within a limit.
fn squeeze(small: &Small, limit: u64) -> Result<Group> {
    small.store.cluster().sql("alter system set shared_buffers = '16MB'")?;
    small.forget()?;
    Group::of(small.store.cluster().pid().ok_or("the server has no process")?, limit)
}

/// A control group with a limit of memory.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
}

impl Group {
    /// Takes a server and its processes in; those that it starts later are in it too.
    fn of(postmaster: u32, bytes: u64) -> Result<Group> {
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let (parent, limit) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (second, "memory.max"),
        };
        let folder = parent.join(format!("pgshrink-bench-{}", std::process::id()));
        let failed = |what: &str, error| {
            format!("{what} {}: {error}; this table needs root and a memory controller", folder.display())
        };
        fs::create_dir(&folder).map_err(|error| failed("making", error))?;
        let group = Group { folder: folder.clone() };
        fs::write(folder.join(limit), bytes.to_string()).map_err(|error| failed("limiting", error))?;
        let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))?;
        for pid in std::iter::once(postmaster.to_string().as_str()).chain(children.split_whitespace()) {
            fs::write(folder.join("cgroup.procs"), pid).map_err(|error| failed("filling", error))?;
        }
        Ok(group)
    }

    fn remove(self) -> Result<()> {
        Ok(fs::remove_dir(&self.folder)?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
