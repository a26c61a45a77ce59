//! What a session that was active and is quiet still holds, as the kernel counts it.

use std::process::Command;
use std::time::Duration;

use pgshrink_gateway::config::SslMode;
use pgshrink_gateway::{ConnectorConfig, GatewayConfig, start_connector, start_gateway};
use pgshrink_testkit::{Auth, wait_until};

use crate::access::Tls;
use crate::harness::{Raw, cluster, connector_config, message, port, server};

const CHILD: &str = "PGSHRINK_TEST_QUIET";
/// At each end.
const SESSION_BYTES_MAX: usize = 64 << 10;

/// Gateway and connector run in a process of their own, which has nothing else to keep. Rows and lines differ and shrink about
/// four times, as tables do.
#[test]
fn a_session_that_was_active_and_is_quiet_holds_at_most_64_kib_in_every_dialect() {
    if let Ok(case) = std::env::var(CHILD) {
        return hold(&case);
    }
    let cluster = cluster(Auth::Trust);
    cluster.sql("create table sink (line text)").unwrap();
    for case in [
        "ack zstd:1 plain",
        "restart zstd:1 tls",
        "ack lz4 tls",
        "restart lz4 plain",
        "ack zlib:1 tls",
        "restart zlib:1 tls",
    ] {
        let name = "quiet::a_session_that_was_active_and_is_quiet_holds_at_most_64_kib_in_every_dialect";
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, format!("{} {case}", cluster.port()))
            // As the gateway's program sets it at its start.
            .env("MALLOC_MMAP_THRESHOLD_", "131072")
            .env("MALLOC_TRIM_THRESHOLD_", "131072")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        println!("{}", text.lines().find(|line| line.contains("bytes a session")).unwrap_or_default());
        assert!(done.status.success(), "{case}: {text}{}", String::from_utf8_lossy(&done.stderr));
    }
}

fn hold(case: &str) {
    const SESSIONS: usize = 24;
    let [server_port, dialect, list, leg] = case.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let tls = (leg == "tls").then(Tls::new);
    let target = pgshrink_gateway::config::TargetConfig::new("127.0.0.1", server_port.parse().unwrap());
    let mut config = GatewayConfig {
        listen: vec!["127.0.0.1:0".into()],
        servers: vec![server(target)],
        tls: tls.as_ref().map(Tls::listen),
        libpq_compression: "zstd:1,lz4:1,zlib:1".into(),
        threads: Some(1),
        ..Default::default()
    };
    config.timeouts.idle_release_s = 1;
    let gateway = start_gateway(config).unwrap();
    let mut config = ConnectorConfig { threads: Some(1), ..connector_config(&gateway, dialect, list) };
    config.targets[0].tls.sslmode = if tls.is_some() { SslMode::Require } else { SslMode::Disable };
    config.timeouts.idle_release_s = 1;
    let connector = start_connector(config).unwrap();
    let mut copy: Vec<u8> = (0..9000)
        .flat_map(|n| {
            let line = format!("{n}\tuser{}@example.org\t{}\tactive\n", n * 7 % 5000, n * 7919);
            message(b'd', line.as_bytes())
        })
        .collect();
    copy.extend(message(b'c', b""));
    let used = || {
        let mut raw = Raw::login(port(&connector));
        // A value of 600 KB would travel in few messages; rows are what there is.
        raw.query(
            "select n, md5(n::text), 'user' || n % 500 || '@example.org' from generate_series(1, 9000) n",
        );
        raw.until(b'Z');
        raw.query("copy sink from stdin");
        raw.until(b'G');
        raw.send(&copy);
        raw.until(b'Z');
        raw
    };
    let counted = || {
        let ends = [&gateway, &connector].map(|end| end.registry().sessions());
        ends.iter().flatten().map(|session| session.memory_bytes()).max().unwrap_or(usize::MAX)
    };
    let is_quiet = || counted() <= SESSION_BYTES_MAX;
    // What a process keeps whoever comes, and a quiet session that makes it return what it does not.
    let _warm = used();
    wait_until(Duration::from_secs(60), "a first session to be quiet", is_quiet).unwrap();
    let mut before = usize::MAX;
    while resident() < before {
        before = resident();
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut sessions: Vec<Raw> = (0..SESSIONS).map(|_| used()).collect();
    let each = || resident().saturating_sub(before) / (2 * SESSIONS);
    let active = each();
    let quiet = wait_until(Duration::from_secs(60), "memory to be given back", || {
        is_quiet() && each() <= SESSION_BYTES_MAX
    });
    println!("{case}: {active} bytes a session while active, {} while quiet, {} counted", each(), counted());
    assert!(quiet.is_ok(), "{case}: {} bytes a session, {active} while active", each());
    for raw in &mut sessions {
        raw.query("select 1");
        raw.until(b'Z');
    }
}

/// Anonymous memory of this process that is resident.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}
