//! `pgshrink verify --boot` with real servers: 15 with amcheck and pg_visibility, 18 without them.

use pgshrink_testkit::run::Owner;
use pgshrink_testkit::{Cluster, Server, ServerBinaries, TempDir, wait_until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Longest time that a verification may take here.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Space of the server's user: a repository, scratch space, and reports.
pub(crate) struct Space {
    pub(crate) owner: Owner,
    pub(crate) dir: TempDir,
}

impl Space {
    pub(crate) fn new() -> Space {
        let owner = Owner::find().unwrap();
        let dir = TempDir::owned_by(&owner).unwrap();
        Space { owner, dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(self.owner.uid), Some(self.owner.gid)).unwrap();
        path
    }

    /// pgshrink as the server's user, who may be another than the test's.
    fn pgshrink(&self, words: &[&str]) -> Command {
        let mut command = self.owner.command(env!("CARGO_BIN_EXE_pgshrink"));
        command.args(words).env("TMPDIR", self.dir.path());
        command
    }

    pub(crate) fn backup(&self, conninfo: &str) -> String {
        let repository = self.path("repository");
        let words = ["backup", conninfo, "--checkpoint", "fast", "--compression", "none", "--json", "--to"];
        let output = self.pgshrink(&words).arg(repository).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["backup"].as_str().unwrap().to_owned()
    }

    pub(crate) fn verify(&self, server: &ServerBinaries, words: &[&str]) -> Command {
        let mut command = self.pgshrink(&["verify", "latest", "--boot"]);
        command.arg("--from").arg(self.path("repository"));
        command.arg("--server-bin").arg(&server.bin).args(words);
        command
    }

    /// The report of a run that ends with this code.
    #[track_caller]
    pub(crate) fn verified(&self, server: &ServerBinaries, words: &[&str], code: i32) -> (Value, Output) {
        let output = self.verify(server, &[&["--json"], words].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        self.assert_clean();
        (serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), output)
    }

    /// No server, no scratch space, no directory of sockets.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> =
            names.filter(|name| name.to_string_lossy().starts_with("pgshrink-verify-")).collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(servers_in(self.dir.path()), Vec::<u32>::new());
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Processes that run in a directory below this one, as servers do in their data directory.
pub(crate) fn servers_in(folder: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let runs_there = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/cwd"))
            .is_ok_and(|cwd| cwd.starts_with(folder) && cwd.ends_with("data"))
    };
    processes.filter(runs_there).collect()
}

pub(crate) fn find<'v>(report: &'v Value, database: &str) -> &'v Value {
    let databases = report["databases"].as_array().unwrap();
    databases
        .iter()
        .find(|found| found["database"] == database)
        .unwrap_or_else(|| panic!("{database}: {report:#}"))
}

pub(crate) fn has_amcheck(server: &ServerBinaries) -> bool {
    // The tests' server of 15 is Debian's with all of contrib, that of 18 has none of it.
    server.major == 15
}

const ODD: &str = "odd='\" name";

/// Everything that is unusual but right.
fn fill(cluster: &Cluster, space: &Space) {
    let place = space.folder("a tablespace");
    let sql = |database: &str, text: &str| cluster.psql().database(database).sql(text).unwrap();
    sql("postgres", &format!("create tablespace elsewhere location '{}'", place.display()));
    sql("postgres", "create database \"odd='\"\" name\"");
    sql("postgres", "create database closed");
    sql("postgres", "create database latin encoding 'LATIN1' locale 'C' template template0");
    sql("postgres", "create database bytes encoding 'SQL_ASCII' locale 'C' template template0");
    sql("latin", "create table \"t\u{fc}r\" as select 'gr\u{fc}n'::text as farbe");
    sql("bytes", "create table t as select n from generate_series(1, 10) n");
    sql(
        ODD,
        "create schema \"Sch\"\"ema\";
         create table \"Sch\"\"ema\".\"a.b 'c\" as select n, repeat(md5(n::text), 3) as note from generate_series(1, 5000) n;
         create index \"i \"\"1\" on \"Sch\"\"ema\".\"a.b 'c\" (note);
         create table toasted tablespace elsewhere as
           select n, string_agg(md5((n * m)::text), '') as value from generate_series(1, 20) n, generate_series(1, 2000) m group by n;
         create index on toasted using brin (n) tablespace elsewhere;
         create table parts (n int, t text) partition by range (n);
         create table part1 partition of parts for values from (0) to (100);
         create table part2 partition of parts for values from (100) to (200) partition by list (t);
         create table part3 partition of part2 default;
         insert into parts select n, 'x' || n from generate_series(0, 199) n;
         create index on parts (t);
         create table columnless (); insert into columnless default values; insert into columnless default values;
         create table computed (n int, twice int generated always as (n * 2) stored); insert into computed values (1), (2);
         create table documents (j jsonb, a int[]); insert into documents values ('{\"a\": [1, 2]}', '{1,2}');
         create index on documents using gin (j);
         create unlogged table unlogged as select 1 as n;
         create materialized view filled as select * from parts; create index on filled (n);
         create materialized view unfilled as select * from parts with no data;
         create sequence \"S\" start 5;
         create table parent (n int); create table child () inherits (parent);
         insert into parent values (1); insert into child values (2);
         select lo_from_bytea(0, repeat('x', 100000)::bytea);
         create table lacks_index (n int); insert into lacks_index values (1), (1);",
    );
    let failed =
        cluster.psql().database(ODD).sql("create unique index concurrently invalid on lacks_index (n)");
    assert!(failed.is_err(), "the index is left invalid");
    if cluster.server().major >= 18 {
        let virtuals = "create table computed_late (n int, v int generated always as (1 / n) virtual, w int);
                        insert into computed_late values (0, default, 1);
                        create table all_computed (v int generated always as (1) virtual);
                        insert into all_computed values (default);";
        sql(ODD, virtuals);
    }
    sql("closed", "create table t as select n from generate_series(1, 77) n");
}

/// Settings that would hinder a reader who did not expect them.
fn hinder(cluster: &Cluster) {
    let sql = |database: &str, text: &str| cluster.psql().database(database).sql(text).unwrap();
    sql(
        ODD,
        "create function refuse() returns event_trigger language plpgsql as $$ begin raise 'no changes here'; end $$;
         create event trigger refuse on ddl_command_start execute function refuse();",
    );
    if cluster.server().major >= 17 {
        sql(
            "latin",
            "create function nobody() returns event_trigger language plpgsql as $$ begin raise 'nobody comes in'; end $$;
             create event trigger nobody on login execute function nobody();",
        );
    }
    sql(
        "postgres",
        "alter database bytes set session_preload_libraries = 'there_is_no_such_library';
         alter database closed allow_connections false;
         alter database latin set search_path = 'nowhere';
         create role boss superuser login;
         alter role all set default_transaction_read_only = on;
         alter role all set statement_timeout = '1ms';",
    );
    cluster
        .psql()
        .user("boss")
        .set("options", "-c default_transaction_read_only=off -c statement_timeout=0")
        .sql("alter role postgres rename to somebody; alter role boss nologin")
        .unwrap();
}

/// How many relations a database has.
struct Expected {
    relations: u64,
    heaps: u64,
    btrees: u64,
}

impl Expected {
    /// Without those that all databases share.
    fn of(cluster: &Cluster, database: &str) -> Expected {
        let count = |which: &str| {
            let sql = format!(
                "select count(*) from pg_class c left join pg_index i on i.indexrelid = c.oid \
                 where not relisshared and relpersistence <> 't' and {which}"
            );
            cluster.psql().database(database).sql(&sql).unwrap().parse().unwrap()
        };
        Expected {
            relations: count("relkind in ('r', 'm', 't', 'S') and relispopulated"),
            heaps: count("relkind in ('r', 'm', 't')"),
            btrees: count("relkind = 'i' and relam = 403 and indisvalid"),
        }
    }
}

fn lsn(value: &Value) -> u64 {
    let (high, low) = value.as_str().unwrap().split_once('/').unwrap();
    u64::from_str_radix(high, 16).unwrap() << 32 | u64::from_str_radix(low, 16).unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

// tidy: long, one cluster with everything that is unusual
#[test]
fn everything_in_a_good_backup_is_read_back() {
    Server::each("verify --boot", &[15, 18], |server| {
        let space = Space::new();
        let archived = space.path("archived");
        let cluster = Cluster::builder().server(server).initdb_arg("--data-checksums");
        let cluster = cluster
            .conf("archive_mode", "on")
            .conf("archive_command", format!("pwd >> {}", archived.display()))
            .conf("listen_addresses", "127.0.0.1")
            .conf("external_pid_file", space.path("pid").display())
            .start()
            .unwrap();
        fill(&cluster, &space);
        let expected = Expected::of(&cluster, ODD);
        hinder(&cluster);
        cluster.set_conf("synchronous_standby_names", "nobody").unwrap();
        let included = cluster.data_dir().join("testkit.conf");
        let text = fs::read_to_string(&included).unwrap();
        fs::write(&included, text + "include_dir '/nonexistent/conf.d'\n").unwrap();
        let conninfo = cluster.conninfo("postgres").replace("user='postgres'", "user='somebody'");
        let name = space.backup(&conninfo);
        let scratch = space.folder("scratch");
        let report_path = space.path("report.json");
        let words = ["--scratch", scratch.to_str().unwrap(), "--report", report_path.to_str().unwrap()];
        let (report, _) = space.verified(server, &words, 0);

        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "what was there and empty is empty again");
        let written: Value = serde_json::from_slice(&fs::read(&report_path).unwrap()).unwrap();
        assert_eq!(written, report);
        assert_eq!(report["format"], "pgshrink verify report");
        assert_eq!(report["verdict"], "good", "{report:#}");
        assert_eq!(report["backup"], name.as_str());
        let manifest = fs::read(space.path("repository").join(&name).join("backup_manifest")).unwrap();
        let record = fs::read_to_string(space.path("repository").join(&name).join("backup.json")).unwrap();
        assert_eq!(report["manifest_sha256"], sha256(&manifest));
        assert!(record.contains(report["record_sha256"].as_str().unwrap()), "backup.json names its own hash");
        assert!(record.contains(report["id"].as_str().unwrap()));
        assert_eq!(report["checksums"], "checked");
        assert!(report["server"]["started"].as_str().unwrap().starts_with(&server.version));
        assert!(lsn(&report["wal"]["replayed_to"]) >= lsn(&report["wal"]["start_lsn"]), "{report:#}");

        let names: Vec<_> =
            report["databases"].as_array().unwrap().iter().map(|found| &found["database"]).collect();
        assert_eq!(names.len(), 7, "{names:?}");
        let odd = find(&report, ODD);
        assert_eq!(odd["relations"], expected.relations, "{odd:#}");
        // What was made here, and the catalog.
        assert!(odd["rows"].as_u64() > Some(5000 + 200 + 200 + 20 + 20 * 30 + 1000), "{odd:#}");
        assert!(odd["bytes"].as_u64() > Some(5_000_000), "{odd:#}");
        assert_eq!(odd["not_read"], serde_json::json!([]));
        let left = |why: &str| {
            let left = odd["not_checked"]
                .as_array()
                .unwrap()
                .iter()
                .find(|left| left["why"].as_str().unwrap().contains(why));
            left.map_or(Value::Null, |left| left["examples"].clone())
        };
        assert_eq!(left("marked invalid"), serde_json::json!(["public.invalid"]));
        if has_amcheck(server) {
            assert_eq!(odd["indexes_checked"], expected.btrees, "{odd:#}");
            assert_eq!(odd["heaps_checked"], expected.heaps, "{odd:#}");
            assert_eq!(odd["visibility_maps_checked"], expected.heaps, "{odd:#}");
            assert_eq!(odd["indexes_read"], 2, "brin and gin: {odd:#}");
            assert_eq!(left("access method gin"), serde_json::json!(["public.documents_j_idx"]));
        } else {
            assert_eq!(odd["indexes_checked"], 0);
            assert!(left("does not have the extension amcheck").is_array(), "{odd:#}");
        }
        assert!(find(&report, "bytes")["rows"].as_u64() > Some(10));
        let notes = report["notes"].to_string();
        assert!(notes.contains("include_dir") && notes.contains("/nonexistent/conf.d"), "{notes}");
        let archived = fs::read_to_string(&archived).unwrap_or_default();
        assert!(
            !archived.contains(scratch.to_str().unwrap()),
            "the scratch server archives nothing: {archived}"
        );
    });
}

#[test]
fn a_server_that_will_not_do_is_refused_before_anything_is_restored() {
    let Ok(server) = Server::find(15) else { return };
    let Ok(other) = Server::find(18) else { return };
    let space = Space::new();
    let cluster = Cluster::builder().server(&server).start().unwrap();
    space.backup(&cluster.conninfo("postgres"));
    let scratch = space.path("scratch");
    let refused = |command: &mut Command, texts: &[&str]| {
        let output = command.arg("--scratch").arg(&scratch).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        for expected in texts {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!scratch.exists(), "nothing is made");
        space.assert_clean();
    };
    let version = format!("is {}", other.version);
    refused(&mut space.verify(&other, &[]), &["needs PostgreSQL 15", &version, "--server-bin"]);
    let missing = ServerBinaries { bin: space.path("nowhere"), ..server.clone() };
    refused(&mut space.verify(&missing, &[]), &["needs PostgreSQL 15", "nowhere", "no postgres executable"]);
    refused(&mut space.verify(&server, &["--set", "shared_buffers"]), &["--set", "NAME=VALUE"]);
    let report = space.path("nowhere/report.json");
    refused(&mut space.verify(&server, &["--report", report.to_str().unwrap()]), &["nowhere", "directory"]);
    // Nobody writes there, before or after the hours that a verification may take.
    let words = ["--report", "/proc/report.json"];
    refused(&mut space.verify(&server, &words), &["/proc", "cannot write the report"]);
    let mut command = space.verify(&server, &[]);
    refused(command.env("TMPDIR", space.path("nowhere")), &["socket", "Set TMPDIR"]);
    let full = space.folder("full");
    fs::write(full.join("mine"), b"").unwrap();
    let output = space.verify(&server, &["--scratch", full.to_str().unwrap()]).output().unwrap();
    assert!(output.status.code() == Some(2) && said(&output).contains("not empty"), "{}", said(&output));
    assert!(full.join("mine").exists());
    // The server may be found without being named.
    let mut command = space.pgshrink(&["verify", "latest", "--boot", "--scratch"]);
    command.arg(&scratch).arg("--from").arg(space.path("repository")).env("PATH", &server.bin);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("no problems"), "{}", said(&output));
    if space.owner.step_down {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        command.args(["verify", "latest", "--boot", "--from"]).arg(space.path("repository"));
        refused(command.arg("--server-bin").arg(&server.bin), &["root", "runuser"]);
    }
}

#[test]
fn a_backup_of_a_standby_is_started_by_itself() {
    Server::each("verify --boot of a standby", &[15, 18], |server| {
        let space = Space::new();
        let primary = Cluster::builder().server(server).start().unwrap();
        primary.sql("create table t as select n from generate_series(1, 1000) n").unwrap();
        let standby = primary.standby().start().unwrap();
        let position = primary.sql("select pg_current_wal_lsn()").unwrap();
        let caught_up = format!("select pg_last_wal_replay_lsn() >= '{}'", position.trim());
        wait_until(LONG, "the standby", || standby.sql(&caught_up).is_ok_and(|found| found == "t")).unwrap();
        space.backup(&standby.conninfo("postgres"));
        let (report, _) = space.verified(server, &[], 0);
        assert!(report["notes"].to_string().contains("standby.signal"), "{report:#}");
        assert!(find(&report, "postgres")["rows"].as_u64() > Some(1000), "{report:#}");
        let senders = primary.sql("select count(*) from pg_stat_replication").unwrap();
        assert_eq!(senders, "1", "the standby itself");
    });
}
