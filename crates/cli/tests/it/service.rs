//! `pgshrink gateway` and `pgshrink connect` as processes: configuration, reload, end, log.

use pgshrink_testkit::{Auth, Cluster, Daemon, TempDir, free_port, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Service {
    pub(crate) daemon: Daemon,
    pub(crate) port: u16,
    pub(crate) config: PathBuf,
    _dir: TempDir,
}

/// Starts a service whose configuration is `rest` below a line that makes it listen on a free port.
pub(crate) fn start(command: &str, rest: &str, flags: &[&str]) -> Service {
    let port = free_port().expect("a port");
    let dir = TempDir::new().expect("a directory");
    let config = dir.path().join("p.toml");
    fs::write(&config, format!("listen = [\"127.0.0.1:{port}\"]\n{rest}")).expect("a file");
    let mut pgshrink = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    pgshrink.arg(command).arg("--config").arg(&config).args(flags).arg("--unix-socket-directory=");
    let daemon = Daemon::spawn(&mut pgshrink).expect("starts");
    daemon.wait_for_log(PATIENCE, "listening").expect("listens");
    Service { daemon, port, config, _dir: dir }
}

pub(crate) fn query(cluster: &Cluster, port: u16, sql: &str) -> String {
    cluster.psql().at("127.0.0.1", port).sql(sql).expect("an answer").trim().to_owned()
}

#[test]
fn a_gateway_reloads_on_sighup_and_ends_on_sigterm() {
    let cluster = Cluster::builder().auth(Auth::Trust).start().expect("a server");
    let server = format!("[[server]]\nhost = \"127.0.0.1\"\nport = {}\n", cluster.port());
    let service = start("gateway", &server, &[]);
    assert_eq!(query(&cluster, service.port, "select 1"), "1");
    let listen = format!("listen = [\"127.0.0.1:{}\"]\n", service.port);
    fs::write(&service.config, format!("{listen}nonsense = 1\n{server}")).expect("a file");
    service.daemon.signal(Signal::HUP).expect("alive");
    service
        .daemon
        .wait_for_log(PATIENCE, "p.toml:2: nonsense: unknown; known are ")
        .expect("says what is wrong");
    assert_eq!(query(&cluster, service.port, "select 2"), "2");
    fs::write(&service.config, format!("{listen}ignore_startup_parameters = [\"x\"]\n{server}"))
        .expect("a file");
    service.daemon.signal(Signal::HUP).expect("alive");
    service.daemon.wait_for_log(PATIENCE, "configuration reloaded").expect("reloads");
    assert_eq!(query(&cluster, service.port, "select 3"), "3");
    service.daemon.signal(Signal::TERM).expect("alive");
    assert_eq!(service.daemon.wait(PATIENCE).expect("ends").code(), Some(0));
}

#[test]
fn a_connector_asks_the_gateway_for_compression() {
    let cluster = Cluster::builder().auth(Auth::Scram).start().expect("a server");
    let server = format!("[[server]]\nhost = \"127.0.0.1\"\nport = {}\n", cluster.port());
    let gateway = start("gateway", &server, &["--log-format=json"]);
    for dialect in ["ack", "restart"] {
        let target = format!("[[target]]\nhost = \"127.0.0.1\"\nport = {}\n", gateway.port);
        let connector =
            start("connect", &target, &["--dialect", dialect, "--required", "--compression=zstd:2,lz4"]);
        assert_eq!(query(&cluster, connector.port, "select sum(i) from generate_series(1, 100) i"), "5050");
        connector.daemon.signal(Signal::TERM).expect("alive");
        assert_eq!(connector.daemon.wait(PATIENCE).expect("ends").code(), Some(0));
    }
    let sessions = || gateway.daemon.log().lines().filter(|line| line.contains("\"disconnected\"")).count();
    wait_until(PATIENCE, "both sessions in the log", || sessions() == 2).expect("both");
    for line in gateway.daemon.log().lines() {
        assert!(line.starts_with('{') && line.ends_with('}') && line.contains("\"level\":"), "{line}");
        assert!(
            !line.contains("pgshrink_gateway"),
            "modules of the source are no news to an operator: {line}"
        );
    }
}

#[test]
fn too_low_a_limit_of_open_files_is_reported_at_start() {
    let flags = "--listen=127.0.0.1:0 --server=host=127.0.0.1 --unix-socket-directory= --max-clients=300";
    let start = |limit: u32| {
        let script = format!("ulimit -n {limit}; exec \"$0\" gateway {flags}");
        let daemon = Daemon::spawn(Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_pgshrink")]));
        let daemon = daemon.expect("starts");
        daemon.wait_for_log(PATIENCE, "listening").expect("listens");
        daemon.log()
    };
    let log = start(512);
    assert!(log.contains("(ulimit -n) is 512") && log.contains("max_clients = 300 needs"), "{log}");
    assert!(!start(4096).contains("ulimit"));
}

#[test]
fn lines_that_strangers_cause_are_limited() {
    use std::io::Read;
    let service = start("gateway", "[[server]]\nhost = \"127.0.0.1\"\n", &["--log-level=info"]);
    for _ in 0..60 {
        let mut client = std::net::TcpStream::connect(("127.0.0.1", service.port)).expect("connects");
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("takes it");
        client.read_to_end(&mut Vec::new()).expect("is closed");
    }
    service.daemon.signal(Signal::TERM).expect("alive");
    assert_eq!(service.daemon.wait(PATIENCE).expect("ends").code(), Some(0));
    let log = service.daemon.log();
    let lines = log.lines().filter(|line| line.contains("connection refused")).count();
    assert!((20..60).contains(&lines), "{lines} lines for 60 connections: {log}");
}

#[test]
fn an_address_in_use_ends_it_with_two() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let mut pgshrink = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let flags = ["connect", "--listen", &address, "--target", "127.0.0.1:1"];
    let output = pgshrink.args(flags).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("pgshrink: cannot listen on {address}: ")), "{stderr}");
}

#[test]
fn a_server_that_is_the_gateway_or_connector_itself_is_refused() {
    let port = free_port().expect("a port");
    let ended = |words: &[&str]| {
        let daemon = Daemon::spawn(Command::new(env!("CARGO_BIN_EXE_pgshrink")).args(words)).expect("starts");
        let status = daemon.wait(PATIENCE).expect("ends, because it refuses");
        (status.code(), daemon.log())
    };
    for (listen, host) in
        [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "localhost"), ("*", "localhost")]
    {
        let (listen, server) =
            (format!("--listen={listen}:{port}"), format!("--server=host={host},port={port}"));
        let target = format!("--target={host}:{port}");
        for words in [
            ["gateway", &listen, &server, "--unix-socket-directory="],
            ["connect", &listen, &target, "--unix-socket-directory="],
        ] {
            for (words, code) in [([&words[..], &["--check"]].concat(), 1), (words.to_vec(), 2)] {
                let (found, said) = ended(&words);
                assert!(
                    found == Some(code) && said.contains("is this process itself, which listens on "),
                    "{words:?} {said}"
                );
            }
        }
    }
    let dir = TempDir::new().expect("a directory");
    let own_socket = format!("--unix-socket-directory={}", dir.path().display());
    let server = format!("--server=host={},port=7", dir.path().display());
    let (code, said) = ended(&["gateway", &own_socket, "--unix-socket-port=7", &server]);
    assert!(code == Some(2) && said.contains("is this process itself"), "{said}");
}

#[test]
fn signals_are_taken_before_it_says_that_it_listens() {
    use rustix::fs::{OFlags, fcntl_setfl};
    // A log in which there is no room: the process waits at its first line, which says that it listens.
    let (_reader, mut log) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&log, OFlags::NONBLOCK).expect("a flag");
    while log.write(b"\n").is_ok() {}
    fcntl_setfl(&log, OFlags::empty()).expect("a flag");
    let listen = format!("--listen=127.0.0.1:{}", free_port().expect("a port"));
    let flags = ["--server=host=127.0.0.1", "--unix-socket-directory=", "--max-clients=10"];
    let mut pgshrink = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let mut child = pgshrink.args(["gateway", &listen]).args(flags).stderr(log).spawn().expect("starts");
    let status = format!("/proc/{}/status", child.id());
    let are_caught = || {
        let status = fs::read_to_string(&status).expect("its status");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("signals");
        let caught = u64::from_str_radix(caught.trim(), 16).expect("bits");
        [Signal::HUP, Signal::INT, Signal::TERM].iter().all(|signal| caught >> (signal.as_raw() - 1) & 1 == 1)
    };
    let done = wait_until(PATIENCE, "handlers of signals", are_caught);
    child.kill().expect("alive");
    child.wait().expect("ends");
    done.expect("are there");
}

#[test]
fn a_reload_that_would_lead_back_to_the_gateway_is_refused() {
    let service = start("gateway", "[[server]]\nhost = \"127.0.0.1\"\nport = 9\n", &[]);
    let port = service.port;
    let text = format!(
        "listen = [\"127.0.0.1:{port}\"]\n[[server]]\nhost = \"127.0.0.1\"\nport = 9\n[[server]]\nhost = \"localhost\"\nport = {port}\n"
    );
    fs::write(&service.config, text).expect("a file");
    service.daemon.signal(Signal::HUP).expect("alive");
    let refused = format!("server[2]: localhost:{port} is this process itself");
    service.daemon.wait_for_log(PATIENCE, &refused).expect("says what is wrong");
    assert!(service.daemon.log().contains("configuration not reloaded"));
}

#[test]
fn failed_accepts_are_limited_in_the_log() {
    // Failures come ten times a second each; without a limit, three seconds of them are thirty lines.
    const FAILING: Duration = Duration::from_secs(4);
    const LINES_MAX: usize = 20;
    let (port, page) = (free_port().expect("a port"), free_port().expect("a port"));
    let script = format!(
        "ulimit -n 48; exec \"$0\" gateway --listen=127.0.0.1:{port} --server=host=127.0.0.1 --threads=1 --unix-socket-directory= \
         --metrics-listen=127.0.0.1:{page}"
    );
    let daemon = Daemon::spawn(Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_pgshrink")]));
    let daemon = daemon.expect("starts");
    daemon.wait_for_log(PATIENCE, "metrics").expect("listens");
    let connect = |port| std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    let _silent: Vec<_> = (0..60).map(|_| connect(port)).collect();
    daemon.wait_for_log(PATIENCE, "accept failed").expect("has no descriptor left");
    let _page: Vec<_> = (0..2).map(|_| connect(page)).collect();
    std::thread::sleep(FAILING);
    let log = daemon.log();
    for what in [" accept failed", "metrics: accept failed"] {
        let is_metrics = what.starts_with("metrics");
        let said = |line: &&str| line.contains("accept failed") && line.contains("metrics:") == is_metrics;
        let lines = log.lines().filter(said).count();
        assert!((1..=LINES_MAX).contains(&lines), "{what}: {lines} lines in {log}");
    }
}

#[test]
fn a_default_socket_that_cannot_be_made_is_in_the_log() {
    let port = free_port().expect("a port");
    let path = format!("/var/run/postgresql/.s.PGSQL.{port}");
    // Where there is no such directory, that is the reason; otherwise somebody else has the socket.
    let _taken = std::os::unix::net::UnixListener::bind(&path);
    let listen = format!("--listen=127.0.0.1:{port}");
    let daemon = Daemon::spawn(Command::new(env!("CARGO_BIN_EXE_pgshrink")).args([
        "gateway",
        &listen,
        "--server=host=127.0.0.1",
    ]));
    let daemon = daemon.expect("starts");
    daemon.wait_for_log(PATIENCE, &format!("listening address=127.0.0.1:{port}")).expect("listens");
    let log = daemon.log();
    // Its owner is gone before the file.
    let _ = fs::remove_file(&path);
    assert!(log.contains("WARN") && log.contains(&format!("no Unix socket {path}: ")), "{log}");
}
