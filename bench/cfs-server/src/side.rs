//! A server with a tablespace, and what it uses.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgshrink_bench_report::Result;
use pgshrink_testkit::run::{self, Owner};
use pgshrink_testkit::{Cluster, Server, TempDir};
use rustix::fs::{Advice, fadvise};

use crate::mount::Mount;

/// What a tablespace holds back for a full filesystem, which is not its size.
const RESERVE_NAME: &str = "pgshrink-reserve";
/// The compression of both that compress.
const CHOICE: &str = "zstd:1";

/// Prints a key.
const KEY_COMMAND: &str = "printf %064d 7";

/// A setting of servers and its value.
pub type Setting<'a> = (&'a str, &'a str);

/// A server of its own, whose relations are in one tablespace.
#[derive(Debug)]
pub struct Side {
    /// As in the tables.
    pub name: &'static str,
    /// The server. It ends before its tablespace goes.
    pub cluster: Cluster,
    /// The tablespace's directory.
    pub location: PathBuf,
    _home: Home,
}

#[derive(Debug)]
enum Home {
    Directory(#[allow(dead_code, reason = "removed at its end")] TempDir),
    Mounted(#[allow(dead_code, reason = "unmounted at its end")] Mount),
}

/// Whether a server has the library, and where its tablespace is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A stock server, a directory.
    Plain,
    /// The library, a compressed tablespace.
    Ours,
    /// The library, an encrypted tablespace.
    Encrypted,
    /// A stock server, a filesystem that compresses.
    Btrfs,
    /// The library, and nothing compressed.
    Idle,
}

/// What a server has used until now.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Usage {
    /// Processor seconds of all its processes.
    pub server: f64,
    /// Those of checkpointer, background writer and others that serve no client.
    pub background: f64,
    /// Bytes read from disk.
    pub read: f64,
    /// Pages that shared buffers did not have.
    pub missed: f64,
}

impl Usage {
    /// What was used since.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            server: self.server - before.server,
            background: self.background - before.background,
            read: self.read - before.read,
            missed: self.missed - before.missed,
        }
    }

    /// Processor seconds of what serves clients.
    pub fn backends(self) -> f64 {
        self.server - self.background
    }
}

impl Side {
    /// A plain server, ours, and one on btrfs of so many bytes; and why the last is missing, if it is.
    pub fn all(bytes: u64, settings: &[Setting<'_>]) -> Result<(Vec<Side>, String)> {
        let mut sides =
            vec![Side::start(Kind::Plain, bytes, settings)?, Side::start(Kind::Ours, bytes, settings)?];
        let left_out = match Side::start(Kind::Btrfs, bytes, settings) {
            Ok(side) => {
                sides.push(side);
                String::new()
            }
            Err(reason) => format!(" btrfs is left out: {reason}."),
        };
        Ok((sides, left_out))
    }

    /// A server; a filesystem of its own has so many bytes.
    pub fn start(kind: Kind, bytes: u64, settings: &[Setting<'_>]) -> Result<Side> {
        let owner = Owner::find()?;
        let (home, folder) = match kind {
            Kind::Btrfs => {
                let mount = Mount::make("btrfs", bytes, &format!("compress-force={CHOICE}"), &owner)?;
                let path = mount.path().to_owned();
                (Home::Mounted(mount), path)
            }
            _ => {
                let directory = TempDir::owned_by(&owner)?;
                let path = directory.path().to_owned();
                (Home::Directory(directory), path)
            }
        };
        Side::start_in(kind, home, &folder, settings)
    }

    /// A server whose tablespace is in a filesystem of its own.
    pub fn start_on(kind: Kind, filesystem: Mount, settings: &[Setting<'_>]) -> Result<Side> {
        let folder = filesystem.path().to_owned();
        Side::start_in(kind, Home::Mounted(filesystem), &folder, settings)
    }

    fn start_in(kind: Kind, home: Home, folder: &Path, settings: &[Setting<'_>]) -> Result<Side> {
        let owner = Owner::find()?;
        let location = folder.join("tablespace");
        fs::create_dir(&location)?;
        if owner.step_down {
            std::os::unix::fs::chown(&location, Some(owner.uid), Some(owner.gid))?;
        }
        // Nothing happens by itself, and one process answers a query.
        let mut builder = Cluster::builder().server(&Server::with_extensions(15)?).fsync(true);
        let quiet = [("autovacuum", "off"), ("synchronize_seqscans", "off"), ("jit", "off")];
        let rare = [("max_wal_size", "32GB"), ("checkpoint_timeout", "1h")];
        let alone = [("max_parallel_workers_per_gather", "0"), ("max_locks_per_transaction", "256")];
        let has_library = matches!(kind, Kind::Ours | Kind::Encrypted | Kind::Idle);
        let library = has_library.then_some(("shared_preload_libraries", "cfs"));
        let key = (kind == Kind::Encrypted).then_some(("cfs.key_command", KEY_COMMAND));
        for (name, value) in
            quiet.iter().chain(&rare).chain(&alone).chain(&library).chain(&key).chain(settings)
        {
            builder = builder.conf(name, value);
        }
        let (name, options) = match kind {
            Kind::Plain => ("plain", String::new()),
            Kind::Ours => ("ours", format!(" with (compression = '{CHOICE}')")),
            Kind::Encrypted => ("encrypted", format!(" with (compression = '{CHOICE}', encryption = on)")),
            Kind::Btrfs => ("btrfs", String::new()),
            Kind::Idle => ("library loaded", String::new()),
        };
        let cluster = builder.start()?;
        let side = Side { name, cluster, location, _home: home };
        if has_library {
            side.cluster.sql("create extension cfs")?;
        }
        let place = side.location.display();
        side.cluster.sql(&format!("create tablespace bench location '{place}'{options}"))?;
        side.cluster.sql("alter database postgres set default_tablespace = bench")?;
        Ok(side)
    }

    /// Bytes that its relations take on disk, after a checkpoint. Of compressed files of btrfs the kernel tells only
    /// their plain size, so there the filesystem is asked what it has given out.
    pub fn bytes_on_disk(&self) -> Result<f64> {
        self.cluster.sql("checkpoint")?;
        if self.name == "btrfs" {
            rustix::fs::syncfs(File::open(&self.location)?)?;
            let of = rustix::fs::statvfs(&self.location)?;
            return Ok(((of.f_blocks - of.f_bfree) * of.f_frsize) as f64);
        }
        self.bytes_now()
    }

    /// Bytes that the files in its tablespace take, as they are.
    pub fn bytes_now(&self) -> Result<f64> {
        let mut bytes = 0;
        each_file(&self.location, &mut |path, metadata| {
            if path.file_name().is_none_or(|name| name != RESERVE_NAME) {
                bytes += metadata.blocks() * 512;
            }
        })?;
        Ok(bytes as f64)
    }

    /// Restarts the server, so that shared buffers are empty.
    pub fn empty_buffers(&self) -> Result<()> {
        Ok(self.cluster.restart()?)
    }

    /// Restarts the server with nothing of its tablespace in memory.
    pub fn forget(&self) -> Result<()> {
        self.cluster.stop(pgshrink_testkit::Stop::Fast)?;
        each_file(&self.location, &mut |path, _| {
            if let Ok(file) = File::open(path) {
                // Only what is on disk can be dropped.
                let _ = file.sync_all();
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        })?;
        Ok(self.cluster.start()?)
    }

    /// What it has used until now. Counters of sessions are there when they have ended.
    pub fn usage(&self) -> Result<Usage> {
        let server = self.cluster.cpu_seconds().ok_or("the server has no process")?;
        let asked = "select pid from pg_stat_activity where backend_type <> 'client backend'";
        let mut usage = Usage { server, ..Usage::default() };
        for pid in self.cluster.sql(asked)?.lines() {
            usage.background += cpu_seconds_of(pid).unwrap_or(0.0);
            usage.read += bytes_read_by(pid).unwrap_or(0.0);
        }
        let postmaster = self.cluster.pid().ok_or("the server has no process")?;
        // With its children that have ended.
        usage.read += bytes_read_by(&postmaster.to_string()).unwrap_or(0.0);
        usage.missed = self.number("select sum(blks_read) from pg_stat_database")?;
        Ok(usage)
    }

    /// The answer to `sql` as a number.
    pub fn number(&self, sql: &str) -> Result<f64> {
        let found = self.cluster.sql(sql)?;
        Ok(found.parse().map_err(|_| format!("not a number: {found}; asked with {sql}"))?)
    }

    /// Runs pgbench, prepared, in database `postgres`, and returns what it printed.
    pub fn pgbench(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.cluster.command("pgbench");
        Ok(run::output(command.args(arguments).arg(self.cluster.conninfo_unix("postgres")))?)
    }

    /// Makes pgbench's tables.
    pub fn pgbench_tables(&self, scale: u32) -> Result<()> {
        self.pgbench(&["-i", "-q", "-s", &scale.to_string()])?;
        Ok(self.cluster.sql("checkpoint").map(drop)?)
    }
}

/// A number of pgbench's report: `tps`, or what stands behind another line's beginning.
pub fn reported(printed: &str, line: &str) -> Result<f64> {
    let found = printed.lines().find_map(|printed| printed.strip_prefix(line));
    let number = found
        .and_then(|rest| rest.trim_start_matches([' ', '=', ':']).split([' ', '/']).next()?.parse().ok());
    number.ok_or_else(|| format!("pgbench tells no {line}:\n{printed}").into())
}

/// Processor seconds of a process.
pub fn cpu_seconds_of(pid: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

fn bytes_read_by(pid: &str) -> Option<f64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// Every file below a folder. Files that go meanwhile are left out.
fn each_file(path: &Path, each: &mut impl FnMut(&Path, &fs::Metadata)) -> Result<()> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(()) };
    if !metadata.is_dir() {
        each(path, &metadata);
        return Ok(());
    }
    let Ok(entries) = fs::read_dir(path) else { return Ok(()) };
    for entry in entries {
        each_file(&entry?.path(), each)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_report_are_found() {
        let printed = "number of transactions actually processed: 12/12\ntps = 34.5 (without connecting)\n";
        assert_eq!(reported(printed, "tps").unwrap(), 34.5);
        assert_eq!(reported(printed, "number of transactions actually processed").unwrap(), 12.0);
        assert!(reported(printed, "latency").is_err());
    }
}
