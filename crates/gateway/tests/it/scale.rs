//! Several gateways behind a load balancer, several servers behind a gateway.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pgshrink_gateway::{Control, GatewayConfig, Running, start_connector, start_gateway};
use pgshrink_testkit::{Auth, Cluster, Daemon, Missing, TempDir, free_port, or_skip, wait_for, wait_until};

use crate::harness::{
    Raw, cluster, connector_config, event, field, gateway_config, message, port, psql, server, tags,
};

/// HAProxy in TCP mode; the gateways' own health page says whether they take sessions.
struct HaProxy {
    port: u16,
    /// Believes the PROXY header of whoever connects: a balancer before this one.
    relayed_port: u16,
    _daemon: Daemon,
    _dir: TempDir,
}

impl HaProxy {
    fn program() -> Result<&'static str, Missing> {
        let works = |name: &&str| Command::new(name).arg("-v").output().is_ok_and(|o| o.status.success());
        ["haproxy", "/usr/sbin/haproxy"].into_iter().find(works).ok_or_else(|| {
            Missing::new(
                "HAProxy",
                "there is no haproxy on the PATH",
                "apt-get install --no-install-recommends haproxy",
            )
        })
    }

    /// `gateways`: the ports for sessions and for the health page.
    fn start(program: &str, gateways: &[(u16, u16)]) -> Self {
        let dir = TempDir::new().unwrap();
        let (port, relayed_port) = (free_port().unwrap(), free_port().unwrap());
        let servers: String = gateways
            .iter()
            .map(|(sessions, health)| {
                format!("  server g{sessions} 127.0.0.1:{sessions} check port {health} send-proxy-v2\n")
            })
            .collect();
        let config = format!(
            "global\n  nbthread 1\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  timeout check 1s\n  \
               retries 5\n  option redispatch 1\n\
             frontend clients\n  bind 127.0.0.1:{port}\n  bind 127.0.0.1:{relayed_port} accept-proxy\n  \
               default_backend gateways\n\
             backend gateways\n  balance roundrobin\n  option httpchk GET /healthz\n  \
               default-server inter 100ms fall 1 rise 1\n{servers}"
        );
        let path = dir.path().join("haproxy.cfg");
        std::fs::write(&path, config).unwrap();
        let daemon = Daemon::spawn(Command::new(program).arg("-db").arg("-f").arg(&path)).unwrap();
        wait_until(Duration::from_secs(90), "HAProxy to listen", || {
            assert!(daemon.is_running(), "{}", daemon.log());
            std::net::TcpStream::connect(("127.0.0.1", relayed_port)).is_ok()
        })
        .unwrap();
        Self { port, relayed_port, _daemon: daemon, _dir: dir }
    }
}

/// A gateway's configuration for ports that outlive it.
fn behind_haproxy(config: GatewayConfig) -> (GatewayConfig, (u16, u16)) {
    let ports = (free_port().unwrap(), free_port().unwrap());
    let config = GatewayConfig {
        listen: vec![format!("127.0.0.1:{}", ports.0)],
        metrics_listen: Some(format!("127.0.0.1:{}", ports.1)),
        trusted_proxies: vec!["127.0.0.0/8".into()],
        ..config
    };
    (config, ports)
}

struct Farm {
    haproxy: HaProxy,
    gateways: Vec<Running>,
    configs: Vec<GatewayConfig>,
}

impl Farm {
    fn start(program: &str, config: &GatewayConfig) -> Self {
        let (configs, ports): (Vec<_>, Vec<_>) = (0..2).map(|_| behind_haproxy(config.clone())).unzip();
        let gateways = configs.iter().map(|c| start_gateway(c.clone()).unwrap()).collect();
        Self { haproxy: HaProxy::start(program, &ports), gateways, configs }
    }
}

#[test]
fn a_farm_spreads_sessions_and_knows_each_clients_address() {
    let program = or_skip!("gateways behind HAProxy", HaProxy::program());
    let cluster = cluster(Auth::Trust);
    let farm = Farm::start(program, &gateway_config(&cluster));
    let direct: Vec<Raw> = (0..4).map(|_| Raw::login(farm.haproxy.port)).collect();
    let addresses = |side: &dyn Fn(&pgshrink_gateway::registry::Session) -> String| {
        let mut all: Vec<String> = farm
            .gateways
            .iter()
            .flat_map(|g| g.registry().sessions().iter().map(|s| side(s)).collect::<Vec<_>>())
            .collect();
        all.sort();
        all
    };
    let mut clients: Vec<String> = direct.iter().map(|raw| raw.0.local_addr().unwrap().to_string()).collect();
    clients.sort();
    assert_eq!(addresses(&|s| s.peer().to_string()), clients);
    assert!(addresses(&|s| s.via().unwrap().to_string()).iter().all(|via| !clients.contains(via)));
    assert!(farm.gateways.iter().all(|g| g.registry().len() == 2), "each gateway has two of four sessions");
    // The same hop, from elsewhere: the server's trust is meant for local clients and is not lent out.
    let mut remote = Raw::connect(farm.haproxy.relayed_port);
    remote.send(b"PROXY TCP4 203.0.113.9 203.0.113.1 5555 5432\r\n");
    remote.send(&Raw::startup(&[("user", "postgres")]));
    let (tag, error) = remote.message().unwrap();
    assert_eq!((tag, field(&error, b'C')), (b'E', "28000".to_string()));
    assert!(farm.gateways.iter().any(|g| event(g, |e| &e.refused_unchallenged) == 1));
    // And through a connector, compressed.
    let mut config = connector_config(&farm.gateways[0], "ack", "zstd:1");
    config.targets[0].port = farm.haproxy.port;
    let connector = start_connector(config).unwrap();
    let text = psql(&cluster, &connector).sql("select repeat('abc ', 10000)").unwrap();
    assert_eq!(text.len(), 40_000);
    assert!(connector.registry().totals().to_client.ratio() > 10.0);
}

/// A session that runs `sleep`, and its key.
fn sleeper(at: u16, user: &str, database: &str, seconds: u32, cluster: &Cluster) -> (Raw, Vec<u8>) {
    let mut raw = Raw::connect(at);
    raw.send(&Raw::startup(&[("user", user), ("database", database)]));
    let key = raw.until(b'Z').into_iter().find(|m| m.0 == b'K').unwrap().1;
    raw.query(&format!("select pg_sleep({seconds})"));
    wait_until(Duration::from_secs(90), "the query to run", || is_running(cluster, seconds)).unwrap();
    (raw, key)
}

fn is_running(cluster: &Cluster, seconds: u32) -> bool {
    let sql = format!(
        "select count(*) from pg_stat_activity where query = 'select pg_sleep({seconds})' and state = 'active'"
    );
    cluster.sql(&sql).unwrap() == "1"
}

#[test]
fn a_cancel_through_the_other_gateway_reaches_the_right_one_of_two_servers() {
    let program = or_skip!("cancel behind HAProxy", HaProxy::program());
    let (first, second) = (cluster(Auth::Trust), cluster(Auth::Trust));
    for (cluster, name) in [(&first, "first"), (&second, "second")] {
        cluster.sql("create database app; create database log_1; create role bob login").unwrap();
        for database in ["app", "log_1"] {
            cluster.sql(&format!("alter database {database} set pgshrink.place = '{name}'")).unwrap();
        }
    }
    let mut config = gateway_config(&first);
    let at =
        |cluster: &Cluster| server(pgshrink_gateway::config::TargetConfig::new("127.0.0.1", cluster.port()));
    let (mut logs, mut bobs) = (at(&second), at(&second));
    logs.database = vec!["log_*".into()];
    bobs.user = vec!["bob".into()];
    config.servers = vec![logs, bobs, at(&first)];
    let farm = Farm::start(program, &config);
    let place = |user: &str, database: &str| {
        let psql = first.psql().at("127.0.0.1", farm.haproxy.port).user(user).database(database);
        psql.sql("show pgshrink.place").unwrap()
    };
    assert_eq!(place("postgres", "app"), "first");
    assert_eq!(place("postgres", "log_1"), "second");
    assert_eq!(place("bob", "app"), "second");
    let (_bystander, _) = sleeper(farm.haproxy.port, "postgres", "app", 61, &first);
    let (mut victim, key) = sleeper(farm.haproxy.port, "bob", "app", 62, &second);
    let holds = |gateway: &&Running| {
        gateway.registry().sessions().iter().any(|s| s.identity().is_some_and(|i| i.user == "bob"))
    };
    let other = farm.gateways.iter().find(|g| !holds(g)).unwrap();
    // The balancer takes turns: behind a session on the holder comes the other gateway.
    let probe = || {
        let before = event(other, |e| &e.sessions);
        Raw::login(farm.haproxy.port);
        event(other, |e| &e.sessions) > before
    };
    assert!(!probe() || !probe());
    let mut cancel = Raw::connect(farm.haproxy.port);
    cancel.send(&[&[0, 0, 0, 16, 4, 210, 22, 46][..], &key].concat());
    assert!(cancel.ends());
    assert_eq!(event(other, |e| &e.cancels), 1);
    let error = victim.until(b'Z').into_iter().find(|m| m.0 == b'E').unwrap().1;
    assert_eq!(field(&error, b'C'), "57014");
    assert!(is_running(&first, 61), "the other server's session goes on");
}

/// What the workers of a rolling restart have seen.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    committed: AtomicU64,
    /// Sessions that were told to reconnect.
    moved: AtomicU64,
    /// Connections that got no session: the balancer had not noticed yet.
    unplaced: AtomicU64,
}

/// Writes (`worker`, 1), (`worker`, 2), … until told to stop, half of them by themselves, half inside a transaction with
/// something after it. Reconnects on 57P01 and repeats what was not acknowledged. Returns the last number.
fn write_numbers(at: u16, worker: usize, seen: &Seen) -> u64 {
    let mut raw = None;
    let mut number = 1;
    while !seen.stop.load(Ordering::Relaxed) {
        let session = match &mut raw {
            Some(session) => session,
            None => match try_login(at) {
                Some(session) => raw.insert(session),
                None => {
                    seen.unplaced.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
            },
        };
        let insert = format!("insert into ledger values ({worker}, {number})");
        let done = if number % 2 == 0 {
            outside(session, &insert)
        } else if outside(session, "begin") {
            for sql in [&insert, "select pg_sleep(0.004)", "update total set n = n + 1"] {
                session.query(sql);
                let answer = session.until(b'Z');
                assert!(!tags(&answer).contains('E'), "a transaction was cut at {sql}: {answer:?}");
            }
            session.query("commit");
            assert_eq!(tags(&session.until(b'Z')), "CZ", "a commit was lost");
            true
        } else {
            false
        };
        if done {
            seen.committed.fetch_add(1, Ordering::Relaxed);
            number += 1;
        } else {
            seen.moved.fetch_add(1, Ordering::Relaxed);
            raw = None;
        }
    }
    number - 1
}

/// Runs a statement outside a transaction; false when the session was ended instead, in the words a client can act on.
fn outside(session: &mut Raw, sql: &str) -> bool {
    // It may be closed already; what was said last is still there to be read.
    let _ = session.0.write_all(&message(b'Q', &[sql.as_bytes(), b"\0"].concat()));
    let (tag, body) = session.message().unwrap();
    if tag == b'E' {
        assert_eq!(field(&body, b'C'), "57P01", "{}", field(&body, b'M'));
        assert!(session.ends());
        return false;
    }
    session.until(b'Z');
    true
}

/// A session, or nothing when the gateway that the balancer chose has just gone.
fn try_login(at: u16) -> Option<Raw> {
    let mut raw = Raw::connect(at);
    raw.0.write_all(&Raw::startup(&[("user", "postgres")])).ok()?;
    let mut header = [0; 1];
    // Closed, or reset, before a word.
    if raw.0.peek(&mut header).ok()? == 0 {
        return None;
    }
    loop {
        match raw.message()? {
            (b'Z', _) => return Some(raw),
            (b'E', body) => {
                // The connector has words for the gateway that was gone: 08001.
                assert!(
                    ["57P01", "57P03", "08001"].contains(&&*field(&body, b'C')),
                    "{}",
                    field(&body, b'M')
                );
                return None;
            }
            _ => {}
        }
    }
}

/// Replaces each gateway by a successor on the same port, one after the other.
fn roll(farm: &mut Farm, seen: &Seen) {
    for index in 0..farm.gateways.len() {
        let before = seen.committed.load(Ordering::Relaxed);
        wait_until(Duration::from_secs(90), "work to go on", || {
            seen.committed.load(Ordering::Relaxed) > before + 100
        })
        .unwrap();
        farm.gateways[index].order(Control::Drain);
        // The port is free as soon as the drain begins; the old sessions end beside the new gateway.
        let fresh =
            wait_for(Duration::from_secs(10), "the port", || start_gateway(farm.configs[index].clone()).ok());
        let old = std::mem::replace(&mut farm.gateways[index], fresh.unwrap());
        old.end(Control::Reload).unwrap();
    }
}

#[test]
fn a_rolling_restart_behind_haproxy_drops_no_transaction() {
    let program = or_skip!("a rolling restart behind HAProxy", HaProxy::program());
    let cluster = cluster(Auth::Trust);
    cluster
        .sql("create table ledger (worker int, n int, primary key (worker, n)); create table total as select 0 as n")
        .unwrap();
    let mut farm = Farm::start(program, &gateway_config(&cluster));
    let mut config = connector_config(&farm.gateways[0], "restart", "zstd:1");
    config.targets[0].port = farm.haproxy.port;
    let connector = start_connector(config).unwrap();
    let seen = Seen::default();
    let last: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|worker| {
                let at = if worker % 2 == 0 { farm.haproxy.port } else { port(&connector) };
                let seen = &seen;
                scope.spawn(move || write_numbers(at, worker, seen))
            })
            .collect();
        let rolled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            roll(&mut farm, &seen);
            roll(&mut farm, &seen);
        }));
        seen.stop.store(true, Ordering::Relaxed);
        let last = workers.into_iter().map(|w| w.join().unwrap()).collect();
        rolled.unwrap();
        last
    });
    let moved = seen.moved.load(Ordering::Relaxed);
    assert!(moved >= 6, "each session had to move at least once, {moved} did");
    for (worker, last) in last.iter().enumerate() {
        let stored = cluster
            .sql(&format!("select count(*), min(n), max(n) from ledger where worker = {worker}"))
            .unwrap();
        assert_eq!(stored, format!("{last}|1|{last}"), "worker {worker}");
    }
    let inside: u64 = last.iter().map(|last| last.div_ceil(2)).sum();
    assert_eq!(cluster.sql("select n from total").unwrap(), inside.to_string());
}
