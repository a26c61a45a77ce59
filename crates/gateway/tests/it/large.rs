//! Large results over a bad line to a slow reader: every byte arrives, and nothing stops.
//!
//! ```text
//!   client ── relay ── connector ── relay ── gateway ── relay ── server
//! ```
//! Each relay cuts writes into odd pieces, delays and throttles by chance; the reader takes odd amounts and pauses.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use pgshrink_gateway::config::{ListenTlsConfig, SslMode, TargetConfig, TargetTlsConfig};
use pgshrink_gateway::{ConnectorConfig, GatewayConfig, Running, start_connector, start_gateway};
use pgshrink_testkit::relay::{Direction, Endpoint, Shape};
use pgshrink_testkit::{Auth, Cluster, Relay, Rng, Seed};

use crate::access::Tls;
use crate::harness::{Raw, cluster, connector_config, gateway_config, message, port, server};

/// Compressible rows, documents, and what no algorithm shrinks.
const RESULTS: [&str; 4] = [
    "copy (select * from t) to stdout",
    "select doc from t, generate_series(1, 2)",
    "select noise from t where noise is not null",
    "copy (select h, noise from t) to stdout (format binary)",
];
/// An agreed list, by dialect; empty: pass-through.
const LISTS: [(&str, &str); 8] = [
    ("ack", "zstd:1"),
    ("restart", "zstd:1"),
    ("ack", "lz4:1"),
    ("restart", "lz4:1"),
    ("ack", "zlib:1"),
    ("restart", "zlib:1"),
    ("restart", "zstd:3"),
    ("ack", "off"),
];

struct World {
    cluster: Cluster,
    /// What the server itself answers to each of [`RESULTS`].
    expected: Vec<Vec<u8>>,
    _tls: Tls,
    listen: ListenTlsConfig,
    /// Readers may pause for longer than the idle time.
    long_pauses: bool,
}

impl World {
    fn new(long_pauses: bool) -> Self {
        let cluster = cluster(Auth::Trust);
        cluster
            .sql(
                "create table t as select n, md5(n::text) as h, repeat('word ' || n % 50, n % 40) as words,
                   jsonb_build_object('id', n, 'name', 'name ' || n % 100, 'tags', array[n % 7, n % 11]) as doc,
                   case when n % 10 = 0 then (select string_agg(sha256((n * 100 + k)::text::bytea), '')
                     from generate_series(1, 40) k) end as noise
                 from generate_series(1, 15000) n",
            )
            .unwrap();
        let expected = RESULTS
            .iter()
            .map(|sql| {
                let mut raw = Raw::login(cluster.port());
                raw.query(sql);
                raw.until(b'Z').iter().flat_map(|(tag, body)| message(*tag, body)).collect()
            })
            .collect();
        let tls = Tls::new();
        Self { cluster, expected, listen: tls.listen(), _tls: tls, long_pauses }
    }
}

/// One way from a client to the server.
struct Way {
    near: Relay,
    _connector: Running,
    _middle: Relay,
    gateway: Running,
    _far: Relay,
    text: String,
}

impl Way {
    fn new(world: &World, rng: &mut Rng) -> Self {
        let (dialect, list) = *rng.pick(&LISTS);
        let far = relay(world.cluster.port(), rng);
        let tls = rng.chance(40);
        let mut config = GatewayConfig {
            servers: vec![server(TargetConfig::new("127.0.0.1", far.port()))],
            libpq_compression: "zstd:3,lz4:1,zlib:6".into(),
            tls: tls.then(|| world.listen.clone()),
            ..gateway_config(&world.cluster)
        };
        let frame_size = *rng.pick(&[1 << 10, 5000, 64 << 10, 128 << 10, 200_000, 1 << 20]);
        let context = *rng.pick(&["preserved", "preserved", "per-transaction", "per-frame"]);
        config.policy.frame_size = frame_size;
        config.policy.context = context.into();
        config.timeouts.idle_release_s = *rng.pick(&[1, 30]);
        let policy = config.policy.clone();
        let gateway = start_gateway(config).unwrap();
        let middle = relay(port(&gateway), rng);
        let sslmode = if tls { SslMode::Require } else { SslMode::Disable };
        let target = TargetConfig {
            tls: TargetTlsConfig { sslmode, ..Default::default() },
            ..TargetConfig::new("127.0.0.1", middle.port())
        };
        let connector = start_connector(ConnectorConfig {
            targets: vec![target],
            policy,
            ..connector_config(&gateway, dialect, list)
        })
        .unwrap();
        let near = relay(port(&connector), rng);
        let text = format!("{dialect} [{list}], tls {tls}, frames of {frame_size}, context {context}");
        Self { near, _connector: connector, _middle: middle, gateway, _far: far, text }
    }
}

fn relay(to: u16, rng: &mut Rng) -> Relay {
    let relay = Relay::to(Endpoint::local(to)).start().unwrap();
    for direction in Direction::BOTH {
        let mut shape = Shape::default();
        if rng.chance(50) {
            shape.piece_size_max = Some(rng.between(500, 9000));
        }
        if rng.chance(30) {
            shape.delay = Duration::from_micros(rng.below(3000) as u64);
        }
        if rng.chance(20) {
            shape.bytes_per_second = Some(rng.between(4 << 20, 30 << 20) as u64);
        }
        relay.shape(direction, shape);
    }
    relay
}

/// Reads as many bytes as are expected, in odd amounts and with pauses.
fn read_slowly(raw: &mut Raw, size: usize, mut long_pauses: bool, rng: &mut Rng) -> Result<Vec<u8>, String> {
    let mut got = vec![0; size];
    let (most, pause) = (rng.between(100, 200_000), Duration::from_micros(rng.below(4000) as u64));
    let mut have = 0;
    while have < size {
        let n = rng.between(1, most).min(size - have);
        match raw.0.read(&mut got[have..have + n]) {
            Ok(0) => return Err(format!("the stream ended after {have} of {size} bytes")),
            Ok(n) => have += n,
            Err(e) => return Err(format!("{e} after {have} of {size} bytes")),
        }
        if rng.chance(2) {
            std::thread::sleep(pause);
        }
        if long_pauses && have > size / 2 && rng.chance(1) {
            long_pauses = false;
            std::thread::sleep(Duration::from_millis(2200));
        }
    }
    Ok(got)
}

fn download(world: &World, way: &Way, raw: &mut Raw, rng: &mut Rng) {
    let which = rng.below(RESULTS.len());
    let (sql, expected) = (RESULTS[which], &world.expected[which]);
    raw.query(sql);
    let got = read_slowly(raw, expected.len(), world.long_pauses, rng).unwrap_or_else(|why| {
        let sessions = way.gateway.registry().sessions();
        panic!(
            "{}: {sql}: {why}; at the gateway {:?}",
            way.text,
            sessions.first().map(|s| s.counters.snapshot())
        )
    });
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{}: {sql}", way.text);
}

fn upload(way: &Way, raw: &mut Raw, rng: &mut Rng) {
    let size = rng.between(1, 3 << 20);
    let rows = String::from_utf8(rng.text(size)).unwrap().replace(['\n', '\t', '\\'], " ");
    raw.query("create temp table if not exists u (h text); truncate u; copy u from stdin");
    raw.until(b'G');
    let mut rest = rows.as_bytes();
    while !rest.is_empty() {
        let n = rng.between(1, 30_000).min(rest.len());
        let (now, later) = rest.split_at(n);
        raw.send(&message(b'd', &[now, b"\n"].concat()));
        rest = later;
    }
    raw.send(&message(b'c', b""));
    raw.until(b'Z');
    raw.query("copy u to stdout");
    let stored: Vec<u8> = raw
        .until(b'Z')
        .iter()
        .filter(|m| m.0 == b'd')
        .flat_map(|m| m.1.strip_suffix(b"\n").unwrap())
        .copied()
        .collect();
    assert!(stored == rows.as_bytes(), "{}", way.text);
}

fn run(world: &World, rng: &mut Rng) {
    let way = Way::new(world, rng);
    let mut raw = Raw::login(way.near.port());
    for _ in 0..3 {
        match rng.below(4) {
            0 => upload(&way, &mut raw, rng),
            _ => download(world, &way, &mut raw, rng),
        }
    }
    let _ = raw.0.write_all(&message(b'X', b""));
    assert!(raw.ends(), "{}", way.text);
}

#[test]
fn large_results_reach_a_slow_reader_over_a_bad_line() {
    let world = World::new(false);
    let mut rng = Seed::from_env_or_time().rng();
    for _ in 0..6 {
        run(&world, &mut rng);
    }
}

#[test]
#[ignore = "soak: two minutes of it"]
fn large_results_keep_reaching_slow_readers() {
    let world = World::new(true);
    let mut rng = Seed::from_env_or_time().rng();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (world, mut rng) = (&world, Seed(rng.bits()).rng());
            scope.spawn(move || {
                while began.elapsed() < Duration::from_secs(120) {
                    run(world, &mut rng);
                }
            });
        }
    });
}
