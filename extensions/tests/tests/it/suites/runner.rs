//! Two servers, and what PostgreSQL's test programs say on them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Missing, Server, ServerBinaries, TempDir, checkout, run, skipped};

use super::wait_for;

const CHOSEN: &str = include_str!("chosen.txt");

/// Scripts that end any server of a version by SIGSEGV. The sources of 18 are newer than the server, and test what a
/// stock 18.4 does not survive: `SELECT '{"a":1}'::sqljson_mystr IS JSON`, and `satisfies_hash_partition` with
/// `VARIADIC NULL`.
const OMITTED: [(u32, Kind, &str); 2] = [(18, Kind::Regress, "sqljson"), (18, Kind::Regress, "hash_part")];

/// The tablespace of both servers.
const NAME: &str = "twin";

/// Which of the two suites.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `src/test/regress`: SQL scripts, one session each.
    Regress,
    /// `src/test/isolation`: sessions whose statements alternate.
    Isolation,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Regress => "regress",
            Kind::Isolation => "isolation",
        })
    }
}

/// PostgreSQL's scripts.
pub struct Sources;

impl Sources {
    /// Of these majors those that are here; the others are skipped.
    pub fn of_majors(test: &str, majors: &[u32]) -> Vec<u32> {
        let is_here = |major: &u32| {
            let folder = Sources::of(*major);
            let is_here = folder.join("isolation").is_dir();
            if !is_here {
                let why = format!("no {}", folder.display());
                skipped(test, &Missing::new("PostgreSQL's own tests", why, "tools/fetch-regression"));
            }
            is_here
        };
        majors.iter().copied().filter(is_here).collect()
    }

    fn of(major: u32) -> PathBuf {
        checkout().join(format!("target/regression/postgresql-{major}"))
    }
}

/// Scripts in an order.
pub struct Suite {
    pub kind: Kind,
    folder: PathBuf,
    /// The file that says the order.
    schedule: PathBuf,
    /// The program that runs them.
    program: PathBuf,
    /// What the scripts call, and the schedule where it is ours.
    made: TempDir,
}

impl Suite {
    /// All scripts of a suite.
    pub fn whole(server: &ServerBinaries, kind: Kind) -> Suite {
        let folder = Sources::of(server.major).join(kind.to_string());
        let schedule = match kind {
            Kind::Regress => "parallel_schedule",
            Kind::Isolation => "isolation_schedule",
        };
        let made = TempDir::owned_by(&run::Owner::find().unwrap()).unwrap();
        if kind == Kind::Regress {
            make_libraries(server, &folder, made.path());
        }
        let program = program(server, kind, made.path());
        let mut suite = Suite { kind, schedule: folder.join(schedule), folder, program, made };
        suite.keep(|script| !OMITTED.contains(&(server.major, kind, script)));
        suite
    }

    /// Leaves scripts out. The others stay in the suite's own order: what it runs at the same time gets on with each
    /// other.
    fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        let mut text = String::new();
        for line in fs::read_to_string(&self.schedule).unwrap().lines() {
            let names = line.strip_prefix("test:").unwrap_or_default().split_whitespace();
            let names: Vec<&str> = names.filter(|name| is_kept(name)).collect();
            if !names.is_empty() {
                text.push_str(&format!("test: {}\n", names.join(" ")));
            }
        }
        self.schedule = self.made.path().join("schedule");
        fs::write(&self.schedule, text).unwrap();
    }

    /// The scripts of `chosen.txt` that this version has.
    pub fn chosen(server: &ServerBinaries, kind: Kind) -> Suite {
        let mut suite = Suite::whole(server, kind);
        let part = CHOSEN.split("\n= ").find_map(|part| part.strip_prefix(&kind.to_string())).unwrap();
        let chosen: Vec<&str> = part.split_whitespace().collect();
        suite.keep(|script| chosen.contains(&script));
        suite
    }

    /// Names of its scripts.
    pub fn scripts(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.schedule).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("test:"));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    }
}

fn configured(server: &ServerBinaries, what: &str) -> PathBuf {
    run::output(server.command("pg_config").arg(what)).unwrap().trim().into()
}

/// Puts the libraries that scripts load into a directory: their own, compiled here, and two of the server's.
fn make_libraries(server: &ServerBinaries, folder: &Path, into: &Path) {
    // A copy of a server has no headers; the one that it was copied from has.
    let origin = Server::find(server.major).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-w", "-I"]).arg(configured(&origin, "--includedir-server"));
    run::output(compile.arg(folder.join("regress.c")).arg("-o").arg(into.join("regress.so"))).unwrap();
    for name in ["autoinc.so", "refint.so"] {
        symlink(configured(server, "--pkglibdir").join(name), into.join(name)).unwrap();
    }
}

/// The server's program that runs a suite's scripts. Where the package has broken it, it is compiled from its source.
fn program(server: &ServerBinaries, kind: Kind, into: &Path) -> PathBuf {
    let (own, name, main) = match kind {
        Kind::Regress => ("regress", "pg_regress", "regress/pg_regress_main.c"),
        Kind::Isolation => ("isolation", "pg_isolation_regress", "isolation/isolation_main.c"),
    };
    let packaged = configured(server, "--pkglibdir").join("pgxs/src/test").join(own);
    if run::output(Command::new(packaged.join(name)).arg("--help")).is_ok() {
        return packaged.join(name);
    }
    let (origin, sources) = (Server::find(server.major).unwrap(), Sources::of(server.major));
    // It has paths of an installation, which arguments replace.
    fs::write(into.join("pg_config_paths.h"), "").unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-w", "-no-pie", "-DFRONTEND", "-DHOST_TUPLE=\"x86_64-linux-gnu\""]);
    compile.args(["-DSHELLPROG=\"/bin/sh\"", "-DPGBINDIR=\"\"", "-DPKGLIBDIR=\"\""]);
    compile.arg("-I").arg(into).arg("-I").arg(sources.join("regress"));
    for headers in ["--includedir", "--includedir-server"] {
        compile.arg("-I").arg(configured(&origin, headers));
    }
    compile.arg(sources.join("regress/pg_regress.c")).arg(sources.join(main));
    let libraries = configured(&origin, "--libdir");
    compile.arg("-o").arg(into.join(name)).arg("-L").arg(&libraries);
    compile.args(["-lpgfeutils", "-lpgcommon", "-lpgport", "-lpq", "-lm"]);
    run::output(compile.arg(format!("-Wl,-rpath,{}", libraries.display()))).unwrap();
    if kind == Kind::Isolation {
        symlink(packaged.join("isolationtester"), into.join("isolationtester")).unwrap();
    }
    into.join(name)
}

/// What a suite's scripts printed.
#[derive(Debug)]
pub struct Results {
    /// By the script's name.
    pub outputs: BTreeMap<String, String>,
    /// Scripts that printed what PostgreSQL does not expect of them.
    pub unexpected: Vec<String>,
    /// How long it took.
    pub time: Duration,
}

/// One of two servers that are asked the same.
pub struct Twin {
    pub cluster: Cluster,
    location: TempDir,
}

impl Twin {
    /// A stock server.
    pub fn plain(server: &ServerBinaries) -> Twin {
        Twin::start(server, "", "")
    }

    /// A server with the library.
    pub fn compressed(server: &ServerBinaries) -> Twin {
        Twin::start(server, "cfs", "with (compression = 'zstd:1')")
    }

    /// A server with the library, and a tablespace without a setting.
    pub fn with_library(server: &ServerBinaries) -> Twin {
        Twin::start(server, "cfs", "")
    }

    fn start(server: &ServerBinaries, library: &str, option: &str) -> Twin {
        let builder = Cluster::builder().server(server).fsync(!library.is_empty());
        let builder = builder.conf("shared_preload_libraries", library).conf("shared_buffers", "32MB");
        let builder = builder.conf("max_prepared_transactions", 4).conf("max_wal_size", "2GB");
        // The library's take none from parallel queries, whose plans are compared.
        let builder = builder.conf("max_worker_processes", 16);
        let cluster = builder.conf("log_min_messages", "warning").start().unwrap();
        let location = TempDir::owned_by(cluster.owner()).unwrap();
        let twin = Twin { cluster, location };
        twin.sql(&format!("create tablespace {NAME} location '{}' {option}", twin.location.path().display()));
        twin.sql(&format!("grant create on tablespace {NAME} to public"));
        twin.cluster.set_conf("default_tablespace", NAME).unwrap();
        twin.cluster.reload().unwrap();
        twin
    }

    #[track_caller]
    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}\n{}", self.end_of_log()))
    }

    fn end_of_log(&self) -> String {
        let log = self.cluster.log().unwrap();
        let lines: Vec<&str> = log.lines().rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Runs a suite to its end, or to the server's.
    pub fn run(&self, suite: &Suite) -> Results {
        let owner = self.cluster.owner();
        let output = TempDir::owned_by(owner).unwrap();
        let server = self.cluster.server();
        let mut command = owner.command(&suite.program);
        let argument = |name: &str, value: &Path| format!("--{name}={}", value.display());
        command.arg(argument("inputdir", &suite.folder)).arg(argument("outputdir", output.path()));
        if server.major >= 16 {
            command.arg(argument("expecteddir", &suite.folder));
        }
        command.arg(argument("dlpath", suite.made.path())).arg(argument("bindir", &server.bin));
        command.arg(argument("host", &self.cluster.socket_dir())).arg(argument("schedule", &suite.schedule));
        command.arg(format!("--port={}", self.cluster.port())).arg("--max-concurrent-tests=20");
        command.args(["--user=postgres", &format!("--dbname={}", self.database(suite))]);
        let begun = Instant::now();
        let done = command.output().unwrap();
        let time = begun.elapsed();
        let outputs = outputs(&output.path().join("results"));
        // It fails where a script says something unexpected; where none ran, it says why.
        let said = [&done.stdout[..], &done.stderr[..]].concat();
        assert!(!outputs.is_empty(), "{}: {}", done.status, String::from_utf8_lossy(&said));
        let expected = suite.folder.join("expected");
        let unexpected = outputs.iter().filter(|(script, said)| !is_expected(&expected, script, said));
        let unexpected = unexpected.map(|(script, _)| script.clone()).collect();
        Results { outputs, unexpected, time }
    }

    /// What the log says of processes that ended by a signal, and of what they were doing.
    pub fn ends(&self) -> Vec<String> {
        let log = self.cluster.log().unwrap();
        let says = |line: &&str| line.contains("terminated by signal") || line.contains("Failed process was");
        log.lines().filter(says).map(str::to_owned).collect()
    }

    fn database(&self, suite: &Suite) -> &'static str {
        match suite.kind {
            Kind::Regress => "regression",
            Kind::Isolation => "isolation_regression",
        }
    }

    /// Drops what an interrupted run has left outside of its database.
    pub fn forget_roles(&self) {
        self.sql("drop database regression");
        let left = self.sql(
            "select format('drop subscription %I;', subname) from pg_subscription
            union all select format('drop database %I with (force);', datname) from pg_database where datname ~ '^regress'
            union all select format('drop tablespace if exists %I;', spcname) from pg_tablespace where spcname ~ '^regress'
            union all select format('drop role %I;', rolname) from pg_roles where rolname ~ '^(regress|unprivileged)'",
        );
        for statement in left.lines() {
            self.sql(statement);
        }
    }

    /// Reads everything that is left in the databases: no page is damaged, no index disagrees with its table.
    pub fn is_whole(&self) {
        wait_for(self);
        let databases = "select datname from pg_database where datname ~ 'regress' and datallowconn";
        for database in self.sql(databases).lines() {
            let psql = || self.cluster.psql().database(database);
            let read = "do $$ declare t text; begin
                for t in select oid::regclass from pg_class where relkind in ('r', 'm', 't') and relpersistence <> 't'
                    and (relpages > 0 or pg_relation_size(oid) > 0)
                loop begin execute 'select count(*) from ' || t; exception
                    when insufficient_privilege or undefined_function or object_not_in_prerequisite_state
                        or assert_failure then null; end;
                end loop; end $$";
            psql().sql(read).unwrap_or_else(|error| panic!("{database}: {error}\n{}", self.end_of_log()));
            if psql().sql("create extension if not exists amcheck").is_ok() {
                let wrong = "select bt_index_check(i.indexrelid, true) from pg_index i
                    join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
                    where amname = 'btree' and indisvalid and indisready and c.relpersistence = 'p' and c.relkind = 'i'";
                psql().sql(wrong).unwrap_or_else(|error| panic!("{database}: {error}"));
                psql().sql("drop extension amcheck").unwrap();
            }
        }
        let log = self.cluster.log().unwrap();
        for word in ["PANIC:", "pgshrink", "invalid page"] {
            // What was killed on purpose is no such line.
            let said: Vec<&str> = log.lines().filter(|line| line.contains(word)).collect();
            assert!(said.is_empty(), "{}", said.join("\n"));
        }
    }
}

/// Whether PostgreSQL expects this of a script, but for the default tablespace, which `\d` shows.
fn is_expected(folder: &Path, script: &str, said: &str) -> bool {
    let mut shown = String::new();
    for line in said.lines().filter(|line| *line != format!("Tablespace: \"{NAME}\"")) {
        shown.push_str(&line.replace(&format!(", tablespace \"{NAME}\""), ""));
        shown.push('\n');
    }
    let variants = std::iter::once(String::new()).chain((0..10).map(|number| format!("_{number}")));
    let mut files = variants.map(|variant| folder.join(format!("{script}{variant}.out")));
    files.any(|path| fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes) == shown))
}

fn outputs(folder: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "out"));
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned())
    };
    files.map(read).collect()
}
