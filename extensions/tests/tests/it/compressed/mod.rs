//! Compressed tablespaces in running servers: statements, crashes, backups, and a server without the library.

mod backups;
mod closed;
mod collection;
mod copies;
mod crashes;
mod damage;
mod descriptors;
mod dictionaries;
pub mod encryption;
mod full_disk;
mod large;
mod memory;
mod owners;
mod statements;

pub use full_disk::{Filesystem, Format};

use std::path::PathBuf;

use pgshrink_testkit::{Cluster, Psql, Server, ServerBinaries, TempDir};

/// The majors that the library is for.
pub const MAJORS: [u32; 2] = [15, 18];
/// The file that guards a directory with compressed files.
pub const GUARD: &str = "pgshrink-compressed-files-here-need-shared_preload_libraries-cfs";

/// Prints a key of 64 digits.
pub const KEY_COMMAND: &str = "printf %064d 7";

/// A server with a compressed tablespace, for one test.
pub struct Compressed {
    pub cluster: Cluster,
    /// Of the tablespace `fast`, and room for others.
    pub location: TempDir,
}

/// Runs `test` with a server of its own on each major.
pub fn on_each_major(test: &str, mut run: impl FnMut(&Compressed)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&Compressed::start(server, &[])));
}

impl Compressed {
    /// A running server, with the extension in `postgres` and a tablespace `fast`.
    pub fn start(server: &ServerBinaries, settings: &[(&str, &str)]) -> Compressed {
        let mut builder = Cluster::builder()
            .server(server)
            .fsync(true)
            .conf("shared_preload_libraries", "cfs")
            .conf("autovacuum", "off")
            .conf("max_wal_size", "4GB");
        for (name, value) in settings {
            builder = builder.conf(name, value);
        }
        Compressed::of(builder.start().unwrap(), "compression = 'zstd:1'")
    }

    /// In a cluster that has the library, with the options of the tablespace.
    pub fn of(cluster: Cluster, options: &str) -> Compressed {
        let location = TempDir::owned_by(cluster.owner()).unwrap();
        let started = Compressed { cluster, location };
        let fast = started.directory("fast");
        started.sql("create extension cfs");
        started.sql(&format!("create tablespace fast location '{}' with ({options})", fast.display()));
        started
    }

    /// A new directory of the server's user.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.location.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let owner = self.cluster.owner();
        if owner.step_down {
            std::os::unix::fs::chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
        }
        path
    }

    /// What a script prints that must succeed.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}"))
    }

    /// What a script says that must fail.
    #[track_caller]
    pub fn fails(&self, sql: &str) -> String {
        self.cluster.sql(&format!("\\set VERBOSITY verbose\n{sql}")).expect_err(sql).to_string()
    }

    /// psql in another database.
    pub fn psql(&self, database: &str) -> Psql {
        self.cluster.psql().database(database)
    }

    /// Starts the server without the library, or with it again.
    pub fn restart_with(&self, libraries: &str) {
        self.cluster.set_conf("shared_preload_libraries", libraries).unwrap();
        self.cluster.restart().unwrap();
    }

    /// Files of `fast`, relative to its version directory, that are containers.
    pub fn containers(&self) -> Vec<String> {
        let root = self.location.path().join("fast");
        let mut found = Vec::new();
        let directories = |path: &std::path::Path| {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.is_dir()).collect::<Vec<_>>()
        };
        for version in directories(&root) {
            for database in directories(&version) {
                for relation in directories(&database) {
                    if relation.join("segment.pgshrink").exists() {
                        found.push(relation.strip_prefix(&version).unwrap().display().to_string());
                    }
                }
            }
        }
        found.sort();
        found
    }
}

/// Makes a table of compressible rows with an index and TOAST.
pub fn table(name: &str, rows: u32) -> String {
    format!(
        "create table {name} (id int primary key using index tablespace fast, word text, big text) tablespace fast;
        insert into {name} select i, 'word ' || i % 97, case when i % 100 = 0 then repeat(md5(i::text), 400) end
        from generate_series(1, {rows}) i;"
    )
}

/// A number that stands for all rows of a table.
pub fn sum(name: &str) -> String {
    format!("select count(*), sum(hashtext(t::text)::bigint) from {name} t")
}
