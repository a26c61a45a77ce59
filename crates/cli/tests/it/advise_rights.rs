//! What a role may see, who else is there, and how a run ends early.

use crate::advise::{seen, start, table, unseen};
use pgshrink_testkit::{Cluster, Psql, Server, TempDir, wait_until};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn as_role(cluster: &Cluster, role: &str) -> String {
    format!("{} user={role}", cluster.conninfo("postgres"))
}

/// A session that runs these statements and then sleeps, until it is dropped.
struct Holder(Child);

impl Holder {
    fn of(cluster: &Cluster, sql: &str) -> Holder {
        let psql: Psql = cluster.psql().arg("-c").arg(format!("{sql}; select pg_sleep(120)"));
        let child = psql.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until(Duration::from_secs(20), "the holder", || {
            cluster.sql("select count(*) from pg_stat_activity where query like '%pg_sleep(120)' and state = 'active' \
                and wait_event = 'PgSleep'").unwrap() == "1"
        })
        .unwrap();
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn select_on_some_tables_is_enough_and_the_grants_for_the_rest_are_said() {
    Server::each("rights", &[15, 16, 18], |server| {
        let cluster = start(server);
        cluster
            .sql(
                "create role \"the reader\" login; create schema hidden; grant usage on schema public to \"the reader\";
                 create table readable as select n, 'x' as a from generate_series(1, 100) n;
                 create table closed as select n from generate_series(1, 100) n;
                 create table partly as select n, n as m from generate_series(1, 100) n;
                 create table hidden.inside as select n from generate_series(1, 100) n;
                 create table policed as select n from generate_series(1, 100) n;
                 alter table policed enable row level security;
                 create policy half on policed using (n > 50);
                 grant select on readable, policed, hidden.inside to \"the reader\";
                 grant select (m) on partly to \"the reader\"; analyze;",
            )
            .unwrap();
        let reader = as_role(&cluster, "'the reader'");
        let snapshot = seen(&reader, &[]);
        assert!(!snapshot.server.is_superuser);
        let readable = table(&snapshot, "readable");
        assert_eq!(readable.sample.as_ref().unwrap().rows.len(), 100);
        assert!(readable.columns[0].statistics.is_some());
        for name in ["closed", "partly", "inside", "policed"] {
            assert!(table(&snapshot, name).sample.is_none(), "{name}");
            assert!(table(&snapshot, name).bytes.main > 0 && !table(&snapshot, name).columns.is_empty());
        }
        assert_eq!(unseen(&snapshot, "closed").1, "GRANT SELECT ON public.closed TO \"the reader\";");
        assert_eq!(unseen(&snapshot, "inside").1, "GRANT USAGE ON SCHEMA \"hidden\" TO \"the reader\";");
        assert_eq!(unseen(&snapshot, "policed").1, "ALTER ROLE \"the reader\" BYPASSRLS;");
        assert!(unseen(&snapshot, "partly").0.contains("SELECT"));
        assert_eq!(unseen(&snapshot, "transactions").1, "GRANT pg_monitor TO \"the reader\";");
        // What is said is enough.
        for unseen in &snapshot.unseen {
            cluster.sql(&unseen.remedy).unwrap();
        }
        cluster.sql("checkpoint").unwrap();
        let snapshot = seen(&reader, &[]);
        assert_eq!(snapshot.unseen, []);
        assert!(snapshot.tables.iter().all(|table| table.sample.is_some()));
        assert!(!table(&snapshot, "closed").sample.as_ref().unwrap().pages.is_empty());
    });
}

#[test]
fn a_locked_table_is_left_out_within_seconds_and_the_rest_goes_on() {
    Server::each("tables under ACCESS EXCLUSIVE", &[15, 18], |server| {
        let cluster = start(server);
        cluster
            .sql(
                "create table held (a int default 7, b text); create index on held (lower(b)) where a > 3;
                 insert into held select n, n from generate_series(1, 1000) n;
                 create table free as select n, n::text as b from generate_series(1, 1000) n; create index on free (b);
                 create table waited as select n from generate_series(1, 1000) n; vacuum analyze;",
            )
            .unwrap();
        let holder = Holder::of(&cluster, "begin; lock table held in access exclusive mode");
        // Somebody waits for the same lock on another table, behind a reader: who comes next waits as well.
        let _reader = cluster
            .psql()
            .arg("-c")
            .arg("begin; select count(*) from waited; select pg_sleep(60)")
            .command()
            .stdout(Stdio::null())
            .spawn()
            .map(Holder)
            .unwrap();
        let waiting = cluster
            .psql()
            .arg("-c")
            .arg("select pg_sleep(1); lock table waited in access exclusive mode")
            .command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Holder)
            .unwrap();
        drop(waiting);
        let started = Instant::now();
        let snapshot = seen(&cluster.conninfo("postgres"), &[]);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert!(table(&snapshot, "free").sample.is_some() && table(&snapshot, "free").indexes.len() == 1);
        let held = table(&snapshot, "held");
        assert!(held.sample.is_none() && held.columns.len() == 2);
        assert!(held.bytes.main > 0, "as of its last VACUUM");
        assert!(unseen(&snapshot, "held").0.contains("ACCESS EXCLUSIVE"));
        drop(holder);
    });
}

#[test]
fn an_index_that_is_being_rebuilt_does_not_stop_the_run() {
    Server::each("an index under ACCESS EXCLUSIVE", &[16], |server| {
        let cluster = start(server);
        cluster.sql("create table t as select n from generate_series(1, 1000) n; create index t_n on t (n); create table u as select 1").unwrap();
        let _holder = Holder::of(&cluster, "begin; reindex index t_n");
        let started = Instant::now();
        let snapshot = seen(&cluster.conninfo("postgres"), &[]);
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert!(table(&snapshot, "u").sample.is_some() && table(&snapshot, "t").sample.is_none());
        assert!(unseen(&snapshot, "public.t").0.contains("lock"));
    });
}

#[test]
fn nothing_stronger_than_access_share_is_held_and_writers_go_on() {
    Server::each("writers beside a run", &[15, 18], |server| {
        let cluster = start(server);
        cluster
            .sql("create table busy (id int primary key, note text, n int); insert into busy select n, repeat('x', 500), 0
                from generate_series(1, 40000) n; create index on busy (lower(note)); create table log (n int)")
            .unwrap();
        let (is_over, written) = (AtomicBool::new(false), AtomicU32::new(0));
        let longest = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    cluster
                        .sql("set lock_timeout = '2s'; update busy set n = n + 1 where id % 500 = 1; insert into log values (1);
                            alter table log add column c int; alter table log drop column c;")
                        .unwrap();
                    longest = longest.max(started.elapsed());
                    written.fetch_add(1, Ordering::Relaxed);
                }
                longest
            });
            let locks = scope.spawn(|| {
                let mut seen = std::collections::BTreeSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    let modes = "select distinct mode from pg_locks l join pg_stat_activity a using (pid)
                        where application_name = 'pgshrink advise' and locktype = 'relation'";
                    seen.extend(cluster.sql(modes).unwrap().lines().map(str::to_owned));
                }
                seen
            });
            for _ in 0..3 {
                let snapshot = seen(&cluster.conninfo("postgres"), &[]);
                assert!(table(&snapshot, "busy").sample.is_some());
            }
            is_over.store(true, Ordering::Relaxed);
            let locks: Vec<String> = locks.join().unwrap().into_iter().collect();
            assert!(locks.iter().all(|mode| mode == "AccessShareLock"), "{locks:?}");
            writer.join().unwrap()
        });
        assert!(written.load(Ordering::Relaxed) > 3);
        assert!(longest < Duration::from_secs(10), "{longest:?}");
    });
}

#[test]
fn a_standby_is_read_like_a_primary_but_for_unlogged_tables() {
    Server::each("standbys", &[15, 18], |server| {
        let primary = Cluster::builder().server(server).conf("wal_level", "replica").start().unwrap();
        primary
            .sql("create table t as select n, md5(n::text) from generate_series(1, 3000) n; create unlogged table u as select 1;
                insert into u select n from generate_series(1, 100) n; analyze")
            .unwrap();
        let standby = primary.standby().start().unwrap();
        let snapshot = seen(&standby.conninfo("postgres"), &[]);
        assert!(snapshot.server.is_standby);
        assert_eq!(table(&snapshot, "t").sample.as_ref().unwrap().rows.len(), 3000);
        assert!(table(&snapshot, "u").sample.is_none());
    });
}

#[test]
fn what_a_standbys_replay_has_canceled_is_asked_again() {
    Server::each("conflicts with replay", &[15], |server| {
        let primary = Cluster::builder().server(server).conf("wal_level", "replica").start().unwrap();
        make_slow(&primary, 200);
        let standby = primary.standby().conf("max_standby_streaming_delay", "0").start().unwrap();
        let snapshot = std::thread::scope(|scope| {
            let run = scope.spawn(|| seen(&standby.conninfo("postgres"), &["--min-size", "0"]));
            wait_until(Duration::from_secs(30), "a busy standby", || running(&standby) == "1").unwrap();
            primary.sql("begin; lock table slow; commit").unwrap();
            run.join().unwrap()
        });
        assert!(standby.log_contains("conflict with recovery"), "{}", standby.log().unwrap());
        let sample = table(&snapshot, "slow").sample.as_ref();
        assert!(sample.is_some_and(|sample| sample.rows.len() > 100), "{:?}", snapshot.unseen);
    });
}

/// A table whose index has an expression that takes its time: of texts of so many times 2,000 bytes.
fn make_slow(cluster: &Cluster, times: u32) {
    cluster
        .sql(&format!(
            "create table slow as select n, repeat('ab', 1000) as a from generate_series(1, 3000) n;
            create index on slow (md5(repeat(a, {times}))) where n < 0;  vacuum analyze slow",
        ))
        .unwrap();
    cluster.sql("update pg_index set indpred = null where indrelid = 'slow'::regclass").unwrap();
}

/// A run that is busy for long.
fn slow(server: &pgshrink_testkit::ServerBinaries) -> Cluster {
    let cluster = start(server);
    make_slow(&cluster, 10_000);
    cluster
}

fn running(cluster: &Cluster) -> String {
    cluster
        .sql("select count(*) from pg_stat_activity where application_name = 'pgshrink advise' and state = 'active' \
            and query like '%version%' and now() - query_start > interval '300 ms'")
        .unwrap()
}

#[test]
fn an_interrupt_cancels_what_the_server_does_and_leaves_nothing() {
    Server::each("SIGINT", &[15], |server| {
        let cluster = slow(server);
        let keep = TempDir::new().unwrap();
        let path = keep.path().join("snapshot.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let run = command.arg("advise").arg(cluster.conninfo("postgres")).arg("--save").arg(&path);
        let run =
            run.args(["--min-size", "0"]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        wait_until(Duration::from_secs(30), "a busy server", || running(&cluster) == "1").unwrap();
        let started = Instant::now();
        let killed = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
        assert!(killed.success());
        let output = run.wait_with_output().unwrap();
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
        assert_eq!(std::fs::read_dir(keep.path()).unwrap().count(), 0);
        let gone = "select count(*) from pg_stat_activity where application_name = 'pgshrink advise'";
        wait_until(Duration::from_secs(5), "the session's end", || cluster.sql(gone).unwrap() == "0")
            .unwrap();
    });
}

#[test]
fn a_session_that_is_ended_is_a_clear_error() {
    Server::each("sessions that are ended", &[15], |server| {
        let cluster = slow(server);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let run = command.arg("advise").arg(cluster.conninfo("postgres")).args(["--min-size", "0", "--json"]);
        let run = run.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        wait_until(Duration::from_secs(30), "a busy server", || running(&cluster) == "1").unwrap();
        cluster
            .sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgshrink advise'")
            .unwrap();
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["error"]["sqlstate"], "57P01");
    });
}
