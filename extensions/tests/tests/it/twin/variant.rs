//! Settings under which a run is made; each seed has its own.

use pgshrink_testkit::Seed;

#[derive(Clone, Debug)]
pub struct Variant {
    pub fsync: bool,
    /// Phases at the beginning in which nothing crashes and sessions take turns.
    pub calm: usize,
    checksums: bool,
    shared_buffers: &'static str,
    few_files: bool,
    few_slots: bool,
    little_memory: bool,
    eager_collection: bool,
    method: &'static str,
    pub encrypted: bool,
    /// Whether tables are converted; with which rate.
    pub converts: Option<&'static str>,
    /// Whether `cfs.node_compression` is set, too.
    pub node: bool,
}

impl Variant {
    pub fn of(seed: u64) -> Variant {
        // Not the numbers that choose the statements.
        let mut rng = Seed(seed ^ 0x7469_6e67).rng();
        Variant {
            fsync: rng.chance(50),
            calm: if rng.chance(30) { 5 } else { 0 },
            checksums: rng.chance(50),
            shared_buffers: rng.pick::<&str>(&["1MB", "1MB", "16MB", "128MB"]),
            few_files: rng.chance(40),
            few_slots: rng.chance(40),
            little_memory: rng.chance(40),
            eager_collection: rng.chance(70),
            method: rng.pick::<&str>(&["worker", "sync"]),
            encrypted: rng.chance(50),
            converts: rng.chance(70).then(|| *rng.pick(&["0", "0", "1MB", "10MB"])),
            node: rng.chance(40),
        }
    }

    pub fn initdb(&self, major: u32) -> Vec<&'static str> {
        match (self.checksums, major) {
            (true, _) => vec!["--data-checksums"],
            (false, 18..) => vec!["--no-data-checksums"],
            (false, _) => Vec::new(),
        }
    }

    /// Of our server, or of the twin.
    pub fn settings(&self, major: u32, library: bool) -> Vec<(&'static str, &'static str)> {
        let mut all = vec![
            ("autovacuum", "off"),
            ("max_wal_size", "512MB"),
            ("max_prepared_transactions", "10"),
            ("shared_buffers", self.shared_buffers),
        ];
        if major >= 18 {
            all.push(("io_method", self.method));
        }
        if self.few_files {
            all.push(("max_files_per_process", "68"));
        }
        if !library {
            return all;
        }
        all.extend([("shared_preload_libraries", "cfs"), ("checkpoint_timeout", "30s")]);
        if let Some(rate) = self.converts {
            all.extend([("cfs.naptime", "1s"), ("cfs.convert_rate", rate), ("cfs.convert_workers", "2")]);
            if self.node {
                all.push(("cfs.node_compression", "zstd:1"));
            }
        }
        if self.encrypted {
            all.push(("cfs.key_command", crate::compressed::KEY_COMMAND));
        }
        if self.few_slots {
            all.push(("cfs.max_open_segments", "64"));
        }
        if self.little_memory {
            all.push(("cfs.backend_memory", "4MB"));
        }
        if self.eager_collection {
            all.extend([("cfs.gc_threshold", "1"), ("cfs.gc_period", "10ms"), ("cfs.gc_workers", "2")]);
        }
        all
    }
}
