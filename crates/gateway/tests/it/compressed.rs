//! Connector and gateway, both dialects.

use std::time::Duration;

use pgshrink_gateway::start_connector;
use pgshrink_testkit::{Auth, wait_until};

use crate::harness::{
    Raw, cluster, connector, connector_config, event, field, gateway, port, psql, server, tags,
};

const DIALECTS: [&str; 2] = ["ack", "restart"];

#[test]
fn copies_and_queries_travel_compressed_in_both_dialects() {
    let cluster = cluster(Auth::Scram);
    let gateway = gateway(&cluster);
    cluster
        .sql("create table t as select n, 'row number ' || n as text from generate_series(1, 200000) n")
        .unwrap();
    for dialect in DIALECTS {
        for list in ["zstd:1", "lz4:1"] {
            let connector = connector(&gateway, dialect, list);
            let client = || psql(&cluster, &connector);
            let out = client().arg("-c").arg("copy t to stdout").run().unwrap();
            assert_eq!(out.lines().count(), 200_000, "{dialect} {list}");
            client().sql("drop table if exists u; create table u (like t)").unwrap();
            client().arg("-c").arg("\\copy u from stdin").input(out + "\n").run().unwrap();
            let sum = |table: &str| {
                client().sql(&format!("select count(*), sum(hashtext(n || text)) from {table}")).unwrap()
            };
            assert_eq!(sum("t"), sum("u"), "{dialect} {list}");
            let totals = connector.registry().totals();
            for (name, direction) in [("in", totals.to_client), ("out", totals.to_server)] {
                assert!(direction.frames > 0, "{dialect} {list} {name}: {direction:?}");
                assert!(direction.ratio() > 1.8, "{dialect} {list} {name}: {direction:?}");
            }
        }
    }
    assert!(event(&gateway, |e| &e.compressed) >= 4);
}

#[test]
fn both_ends_count_the_same_bytes() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    for dialect in DIALECTS {
        let connector = connector(&gateway, dialect, "zstd:1");
        psql(&cluster, &connector)
            .sql("select repeat('abc', 100), n from generate_series(1, 1000) n")
            .unwrap();
        wait_until(Duration::from_secs(90), "sessions to end", || {
            gateway.registry().is_empty() && connector.registry().is_empty()
        })
        .unwrap();
        let near = connector.registry().totals();
        assert!(
            near.to_client.frames > 0 && near.to_client.wire_bytes < near.to_client.raw_bytes / 5,
            "{near:?}"
        );
    }
    let far = gateway.registry().totals();
    assert!(far.to_client.wire_bytes < far.to_client.raw_bytes / 5, "{far:?}");
}

#[test]
fn a_session_changes_its_compression_by_itself() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    let mut ask = |sql: &str| {
        raw.query(sql);
        tags(&raw.until(b'Z'))
    };
    let text = "select repeat('x', 10000)";
    assert_eq!(ask(text), "TDCZ");
    let sending = || gateway.registry().sessions()[0].compression().unwrap().sending;
    assert_eq!(sending(), "zstd:1");
    for (value, expected) in [("off", "off"), ("lz4:1", "lz4:1"), ("zstd:1", "zstd:1")] {
        assert_eq!(ask(&format!("SET pgshrink.compression = '{value}'")), "CZ", "{value}");
        assert_eq!(ask(text), "TDCZ");
        assert_eq!(sending(), expected);
    }
    // What the server takes without a word, the gateway warns of.
    assert!(ask("SET pgshrink.compression = 'nonsense'").contains('N'));
    assert_eq!(ask(text), "TDCZ");
}

#[test]
fn a_server_that_refuses_the_key_gets_a_plain_session_that_works() {
    let cluster = cluster(Auth::Scram);
    let plain_gateway = gateway(&cluster);
    for dialect in DIALECTS {
        // PostgreSQL 15 answers an unknown _pq_ option with NegotiateProtocolVersion.
        let mut config = connector_config(&plain_gateway, dialect, "zstd:1");
        config.targets[0].port = cluster.port();
        let connector = start_connector(config.clone()).unwrap();
        for _ in 0..2 {
            assert_eq!(psql(&cluster, &connector).sql("select 42").unwrap(), "42");
        }
        assert_eq!(event(&connector, |e| &e.sessions), 2);
        assert_eq!(event(&connector, |e| &e.compressed), 0);
        assert_eq!(event(&connector, |e| &e.plain_refused_by_peer), 2);
        config.required = true;
        let connector = start_connector(config).unwrap();
        let error = psql(&cluster, &connector).sql("select 42").unwrap_err().to_string();
        assert!(error.contains("compression is required"), "{error}");
    }
}

#[test]
fn nothing_in_common_is_plain_and_silent_unless_required() {
    let cluster = cluster(Auth::Trust);
    let mut config = crate::harness::gateway_config(&cluster);
    config.libpq_compression = "lz4:1".into();
    let gateway = pgshrink_gateway::start_gateway(config).unwrap();
    for dialect in DIALECTS {
        let mut config = connector_config(&gateway, dialect, "zstd:1");
        let connector = start_connector(config.clone()).unwrap();
        assert_eq!(psql(&cluster, &connector).sql("select 1").unwrap(), "1", "{dialect}");
        config.required = true;
        let connector = start_connector(config).unwrap();
        let mut raw = Raw::connect(port(&connector));
        raw.send(&Raw::startup(&[("user", "postgres")]));
        let error = raw.until(b'E').pop().unwrap().1;
        assert_eq!(field(&error, b'C'), "08004", "{dialect}");
    }
    assert_eq!(event(&gateway, |e| &e.plain_no_common), 4);
}

#[test]
fn a_cancel_goes_through_both_hops() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "restart", "zstd:1");
    let mut raw = Raw::connect(port(&connector));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    let key = raw.until(b'Z').into_iter().find(|m| m.0 == b'K').unwrap().1;
    raw.query("select pg_sleep(60)");
    wait_until(Duration::from_secs(90), "the query to run", || {
        cluster.sql("select count(*) from pg_stat_activity where query like '%pg_sleep(60)' and state = 'active' and pid <> pg_backend_pid()")
            .unwrap() == "1"
    })
    .unwrap();
    let mut cancel = Raw::connect(port(&connector));
    cancel.send(&[&[0, 0, 0, 16, 4, 210, 22, 46][..], &key].concat());
    assert!(cancel.ends());
    assert!(tags(&raw.until(b'Z')).contains('E'));
}

#[test]
fn an_idle_session_gives_its_memory_back_and_goes_on() {
    let cluster = cluster(Auth::Trust);
    let mut config = crate::harness::gateway_config(&cluster);
    config.timeouts.idle_release_s = 3;
    let gateway = pgshrink_gateway::start_gateway(config).unwrap();
    for dialect in DIALECTS {
        let connector = connector(&gateway, dialect, "zstd:1");
        let mut raw = Raw::login(port(&connector));
        raw.query("select repeat('abc ', 50000)");
        raw.until(b'Z');
        let memory = || gateway.registry().sessions()[0].memory_bytes();
        assert!(memory() > 100_000, "{dialect}: {}", memory());
        let released = wait_until(Duration::from_secs(90), "memory to be released", || memory() < 64 << 10);
        assert!(released.is_ok(), "{dialect}: {}", memory());
        raw.query("select repeat('abc ', 50000)");
        assert_eq!(tags(&raw.until(b'Z')), "TDCZ", "{dialect}");
        drop((raw, connector));
        wait_until(Duration::from_secs(90), "the session to end", || gateway.registry().is_empty()).unwrap();
    }
}

#[test]
fn a_target_that_is_down_is_skipped() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let mut config = connector_config(&gateway, "ack", "zstd:1");
    let dead = server(pgshrink_gateway::config::TargetConfig::new(
        "127.0.0.1",
        pgshrink_testkit::free_port().unwrap(),
    ));
    config.targets.insert(0, dead.target);
    let connector = start_connector(config).unwrap();
    assert_eq!(psql(&cluster, &connector).sql("select 1").unwrap(), "1");
}
