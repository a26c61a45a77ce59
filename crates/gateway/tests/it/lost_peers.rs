//! Peers that are gone without a word, and peers that only stopped reading.

use std::time::Duration;

use pgshrink_gateway::{GatewayConfig, start_gateway};
use pgshrink_testkit::netns::{Link, LinkShape};
use pgshrink_testkit::{Auth, Cluster, Daemon, or_skip, wait_until};

use crate::harness::{Raw, cluster, gateway_config, port};

const PATIENCE: Duration = Duration::from_secs(90);

/// A gateway that gives peers one second.
fn impatient(cluster: &Cluster) -> GatewayConfig {
    let mut config = gateway_config(cluster);
    config.tcp.user_timeout_s = 1;
    config
}

fn copies(cluster: &Cluster) -> String {
    cluster
        .sql("select count(*) from pg_stat_activity where query like 'copy%' and state = 'active'")
        .unwrap()
}

#[test]
fn a_client_lost_in_the_middle_of_copy_out_frees_its_backend() {
    let link = or_skip!("a client lost in COPY OUT", Link::new(LinkShape::of(4_000_000))).unwrap();
    let cluster = cluster(Auth::Trust);
    // The client is not local to the gateway.
    let config =
        GatewayConfig { listen: vec!["0.0.0.0:0".into()], allow_unchallenged: true, ..impatient(&cluster) };
    let gateway = start_gateway(config).unwrap();
    let mut psql = link.command("psql");
    psql.args(["-X", "-h", &link.near().to_string(), "-p", &port(&gateway).to_string(), "-U", "postgres"]);
    psql.args([
        "-o",
        "/dev/null",
        "-c",
        "copy (select repeat('x', 1000) from generate_series(1, 100000000)) to stdout",
    ]);
    let client = Daemon::spawn(&mut psql).unwrap();
    let moved = || gateway.registry().totals().to_client.raw_bytes;
    wait_until(PATIENCE, "the COPY to move", || moved() > 1_000_000 || !client.is_running()).unwrap();
    assert_eq!(copies(&cluster), "1", "{}", client.log());
    let down = "for device in $(ls /sys/class/net); do ip link set $device down; done";
    assert!(link.command("sh").args(["-c", down]).status().unwrap().success());
    wait_until(PATIENCE, "the backend to end", || copies(&cluster) == "0").unwrap();
    assert!(gateway.registry().is_empty());
}

#[test]
fn a_client_that_only_stops_reading_keeps_its_session() {
    let cluster = cluster(Auth::Trust);
    let gateway = start_gateway(impatient(&cluster)).unwrap();
    let mut client = Raw::login(port(&gateway));
    client.query("copy (select repeat('x', 999) from generate_series(1, 20000)) to stdout");
    wait_until(PATIENCE, "the COPY to begin", || gateway.registry().totals().to_client.raw_bytes > 1_000_000)
        .unwrap();
    // Longer than the limit: the kernel's buffers are full, and its probes of the closed window are answered.
    std::thread::sleep(Duration::from_secs(4));
    let rows = client.until(b'Z').iter().filter(|message| message.0 == b'd').count();
    assert_eq!(rows, 20_000);
}
