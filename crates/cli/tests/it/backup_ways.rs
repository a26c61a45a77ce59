//! Backups on other ways to the server, and against a standby at the same LSN.

use crate::backup::{Running, SUMS, done, repository, restored, start};
use pgshrink_testkit::{Cluster, Daemon, Server, TempDir, free_port, wait_until};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// Backs up through a connection string, and compares what is restored with the server.
fn is_the_same(cluster: &Cluster, conninfo: &str) {
    let keep = TempDir::new().unwrap();
    let place = repository(&keep);
    let words = ["backup", conninfo, "--to", &place, "--checkpoint", "fast", "--compression", "none"];
    let name = done(&words)["backup"].as_str().unwrap().to_owned();
    let copy = restored(cluster.server(), &place, &name, &[]);
    assert_eq!(copy.sql(SUMS).unwrap(), cluster.sql(SUMS).unwrap());
}

#[test]
fn a_backup_goes_over_tls_with_a_verified_server() {
    let cluster = Cluster::builder()
        .server(&Server::find(15).unwrap())
        .tls(true)
        .hba("hostnossl all,replication all all reject");
    let cluster = cluster.start().unwrap();
    cluster
        .sql(
            "create table t as select n, 0 as customer, 'x' as note from generate_series(1, 1000) n;
             create table toasted as select n, 'x' as value from generate_series(1, 10) n; create table empty ()",
        )
        .unwrap();
    let keep = TempDir::new().unwrap();
    let root = keep.path().join("root.crt");
    fs::write(&root, cluster.authority().unwrap().certificate_pem()).unwrap();
    let tls = format!("sslmode=verify-full sslrootcert={}", root.display());
    let conninfo = cluster.conninfo_at("localhost", cluster.port(), "postgres");
    is_the_same(&cluster, &format!("{conninfo} {tls}"));
}

/// A gateway or a connector in front of a port.
fn in_front_of(command: &str, port: u16) -> (Daemon, u16) {
    let own = free_port().unwrap();
    let mut pgshrink = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    pgshrink.arg(command).arg(format!("--listen=127.0.0.1:{own}")).arg("--unix-socket-directory=");
    pgshrink.arg(match command {
        "gateway" => format!("--server=host=127.0.0.1,port={port}"),
        _ => format!("--target=127.0.0.1:{port}"),
    });
    let daemon = Daemon::spawn(&mut pgshrink).unwrap();
    daemon.wait_for_log(PATIENCE, "listening").unwrap();
    (daemon, own)
}

#[test]
fn a_backup_goes_through_a_gateway_and_through_a_connector_before_it() {
    let cluster = start(&Server::find(15).unwrap());
    let (_gateway, port) = in_front_of("gateway", cluster.port());
    is_the_same(&cluster, &cluster.conninfo_at("127.0.0.1", port, "postgres"));
    let (_connector, port) = in_front_of("connect", port);
    is_the_same(&cluster, &cluster.conninfo_at("127.0.0.1", port, "postgres"));
}

/// All that a client sees of the tables.
const CONTENTS: &str = "select (select count(*) || md5(string_agg(t::text, '' order by n)) from t),
    (select md5(string_agg(value, '' order by n)) from toasted),
    (select count(*) || md5(string_agg(log::text, '' order by n)) from log)";

#[test]
fn a_restored_server_has_at_its_lsn_what_a_standby_has_at_the_same_lsn() {
    Server::each("a standby at the same LSN", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql("create table log (n bigserial primary key, filler text)").unwrap();
        let standby = cluster.standby().start().unwrap();
        let script = cluster.data_dir().parent().unwrap().join("load.sql");
        let load = "insert into log (filler) select repeat('x', 200) from generate_series(1, 20); \
                    update t set note = note || 'y' where n % 1000 = (random() * 999)::int;";
        fs::write(&script, load).unwrap();
        let mut pgbench = cluster.command("pgbench");
        pgbench.args(["-n", "-c", "2", "-T", "120", "-f"]).arg(&script).arg(cluster.conninfo("postgres"));
        let pgbench = Running(pgbench.stdout(Stdio::null()).spawn().unwrap());
        let is_running = || cluster.sql("select count(*) > 200 from log").is_ok_and(|found| found == "t");
        wait_until(PATIENCE, "load", is_running).unwrap();
        // From now on the standby receives WAL and does not replay it.
        standby.sql("select pg_wal_replay_pause()").unwrap();
        let paused =
            || standby.sql("select pg_get_wal_replay_pause_state()").is_ok_and(|found| found == "paused");
        wait_until(PATIENCE, "a pause", paused).unwrap();
        let keep = TempDir::new().unwrap();
        let place = repository(&keep);
        let conninfo = cluster.conninfo("postgres");
        let words = ["backup", &conninfo, "--to", &place, "--checkpoint", "fast", "--compression", "none"];
        let report = done(&[&words[..], &["--max-rate", "30000"]].concat());
        let lsn = report["stop_lsn"].as_str().unwrap();
        drop(pgbench);

        // Both end their recovery at the stop position, and answer there.
        let at = |copy: &Cluster| {
            let here = || {
                let state = "select pg_is_in_recovery() and pg_get_wal_replay_pause_state() = 'paused'";
                copy.sql(state).is_ok_and(|found| found == "t")
            };
            wait_until(PATIENCE, "the end of recovery", here)
                .unwrap_or_else(|error| panic!("{error}\n{}", copy.log().unwrap_or_default()));
            let replayed = copy.sql("select pg_last_wal_replay_lsn()").unwrap();
            (replayed, copy.sql(CONTENTS).unwrap())
        };
        standby.set_conf("recovery_target_lsn", lsn).unwrap();
        standby.restart().unwrap();
        let expected = at(&standby);
        let name = report["backup"].as_str().unwrap();
        let copy = crate::backup::boot(server, |into| {
            done(&["restore", name, "--from", &place, "--into", into.to_str().unwrap()]);
            fs::write(into.join("recovery.signal"), "").unwrap();
            let settings = format!("\nrestore_command = 'false'\nrecovery_target_lsn = '{lsn}'\n");
            let path = into.join("postgresql.auto.conf");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text + &settings).unwrap();
        });
        assert_eq!(at(&copy), expected);
    });
}

/// WAL is in this process's memory until its pack is closed.
#[test]
fn a_backup_is_never_a_synchronous_standby() {
    let cluster = start(&Server::find(15).unwrap());
    let keep = TempDir::new().unwrap();
    cluster.set_conf("synchronous_standby_names", "*").unwrap();
    cluster.reload().unwrap();
    let conninfo = cluster.conninfo("postgres");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["backup", &conninfo, "--to", &repository(&keep), "--checkpoint", "fast", "-q"]);
    command.args(["--compression", "none", "--max-rate", "2000", "--server-timeout-s", "3"]);
    let _child = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let ask = |sql: &str| cluster.sql(sql).unwrap();
    let streams = || ask("select count(*) from pg_stat_replication where state = 'streaming'") == "1";
    wait_until(PATIENCE, "WAL", streams).unwrap();
    let mut commit = cluster.command("psql");
    commit
        .args(["-X", "-c", "set synchronous_commit = on", "-c", "insert into empty values (1)"])
        .arg(&conninfo);
    let mut commit = Running(commit.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let waits = || ask("select count(*) from pg_stat_activity where wait_event = 'SyncRep'") == "1";
    wait_until(PATIENCE, "a commit that waits", waits).unwrap();
    // The backup has all of it, and has said so.
    let lsn = ask("select pg_current_wal_flush_lsn()");
    let has = || {
        ask(&format!(
            "select count(*) from pg_stat_replication where state = 'streaming' and write_lsn >= '{lsn}'"
        )) == "1"
    };
    wait_until(PATIENCE, "a status update", has).unwrap();
    let said = ask(
        "select flush_lsn is null, replay_lsn is null, sync_state from pg_stat_replication where state = 'streaming'",
    );
    assert_eq!(said, "t|t|async");
    assert!(waits(), "nobody has acknowledged the commit");
    assert!(commit.0.try_wait().unwrap().is_none());
}

#[test]
fn wal_that_waits_for_a_slow_archive_does_not_end_the_backup_by_wal_sender_timeout() {
    let server = Server::find(15).unwrap();
    let cluster = Cluster::builder().server(&server).conf("wal_sender_timeout", "1s").start().unwrap();
    cluster.sql("create table log (filler text)").unwrap();
    let load = "do $$ begin for i in 1..100000 loop
                  insert into log select repeat(md5(n::text), 20) from generate_series(1, 100) n;
                  commit; perform pg_sleep(0.005);
                end loop; end $$";
    let mut psql = cluster.command("psql");
    psql.arg(cluster.conninfo("postgres")).args(["-q", "-c", load]);
    let psql = Running(psql.stderr(Stdio::null()).spawn().unwrap());
    wait_until(PATIENCE, "some load", || cluster.sql("select count(*) > 1000 from log").unwrap() == "t")
        .unwrap();
    let keep = TempDir::new().unwrap();
    let (place, conninfo) = (repository(&keep), cluster.conninfo("postgres"));
    let words = ["backup", &conninfo, "--to", &place, "--checkpoint", "fast", "--compression", "none"];
    let backup = done(&[&words[..], &["--level", "13", "--threads", "1"]].concat());
    cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where query like 'do %'").unwrap();
    drop(psql);
    let copy = restored(&server, &place, backup["backup"].as_str().unwrap(), &[]);
    assert_eq!(copy.sql("select count(*) > 1000 from log").unwrap(), "t");
}
