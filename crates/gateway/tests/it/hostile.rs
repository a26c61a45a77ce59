//! Clients that mean harm, each beside one that means none and must not notice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgshrink_codec::stream::{Encoder, EncoderOptions};
use pgshrink_codec::{Algorithm, AlgorithmList};
use pgshrink_gateway::{Running, start_gateway};
use pgshrink_testkit::{Auth, Cluster, Daemon, Rng, wait_until};

use crate::access::Tls;
use crate::harness::{
    Raw, cluster, connector, event, field, gateway_config, message, port, raise_file_limit,
};

const PROTOCOL: &str = "08P01";
const LIMIT: &str = "54000";
const DIALECTS: [&str; 2] = ["ack", "restart"];
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib];

/// Everything but `d` goes plain, so that what the gateway says can be read without a decoder.
fn target(cluster: &Cluster) -> Running {
    let mut config = gateway_config(cluster);
    config.libpq_compression = "zstd:1,lz4:1,zlib:1".into();
    config.policy.message_types = "d".into();
    config.limits.max_codec_memory_mib = 64;
    config.timeouts.login_timeout_s = 8;
    start_gateway(config).unwrap()
}

/// A session that goes on asking, and checks every answer, while `harm` is done.
fn beside_an_innocent(gateway: &Running, harm: impl FnOnce()) {
    let connector = connector(gateway, "ack", "zstd:1");
    let done = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let innocent = scope.spawn(|| {
            let (mut raw, mut answers) = (Raw::login(port(&connector)), 0);
            while !done.load(Ordering::Relaxed) {
                raw.query("copy (select 'row ' || n from generate_series(1, 500) n) to stdout");
                let rows = raw.until(b'Z').iter().filter(|m| m.0 == b'd').count();
                assert_eq!(rows, 500);
                answers += 1;
            }
            answers
        });
        let harmed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(harm));
        done.store(true, Ordering::Relaxed);
        let answers = innocent.join().unwrap();
        harmed.unwrap();
        answers
    });
    assert!(answers > 2, "the innocent session got {answers} answers");
    assert!(connector.registry().totals().to_client.frames > 0);
    drop(connector);
    wait_until(Duration::from_secs(90), "all sessions to end", || gateway.registry().is_empty()).unwrap();
    assert_eq!(gateway.registry().process.budget.used(), 0, "all codec memory is given back");
}

/// A compressed session past its login.
fn session(gateway: &Running, dialect: &str) -> Raw {
    session_at(port(gateway), dialect)
}

fn session_at(at: u16, dialect: &str) -> Raw {
    let offer = match dialect {
        "ack" => ("_pq_.compression", "zstd:1,lz4:1,zlib:1"),
        _ => ("_pq_.libpq_compression", "zstd:level=1;lz4:level=1;zlib:level=1"),
    };
    let mut raw = Raw::connect(at);
    raw.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres"), offer]));
    let answer = raw.until(b'Z');
    let agreed = match dialect {
        "ack" => answer[0].0 == b'z',
        _ => answer.iter().any(|m| m.0 == b'S' && m.1.starts_with(b"libpq_compression\0")),
    };
    assert!(agreed, "{dialect}");
    raw
}

/// The number that stands for an algorithm on the wire.
fn code(dialect: &str, algorithm: Algorithm) -> u8 {
    let position = ALGORITHMS.iter().position(|a| *a == algorithm).unwrap() as u8;
    if dialect == "ack" { position } else { 3 - position }
}

/// A frame that begins a stream.
fn frame(dialect: &str, code: u8, payload: &[u8]) -> Vec<u8> {
    match dialect {
        "ack" => [message(b'k', &[code]), message(b'm', payload)].concat(),
        _ => message(b'z', &[&[code][..], payload].concat()),
    }
}

fn compressed(algorithm: Algorithm, raw: &[u8]) -> Vec<u8> {
    let list = AlgorithmList::parse(&format!("{}:1", algorithm.name()), &ALGORITHMS).unwrap();
    let mut encoder = Encoder::new(EncoderOptions { choice: list.get(0).unwrap(), window_log: 17 }).unwrap();
    let mut out = Vec::new();
    for chunk in raw.chunks(64 << 10) {
        encoder.encode(chunk, &mut out).unwrap();
        encoder.commit();
    }
    out
}

/// Sends what is wrong and expects to be told so and shown the door, and both to be counted.
fn refused(gateway: &Running, raw: &mut Raw, sqlstate: &str, what: &str) {
    let error = raw.message().unwrap_or_else(|| panic!("{what}: closed without a word"));
    assert_eq!((error.0, field(&error.1, b'C')), (b'E', sqlstate.to_string()), "{what}");
    assert_eq!(field(&error.1, b'S'), "FATAL", "{what}");
    assert!(raw.ends(), "{what}");
    let limits = event(gateway, |e| &e.limit_errors);
    assert!(event(gateway, |e| &e.protocol_errors) > 0 && (sqlstate != LIMIT || limits > 0), "{what}");
}

#[test]
fn hostile_frames_are_refused_in_words_and_end_only_their_own_session() {
    let cluster = cluster(Auth::Trust);
    let gateway = target(&cluster);
    beside_an_innocent(&gateway, || {
        let mut count = 0;
        for dialect in DIALECTS {
            for (sqlstate, bytes, what) in hostile_frames(dialect) {
                let mut raw = session(&gateway, dialect);
                raw.send(&bytes);
                refused(&gateway, &mut raw, sqlstate, &format!("{dialect}: {what}"));
                count += 1;
                let counted = event(&gateway, |e| &e.protocol_errors);
                assert_eq!(counted, count, "{dialect}: {what} is counted");
            }
        }
    });
}

/// What may not come from a compressed session, and what it is called.
fn hostile_frames(dialect: &str) -> Vec<(&'static str, Vec<u8>, String)> {
    let mut all: Vec<(&'static str, Vec<u8>, String)> = Vec::new();
    let zstd = |raw: &[u8]| frame(dialect, code(dialect, Algorithm::Zstd), &compressed(Algorithm::Zstd, raw));
    let query = message(b'Q', b"select 1\0");
    // One message of 64 MiB from a few kilobytes: within the protocol, beyond what a frame may expand to.
    let bomb = [&b"d\x04\0\0\0"[..], &vec![0; 20 << 20]].concat();
    for algorithm in [Algorithm::Zstd, Algorithm::Zlib] {
        let payload = compressed(algorithm, &bomb);
        assert!(payload.len() < 64 << 10);
        let bytes = frame(dialect, code(dialect, algorithm), &payload);
        all.push((LIMIT, bytes, format!("a {} bomb", algorithm.name())));
    }
    let tag = if dialect == "ack" { b'm' } else { b'z' };
    let mut oversize = frame(dialect, code(dialect, Algorithm::Zstd), b"");
    let at = oversize.len() - if dialect == "ack" { 5 } else { 6 };
    oversize.splice(at.., [tag, 0, 0x30, 0, 0]);
    all.push((LIMIT, oversize, "an oversize wrapper".into()));
    all.push((PROTOCOL, zstd(&zstd(&query)), "a nested wrapper".into()));
    for unknown in [7, 255] {
        all.push((PROTOCOL, frame(dialect, unknown, b"x"), format!("method {unknown}")));
    }
    let first = if dialect == "ack" { message(b'm', b"x") } else { message(b'z', b"\0x") };
    all.push((PROTOCOL, first, "a frame of no method".into()));
    for algorithm in ALGORITHMS {
        let payload = [&[0xf7, 0xff, 0xff, 0xff][..], &[0xfe; 60]].concat();
        let bytes = frame(dialect, code(dialect, algorithm), &payload);
        all.push((PROTOCOL, bytes, format!("damaged {}", algorithm.name())));
    }
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0];
    let bytes = frame(dialect, code(dialect, Algorithm::Zstd), &window);
    all.push((PROTOCOL, bytes, "a zstd window of 128 MiB".into()));
    let split = [zstd(&query[..7]), query.clone()].concat();
    all.push((PROTOCOL, split, "a plain message inside a framed one".into()));
    for (sqlstate, length) in [(PROTOCOL, 0u32), (PROTOCOL, 3), (LIMIT, 1 << 31), (LIMIT, u32::MAX)] {
        let header = [&b"Q"[..], &length.to_be_bytes()].concat();
        all.push((sqlstate, header.clone(), format!("a message length of {length}")));
        all.push((sqlstate, zstd(&header), format!("a framed message length of {length}")));
    }
    all
}

#[test]
fn frames_cut_short_end_their_session_quietly() {
    let cluster = cluster(Auth::Trust);
    let gateway = target(&cluster);
    beside_an_innocent(&gateway, || {
        for dialect in DIALECTS {
            let whole = message(b'Q', b"select 1\0").repeat(50);
            let whole = frame(dialect, code(dialect, Algorithm::Zstd), &compressed(Algorithm::Zstd, &whole));
            for cut in [1, 4, 6, 9, 12, whole.len() - 1] {
                let mut raw = session(&gateway, dialect);
                raw.send(&whole[..cut]);
                raw.0.shutdown(std::net::Shutdown::Write).unwrap();
                while raw.message().is_some() {}
            }
        }
        // Only the innocent one and its server are left.
        wait_until(Duration::from_secs(90), "sessions to end", || gateway.registry().len() == 1).unwrap();
    });
}

#[test]
fn random_frames_never_do_more_than_end_their_session() {
    let cluster = cluster(Auth::Trust);
    let gateway = target(&cluster);
    let mut rng: Rng = pgshrink_testkit::Seed::from_env_or_time().rng();
    beside_an_innocent(&gateway, || {
        for round in 0..60 {
            let dialect = DIALECTS[round % 2];
            let algorithm = *rng.pick(&ALGORITHMS);
            let raw_bytes = message(b'Q', &[&rng.text(2000)[..], b"\0"].concat()).repeat(3);
            let mut payload = compressed(algorithm, &raw_bytes);
            for _ in 0..rng.between(1, 4) {
                let at = rng.below(payload.len());
                payload[at] ^= 1 << rng.below(8);
            }
            let mut raw = session(&gateway, dialect);
            raw.send(&frame(dialect, code(dialect, algorithm), &payload));
            raw.0.shutdown(std::net::Shutdown::Write).unwrap();
            while !raw.ends() {}
        }
    });
}

#[test]
fn a_window_beyond_the_memory_budget_is_refused_before_it_is_allocated() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.policy.message_types = "d".into();
    config.limits.max_codec_memory_mib = 4;
    let gateway = start_gateway(config).unwrap();
    // An empty frame that declares 8 MiB.
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3, 1, 0, 0];
    for dialect in DIALECTS {
        let mut raw = session(&gateway, dialect);
        raw.send(&frame(dialect, code(dialect, Algorithm::Zstd), &window));
        let error = raw.message().unwrap();
        assert_eq!((error.0, field(&error.1, b'C')), (b'E', "53200".to_string()), "{dialect}");
        assert!(raw.ends());
    }
    wait_until(Duration::from_secs(90), "sessions to end", || gateway.registry().is_empty()).unwrap();
    assert_eq!(gateway.registry().process.budget.used(), 0);
}

#[test]
fn impossible_first_packets_are_refused_in_words() {
    let cluster = cluster(Auth::Scram);
    let gateway = target(&cluster);
    let mut unterminated = Raw::startup(&[("user", "postgres")]);
    *unterminated.last_mut().unwrap() = b'x';
    let mut old = Raw::startup(&[("user", "postgres")]);
    old[4..8].copy_from_slice(&(2u32 << 16).to_be_bytes());
    let cancel = |size: u32| {
        let body = vec![7; size as usize - 8];
        [&size.to_be_bytes()[..], &80_877_102u32.to_be_bytes(), &body].concat()
    };
    let gss = [0, 0, 0, 8, 4, 210, 22, 48];
    let cases: [(&str, Vec<u8>, &str); 9] = [
        (LIMIT, [&10_001u32.to_be_bytes()[..], &[0; 100]].concat(), "10,001 bytes"),
        (PROTOCOL, b"GET / HTTP/1.1\r\n\r\n".to_vec(), "another protocol"),
        (PROTOCOL, vec![0, 0, 0, 7, 0, 3, 0], "shorter than its header"),
        (PROTOCOL, unterminated, "no terminator"),
        (PROTOCOL, old, "protocol 2.0"),
        (PROTOCOL, cancel(12), "a cancel request without a key"),
        (PROTOCOL, cancel(269), "a cancel request with too long a key"),
        (PROTOCOL, vec![0, 0, 0, 9, 4, 210, 22, 47, 0], "an SSLRequest with more in it"),
        (PROTOCOL, gss.to_vec(), "GSSENCRequest again and again"),
    ];
    for (index, (sqlstate, bytes, what)) in cases.into_iter().enumerate() {
        let mut raw = Raw::connect(port(&gateway));
        raw.send(&bytes);
        if what.starts_with("GSS") {
            let mut answer = [0];
            std::io::Read::read_exact(&mut raw.0, &mut answer).unwrap();
            assert_eq!(answer, *b"N");
            raw.send(&bytes);
        }
        refused(&gateway, &mut raw, sqlstate, what);
        assert_eq!(event(&gateway, |e| &e.protocol_errors), index as u64 + 1, "{what}");
    }
    // A cancel request that nobody knows is answered as the server answers: not at all.
    let mut raw = Raw::connect(port(&gateway));
    raw.send(&cancel(16));
    assert!(raw.ends());
    // A token that no mechanism sends.
    let mut raw = Raw::connect(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    raw.until(b'R');
    raw.send(&message(b'p', &vec![b'x'; 70_000])[..4096]);
    refused(&gateway, &mut raw, PROTOCOL, "a token of 70,000 bytes");
}

#[test]
fn half_a_tls_handshake_ends_with_the_login_time() {
    let (cluster, tls) = (cluster(Auth::Trust), Tls::new());
    let mut config = gateway_config(&cluster);
    config.tls = Some(tls.listen());
    config.timeouts.login_timeout_s = 1;
    let gateway = start_gateway(config).unwrap();
    let hello = [0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    for (asks, bytes) in [(true, &hello[..]), (false, &hello[..]), (true, b"not TLS at all, sorry")] {
        let mut raw = Raw::connect(port(&gateway));
        if asks {
            raw.send(&[0, 0, 0, 8, 4, 210, 22, 47]);
            std::io::Read::read_exact(&mut raw.0, &mut [0]).unwrap();
        }
        raw.send(bytes);
        let began = Instant::now();
        while !raw.ends() {}
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    Raw::login(port(&gateway));
}

#[test]
fn three_hundred_connections_that_dawdle_are_closed_at_the_login_time() {
    raise_file_limit();
    let cluster = cluster(Auth::Trust);
    let gateway = target(&cluster);
    let startup = Raw::startup(&[("user", "postgres"), ("application_name", &"x".repeat(200))]);
    beside_an_innocent(&gateway, || {
        let begun = Instant::now();
        let mut all: Vec<Raw> = (0..300).map(|_| Raw::connect(port(&gateway))).collect();
        let late = |at: usize| begun.elapsed() > Duration::from_millis(100 * at as u64);
        // Half of them say nothing, half a byte now and then.
        let mut at = 0;
        while event(&gateway, |e| &e.login_timeouts) < 300 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{} of 300",
                event(&gateway, |e| &e.login_timeouts)
            );
            if late(at) && at < startup.len() {
                for raw in &mut all[..150] {
                    // Closed already, perhaps.
                    let _ = std::io::Write::write_all(&mut raw.0, &startup[at..at + 1]);
                }
                at += 1;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(at > 10, "they had time to dawdle");
        assert!(all.iter_mut().all(Raw::ends));
    });
}

#[test]
fn a_flood_is_turned_away_and_leaves_room_for_others() {
    raise_file_limit();
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.limits.max_clients = 40;
    config.limits.max_clients_per_address = 20;
    let gateway = start_gateway(config).unwrap();
    let from = |address| {
        let mut raw = Raw::connect_from(address, port(&gateway));
        raw.send(&Raw::startup(&[("user", "postgres")]));
        raw
    };
    let full_house = |address| {
        let mut sessions: Vec<Raw> = (0..20).map(|_| from(address)).collect();
        sessions.iter_mut().for_each(|session| drop(session.until(b'Z')));
        sessions
    };
    let refused = |address, why: &str| {
        let mut refused = from(address);
        let error = refused.message().unwrap().1;
        assert_eq!(field(&error, b'C'), "53300");
        assert!(field(&error, b'M').contains(why) && refused.ends());
    };
    let mut sessions = full_house([127, 0, 0, 1]);
    refused([127, 0, 0, 1], "from this address");
    sessions.extend(full_house([127, 0, 0, 2]));
    refused([127, 0, 0, 3], "too many clients");
    assert_eq!(event(&gateway, |e| &e.refused_limit), 2);
    for session in &mut sessions {
        session.query("select 1");
        session.until(b'Z');
    }
}

const SERVE: &str = "PGSHRINK_TEST_SERVE";

#[test]
#[ignore = "not a test: the gateway of the next one, in a process of its own"]
fn serves_for_another_test() {
    let Ok(server) = std::env::var(SERVE) else { return };
    let mut config = pgshrink_gateway::GatewayConfig {
        listen: vec!["127.0.0.1:0".into()],
        servers: vec![crate::harness::server(pgshrink_gateway::config::TargetConfig::new(
            "127.0.0.1",
            server.parse().unwrap(),
        ))],
        ..Default::default()
    };
    config.limits.max_codec_memory_mib = 64;
    config.policy.message_types = "d".into();
    let gateway = start_gateway(config).unwrap();
    println!("serving on {}.", port(&gateway));
    std::thread::sleep(Duration::from_secs(600));
}

/// A gateway with 64 MiB of codec memory in a process of its own, and its port.
fn in_its_own_process(cluster: &Cluster) -> (Daemon, u16) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "hostile::serves_for_another_test", "--nocapture"]);
    let daemon = Daemon::spawn(command.env(SERVE, cluster.port().to_string())).unwrap();
    daemon.wait_for_log(Duration::from_secs(20), ".\n").unwrap();
    let log = daemon.log();
    let at = log.split("serving on ").nth(1).unwrap().split('.').next().unwrap().parse().unwrap();
    (daemon, at)
}

/// A zstd frame with a window of 8 MiB that is filled, by 300 bytes.
fn filled_window() -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3];
    // A raw block: the begin of a CopyData that holds all the rest.
    out.extend([5 << 3, 0, 0]);
    out.extend([&b"d"[..], &(8u32 << 20).to_be_bytes()].concat());
    // Zeros, 128 KiB a block.
    for _ in 0..63 {
        out.extend([&((128u32 << 10) << 3 | 1 << 1).to_le_bytes()[..3], &[0]].concat());
    }
    out
}

#[test]
fn a_hundred_sessions_stay_within_the_memory_limit_however_they_write_a_header() {
    raise_file_limit();
    let cluster = cluster(Auth::Trust);
    let (daemon, at) = in_its_own_process(&cluster);
    let bomb = filled_window();
    let empty = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 1, 0, 0];
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9];
    // Payloads of one frame of the protocol each.
    let ways: [Vec<Vec<u8>>; 5] = [
        vec![bomb[..1].to_vec(), bomb[1..].to_vec()],
        vec![bomb[..4].to_vec(), bomb[4..].to_vec()],
        vec![[&empty[..], &bomb].concat()],
        vec![[&skippable[..], &bomb].concat()],
        vec![bomb.clone()],
    ];
    for dialect in DIALECTS {
        let mut all: Vec<Raw> = (0..100).map(|_| session_at(at, dialect)).collect();
        let before = daemon.resident_size().unwrap();
        for (n, raw) in all.iter_mut().enumerate() {
            let way = &ways[n % ways.len()];
            let mut bytes = frame(dialect, code(dialect, Algorithm::Zstd), &way[0]);
            for payload in &way[1..] {
                bytes.extend(match dialect {
                    "ack" => message(b'm', payload),
                    _ => message(b'z', &[&[0][..], payload].concat()),
                });
            }
            assert!(bytes.len() < 350);
            raw.send(&bytes);
        }
        // All but the few that fit are refused; they say so, and close.
        let mut refused = vec![false; all.len()];
        wait_until(Duration::from_secs(60), "sessions beyond the limit to be refused", || {
            for (raw, refused) in all.iter_mut().zip(&mut refused) {
                raw.0.set_nonblocking(true).unwrap();
                *refused |= raw.0.peek(&mut [0]).is_ok();
            }
            refused.iter().filter(|refused| **refused).count() >= 90
        })
        .unwrap();
        for (raw, _) in all.iter_mut().zip(&refused).filter(|(_, refused)| **refused) {
            raw.0.set_nonblocking(false).unwrap();
            let error = raw.message().unwrap();
            assert_eq!((error.0, field(&error.1, b'C')), (b'E', "53200".to_string()), "{dialect}");
        }
        let grown = daemon.resident_size().unwrap().saturating_sub(before);
        assert!(grown < 96 << 20, "{dialect}: grown by {} MiB", grown >> 20);
    }
}

#[test]
fn attacks_do_not_make_the_process_grow() {
    let cluster = cluster(Auth::Trust);
    let (daemon, at) = in_its_own_process(&cluster);
    let attack = |dialect: &str| {
        for (_, bytes, what) in hostile_frames(dialect) {
            let mut raw = session_at(at, dialect);
            raw.send(&bytes);
            assert!(raw.message().is_some_and(|m| m.0 == b'E'), "{what}");
        }
        // Windows of 8 MiB that stay open, as many as the budget allows.
        let open = [0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3];
        let mut held: Vec<Raw> = (0..12).map(|_| session_at(at, dialect)).collect();
        for raw in &mut held {
            raw.send(&frame(dialect, code(dialect, Algorithm::Zstd), &open));
        }
        let refused = held.iter_mut().filter(|raw| {
            raw.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            raw.0.peek(&mut [0]).is_ok()
        });
        assert!(refused.count() >= 4, "8 MiB twelve times do not fit 64 MiB");
    };
    attack("ack");
    let before = daemon.resident_size().unwrap();
    let most = std::thread::scope(|scope| {
        let attackers: Vec<_> = (0..4).map(|n| scope.spawn(move || attack(DIALECTS[n % 2]))).collect();
        let mut most = 0;
        while attackers.iter().any(|a| !a.is_finished()) {
            most = most.max(daemon.resident_size().unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        attackers.into_iter().for_each(|a| a.join().unwrap());
        most
    });
    let after = daemon.resident_size().unwrap();
    eprintln!("resident: {} MiB before, {} at most, {} after", before >> 20, most >> 20, after >> 20);
    assert!(most < before + (96 << 20), "{before} before, {most} at most");
    assert!(after < before + (24 << 20), "{before} before, {after} after");
}
