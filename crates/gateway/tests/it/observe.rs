//! The egress meter: bytes as they are, lines by client, database and day, the file.

use std::collections::BTreeMap;
use std::time::Duration;

use pgshrink_gateway::{Control, GatewayConfig, start_connector, start_gateway};
use pgshrink_testkit::{Auth, Cluster, TempDir, wait_until};

use crate::admin::Site;
use crate::harness::{Raw, cluster, connector, connector_config, event, gateway_config, port, psql};

/// What SHOW SAVINGS says of a line, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    pub bytes: u64,
    pub compressed: u64,
    pub to_server: u64,
    pub to_server_compressed: u64,
    pub cpu: f64,
}

/// A gateway that observes, with plenty of processor time for it.
pub fn observed(cluster: &Cluster, change: impl FnOnce(&mut GatewayConfig)) -> Site {
    Site::new(cluster, |config| {
        config.observe = true;
        config.observe_cpu_percent = 20.0;
        change(config);
    })
}

/// Rows of SHOW SAVINGS, by day, client and database.
pub fn savings(site: &Site) -> BTreeMap<[String; 3], Figures> {
    let text = site.psql().arg("--csv").arg("-P").arg("tuples_only=off").arg("-c").arg("show savings");
    let text = text.run().unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |name: &str| cells[columns.iter().position(|column| *column == name).unwrap()];
        let figures = Figures {
            bytes: cell("bytes").parse().unwrap(),
            compressed: cell("compressed_bytes").parse().unwrap(),
            to_server: cell("to_server_bytes").parse().unwrap(),
            to_server_compressed: cell("to_server_compressed_bytes").parse().unwrap(),
            cpu: cell("cpu_seconds").parse().unwrap(),
        };
        (["day", "client", "database"].map(|name| cell(name).to_owned()), figures)
    };
    lines.map(row).collect()
}

/// All of it, when every session has ended and nothing is measured any more.
pub fn total(site: &Site) -> Figures {
    let registry = site.gateway.registry();
    wait_until(Duration::from_secs(60), "sessions to end and samples to be measured", || {
        registry.is_empty() && registry.samples_pending() == 0
    })
    .unwrap();
    savings(site)[&["all".to_owned(), String::new(), String::new()]]
}

/// Everything a server says to these statements, without its cancel key.
fn transcript(port: u16, statements: &[&str]) -> Vec<(u8, Vec<u8>)> {
    let mut raw = Raw::login(port);
    let mut messages = Vec::new();
    for statement in statements {
        raw.query(statement);
        messages.extend(raw.until(b'Z'));
    }
    messages
}

#[test]
fn bytes_pass_as_they_are_while_they_are_measured() {
    let cluster = cluster(Auth::Trust);
    let site = observed(&cluster, |_| {});
    let statements = [
        "select repeat('abc', n % 700), n from generate_series(1, 60000) n",
        "select oid, proname, prosrc from pg_proc order by oid",
        "select decode(repeat(md5('x'), 40000), 'hex')",
        "select 1; select 2; select no_such_column",
        "copy (select n, md5(n::text) from generate_series(1, 100000) n) to stdout",
    ];
    let direct = transcript(cluster.port(), &statements);
    assert_eq!(transcript(port(&site.gateway), &statements), direct);
    assert!(total(&site).compressed < total(&site).bytes * 3 / 4, "{:?}", total(&site));
    let plain = site.gateway.registry().totals();
    assert_eq!((plain.to_client.frames, plain.to_client.raw_bytes), (0, plain.to_client.wire_bytes));
}

#[test]
fn a_client_that_asks_for_compression_is_told_no_and_gets_its_bytes() {
    let cluster = cluster(Auth::Trust);
    let site = observed(&cluster, |_| {});
    for (number, dialect) in (1..).zip(["ack", "restart"]) {
        let near = connector(&site.gateway, dialect, "zstd:1,lz4:1");
        assert_eq!(psql(&cluster, &near).sql("select 42").unwrap(), "42");
        assert_eq!(event(&site.gateway, |e| &e.plain_observed), number, "{dialect}");
        let mut strict = connector_config(&site.gateway, dialect, "zstd:1");
        strict.required = true;
        let strict = start_connector(strict).unwrap();
        let error = psql(&cluster, &strict).sql("select 42").unwrap_err().to_string();
        assert!(error.contains("compression is required"), "{error}");
        // That one was asked for too.
        site.gateway.registry().events.plain_observed.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
    assert_eq!(event(&site.gateway, |e| &e.compressed), 0);
}

#[test]
fn every_client_and_database_has_its_line_and_its_bytes() {
    let cluster = cluster(Auth::Trust);
    cluster.sql("create database archive").unwrap();
    let site = observed(&cluster, |config| config.allow_unchallenged = true);
    for (address, database, rows) in [(2, "postgres", 1000), (2, "archive", 2000), (3, "archive", 3000)] {
        let mut raw = Raw::connect_from([127, 0, 0, address], port(&site.gateway));
        raw.send(&Raw::startup(&[("user", "postgres"), ("database", database)]));
        let mut got: usize = raw.until(b'Z').iter().map(|(_, body)| body.len() + 5).sum();
        raw.query(&format!("select n, 'row of text ' || n from generate_series(1, {rows}) n"));
        got += raw.until(b'Z').iter().map(|(_, body)| body.len() + 5).sum::<usize>();
        // What comes up to AuthenticationOk is the handshake's.
        let login = 9;
        let key = |day: &String| [day.clone(), format!("127.0.0.{address}"), database.to_owned()];
        let lines = savings(&site);
        let day = &lines.keys().next().unwrap()[0];
        assert_eq!(lines[&key(day)].bytes, got as u64 - login, "{address} {database}");
    }
    psql_over_unix(&site);
    let _ = total(&site);
    let lines = savings(&site);
    let mut clients: Vec<String> =
        lines.keys().map(|[_, client, database]| format!("{client} {database}")).collect();
    clients.sort();
    assert_eq!(
        clients,
        [" ", "127.0.0.2 archive", "127.0.0.2 postgres", "127.0.0.3 archive", "unix postgres"]
    );
    let today = lines.keys().filter(|key| key[0] != "all").map(|key| key[0].clone()).collect::<Vec<_>>();
    assert!(today.iter().all(|day| day.len() == 10 && day.starts_with("20")), "{today:?}");
    let sum: u64 = lines.iter().filter(|(key, _)| key[0] != "all").map(|(_, f)| f.compressed).sum();
    assert_eq!(sum, total(&site).compressed);
    for (key, figures) in lines.iter().filter(|(key, _)| key[1].starts_with("127")) {
        assert!(figures.compressed < figures.bytes / 2, "{key:?}: {figures:?}");
    }
}

fn psql_over_unix(site: &Site) {
    site.psql().database("postgres").user("postgres").sql("select 1").unwrap();
}

#[test]
fn the_file_keeps_totals_over_a_restart_and_is_written_while_it_runs() {
    let cluster = cluster(Auth::Trust);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("egress");
    let start = || {
        observed(&cluster, |config| {
            config.observe_file = path.clone();
            config.observe_write_s = 1;
        })
    };
    let site = start();
    let query = "select n, md5(n::text) from generate_series(1, 30000) n";
    transcript(port(&site.gateway), &[query]);
    let first = total(&site);
    let in_file = || {
        let bytes = std::fs::read(&path).unwrap();
        pgshrink_egress::file::read(&bytes, pgshrink_egress::DEFAULT_LIMITS).unwrap()
    };
    wait_until(Duration::from_secs(30), "the file to be written", || {
        in_file().estimates().first().is_some_and(|(.., e)| e.to_client.bytes == first.bytes)
    })
    .unwrap();
    site.gateway.end(Control::Drain).unwrap();
    let site = start();
    assert_eq!(total(&site), first);
    transcript(port(&site.gateway), &[query]);
    assert_eq!(total(&site).bytes, 2 * first.bytes);
    let mut second = gateway_config(&cluster);
    (second.observe, second.observe_file) = (true, path.clone());
    let error = start_gateway(second).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("another process is using it"), "{error}");
}

#[test]
fn a_route_that_allows_nothing_saves_nothing() {
    let cluster = cluster(Auth::Trust);
    let site = observed(&cluster, |config| {
        let mut off = config.servers[0].clone();
        (off.database, off.libpq_compression) = (vec!["postgres".into()], Some("off".into()));
        config.servers.insert(0, off);
    });
    transcript(port(&site.gateway), &["select repeat('a', 100000)"]);
    let all = total(&site);
    assert!(all.bytes > 100_000 && all.compressed == all.bytes && all.cpu == 0.0, "{all:?}");
}

#[test]
fn streaming_replication_is_measured() {
    let cluster = cluster(Auth::Trust);
    cluster.sql("create table t (n int, text text)").unwrap();
    let site = observed(&cluster, |_| {});
    let start = cluster.sql("select pg_current_wal_lsn()").unwrap();
    cluster.sql("insert into t select n, 'row of text ' || n from generate_series(1, 400000) n").unwrap();
    let mut raw = Raw::connect(port(&site.gateway));
    raw.send(&Raw::startup(&[("user", "postgres"), ("replication", "true")]));
    raw.until(b'Z');
    raw.query(&format!("START_REPLICATION {start}"));
    let mut got = 0;
    while got < 8 << 20 {
        got += raw.message().unwrap().1.len();
    }
    drop(raw);
    let all = total(&site);
    assert!(all.bytes >= 8 << 20 && all.compressed < all.bytes / 2, "{all:?}");
}
