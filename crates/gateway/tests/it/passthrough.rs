//! A client that asks for nothing.

use std::io::Write;
use std::time::{Duration, Instant};

use pgshrink_gateway::config::TargetConfig;
use pgshrink_gateway::start_gateway;
use pgshrink_testkit::{Auth, wait_until};

use crate::harness::{
    Raw, cluster, event, field, gateway, gateway_config, message, port, psql, server, tags,
};

#[test]
fn psql_works_through_the_gateway_and_sees_its_own_server() {
    let cluster = cluster(Auth::Scram);
    let gateway = gateway(&cluster);
    assert_eq!(
        psql(&cluster, &gateway).sql("select current_setting('port')").unwrap(),
        cluster.port().to_string()
    );
    assert!(psql(&cluster, &gateway).set("password", "wrong").sql("select 1").is_err());
    assert_eq!(event(&gateway, |e| &e.sessions), 1);
    assert_eq!(event(&gateway, |e| &e.compressed), 0);
    assert_eq!(event(&gateway, |e| &e.plain_unasked), 2);
}

#[test]
fn a_large_copy_out_and_in_arrives_whole() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    cluster.sql("create table t as select n, md5(n::text) as h from generate_series(1, 300000) n; create table u (like t)").unwrap();
    let out = psql(&cluster, &gateway).arg("-c").arg("copy t to stdout").run().unwrap();
    psql(&cluster, &gateway).arg("-c").arg("\\copy u from stdin").input(out + "\n").run().unwrap();
    let sum =
        |table: &str| cluster.sql(&format!("select count(*), sum(hashtext(n || h)) from {table}")).unwrap();
    assert_eq!(sum("t"), sum("u"));
    assert!(sum("u").starts_with("300000|"));
}

#[test]
fn every_reply_is_byte_for_byte_the_servers() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    // Unknown _pq_ options and minor versions bring NegotiateProtocolVersion, which must come through.
    let mut startup = Raw::startup(&[("user", "postgres"), ("_pq_.from_the_future", "1")]);
    startup[4..8].copy_from_slice(&(3u32 << 16 | 9).to_be_bytes());
    let replies = [cluster.port(), port(&gateway)].map(|port| {
        let mut raw = Raw::connect(port);
        raw.send(&startup);
        let mut messages = raw.until(b'Z');
        messages.retain(|(tag, _)| *tag != b'K');
        raw.query("select 1 as a; select 'x'");
        messages.extend(raw.until(b'Z'));
        messages
    });
    assert!(tags(&replies[0]).starts_with('v'), "{}", tags(&replies[0]));
    assert_eq!(replies[0], replies[1]);
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let mut raw = Raw::login(port(&gateway));
    raw.query("select pg_sleep(0.3), 'late'");
    raw.0.shutdown(std::net::Shutdown::Write).unwrap();
    let messages = raw.until(b'Z');
    assert_eq!(tags(&messages), "TDCZ");
    assert!(raw.ends());
}

#[test]
fn a_cancel_request_reaches_the_server() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let mut raw = Raw::connect(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    let key = raw.until(b'Z').into_iter().find(|m| m.0 == b'K').unwrap().1;
    raw.query("select pg_sleep(60)");
    let begun = Instant::now();
    wait_until(Duration::from_secs(90), "the query to run", || {
        cluster.sql("select count(*) from pg_stat_activity where query like '%pg_sleep(60)' and state = 'active' and pid <> pg_backend_pid()")
            .unwrap() == "1"
    })
    .unwrap();
    let mut cancel = Raw::connect(port(&gateway));
    cancel.send(&[&[0, 0, 0, 16, 4, 210, 22, 46][..], &key].concat());
    assert!(cancel.ends());
    let messages = raw.until(b'Z');
    let error = &messages.iter().find(|m| m.0 == b'E').unwrap().1;
    assert_eq!(field(error, b'C'), "57014");
    assert!(begun.elapsed() < Duration::from_secs(30));
    // Through a second gateway, which has never seen the key.
    let other = crate::harness::gateway(&cluster);
    raw.query("select pg_sleep(61)");
    wait_until(Duration::from_secs(90), "the query to run", || {
        cluster.sql("select count(*) from pg_stat_activity where query like '%pg_sleep(61)' and state = 'active' and pid <> pg_backend_pid()")
            .unwrap() == "1"
    })
    .unwrap();
    let mut cancel = Raw::connect(port(&other));
    cancel.send(&[&[0, 0, 0, 16, 4, 210, 22, 46][..], &key].concat());
    assert!(cancel.ends());
    assert!(tags(&raw.until(b'Z')).contains('E'));
}

#[test]
fn what_the_server_says_last_reaches_the_client() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let mut raw = Raw::login(port(&gateway));
    cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'").unwrap();
    // The client may write before it looks.
    std::thread::sleep(Duration::from_millis(200));
    let _ = raw.0.write_all(&message(b'Q', b"select 1\0"));
    let (tag, body) = raw.message().unwrap();
    assert_eq!((tag, field(&body, b'C')), (b'E', "57P01".to_string()));
    assert!(raw.ends());
    drop(raw);
    wait_until(Duration::from_secs(90), "the session to end", || gateway.registry().is_empty()).unwrap();
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.servers = vec![server(TargetConfig::new("127.0.0.1", pgshrink_testkit::free_port().unwrap()))];
    config.servers[0].database = vec!["postgres".into()];
    let gateway = start_gateway(config).unwrap();
    let error = psql(&cluster, &gateway).sql("select 1").unwrap_err().to_string();
    assert!(
        error.contains("could not connect to server \"127.0.0.1:") && error.contains("refused"),
        "{error}"
    );
    let error = psql(&cluster, &gateway).database("other").sql("select 1").unwrap_err().to_string();
    assert!(error.contains("no server is configured for database \"other\""), "{error}");
}

#[test]
fn too_many_clients_are_told_so() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.limits.max_clients = 1;
    let gateway = start_gateway(config).unwrap();
    let first = Raw::login(port(&gateway));
    let mut second = Raw::connect(port(&gateway));
    second.send(&Raw::startup(&[("user", "postgres")]));
    let (tag, body) = second.message().unwrap();
    assert_eq!((tag, field(&body, b'C')), (b'E', "53300".to_string()));
    drop(first);
    wait_until(Duration::from_secs(90), "room for another", || {
        psql(&cluster, &gateway).sql("select 1").is_ok()
    })
    .unwrap();
}

#[test]
fn a_client_that_says_nothing_is_dropped_after_the_login_time() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.timeouts.login_timeout_s = 1;
    let gateway = start_gateway(config).unwrap();
    let mut silent = Raw::connect(port(&gateway));
    silent.send(&[0, 0, 0]);
    let begun = Instant::now();
    assert!(silent.ends());
    assert!(begun.elapsed() < Duration::from_secs(10));
    wait_until(Duration::from_secs(90), "the count", || event(&gateway, |e| &e.login_timeouts) == 1).unwrap();
}
