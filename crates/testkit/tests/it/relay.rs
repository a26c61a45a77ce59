//! The relay: transparent without a fault, exact with one.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use pgshrink_testkit::relay::{Cut, Direction, Endpoint, Relay, RelayBuilder, Shape};
use pgshrink_testkit::{Auth, Cluster, Seed, TempDir, wait_until};

/// Both ends of one connection through a relay.
struct Pair {
    relay: Relay,
    client: TcpStream,
    server: TcpStream,
    _listener: TcpListener,
}

fn pair(describe: impl FnOnce(RelayBuilder) -> RelayBuilder) -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = Endpoint::local(listener.local_addr().unwrap().port());
    let relay = describe(Relay::to(upstream)).start().unwrap();
    let client = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    wait_until(Duration::from_secs(10), "the relay's threads", || relay.open_count() == 1).unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    Pair { relay, client, server, _listener: listener }
}

fn read_to_end(mut from: &TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let ended = from.read_to_end(&mut bytes).err().map(|error| error.kind());
    (bytes, ended)
}

#[test]
fn a_session_through_the_relay_is_counted_and_captured() {
    let cluster = Cluster::builder().auth(Auth::Scram).start().unwrap();
    for upstream in [Endpoint::local(cluster.port()), Endpoint::Unix(cluster.socket_path())] {
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join(".s.PGSQL.5432");
        let relay = Relay::to(upstream).listen_unix(&socket).capture().start().unwrap();
        let psql = cluster.psql().at(dir.path().display(), 5432);
        assert_eq!(psql.sql("select repeat('x', 100000)").unwrap().len(), 100_000);
        wait_until(Duration::from_secs(10), "the session to end", || relay.open_count() == 0).unwrap();
        let (up, down) = (relay.stream(0, Direction::ToServer), relay.stream(0, Direction::ToClient));
        let counts = relay.counts();
        assert_eq!(
            (counts.to_server, counts.to_client, counts.connections),
            (up.len() as u64, down.len() as u64, 1)
        );
        assert!(down.len() > 100_000);
        assert_eq!(up.last_chunk::<5>(), Some(b"X\0\0\0\x04"), "Terminate is the last message");
    }
}

#[test]
fn half_closes_pass_through_each_by_itself() {
    let mut pair = pair(|relay| relay);
    pair.client.write_all(b"question").unwrap();
    pair.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&pair.server), (b"question".to_vec(), None));
    pair.server.write_all(b"answer").unwrap();
    drop(pair.server);
    assert_eq!(read_to_end(&pair.client), (b"answer".to_vec(), None));
}

#[test]
fn random_traffic_arrives_unchanged_in_small_pieces() {
    let mut rng = Seed::from_env_or_time().rng();
    let pair = pair(|relay| relay.shape(Shape { piece_size_max: Some(7), ..Shape::default() }));
    let (up, down) = (rng.bytes(20_000), rng.bytes(30_000));
    std::thread::scope(|scope| {
        for (mut end, bytes) in [(&pair.client, &up), (&pair.server, &down)] {
            scope.spawn(move || {
                end.write_all(bytes).unwrap();
                end.shutdown(Shutdown::Write).unwrap();
            });
        }
        let got = scope.spawn(|| read_to_end(&pair.server));
        assert_eq!(read_to_end(&pair.client), (down.clone(), None));
        assert_eq!(got.join().unwrap(), (up.clone(), None));
    });
}

#[test]
fn a_cut_delivers_exactly_its_bytes_and_then_resets_both_sides() {
    let mut pair = pair(|relay| relay);
    pair.relay.cut_after(Direction::ToServer, 1000, Cut::Reset);
    // The relay may reset while this is still being written.
    let _ = pair.client.write_all(&[1; 5000]);
    let (got, ended) = read_to_end(&pair.server);
    // A reset discards what the receiver has not read yet: at most, never more than, the planned bytes.
    assert!(got.len() <= 1000, "{}", got.len());
    assert_eq!(pair.relay.counts().to_server, 1000);
    assert_eq!(ended, Some(ErrorKind::ConnectionReset));
    assert_eq!(read_to_end(&pair.client).1, Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_planned_half_close_ends_one_direction_only() {
    let mut pair = pair(|relay| relay);
    pair.relay.cut_after(Direction::ToServer, 3, Cut::HalfClose(Direction::ToServer));
    pair.client.write_all(b"abcdef").unwrap();
    assert_eq!(read_to_end(&pair.server), (b"abc".to_vec(), None));
    pair.server.write_all(b"still here").unwrap();
    drop(pair.server);
    assert_eq!(read_to_end(&pair.client), (b"still here".to_vec(), None));
}

#[test]
fn a_cut_now_ends_what_is_open_and_new_connections_work() {
    let first = pair(|relay| relay);
    first.relay.cut(Cut::Close).unwrap();
    assert_eq!(first.relay.open_count(), 0);
    assert_eq!(read_to_end(&first.client), (vec![], None));
    first.relay.refuse(true);
    let refused = TcpStream::connect(("127.0.0.1", first.relay.port())).unwrap();
    assert!(read_to_end(&refused).0.is_empty());
    first.relay.refuse(false);
    let _again = TcpStream::connect(("127.0.0.1", first.relay.port())).unwrap();
    wait_until(Duration::from_secs(10), "the next connection", || first.relay.open_count() == 1).unwrap();
}

#[test]
fn a_throttled_direction_takes_its_time_and_the_other_does_not() {
    let pair = pair(|relay| relay);
    let slow = Shape { bytes_per_second: Some(100_000), ..Shape::default() };
    pair.relay.shape(Direction::ToServer, slow);
    let timed = |mut from: &TcpStream, mut to: &TcpStream| {
        let start = Instant::now();
        from.write_all(&[5; 50_000]).unwrap();
        to.read_exact(&mut vec![0; 50_000]).unwrap();
        start.elapsed()
    };
    let (up, down) = (timed(&pair.client, &pair.server), timed(&pair.server, &pair.client));
    assert!(up >= Duration::from_millis(480), "{up:?}");
    assert!(down < up / 2, "{down:?} against {up:?}");
}

#[test]
fn a_delay_postpones_and_does_not_slow() {
    let mut pair = pair(|relay| relay.shape(Shape { delay: Duration::from_millis(150), ..Shape::default() }));
    let start = Instant::now();
    for _ in 0..20 {
        pair.client.write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    pair.server.read_exact(&mut [0; 20]).unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(150), "{took:?}");
    // One after the other they would take 3 s.
    assert!(took < Duration::from_secs(2), "{took:?}");
}
