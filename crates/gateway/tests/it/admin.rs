//! The console, asked by psql and by raw messages.

use std::time::Duration;

use pgshrink_gateway::config::ListenTlsConfig;
use pgshrink_gateway::{ConnectorConfig, Control, GatewayConfig, Running, start_connector, start_gateway};
use pgshrink_testkit::{Auth, Authority, Cluster, Psql, TempDir, checkout, wait_until};

use crate::harness::{
    Raw, cluster, connector, connector_config, field, gateway_config, message, port, tags, unix_socket,
};

pub const SOCKET_PORT: u16 = 6432;

/// A gateway with a Unix socket, where its own user needs no password.
pub struct Site {
    dir: TempDir,
    pub gateway: Running,
}

impl Site {
    pub fn new(cluster: &Cluster, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut config =
            GatewayConfig { unix_socket: unix_socket(dir.path(), SOCKET_PORT), ..gateway_config(cluster) };
        change(&mut config);
        Self { gateway: start_gateway(config).unwrap(), dir }
    }

    pub fn psql(&self) -> Psql {
        Psql::new("psql").at(self.dir.path().display(), SOCKET_PORT).user("anybody").database("pgshrink")
    }

    fn ask(&self, sql: &str) -> String {
        self.psql().arg("-c").arg(sql).run().unwrap()
    }

    /// One cell of a row found by its first cell.
    fn cell(&self, sql: &str, row: &str, column: &str) -> String {
        let text =
            self.psql().arg("--csv").arg("-P").arg("tuples_only=off").arg("-c").arg(sql).run().unwrap();
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let at = lines.next().unwrap().iter().position(|name| *name == column).unwrap();
        lines.find(|cells| cells[0] == row).unwrap_or_else(|| panic!("no {row} in {text}"))[at].to_string()
    }

    fn error(&self, sql: &str) -> String {
        self.psql().arg("-v").arg("VERBOSITY=verbose").arg("-c").arg(sql).run().unwrap_err().to_string()
    }
}

#[test]
fn every_show_answers_psql_over_the_unix_socket() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let _session = Raw::login(port(&site.gateway));
    let help = site.ask("show help");
    let shows: Vec<&str> =
        help.lines().filter_map(|line| line.split('|').next()).filter(|c| c.starts_with("SHOW ")).collect();
    assert_eq!(shows.len(), 12, "{help}");
    for show in shows {
        assert!(!site.ask(&show.to_lowercase()).is_empty(), "{show}");
    }
    let page = std::fs::read_to_string(checkout().join("docs/operating/monitoring.md")).unwrap();
    let (table, _) = page.split_once("## Metrics").unwrap();
    let commands: Vec<String> = table
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.replace("\\|", "|")))
        .collect();
    assert_eq!(help.lines().count(), commands.len(), "{help}");
    for (line, command) in help.lines().zip(&commands) {
        assert!(line.starts_with(&format!("{command}|")), "the manual has {command}: {line}");
    }
    assert_eq!(site.ask("Show Version ;"), concat!("pgshrink ", env!("CARGO_PKG_VERSION")));
    assert_eq!(site.cell("show state", "sessions", "value"), "1");
    assert_eq!(site.cell("show servers", &format!("127.0.0.1:{}", cluster.port()), "sessions"), "1");
    assert_eq!(site.cell("show config", "limits.max_clients", "changeable"), "t");
    let sum = |name: &str| site.cell("show memory", name, "value").parse::<u64>().unwrap();
    assert!(sum("process_resident_bytes") > sum("codec_memory_bytes"));
    assert_eq!(site.ask("show version; show version").lines().count(), 2);
    assert!(site.ask("show listeners").contains(&format!(".s.PGSQL.{SOCKET_PORT}|unix|")));
}

#[test]
fn numbers_come_as_numbers_so_that_psql_aligns_them() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let text = site
        .psql()
        .arg("-P")
        .arg("format=aligned")
        .arg("-P")
        .arg("tuples_only=off")
        .arg("-c")
        .arg("show stats");
    let text = text.run().unwrap();
    let line = text.lines().find(|l| l.contains("to_server")).unwrap();
    assert_eq!(line.split('|').nth(1), Some("         0 "), "{text}");
    assert_eq!(line.split('|').nth(3), Some("  1.00 "), "{text}");
}

#[test]
fn unknown_commands_are_syntax_errors_with_a_hint() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let error = site.error("select * from pg_class");
    assert!(error.contains("42601") && error.contains("SHOW HELP"), "{error}");
    let error = site.error("show tables");
    assert!(error.contains("42601") && error.contains("nothing to show for \"tables\""), "{error}");
    let error = site.error("kill 4711");
    assert!(error.contains("42704") && error.contains("SHOW CLIENTS"), "{error}");
}

#[test]
fn a_session_is_listed_with_what_it_is_and_carries() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let near = connector(&site.gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::connect(port(&near));
    let name = "evil\u{1b}[2J name";
    raw.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres"), ("application_name", name)]));
    raw.until(b'Z');
    raw.query("begin");
    raw.until(b'Z');
    raw.query("select repeat('abc', 1000), pg_backend_pid() from generate_series(1, 100)");
    let rows = raw.until(b'Z');
    let pid =
        cluster.sql("select pid from pg_stat_activity where query like '%abc%' and pid <> pg_backend_pid()");
    let cell = |column| site.cell("show clients", "1", column);
    assert_eq!(cell("user"), "postgres");
    assert_eq!(cell("application_name"), "evil?[2J name");
    assert_eq!(cell("server_pid"), pid.unwrap());
    assert_eq!(cell("state"), "idle in transaction");
    assert_eq!((cell("dialect"), cell("sending")), ("ack".into(), "zstd:1".into()));
    assert!(cell("agreed") == "\"zstd:1" || cell("agreed").starts_with("zstd:1"), "{}", cell("agreed"));
    let number = |text: String| text.parse::<f64>().unwrap();
    let plain: usize = rows.iter().map(|(_, body)| body.len() + 5).sum();
    assert!(number(site.cell("show stats", "to_client", "raw_bytes")) >= plain as f64);
    assert!(number(cell("to_client_ratio")) > 20.0);
    assert!(number(cell("memory_bytes")) > 0.0);
}

/// Frames sent to the client while `raw` asks once.
fn frames_of_a_query(site: &Site, raw: &mut Raw) -> u64 {
    let frames = || site.gateway.registry().totals().to_client.frames;
    let before = frames();
    raw.query("select repeat('xyz', 2000)");
    raw.until(b'Z');
    wait_until(Duration::from_secs(30), "counters to come", || {
        site.gateway.registry().sessions().iter().all(|s| s.transaction() == b'I')
    })
    .unwrap();
    frames() - before
}

#[test]
fn compression_is_switched_on_live_sessions() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    for dialect in ["ack", "restart"] {
        let near = connector(&site.gateway, dialect, "zstd:1,lz4:1");
        let mut raw = Raw::login(port(&near));
        let id = &site.gateway.registry().sessions().iter().map(|s| s.id).max().unwrap().to_string();
        assert!(frames_of_a_query(&site, &mut raw) > 0);
        let sending = |text: &str| site.cell(&format!("set compression {id} '{text}'"), id, "sending");
        assert_eq!(sending("off"), "off");
        assert_eq!(frames_of_a_query(&site, &mut raw), 0, "{dialect}");
        assert_eq!(site.cell("show clients", id, "sending"), "off");
        assert_eq!(sending("lz4:1"), "lz4:1");
        assert!(frames_of_a_query(&site, &mut raw) > 0, "{dialect}");
        assert_eq!(sending("on"), "zstd:1");
        let error = site.error(&format!("set compression {id} 'zlib'"));
        assert!(error.contains("55000") && error.contains("agreed"), "{error}");
        assert_eq!(site.cell("show clients", id, "sending"), "zstd:1");
    }
}

#[test]
fn compression_is_switched_for_all_and_says_where_it_cannot() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let near = connector(&site.gateway, "ack", "zstd:1");
    let (_compressed, _plain) = (Raw::login(port(&near)), Raw::login(port(&site.gateway)));
    let answer = site.ask("SET COMPRESSION ALL off");
    assert_eq!(answer, "1|off|\n2|off|this session has no agreed compression");
}

#[test]
fn a_killed_session_is_told_why_and_others_go_on() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let (mut first, mut second) = (Raw::login(port(&site.gateway)), Raw::login(port(&site.gateway)));
    site.ask("kill 1");
    let (tag, body) = first.message().unwrap();
    assert_eq!((tag, field(&body, b'C').as_str()), (b'E', "57P01"));
    assert_eq!(field(&body, b'M'), "terminating connection due to administrator command");
    assert!(first.ends());
    second.query("select 1");
    assert_eq!(tags(&second.until(b'Z')), "TDCZ");
}

#[test]
fn paused_sessions_wait_until_they_are_resumed_or_time_is_over() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |c| c.timeouts.login_timeout_s = 3);
    let mut old = Raw::login(port(&site.gateway));
    site.ask("pause");
    assert_eq!(site.cell("show state", "phase", "value"), "paused");
    assert!(site.error("pause").contains("already paused"));
    old.query("select 1");
    assert_eq!(tags(&old.until(b'Z')), "TDCZ", "sessions that run go on");

    let mut waiting = Raw::connect(port(&site.gateway));
    waiting.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
    waiting.0.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(std::io::Read::read(&mut waiting.0, &mut [0]).is_err(), "nothing comes while paused");
    waiting.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    site.ask("resume");
    waiting.until(b'Z');

    site.ask("pause");
    let mut refused = Raw::connect(port(&site.gateway));
    refused.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
    let (tag, body) = refused.message().unwrap();
    assert_eq!((tag, field(&body, b'C').as_str()), (b'E', "57P03"));
    assert!(field(&body, b'M').contains("paused"));
    site.ask("resume");
}

pub fn tls_files(dir: &TempDir) -> ListenTlsConfig {
    let identity = Authority::new().unwrap().server(&["localhost"]).unwrap();
    let (cert, key) = identity.write_to(dir.path(), "server").unwrap();
    ListenTlsConfig { cert, key, client_ca: None, require_client_cert: false, required: false }
}

#[test]
fn a_reload_that_fails_says_why_and_changes_nothing() {
    let cluster = cluster(Auth::Trust);
    let files = TempDir::new().unwrap();
    let tls = tls_files(&files);
    let site = Site::new(&cluster, |c| c.tls = Some(tls.clone()));
    assert_eq!(site.ask("reload"), "");
    std::fs::write(&tls.cert, "broken").unwrap();
    let error = site.error("reload");
    assert!(error.contains("F0000") && error.contains("tls.cert"), "{error}");
    let over_tls =
        Psql::new("psql").at("127.0.0.1", port(&site.gateway)).user("postgres").database("postgres");
    assert_eq!(over_tls.set("sslmode", "require").arg("-c").arg("select 1").run().unwrap(), "1");
}

fn console(site: &Site) -> std::os::unix::net::UnixStream {
    let path = site.dir.path().join(format!(".s.PGSQL.{SOCKET_PORT}"));
    std::os::unix::net::UnixStream::connect(path).unwrap()
}

/// Sends messages to a fresh console and returns what it says up to its end.
fn converse(site: &Site, messages: &[Vec<u8>]) -> Vec<(u8, Vec<u8>)> {
    let startup = Raw::startup(&[("user", "u"), ("database", "pgshrink")]);
    let mut answers = converse_from(site, &startup, messages);
    let ready = answers.iter().position(|a| a.0 == b'Z').unwrap();
    answers.split_off(ready + 1)
}

/// As [`converse`], with the answers to the startup packet.
fn converse_from(site: &Site, startup: &[u8], messages: &[Vec<u8>]) -> Vec<(u8, Vec<u8>)> {
    use std::io::{Read, Write};
    let mut stream = console(site);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(startup).unwrap();
    for message in messages {
        stream.write_all(message).unwrap();
    }
    stream.write_all(&message(b'X', b"")).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut rest = bytes.as_slice();
    let mut answers = Vec::new();
    while let Some((head, body)) = rest.split_first_chunk::<5>() {
        let size = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        answers.push((head[0], body[..size].to_vec()));
        rest = &body[size..];
    }
    answers
}

fn parse(sql: &str) -> Vec<u8> {
    message(b'P', &[b"s\0", sql.as_bytes(), b"\0\0\0"].concat())
}

/// All result columns as text (0) or binary (1).
fn bind(format: u8) -> Vec<u8> {
    message(b'B', &[&b"\0s\0"[..], &[0, 0, 0, 0, 0, 1, 0, format]].concat())
}

fn execute() -> Vec<u8> {
    message(b'E', b"\0\0\0\0\0")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

#[test]
fn drivers_can_ask_by_the_extended_protocol() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let describe = |what: u8, name: &[u8]| message(b'D', &[&[what], name, b"\0"].concat());
    let answers = converse(
        &site,
        &[parse("SHOW LISTENERS"), describe(b'S', b"s"), bind(1), describe(b'P', b""), execute(), sync()],
    );
    assert_eq!(tags(&answers), "1tT2TDDCZ");
    let accepted = &answers[6].1;
    assert_eq!(
        &accepted[accepted.len() - 12..],
        [&8u32.to_be_bytes()[..], &1u64.to_be_bytes()].concat(),
        "binary"
    );
    let answers = converse(
        &site,
        &[
            parse("set extra_float_digits = 3"),
            bind(0),
            describe(b'P', b""),
            execute(),
            sync(),
            parse(""),
            bind(0),
            execute(),
            sync(),
        ],
    );
    assert_eq!(tags(&answers), "12nCZ12IZ");
    let answers = converse(
        &site,
        &[message(b'Q', b"BEGIN\0"), message(b'Q', b"select 1\0"), message(b'Q', b"commit\0")],
    );
    assert_eq!(tags(&answers), "CZTDCZCZ");
    assert_eq!((answers[1].1.as_slice(), answers[7].1.as_slice()), (&b"T"[..], &b"I"[..]));
}

#[test]
fn newer_clients_are_told_that_the_console_speaks_protocol_3_0() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let asked = [("user", "u"), ("database", "pgshrink"), ("_pq_.compression", "zstd"), ("_pq_.new", "1")];
    let mut startup = Raw::startup(&asked);
    startup[7] = 2;
    let answers = converse_from(&site, &startup, &[]);
    assert!(tags(&answers).starts_with("vRS"), "{}", tags(&answers));
    assert_eq!(answers[0].1, b"\0\x03\0\0\0\0\0\x01_pq_.new\0");
    let own = converse_from(&site, &Raw::startup(&asked[..3]), &[]);
    assert!(tags(&own).starts_with("RS"), "{}", tags(&own));
}

#[test]
fn an_error_in_the_extended_protocol_skips_to_sync() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let code = |answers: &[(u8, Vec<u8>)]| field(&answers.iter().find(|a| a.0 == b'E').unwrap().1, b'C');
    let answers =
        converse(&site, &[parse("bogus"), bind(0), execute(), sync(), message(b'Q', b"show version\0")]);
    assert_eq!((tags(&answers).as_str(), code(&answers).as_str()), ("EZTDCZ", "42601"));
    let with_parameter = message(b'B', b"\0s\0\0\0\0\x01\0\0\0\x011\0\0");
    let answers = converse(&site, &[parse("show version"), with_parameter, execute(), sync()]);
    assert_eq!((tags(&answers).as_str(), code(&answers).as_str()), ("1EZ", "0A000"));
    for broken in [message(b'B', b"\0"), message(b'P', b"no end"), message(b'D', b""), message(b'@', b"")] {
        let answers = converse(&site, &[broken, sync(), message(b'Q', b"show version\0")]);
        assert_eq!(tags(&answers), "EZTDCZ");
    }
}

#[test]
fn a_console_that_sends_too_much_is_closed_alone() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let answers = converse(&site, &[message(b'Q', &vec![b' '; 70_000])]);
    assert_eq!(tags(&answers), "E");
    assert_eq!(site.ask("select 1"), "1");
}

#[test]
fn an_operator_watches_the_drain_to_its_end() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let mut busy = Raw::login(port(&site.gateway));
    busy.query("begin");
    busy.until(b'Z');
    let mut watcher = RawConsole::open(&site);
    watcher.query("shutdown");
    assert_eq!(tags(&watcher.0.until(b'Z')), "CZ");
    wait_until(Duration::from_secs(30), "the drain", || site.gateway.registry().is_draining()).unwrap();
    watcher.query("show clients");
    assert_eq!(tags(&watcher.0.until(b'Z')), "TDCZ", "the last session, and no console");
    busy.query("commit");
    assert_eq!(tags(&busy.until(b'Z')), "CZ");
    let (tag, body) = watcher.0.message().unwrap();
    assert_eq!((tag, field(&body, b'C').as_str()), (b'E', "57P01"));
    site.gateway.end(Control::Drain).unwrap();
}

#[test]
fn shutdown_immediate_ends_sessions_at_once() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let mut busy = Raw::login(port(&site.gateway));
    busy.query("begin");
    busy.until(b'Z');
    site.ask("shutdown immediate");
    assert_eq!(field(&busy.message().unwrap().1, b'C'), "57P01");
}

/// A console that stays open.
struct RawConsole(Raw);

impl RawConsole {
    /// Over the Unix socket, joined to a TCP stream because that is what [`Raw`] speaks.
    fn open(site: &Site) -> Self {
        let socket = console(site);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (tcp, _) = listener.accept().unwrap();
            let (mut from, mut to) = (tcp.try_clone().unwrap(), socket.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (socket, tcp);
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
        let mut raw = Raw::connect(address.port());
        raw.send(&Raw::startup(&[("user", "u"), ("database", "pgshrink")]));
        raw.until(b'Z');
        Self(raw)
    }

    fn query(&mut self, sql: &str) {
        self.0.query(sql);
    }
}

#[test]
fn a_full_gateway_still_lets_its_operator_in() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |c| c.limits.max_clients = 1);
    let _session = Raw::login(port(&site.gateway));
    let mut refused = Raw::connect(port(&site.gateway));
    refused.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
    assert_eq!(field(&refused.message().unwrap().1, b'C'), "53300");
    assert_eq!(site.cell("show state", "sessions", "value"), "1");
}

#[test]
fn the_connector_has_a_console_of_its_own_only_when_told() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let dir = TempDir::new().unwrap();
    let mut config = connector_config(&site.gateway, "ack", "zstd:1");
    config.unix_socket = unix_socket(dir.path(), SOCKET_PORT);
    config.admin.database = "pgshrink".into();
    let ask = || {
        let psql =
            Psql::new("psql").at(dir.path().display(), SOCKET_PORT).user("postgres").database("pgshrink");
        psql.arg("-c").arg("show state").run()
    };
    let near = start_connector(config.clone()).unwrap();
    assert!(ask().unwrap().starts_with("role|connector\n"));
    near.end(Control::Stop).unwrap();
    config.admin = ConnectorConfig::default().admin;
    let _near = start_connector(config).unwrap();
    let error = ask().unwrap_err().to_string();
    assert!(error.contains("does not admit clients over TCP"), "it is the gateway's that answers: {error}");
}
