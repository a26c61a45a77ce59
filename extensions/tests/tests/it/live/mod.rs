//! Relations that change their form while servers use them.

mod backups;
mod catalogs;
mod control;
mod crashes;
mod databases;
mod full_disk;
mod standbys;
mod statements;
mod stops;
mod stuck;
mod suite;
mod writers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pgshrink_testkit::cluster::ClusterBuilder;
use pgshrink_testkit::{Cluster, Server, ServerBinaries, wait_until};

/// The majors that the library is for.
pub const MAJORS: [u32; 2] = [15, 18];

/// A conversion in these tests is over in seconds; machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server whose default tablespace has relations that are converted.
pub struct Live {
    pub cluster: Cluster,
}

/// Where a relation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Container,
    Plain,
}

impl To {
    pub const BOTH: [To; 2] = [To::Container, To::Plain];

    pub fn other(self) -> To {
        match self {
            To::Container => To::Plain,
            To::Plain => To::Container,
        }
    }
}

/// Runs `test` with a server of its own on each major.
pub fn on_each_major(test: &str, mut run: impl FnMut(&Live)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&Live::start(server, &[])));
}

/// A cluster to be, with the library, looking for work each second.
pub fn builder(server: &ServerBinaries) -> ClusterBuilder {
    Cluster::builder()
        .server(server)
        .conf("shared_preload_libraries", "cfs")
        .conf("allow_in_place_tablespaces", "on")
        .conf("autovacuum", "off")
        .conf("max_wal_size", "4GB")
        .conf("wal_keep_size", "1GB")
        .conf("cfs.naptime", "1s")
        .conf("cfs.convert_rate", "0")
}

impl Live {
    /// A running server, with the extension in `postgres`.
    pub fn start(server: &ServerBinaries, settings: &[(&str, &str)]) -> Live {
        let mut builder = builder(server);
        for (name, value) in settings {
            builder = builder.conf(name, value);
        }
        let live = Live { cluster: builder.start().unwrap() };
        live.sql("create extension cfs");
        live
    }

    /// What a script prints that must succeed.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        sql_of(&self.cluster, sql)
    }

    /// Changes settings of the running server.
    #[track_caller]
    pub fn set(&self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            self.cluster.set_conf(name, value).unwrap();
        }
        self.cluster.reload().unwrap();
    }

    /// Asks for a conversion, without waiting for it.
    #[track_caller]
    pub fn ask(&self, table: &str, to: To) {
        match to {
            To::Container => self.sql(&format!("select cfs_compress_relation('{table}')")),
            To::Plain => self.sql(&format!("select cfs_decompress_relation('{table}')")),
        };
    }

    /// Waits until a table has the form that its setting says.
    #[track_caller]
    pub fn wait(&self, table: &str) {
        wait_in(&self.cluster, table);
    }

    /// Asks for a conversion and waits for it.
    #[track_caller]
    pub fn convert(&self, table: &str, to: To) {
        self.ask(table, to);
        self.wait(table);
        self.has_form(table, to);
    }

    /// A table's files are containers, or none is.
    #[track_caller]
    pub fn has_form(&self, table: &str, to: To) {
        let form = forms(&self.cluster, table);
        let other = match to {
            To::Container => "plain",
            To::Plain => "compressed",
        };
        assert!(!form.is_empty() && !form.contains(other), "{table} is to be {to:?}: {form}");
    }

    /// Waits until some of a table's pages have moved, and not all: `share` of a hundred at least.
    #[track_caller]
    pub fn wait_for_middle(&self, share: u32) {
        let moved = format!(
            "select count(*) from cfs_progress where state = 'copying pages' and pages_done * 100 >= pages * {share}"
        );
        wait_until(PATIENCE, "pages to move", || self.cluster.sql(&moved).is_ok_and(|count| count != "0"))
            .unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.progress(), self.end_of_log()));
    }

    /// What is under way, in words.
    pub fn progress(&self) -> String {
        self.cluster.sql("select * from cfs_progress").unwrap_or_else(|error| error.to_string())
    }

    pub fn end_of_log(&self) -> String {
        end_of_log(&self.cluster)
    }

    /// The path of a relation's first file.
    pub fn path(&self, relation: &str) -> PathBuf {
        self.cluster.data_dir().join(self.sql(&format!("select pg_relation_filepath('{relation}')")))
    }

    /// Waits until the server, which starts again by itself, is back.
    pub fn wait_until_back(&self) {
        wait_until(PATIENCE, "the server to be back", || self.cluster.sql("select 1").is_ok()).unwrap();
    }

    /// Nothing is left of conversions beside relations, and the log has no word of damage.
    #[track_caller]
    pub fn is_clean(&self) {
        // The first file of a relation that is gone stays until then.
        self.sql("checkpoint");
        let left = leftovers(&self.cluster.data_dir());
        assert!(left.is_empty(), "{left:?}\n{}", self.end_of_log());
        let log = self.cluster.log().unwrap();
        let is_wrong = |line: &&str| {
            ["PANIC:", "invalid page", "cfs cannot", "pgshrink cfs:"].iter().any(|word| line.contains(word))
                && !line.contains("parameter \"cfs")
        };
        let wrong: Vec<&str> = log.lines().filter(is_wrong).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// What a script prints that must succeed.
#[track_caller]
pub fn sql_of(cluster: &Cluster, sql: &str) -> String {
    cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}\n{}", end_of_log(cluster)))
}

pub fn end_of_log(cluster: &Cluster) -> String {
    let log = cluster.log().unwrap();
    let lines: Vec<&str> = log.lines().rev().take(30).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Waits until a table has the form that its setting says.
#[track_caller]
pub fn wait_in(cluster: &Cluster, table: &str) {
    let seconds = PATIENCE.as_secs();
    let done = sql_of(cluster, &format!("select cfs_wait('{table}', '{seconds} s')"));
    let progress = || cluster.sql("select * from cfs_progress").unwrap_or_default();
    assert_eq!(
        done,
        "t",
        "{table} is not converted: {}\n{}\n{}",
        forms(cluster, table),
        progress(),
        end_of_log(cluster)
    );
}

/// The forms of a table's files of more than four pages, with those of its indexes and TOAST.
#[track_caller]
pub fn forms(cluster: &Cluster, table: &str) -> String {
    let query = format!(
        "select string_agg(distinct s.form, ' ') from pg_class c
        join pg_database d on d.datname = current_database(), cfs_segments(
            coalesce(nullif(c.reltablespace, 0), d.dattablespace), pg_relation_filenode(c.oid)) s
        where s.fork in ('main', 'fsm') and s.virtual_bytes > 4 * 8192 and c.oid in (
            select '{table}'::regclass union all select reltoastrelid from pg_class where oid = '{table}'::regclass
            union all select indexrelid from pg_index where indrelid = '{table}'::regclass)"
    );
    sql_of(cluster, &query)
}

/// Files that conversions make for a while, below a directory.
pub fn leftovers(root: &Path) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        // A folder may be dropped meanwhile.
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().display().to_string();
            if name.contains("pgshrink-new") || name == "base.pgshrink" {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

/// Makes a table with an index and TOAST; about a page for each ten rows.
pub fn table(name: &str, rows: u32) -> String {
    format!(
        "create table {name} (id int primary key, word text, big text) with (fillfactor = 70);
        alter table {name} alter big set storage external;
        insert into {name} select i, repeat(md5(i::text), 15), case when i % 100 = 0 then repeat(md5(i::text), 400) end
        from generate_series(1, {rows}) i;"
    )
}

/// A number that stands for all rows of a table.
pub fn sum(name: &str) -> String {
    format!("select count(*), sum(hashtext(t::text)::bigint) from {name} t")
}

/// Sends a signal to a process that a test has found.
pub fn signal(pid: &str, signal: &str) {
    // The shell's own: a minimal system has no program for it.
    let mut kill = std::process::Command::new("sh");
    let _ =
        kill.args(["-c", &format!("kill -{signal} $0"), pid]).stderr(std::process::Stdio::null()).status();
}

/// Runs something for a time, again and again.
pub fn for_a_while(time: Duration, mut run: impl FnMut()) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        run();
    }
}
