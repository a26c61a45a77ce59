//! What the egress meter predicts, beside what the same traffic really becomes with `zstd:1`.

use std::time::Duration;

use pgshrink_gateway::{GatewayConfig, Running, start_gateway};
use pgshrink_testkit::{Auth, Cluster, Psql, corpora, wait_until};

use crate::harness::{Raw, cluster, connector, gateway_config, port, psql};
use crate::observe::{Figures, observed, total};

/// Bytes of the plain protocol and what they became, to the client and to the server.
fn real(gateway: &Running) -> Figures {
    wait_until(Duration::from_secs(30), "sessions to end", || gateway.registry().is_empty()).unwrap();
    let totals = gateway.registry().totals();
    Figures {
        bytes: totals.to_client.raw_bytes,
        compressed: totals.to_client.wire_bytes,
        to_server: totals.to_server.raw_bytes,
        to_server_compressed: totals.to_server.wire_bytes,
        cpu: (totals.to_client.codec_ns + totals.to_server.codec_ns) as f64 / 1e9,
    }
}

/// Runs the same against a gateway that observes and through one that compresses; returns both.
fn both(cluster: &Cluster, run: impl Fn(&Running)) -> (Figures, Figures) {
    let site = observed(cluster, |_| {});
    run(&site.gateway);
    let predicted = total(&site);
    let gateway = start_gateway(GatewayConfig { ..gateway_config(cluster) }).unwrap();
    let near = connector(&gateway, "ack", "zstd:1");
    run(&near);
    (predicted, real(&gateway))
}

#[track_caller]
fn assert_near(name: &str, predicted: u64, real: u64, percent_max: f64) {
    let off = 100.0 * (predicted as f64 / real as f64 - 1.0);
    println!("{name}: predicted {predicted}, really {real}: {off:+.2} %");
    assert!(off.abs() <= percent_max, "{name}: predicted {predicted}, really {real}: {off:+.2} %");
}

fn copy_out(client: Psql, table: &str) {
    let sql = format!("copy {table} to stdout");
    let status = client.arg("-c").arg(sql).command().stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success());
}

fn orders(cluster: &Cluster) {
    cluster
        .sql(
            "create table orders as select n as id, now() - n * interval '37 seconds' as placed,
                 (array['new', 'paid', 'packed', 'shipped', 'returned'])[1 + hashint4(n) % 5 + 4 * (hashint4(n) % 5 < 0)::int] as state,
                 md5(n::text) as reference, (hashint4(n) % 100000 / 100.0)::numeric(10, 2) as amount,
                 'Customer ' || abs(hashint4(n / 7)) % 5000 as customer,
                 repeat('delivered to the usual place, ', 1 + abs(hashint4(n + 1)) % 4) as note
             from generate_series(1, 250000) n",
        )
        .unwrap();
}

#[test]
fn copy_out_is_predicted_within_five_percent() {
    let cluster = cluster(Auth::Trust);
    orders(&cluster);
    let mut tables = vec!["orders".to_owned()];
    for name in ["deb_package", "windows_events"] {
        match corpora::find(name) {
            Ok(corpus) => {
                corpus.load(&cluster).unwrap();
                tables.push(name.to_owned());
            }
            Err(missing) => println!("{missing}"),
        }
    }
    for table in tables {
        // More than once, so that a busy machine leaves time for enough samples.
        let copies = |via: &Running| (0..6).for_each(|_| copy_out(psql(&cluster, via), &table));
        let (predicted, real) = both(&cluster, copies);
        assert_eq!(predicted.bytes, real.bytes, "{table}");
        assert_near(&format!("copy {table}"), predicted.compressed, real.compressed, 5.0);
        println!("{table}: {:.3} s of processor predicted, {:.3} s by the clock", predicted.cpu, real.cpu);
    }
}

#[test]
fn large_results_are_predicted_within_five_percent() {
    let cluster = cluster(Auth::Trust);
    orders(&cluster);
    let (predicted, real) = both(&cluster, |via| {
        let mut raw = Raw::login(port(via));
        for _ in 0..3 {
            raw.query("select * from orders limit 100000");
            raw.until(b'Z');
        }
        raw.send(b"X\0\0\0\x04");
        assert!(raw.ends());
    });
    assert_near("results", predicted.compressed, real.compressed, 5.0);
}

#[test]
fn copy_in_is_predicted_within_five_percent() {
    let cluster = cluster(Auth::Trust);
    orders(&cluster);
    let text = cluster.psql().arg("-c").arg("copy orders to stdout").run().unwrap() + "\n";
    let (predicted, real) = both(&cluster, |via| {
        let client = || psql(&cluster, via);
        client().sql("drop table if exists target; create table target (like orders)").unwrap();
        client().arg("-c").arg("\\copy target from stdin").input(text.clone()).run().unwrap();
    });
    assert_near("copy in", predicted.to_server_compressed, real.to_server_compressed, 5.0);
}

#[test]
fn mixed_traffic_is_predicted_within_fifteen_percent() {
    let cluster = cluster(Auth::Trust);
    orders(&cluster);
    cluster.sql("create unique index on orders (id); analyze orders").unwrap();
    let (predicted, real) = both(&cluster, |via| {
        for session in 0..4 {
            let mut raw = Raw::login(port(via));
            for n in 0..1500 {
                let id = (n * 7919 + session * 104_729) % 250_000 + 1;
                raw.query(&format!("select * from orders where id = {id}"));
                raw.until(b'Z');
                if n % 100 == 50 {
                    raw.query(&format!("select * from orders where id between {id} and {id} + 300"));
                    raw.until(b'Z');
                }
            }
            raw.send(b"X\0\0\0\x04");
            assert!(raw.ends());
        }
        for _ in 0..20 {
            psql(&cluster, via).sql("select count(*) from orders").unwrap();
        }
    });
    assert_near("mixed, to the client", predicted.compressed, real.compressed, 15.0);
    assert_near("mixed, to the server", predicted.to_server_compressed, real.to_server_compressed, 15.0);
}

#[test]
fn small_replies_alone_are_predicted_within_fifteen_percent() {
    let cluster = cluster(Auth::Trust);
    let (predicted, real) = both(&cluster, |via| {
        let mut raw = Raw::login(port(via));
        for n in 0..6000 {
            raw.query(&format!("select {n} as id, {} as balance", n * 31 % 1000));
            raw.until(b'Z');
        }
        raw.send(b"X\0\0\0\x04");
        assert!(raw.ends());
    });
    assert_near("replies", predicted.compressed, real.compressed, 15.0);
    assert_near("statements", predicted.to_server_compressed, real.to_server_compressed, 15.0);
}
