//! A server on images, one after the other.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use pgshrink_testkit::{Cluster, Rng, ServerBinaries, Stop, TempDir};

use super::check::{check, complaints};
use super::conversions::Then;
use super::disk::{Disk, Failure};

/// Settings of servers under test. `plain` are those of a server that makes and finds no containers.
pub const SETTINGS: [(&str, &str); 20] = [
    ("shared_preload_libraries", "cfs"),
    ("allow_in_place_tablespaces", "on"),
    ("shared_buffers", "2MB"),
    ("temp_buffers", "800kB"),
    ("wal_log_hints", "off"),
    ("full_page_writes", "on"),
    ("wal_sync_method", "fdatasync"),
    ("max_wal_size", "24MB"),
    ("min_wal_size", "4MB"),
    ("checkpoint_completion_target", "0.1"),
    ("bgwriter_delay", "10ms"),
    ("bgwriter_lru_maxpages", "500"),
    ("autovacuum_naptime", "1s"),
    ("autovacuum_vacuum_cost_delay", "0"),
    ("cfs.gc_period", "100ms"),
    ("cfs.gc_delay", "0"),
    ("cfs.gc_threshold", "10"),
    ("cfs.gc_rate", "0"),
    ("cfs.reserve_size", "1MB"),
    ("cfs.key_command", crate::compressed::KEY_COMMAND),
];

/// A cluster that has never run.
pub fn cluster(server: &ServerBinaries, checksums: bool, more: &[(&str, &str)]) -> Cluster {
    let mut builder = Cluster::builder().server(server).fsync(true).initdb_arg("--wal-segsize=1");
    let turn_off = server.major >= 18 && !checksums;
    if checksums || turn_off {
        builder = builder.initdb_arg(if checksums { "--data-checksums" } else { "--no-data-checksums" });
    }
    for (name, value) in SETTINGS.iter().chain(more) {
        builder = builder.conf(name, value);
    }
    builder.create().unwrap()
}

/// Where images are started.
pub struct Images {
    cluster: Cluster,
    location: TempDir,
    logged: AtomicU64,
}

impl Images {
    pub fn new(server: &ServerBinaries, checksums: bool) -> Images {
        let cluster = cluster(server, checksums, &[]);
        let location = TempDir::owned_by(cluster.owner()).unwrap();
        Images { cluster, location, logged: AtomicU64::new(0) }
    }

    fn fast(&self) -> PathBuf {
        self.location.path().join("fast")
    }

    /// Makes an image, starts a server on it, and says what is wrong. Its settings are the image's.
    pub fn try_one(
        &self,
        disk: &Disk,
        failure: &Failure,
        rng: &mut Rng,
        acknowledged: &[usize],
    ) -> Vec<String> {
        let data = self.cluster.data_dir();
        disk.write_image(failure, rng, &[&data, &self.fast()], self.cluster.owner());
        // The machine has started again: whoever has that number now is another.
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
        let begun: Vec<usize> = acknowledged.iter().map(|last| last + 1).collect();
        let then = Then::random(rng);
        then.set(&data);
        self.start_and_check(acknowledged, &begun, then)
    }

    fn start_and_check(&self, acknowledged: &[usize], begun: &[usize], then: Then) -> Vec<String> {
        if let Err(error) = self.cluster.start() {
            self.logged.store(self.log_bytes(), Ordering::Relaxed);
            return vec![format!("the server does not start: {error}")];
        }
        let mut wrong = check(&self.cluster, acknowledged, begun);
        wrong.extend(then.leftovers(&self.cluster, self.location.path()));
        if then == Then::GoOn {
            wrong.extend(check(&self.cluster, acknowledged, begun));
        }
        if let Err(error) = self.cluster.sql("checkpoint") {
            wrong.push(format!("checkpoint: {error}"));
        }
        let _ = self.cluster.stop(Stop::Immediate);
        let log = self.cluster.log().unwrap();
        let before = self.logged.swap(self.log_bytes(), Ordering::Relaxed) as usize;
        wrong.extend(complaints(log.get(before..).unwrap_or_default()));
        wrong
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.cluster.log_path()).map_or(0, |meta| meta.len())
    }
}
