//! Floods of connections that never log in: what they cannot take from others.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgshrink_gateway::config::{AdminConfig, TargetConfig};
use pgshrink_gateway::{GatewayConfig, Running, start_gateway};
use pgshrink_testkit::{Auth, Cluster, Psql, TempDir, wait_until};

use crate::harness::{Raw, cluster, event, field, gateway_config, port, raise_file_limit, server};

const PATIENCE: Duration = Duration::from_secs(90);

/// A gateway with few client places and a console that asks `ann` for a password.
fn small_gateway(cluster: &Cluster, dir: &TempDir) -> Running {
    let path = dir.path().join("userlist.txt");
    std::fs::write(&path, "\"ann\" \"right\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let admin =
        AdminConfig { users: vec!["ann".into()], password_file: Some(path), ..AdminConfig::default() };
    let mut config = GatewayConfig { admin, ..gateway_config(cluster) };
    config.limits.max_clients = 4;
    start_gateway(config).unwrap()
}

/// A client of the console, and the tag of the first answer to it: `R` asks for a password.
fn console(gateway: &Running) -> (Raw, u8) {
    let mut raw = Raw::connect(port(gateway));
    raw.send(&Raw::startup(&[("user", "ann"), ("database", "pgshrink")]));
    let (tag, _) = raw.message().unwrap();
    (raw, tag)
}

#[test]
fn consoles_that_do_not_log_in_are_few_and_take_no_client_places() {
    raise_file_limit();
    let (cluster, dir) = (cluster(Auth::Trust), TempDir::new().unwrap());
    let gateway = small_gateway(&cluster, &dir);
    let open: Vec<_> = (0..600).map(|_| console(&gateway)).collect();
    assert_eq!(open.iter().filter(|(_, tag)| *tag == b'R').count(), 128, "the others are refused");
    let most = gateway.registry().connections_most();
    assert!(most < 250, "{most} descriptors for clients that never log in");
    Raw::login(port(&gateway));
}

#[test]
fn guessing_passwords_does_not_lock_the_administrator_out() {
    let (cluster, dir) = (cluster(Auth::Trust), TempDir::new().unwrap());
    let gateway = small_gateway(&cluster, &dir);
    let guessers: Vec<_> = (0..60).map(|_| console(&gateway)).collect();
    assert!(guessers.iter().all(|(_, tag)| *tag == b'R'));
    let ann = Psql::new("psql").at("127.0.0.1", port(&gateway)).user("ann").database("pgshrink");
    let answer = ann.env("PGPASSWORD", "right").arg("-c").arg("show version").run().unwrap();
    assert!(answer.contains("pgshrink"), "{answer}");
}

/// A client that was refused and does not close its end.
#[test]
fn refused_clients_take_no_client_places() {
    let (cluster, dir) = (cluster(Auth::Trust), TempDir::new().unwrap());
    let gateway = small_gateway(&cluster, &dir);
    let refused: Vec<Raw> = (0..40)
        .map(|_| {
            let mut raw = Raw::connect(port(&gateway));
            raw.send(b"GET / HTTP/1.0\r\n\r\n");
            assert_eq!(raw.message().unwrap().0, b'E');
            raw
        })
        .collect();
    Raw::login(port(&gateway));
    drop(refused);
}

/// Every connection comes from the proxy; its clients are told apart by the headers it sends.
#[test]
fn a_flood_through_a_proxy_sends_away_no_other_client_of_the_proxy() {
    raise_file_limit();
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.trusted_proxies = vec!["127.0.0.0/8".into()];
    config.allow_unchallenged = true;
    config.limits.max_clients = 4;
    let gateway = start_gateway(config).unwrap();
    let proxied = |client: &str| {
        let mut raw = Raw::connect(port(&gateway));
        raw.send(format!("PROXY TCP4 {client} 192.0.2.1 40000 5432\r\n").as_bytes());
        raw
    };
    let startup = Raw::startup(&[("user", "postgres"), ("database", "postgres")]);
    let (begin, rest) = startup.split_at(3);
    let mut slow = proxied("203.0.113.5");
    slow.send(begin);
    wait_until(PATIENCE, "the header to be read", || gateway.registry().connections() == 1).unwrap();
    let flood: Vec<Raw> = (0..600).map(|_| proxied("198.51.100.7")).collect();
    wait_until(PATIENCE, "the flood", || event(&gateway, |e| &e.dropped) == 601 - 512 - 4).unwrap();
    slow.send(rest);
    slow.until(b'Z');
    drop(flood);
}

fn cancel_request(key: &[u8]) -> Vec<u8> {
    let length = 8 + key.len() as u32;
    [&length.to_be_bytes()[..], &[4, 210, 22, 46], key].concat()
}

#[test]
fn a_flood_of_cancel_requests_keeps_neither_clients_nor_real_cancels_out() {
    raise_file_limit();
    let cluster = cluster(Auth::Trust);
    // A server that takes connections and never closes them: every request to it stays under way.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = gateway_config(&cluster);
    config.servers.push(server(TargetConfig::new("127.0.0.1", silent.local_addr().unwrap().port())));
    config.limits.max_clients = 4;
    config.timeouts.cancel_timeout_s = 600;
    let gateway = start_gateway(config).unwrap();
    let mut session = Raw::connect(port(&gateway));
    session.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
    let key = session.until(b'Z').into_iter().find(|m| m.0 == b'K').unwrap().1;
    session.query("select pg_sleep(600)");
    let flood: Vec<Raw> = (0..80u32)
        .map(|i| {
            let mut raw = Raw::connect(port(&gateway));
            raw.send(&cancel_request(&[&i.to_be_bytes()[..], b"none"].concat()));
            raw
        })
        .collect();
    wait_until(PATIENCE, "the flood to arrive", || event(&gateway, |e| &e.cancels) == 80).unwrap();
    wait_until(PATIENCE, "those beyond 64 to be dropped", || event(&gateway, |e| &e.dropped_cancels) == 16)
        .unwrap();
    let held: Vec<TcpStream> = (0..64).map(|_| silent.accept().unwrap().0).collect();
    // Three places are left beside the session's own.
    let others: Vec<Raw> = (0..3).map(|_| Raw::login(port(&gateway))).collect();
    let mut real = Raw::connect(port(&gateway));
    real.send(&cancel_request(&key));
    let error = session.until(b'E').pop().unwrap().1;
    assert_eq!(field(&error, b'C'), "57014");
    drop((flood, held, others));
}

/// The login time is a minute, and nobody of the flood says anything.
#[test]
fn silent_connections_take_no_client_places_and_make_room_for_who_speaks() {
    raise_file_limit();
    let (cluster, dir) = (cluster(Auth::Trust), TempDir::new().unwrap());
    let gateway = small_gateway(&cluster, &dir);
    let mut silent: Vec<Raw> = (0..600).map(|_| Raw::connect(port(&gateway))).collect();
    // Half a packet is silence too.
    silent.iter_mut().skip(300).for_each(|raw| raw.send(&[0, 0]));
    let sessions: Vec<Raw> = (0..4).map(|_| Raw::login(port(&gateway))).collect();
    assert!(event(&gateway, |e| &e.dropped) >= 600 - 512 - 4, "those that came first are closed");
    assert!(gateway.registry().connections() < 530, "{}", gateway.registry().connections());
    assert!(silent[0].ends());
    drop((silent, sessions));
}

/// What each of these leaves behind when it closes at once must not look like a client.
#[test]
fn floods_that_come_and_go_keep_no_client_out() {
    raise_file_limit();
    let (cluster, dir) = (cluster(Auth::Trust), TempDir::new().unwrap());
    let gateway = small_gateway(&cluster, &dir);
    let (port, end) = (port(&gateway), AtomicBool::new(false));
    let cancel = cancel_request(&[&7u32.to_be_bytes()[..], b"none"].concat());
    let console = Raw::startup(&[("user", "ann"), ("database", "pgshrink")]);
    std::thread::scope(|scope| {
        for packet in [&cancel[..], &console, b"", &cancel] {
            let end = &end;
            scope.spawn(move || {
                // As many as leave ports of this machine for others.
                for _ in (0..4000).take_while(|_| !end.load(Ordering::Relaxed)) {
                    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
                    let _ = socket.write_all(packet);
                }
            });
        }
        let refused = (0..200).filter(|_| !logs_in(port)).count();
        end.store(true, Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
    assert!(event(&gateway, |e| &e.cancels) > 200, "it was a flood");
}

/// Logs in, and out in an orderly way.
fn logs_in(port: u16) -> bool {
    let mut raw = Raw::connect(port);
    raw.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
    let mut tag = [0];
    let is_in = raw.0.peek(&mut tag).is_ok_and(|size| size == 1) && tag == *b"R";
    if is_in {
        raw.until(b'Z');
        raw.send(&[b'X', 0, 0, 0, 4]);
        raw.ends();
    }
    is_in
}
