//! What a client sees through a connector and a gateway is what it sees without them, at the same moment.

use std::net::Shutdown;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pgshrink_gateway::Running;
use pgshrink_testkit::{Auth, Cluster, Server, Stop, wait_until};

use crate::harness::{Raw, cluster, connector, field, gateway, message, port, raise_file_limit, tags};

const WAYS: [(&str, &str); 3] = [("ack", "zstd:1"), ("restart", "zstd:1"), ("restart", "lz4:1")];

/// A gateway, and a connector before it for each of [`WAYS`].
struct World {
    gateway: Running,
    connectors: Vec<Running>,
}

impl World {
    fn new(cluster: &Cluster) -> Self {
        let gateway = gateway(cluster);
        let connectors = WAYS.iter().map(|(dialect, list)| connector(&gateway, dialect, list)).collect();
        Self { gateway, connectors }
    }

    /// The gateway's port and those of the connectors.
    fn ports(&self) -> Vec<u16> {
        std::iter::once(port(&self.gateway)).chain(self.connectors.iter().map(port)).collect()
    }
}

/// A startup packet of protocol 3.`minor`.
fn startup(minor: u32, more: &[(&str, &str)]) -> Vec<u8> {
    let mut packet = Raw::startup(&[&[("user", "postgres"), ("database", "postgres")], more].concat());
    packet[4..8].copy_from_slice(&(3u32 << 16 | minor).to_be_bytes());
    packet
}

#[test]
fn versions_and_options_of_the_future_are_answered_by_the_server_itself() {
    Server::each("versions and options of the future", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let world = World::new(&cluster);
        let option = [("_pq_.from_the_future", "1"), ("_pq_.another", "x")];
        let cases: [(u32, &[(&str, &str)]); 5] =
            [(0, &[]), (2, &[]), (9, &option), (0, &option), (9999, &option[..1])];
        for (minor, more) in cases {
            let answer = |at: u16| {
                let mut raw = Raw::connect(at);
                raw.send(&startup(minor, more));
                let mut answer = raw.until(b'Z');
                for message in answer.iter_mut().filter(|m| m.0 == b'K') {
                    message.1 = message.1.len().to_string().into_bytes();
                }
                raw.query("select 1 as a, 'x'; select");
                answer.extend(raw.until(b'Z'));
                answer
            };
            let direct = answer(cluster.port());
            assert_eq!(
                tags(&direct).starts_with('v'),
                minor > if server.major >= 18 { 2 } else { 0 } || !more.is_empty()
            );
            for at in world.ports() {
                assert_eq!(answer(at), direct, "3.{minor} {more:?} on {}", server.major);
            }
        }
    });
}

#[test]
fn cancel_keys_of_any_length_work_through_both_hops() {
    Server::each("cancel keys", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let world = World::new(&cluster);
        for at in world.ports() {
            let mut raw = Raw::connect(at);
            raw.send(&startup(2, &[]));
            let key = raw.until(b'Z').into_iter().find(|m| m.0 == b'K').unwrap().1;
            assert_eq!(key.len(), if server.major >= 18 { 36 } else { 8 });
            raw.query("select pg_sleep(60)");
            wait_until(Duration::from_secs(10), "the query to run", || {
                let running = "select count(*) from pg_stat_activity where query = 'select pg_sleep(60)' and state = 'active'";
                cluster.sql(running).unwrap() == "1"
            })
            .unwrap();
            let mut cancel = Raw::connect(at);
            cancel.send(&[&(key.len() as u32 + 8).to_be_bytes()[..], &[4, 210, 22, 46], &key].concat());
            assert!(cancel.ends());
            let error = raw.until(b'Z').into_iter().find(|m| m.0 == b'E').unwrap().1;
            assert_eq!(field(&error, b'C'), "57014");
        }
    });
}

#[test]
fn a_server_that_shuts_down_says_the_same_as_without_us() {
    for how in [Stop::Fast, Stop::Immediate] {
        let cluster = cluster(Auth::Trust);
        let world = World::new(&cluster);
        let ports: Vec<u16> = [vec![cluster.port()], world.ports()].concat();
        let mut sessions: Vec<Raw> = ports.iter().map(|at| Raw::login(*at)).collect();
        for raw in &mut sessions {
            raw.query("do $$ begin raise notice 'before'; perform pg_sleep(60); end $$");
            raw.until(b'N');
        }
        // Errors say at which statement they came.
        let asleep = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
        let all = sessions.len().to_string();
        wait_until(Duration::from_secs(90), "all to sleep", || cluster.sql(asleep).unwrap().trim() == all)
            .unwrap();
        cluster.stop(how).unwrap();
        let rest = |raw: &mut Raw| std::iter::from_fn(|| raw.message()).collect::<Vec<_>>();
        let direct = rest(&mut sessions[0]);
        let last = direct.last().unwrap();
        assert_eq!(field(&last.1, b'C'), "57P01", "{how:?}");
        for raw in &mut sessions[1..] {
            assert_eq!(rest(raw), direct, "{how:?}");
        }
    }
}

#[test]
fn an_error_in_mid_copy_is_survived_while_the_client_goes_on_sending() {
    let cluster = cluster(Auth::Trust);
    cluster.sql("create table numbers (n int)").unwrap();
    let world = World::new(&cluster);
    for at in world.ports() {
        let mut raw = Raw::login(at);
        raw.query("copy numbers from stdin");
        raw.until(b'G');
        raw.send(&message(b'd', b"1\n"));
        raw.send(&message(b'd', b"not a number\n"));
        for n in 0..2000 {
            raw.send(&message(b'd', format!("{n}\n").repeat(2000).as_bytes()));
        }
        raw.send(&message(b'c', b""));
        let answer = raw.until(b'Z');
        assert_eq!((tags(&answer), field(&answer[0].1, b'C')), ("EZ".into(), "22P02".into()));
        raw.query("select 7");
        assert_eq!(tags(&raw.until(b'Z')), "TDCZ");
    }
    assert_eq!(cluster.sql("select count(*) from numbers").unwrap(), "0");
}

#[test]
fn a_notice_arrives_while_its_statement_still_runs() {
    let cluster = cluster(Auth::Trust);
    let world = World::new(&cluster);
    let statements = [
        "do $$ begin raise notice 'now'; perform pg_sleep(2); end $$",
        // Rows in the same read, the last of them cut somewhere.
        "select repeat('row ', 50) from generate_series(1, 300); do $$ begin raise notice 'now'; perform pg_sleep(2); end $$",
    ];
    std::thread::scope(|scope| {
        for at in world.ports() {
            scope.spawn(move || {
                for statement in statements {
                    let mut raw = Raw::login(at);
                    let began = Instant::now();
                    raw.query(statement);
                    raw.until(b'N');
                    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
                    raw.until(b'Z');
                    assert!(began.elapsed() >= Duration::from_secs(2));
                }
            });
        }
    });
}

#[test]
fn a_notification_reaches_an_idle_listener_at_once() {
    let cluster = cluster(Auth::Trust);
    let world = World::new(&cluster);
    let mut sender = Raw::login(cluster.port());
    for at in world.ports() {
        let mut listener = Raw::login(at);
        listener.query("listen news");
        listener.until(b'Z');
        let mut slowest = Duration::ZERO;
        for n in 0..20 {
            sender.query(&format!("notify news, 'item {n}'"));
            sender.until(b'Z');
            let began = Instant::now();
            let (tag, body) = listener.message().unwrap();
            slowest = slowest.max(began.elapsed());
            assert!(tag == b'A' && body.ends_with(format!("\0item {n}\0").as_bytes()));
        }
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    }
}

#[test]
fn replication_keepalives_are_not_held_back() {
    let cluster = Cluster::builder().conf("max_wal_senders", 8).start().unwrap();
    let world = World::new(&cluster);
    for at in world.ports() {
        let mut raw = Raw::connect(at);
        raw.send(&Raw::startup(&[("user", "postgres"), ("replication", "true")]));
        raw.until(b'Z');
        let lsn = cluster.sql("select pg_current_wal_flush_lsn()").unwrap();
        raw.query(&format!("START_REPLICATION PHYSICAL {lsn}"));
        raw.until(b'W');
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let status = [&b"r"[..], &[0; 32], &[1]].concat();
            let began = Instant::now();
            raw.send(&message(b'd', &status));
            // A keepalive; WAL of a checkpoint may come between.
            while raw.message().unwrap().1[0] != b'k' {}
            slowest = slowest.max(began.elapsed());
        }
        assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    }
}

#[test]
fn a_small_reply_is_not_delayed() {
    let cluster = cluster(Auth::Trust);
    let world = World::new(&cluster);
    // What waits waits each time; what else the machine does delays some replies.
    let fastest_tenth = |at: u16| {
        let mut raw = Raw::login(at);
        let mut times: Vec<Duration> = (0..300)
            .map(|n| {
                let began = Instant::now();
                raw.query(&format!("select {n}"));
                raw.until(b'Z');
                began.elapsed()
            })
            .collect();
        times.sort();
        times[30]
    };
    let direct = fastest_tenth(cluster.port()).max(Duration::from_micros(100));
    for at in world.ports() {
        let through = fastest_tenth(at);
        assert!(through < direct * 10, "{through:?} against {direct:?}");
    }
}

#[test]
fn a_half_closed_client_still_gets_its_answer_through_both_hops() {
    let cluster = cluster(Auth::Trust);
    let world = World::new(&cluster);
    for at in world.ports() {
        let mut raw = Raw::login(at);
        raw.query("select repeat('late ', 100000) from pg_sleep(0.2)");
        raw.0.shutdown(Shutdown::Write).unwrap();
        assert_eq!(tags(&raw.until(b'Z')), "TDCZ");
        assert!(raw.ends());
    }
    wait_until(Duration::from_secs(30), "the sessions to end", || world.gateway.registry().is_empty())
        .unwrap();
}

#[test]
fn a_value_of_64_mib_travels_both_ways() {
    const SIZE: usize = 64 << 20;
    let cluster = cluster(Auth::Trust);
    cluster.sql("create table big (v bytea); alter table big alter v set storage external").unwrap();
    let world = World::new(&cluster);
    let mut rng = pgshrink_testkit::Seed(64).rng();
    for (at, value) in world.ports().into_iter().skip(1).zip([rng.bytes(SIZE), rng.text(SIZE)]) {
        let mut raw = Raw::login(at);
        raw.query("truncate big; copy big from stdin (format binary)");
        raw.until(b'G');
        let head =
            [&b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0"[..], &[0, 1], &(SIZE as u32).to_be_bytes()].concat();
        raw.send(&message(b'd', &[&head[..], &value, &[0xff, 0xff]].concat()));
        raw.send(&message(b'c', b""));
        assert_eq!(tags(&raw.until(b'Z')), "CZ");
        raw.query("copy big to stdout (format binary)");
        let data: Vec<u8> = raw.until(b'Z').into_iter().filter(|m| m.0 == b'd').flat_map(|m| m.1).collect();
        assert!(data.len() > SIZE && data[head.len()..head.len() + SIZE] == value, "{} bytes", data.len());
    }
    let moved = &world.connectors[1].registry().totals();
    for direction in [moved.to_client, moved.to_server] {
        assert!(direction.ratio() > 2.0, "{direction:?}");
    }
    let noise = &world.connectors[0].registry().totals();
    for direction in [noise.to_client, noise.to_server] {
        assert!(direction.wire_bytes <= direction.raw_bytes + 64, "{direction:?}");
    }
}

#[test]
fn two_hundred_sessions_at_once_each_get_their_own_answers() {
    raise_file_limit();
    let cluster = Cluster::builder().conf("max_connections", 230).start().unwrap();
    let world = World::new(&cluster);
    let ports = world.ports();
    let mut sessions: Vec<Raw> = (0..200).map(|n| Raw::login(ports[n % ports.len()])).collect();
    for round in 0..3 {
        for (n, raw) in sessions.iter_mut().enumerate() {
            raw.query(&format!("select 's{n} r{round} ' || i from generate_series(1, 200) i"));
        }
        for (n, raw) in sessions.iter_mut().enumerate() {
            let rows = raw.until(b'Z').into_iter().filter(|m| m.0 == b'D').collect::<Vec<_>>();
            assert_eq!(rows.len(), 200);
            let last = format!("s{n} r{round} 200");
            assert!(rows[199].1.ends_with(last.as_bytes()));
        }
    }
    assert_eq!(world.gateway.registry().len(), 200);
    drop(sessions);
    wait_until(Duration::from_secs(10), "the sessions to end", || world.gateway.registry().is_empty())
        .unwrap();
    sleep(Duration::from_millis(50));
    assert_eq!(world.gateway.registry().process.budget.used(), 0);
}
