//! Where sessions begin to go wrong or end oddly, on one hop and on two.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use pgshrink_gateway::config::TargetConfig;
use pgshrink_gateway::{start_connector, start_gateway};
use pgshrink_testkit::{Auth, wait_until};

use crate::harness::{
    Raw, cluster, connector, connector_config, field, gateway, gateway_config, message, port, server, tags,
};

#[test]
fn a_password_message_over_the_limit_is_refused() {
    let cluster = cluster(Auth::Password);
    let gateway = gateway(&cluster);
    let mut raw = Raw::connect(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    raw.until(b'R');
    raw.send(&[&b"p"[..], &(1u32 << 29).to_be_bytes()].concat());
    let error = raw.until(b'E').pop().unwrap().1;
    assert_eq!(field(&error, b'C'), "08P01");
    assert!(raw.ends());
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_blocks_nobody() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let near = connector(&gateway, "ack", "zstd:1");
    for entry in [port(&gateway), port(&near)] {
        let mut lazy = Raw::login(entry);
        lazy.query("select md5(n::text) || md5((n + 1)::text) from generate_series(1, 1500000) n");
        let session = gateway.registry().sessions().into_iter().max_by_key(|s| s.id).unwrap();
        let moved = || session.counters.to_client.snapshot().raw_bytes;
        let mut before = 0;
        wait_until(Duration::from_secs(90), "the server to be held back", || {
            let now = moved();
            let still = now == before && now > 0;
            before = now;
            std::thread::sleep(Duration::from_millis(300));
            still
        })
        .unwrap();
        assert!(before < 100_000_000, "most of it is still at the server: {before}");
        assert!(session.memory_bytes() < 4 << 20, "{}", session.memory_bytes());
        let mut other = Raw::login(entry);
        other.query("select 1");
        assert_eq!(tags(&other.until(b'Z')), "TDCZ");
        assert_eq!(lazy.until(b'Z').len(), 1_500_003);
    }
}

#[test]
fn a_half_closed_client_still_gets_its_answer_through_both_hops() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    for dialect in ["ack", "restart"] {
        let near = connector(&gateway, dialect, "zstd:1");
        let mut raw = Raw::login(port(&near));
        raw.query("select pg_sleep(0.3), repeat('late', 100000)");
        raw.0.shutdown(Shutdown::Write).unwrap();
        let messages = raw.until(b'Z');
        assert_eq!(tags(&messages), "TDCZ", "{dialect}");
        assert!(messages[1].1.len() > 400_000);
        assert!(raw.ends());
    }
}

#[test]
fn what_the_server_says_last_comes_through_both_hops() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    for dialect in ["ack", "restart"] {
        let near = connector(&gateway, dialect, "zstd:1");
        let mut raw = Raw::login(port(&near));
        let others = "pid <> pg_backend_pid() and backend_type = 'client backend'";
        cluster
            .sql(&format!("select pg_terminate_backend(pid) from pg_stat_activity where {others}"))
            .unwrap();
        let (tag, body) = raw.message().unwrap();
        assert_eq!((tag, field(&body, b'C')), (b'E', "57P01".to_string()), "{dialect}");
        assert!(raw.ends());
    }
}

#[test]
fn a_bulk_transfer_that_pauses_inside_a_message_goes_on_at_once() {
    let cluster = cluster(Auth::Trust);
    cluster.sql("create table bulk (line text)").unwrap();
    let gateway = gateway(&cluster);
    let near = connector(&gateway, "ack", "zstd:1");
    let line = [&[b'x'; 99][..], b"\n"].concat();
    for entry in [port(&gateway), port(&near)] {
        let mut raw = Raw::login(entry);
        raw.query("copy bulk from stdin");
        raw.until(b'G');
        let rows = message(b'd', &line).repeat(20_000);
        let (bulk, last) = rows.split_at(rows.len() - 7);
        for piece in bulk.chunks(8192) {
            raw.send(piece);
            std::thread::sleep(Duration::from_micros(300));
        }
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        raw.send(last);
        raw.send(&message(b'c', b""));
        assert_eq!(tags(&raw.until(b'Z')), "CZ");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    assert_eq!(cluster.sql("select count(*), count(distinct line) from bulk").unwrap().trim(), "40000|1");
}

#[test]
fn a_reset_by_the_client_ends_the_servers_session() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let mut raw = Raw::login(port(&gateway));
    raw.query("begin; create table t (a int)");
    raw.until(b'Z');
    // Unread input makes the kernel send a reset on close.
    raw.query("select 1");
    std::thread::sleep(Duration::from_millis(200));
    drop(raw);
    wait_until(Duration::from_secs(90), "the transaction to be gone", || {
        let open = "select count(*) from pg_stat_activity where state like 'idle in%'";
        gateway.registry().is_empty() && cluster.sql(open).unwrap() == "0"
    })
    .unwrap();
}

#[test]
fn more_sessions_than_an_address_may_have_are_refused() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.limits.max_clients_per_address = 2;
    let gateway = start_gateway(config).unwrap();
    let _kept = [Raw::login(port(&gateway)), Raw::login(port(&gateway))];
    let mut third = Raw::connect(port(&gateway));
    third.send(&Raw::startup(&[("user", "postgres")]));
    let (tag, body) = third.message().unwrap();
    assert_eq!((tag, field(&body, b'C')), (b'E', "53300".to_string()));
}

#[test]
fn a_server_that_hangs_up_or_talks_nonsense_is_named() {
    let cluster = cluster(Auth::Trust);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fake = listener.local_addr().unwrap().port();
    let answers = std::thread::spawn(move || {
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 100]).unwrap() > 8);
            stream.write_all(answer).unwrap();
        }
    });
    let mut config = gateway_config(&cluster);
    config.servers = vec![server(TargetConfig::new("127.0.0.1", fake))];
    let gateway = start_gateway(config).unwrap();
    let mut replies = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::connect(port(&gateway));
        raw.send(&Raw::startup(&[("user", "postgres")]));
        replies.push(raw.message().map(|(_, body)| (field(&body, b'C'), field(&body, b'D'))));
        assert!(raw.ends());
    }
    answers.join().unwrap();
    let named = format!("server at 127.0.0.1:{fake}");
    for reply in &replies {
        let (sqlstate, detail) = reply.as_ref().unwrap();
        assert!(sqlstate == "57P03" && detail.contains(&named), "{replies:?}");
    }
}

#[test]
fn a_target_that_hangs_up_on_the_key_is_asked_again_without_it() {
    let cluster = cluster(Auth::Trust);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fake = listener.local_addr().unwrap().port();
    let seen = std::thread::spawn(move || {
        [0, 1].map(|turn| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut startup = [0; 1000];
            let size = stream.read(&mut startup).unwrap();
            if turn == 1 {
                let ready = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
                stream.write_all(&ready).unwrap();
            }
            startup[..size].windows(5).any(|w| w == b"_pq_.")
        })
    });
    let mut config = connector_config(&gateway(&cluster), "ack", "zstd:1");
    config.targets = vec![TargetConfig::new("127.0.0.1", fake)];
    let near = start_connector(config).unwrap();
    Raw::login(port(&near));
    assert_eq!(seen.join().unwrap(), [true, false]);
}
