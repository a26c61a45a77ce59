//! `pgshrink run` as a process: the command's exit code, signals, terminal, and what is left behind.

use pgshrink_gateway::config::{ListenTlsConfig, ServerConfig, TargetConfig};
use pgshrink_gateway::{Address, GatewayConfig, Running, start_gateway};
use pgshrink_testkit::{
    Auth, Authority, Cluster, SUPERUSER_PASSWORD, TempDir, free_port, wait_for, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Runs of pgshrink with a home and a temporary directory of their own.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        fs::create_dir(dir.path().join("home")).expect("a directory");
        fs::create_dir(dir.path().join("tmp")).expect("a directory");
        Self { dir }
    }

    fn home(&self, name: &str, text: &str) {
        let path = self.dir.path().join("home").join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("a directory");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
    }

    fn run(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        command.arg("run").args(words);
        self.surround(&mut command);
        command
    }

    fn surround(&self, command: &mut Command) {
        let libpq =
            std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("PG"));
        libpq.for_each(|name| {
            command.env_remove(name);
        });
        command.env("HOME", self.dir.path().join("home")).env("TMPDIR", self.dir.path().join("tmp"));
    }

    /// Private directories that are there.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("tmp")).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// With something to compress, so that there is a connector, if nobody to connect to.
const BUSY: &[&str] = &["--compression=lz4", "--"];

#[test]
fn the_exit_code_is_the_commands() {
    let place = Place::new();
    for prefix in [&["--"][..], BUSY] {
        // Without anything to compress it becomes the command, and so ends by the signal itself.
        let code = |words: &[&str]| {
            let status = place.run(&[prefix, words].concat()).output().expect("runs").status;
            status.code().or(status.signal().map(|signal| 128 + signal))
        };
        assert_eq!(code(&["true"]), Some(0));
        assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
        assert_eq!(code(&["sh", "-c", "exit 255"]), Some(255));
        assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
        assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(143));
        assert_eq!(code(&["no-such-command-at-all"]), Some(127));
        assert_eq!(code(&["/etc/passwd"]), Some(126));
    }
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn errors_of_its_own_end_with_two_and_the_command_is_not_started() {
    let place = Place::new();
    let marker = place.dir.path().join("started");
    let touch = format!("touch {}", marker.display());
    for words in [&["--compression=zstd:99"][..], &["--required"]] {
        let output = place.run(&[words, &["--", "sh", "-c", &touch]].concat()).output().expect("runs");
        let (code, _, stderr) = said(&output);
        assert!(code == Some(2) && stderr.starts_with("pgshrink: "), "{code:?} {stderr}");
        assert!(!marker.exists());
    }
}

#[test]
fn without_compression_the_environment_is_the_same() {
    let place = Place::new();
    let mut plain = Command::new("env");
    place.surround(&mut plain);
    let variables = |command: &mut Command| {
        let (code, stdout, stderr) = said(&command.env("PGHOST", "h").output().expect("runs"));
        assert_eq!((code, &stderr[..]), (Some(0), ""));
        let mut lines: Vec<String> = stdout.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(variables(&mut place.run(&["--", "env"])), variables(&mut plain));
    // Not even another process: it becomes the command.
    let mut same = place.run(&["--", "sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut pid = String::new();
    same.stdout.take().expect("piped").read_to_string(&mut pid).expect("text");
    assert_eq!(pid.trim(), same.id().to_string());
    same.wait().expect("ends");
    let verbose = place.run(&["-v", "--", "true"]).output().expect("runs");
    assert!(said(&verbose).2.ends_with("pgshrink: nothing is compressed"), "{:?}", said(&verbose));
}

/// A script beside its first line of output.
struct Script {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Script {
    fn start(place: &Place, script: &str) -> Self {
        let mut command = place.run(&[BUSY, &["sh", "-c", script]].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut script = Self { child, lines };
        assert_eq!(script.line(), "ready");
        script
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("alive");
    }
}

#[test]
fn signals_sent_to_it_reach_the_command() {
    let place = Place::new();
    for signal in
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH]
    {
        let number = signal.as_raw();
        let wait = "echo ready; while :; do sleep 0.02; done";
        let mut script = Script::start(&place, &format!("trap 'echo got; exit 3' {number}; {wait}"));
        assert_eq!(place.left().len(), 1);
        script.signal(signal);
        assert_eq!(script.line(), "got", "signal {number}");
        assert_eq!(script.child.wait().expect("ends").code(), Some(3));
        assert_eq!(place.left(), [""; 0], "signal {number}");
    }
}

#[test]
fn a_command_that_a_signal_ends_leaves_nothing_behind() {
    let place = Place::new();
    let mut script = Script::start(&place, "echo ready; exec sleep 60");
    script.signal(Signal::TERM);
    assert_eq!(script.child.wait().expect("ends").code(), Some(143));
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn ignored_signals_stay_ignored_for_the_command() {
    let place = Place::new();
    let wait = "trap 'exit 4' TERM; echo ready; while :; do sleep 0.02; done";
    let command = format!("trap '' HUP; exec \"$0\" run --compression=lz4 -- sh -c \"{wait}\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &command, env!("CARGO_BIN_EXE_pgshrink")]).stdout(Stdio::piped());
    place.surround(&mut shell);
    let mut child = shell.spawn().expect("runs");
    let mut first = [0; 6];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("ready");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::HUP).expect("alive");
    std::thread::sleep(Duration::from_millis(200));
    kill_process(pid, Signal::TERM).expect("alive");
    assert_eq!(child.wait().expect("ends").code(), Some(4));
}

#[test]
fn what_a_killed_run_left_behind_the_next_one_removes() {
    let place = Place::new();
    let mut script = Script::start(&place, "echo ready; exec sleep 60");
    let mut alive = Script::start(&place, "echo ready; exec sleep 60");
    assert_eq!(place.left().len(), 2);
    script.signal(Signal::KILL);
    script.child.wait().expect("ends");
    assert_eq!(place.left().len(), 2);
    assert!(place.run(&[BUSY, &["true"]].concat()).status().expect("runs").success());
    assert_eq!(place.left().len(), 1, "the one in use stays");
    alive.signal(Signal::TERM);
    alive.child.wait().expect("ends");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn private_files_are_for_their_owner_only() {
    let place = Place::new();
    place.home(".pgpass", "db.example:*:*:*:secret\n");
    let show = "stat -c '%a' \"$PGHOST\" \"$PGHOST\"/.. \"$PGHOST\"/.s.PGSQL.5432 \"$PGPASSFILE\"; cat \"$PGPASSFILE\"";
    let mut command = place.run(&[&["--quiet"], BUSY, &["sh", "-c", show]].concat());
    let output = command.env("PGHOST", "db.example").output().expect("runs");
    let (code, stdout, stderr) = said(&output);
    assert_eq!((code, &stderr[..]), (Some(0), ""));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..5], ["700", "700", "600", "600", "db.example:*:*:*:secret"]);
    assert!(lines[5].ends_with("/0:*:*:*:secret"), "{}", lines[5]);
}

/// A server behind a gateway.
struct Stage {
    cluster: Cluster,
    gateway: Running,
    place: Place,
}

impl Stage {
    fn new(auth: Auth) -> Self {
        Self::with(auth, |_| ())
    }

    fn with(auth: Auth, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let cluster = Cluster::builder().auth(auth).start().expect("a server");
        let target = TargetConfig::new("127.0.0.1", cluster.port());
        let server = ServerConfig::new(target);
        let mut config = GatewayConfig {
            listen: vec!["127.0.0.1:0".into()],
            servers: vec![server],
            threads: Some(1),
            ..GatewayConfig::default()
        };
        change(&mut config);
        Self { cluster, gateway: start_gateway(config).expect("a gateway"), place: Place::new() }
    }

    fn port(&self) -> u16 {
        let tcp = self.gateway.addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        });
        tcp.expect("listens")
    }

    fn psql(&self) -> String {
        self.cluster.server().program("psql").display().to_string()
    }

    /// `pgshrink run -- psql CONNINFO -Atc SQL`.
    fn query(&self, flags: &[&str], conninfo: &str, sql: &str) -> Command {
        let psql = self.psql();
        self.place.run(&[flags, &["--", &psql, conninfo, "-XAtc", sql]].concat())
    }

    /// How many sessions went through the gateway compressed. A session is counted when it is over.
    fn compressed(&self) -> u64 {
        self.gateway.registry().events.compressed.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn check(&self, command: &mut Command, expected: &str) {
        let before = self.compressed();
        let (code, stdout, stderr) = said(&command.output().expect("runs"));
        assert_eq!((code, &stdout[..]), (Some(0), expected), "{command:?}: {stderr}");
        assert!(is_summary(&stderr), "{command:?}: {stderr}");
        assert_eq!(self.compressed(), before + 1, "{command:?}");
        assert_eq!(self.place.left(), [""; 0]);
    }
}

/// One line that says what was saved.
fn is_summary(stderr: &str) -> bool {
    stderr.lines().count() == 1 && stderr.starts_with("pgshrink: 1 session: ") && stderr.ends_with("x)")
}

#[test]
fn a_run_says_why_its_session_was_plain_and_keeps_quiet_when_told_so() {
    let stage = Stage::with(Auth::Trust, |config| config.libpq_compression = "lz4".into());
    let conninfo =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres compression=zstd", stage.port());
    let run = |flags: &[&str], conninfo: &str| {
        let (code, stdout, stderr) = said(&stage.query(flags, conninfo, "select 1").output().expect("runs"));
        assert_eq!((code, &stdout[..]), (Some(0), "1"), "{stderr}");
        stderr
    };
    let why = "pgshrink: 1 session not compressed: the server allows none of the requested algorithms";
    assert_eq!(run(&[], &conninfo), why);
    assert_eq!(run(&["--quiet"], &conninfo), "");
    let direct = format!(
        "host=127.0.0.1 port={} user=postgres dbname=postgres compression=zstd",
        stage.cluster.port()
    );
    let said = run(&[], &direct);
    assert!(said.contains("1 session not compressed: the server does not know the request"), "{said}");
}

#[test]
fn a_run_whose_command_goes_past_it_says_so_and_fails_if_compression_is_required() {
    let stage = Stage::new(Auth::Trust);
    let (psql, port) = (stage.psql(), stage.port());
    let past = format!("{psql} -h 127.0.0.1 -p {port} -U postgres -XAtc 'select 1'");
    let run = |flags: &[&str], script: &str| {
        let words = [flags, &["--compression=zstd", "--", "bash", "-c", script]].concat();
        said(
            &stage
                .place
                .run(&words)
                .env("PGHOST", "127.0.0.1")
                .env("PGPORT", port.to_string())
                .output()
                .expect("runs"),
        )
    };
    let (code, stdout, stderr) = run(&[], &past);
    assert_eq!((code, &stdout[..]), (Some(0), "1"), "{stderr}");
    assert!(
        stderr.starts_with("pgshrink: no session went through pgshrink: ")
            && stderr.contains("names its host"),
        "{stderr}"
    );
    // With another port than the stand-in's the client finds nothing at the private socket.
    let (code, _, stderr) = run(&[], &format!("{psql} -p 1 -U postgres -XAtc 'select 1'"));
    let told =
        stderr.contains("names its host or port itself (-h, -p") && stderr.contains("uses PGHOST and PGPORT");
    assert!(code == Some(2) && told, "{code:?} {stderr}");
    assert_eq!(run(&["--quiet"], &past), (Some(0), "1".to_owned(), String::new()));
    let (code, stdout, stderr) = run(&["--required"], &past);
    assert!(
        (code, &stdout[..]) == (Some(2), "1") && stderr.contains("no session went through"),
        "{code:?} {stderr}"
    );
    assert_eq!(run(&["--required", "--quiet"], "exit 7").0, Some(7), "the command's own failure counts");
    let through = format!("{psql} -U postgres -XAtc 'select 1'");
    let (code, _, stderr) = run(&["--required"], &through);
    assert!(code == Some(0) && is_summary(&stderr), "{code:?} {stderr}");
}

#[test]
fn a_program_that_asks_for_compression_itself_is_left_alone() {
    let place = Place::new();
    // A program that the kernel loads, with the startup key of the part 3 patch in it.
    let speaker = place.dir.path().join("speaker");
    let mut program = std::fs::read("/bin/echo").expect("a program");
    let plain = place.dir.path().join("plain");
    std::fs::write(&plain, &program).expect("a file");
    program.extend_from_slice(b"\0_pq_.libpq_compression\0");
    std::fs::write(&speaker, &program).expect("a file");
    for path in [&speaker, &plain] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a file");
    }
    let words = |path: &std::path::Path, flags: &[&str]| {
        let path = path.to_string_lossy();
        let words = [flags, &["--", &path, "host=db compression=zstd:level=3;gzip"]].concat();
        said(&place.run(&words).output().expect("runs")).1
    };
    assert_eq!(words(&speaker, &[]), "host=db compression=zstd:level=3;gzip");
    assert!(words(&plain, &[]).starts_with("host=/"), "another program's option is ours");
    assert!(
        words(&speaker, &["--compression=lz4"]).starts_with("host=/"),
        "unless the user asks for it here"
    );
}

#[test]
fn data_arrives_compressed_and_unchanged() {
    let stage = Stage::new(Auth::Trust);
    let conninfo = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", stage.port());
    let sql = "select repeat(md5(i::text), 10) from generate_series(1, 30000) i";
    let plain = stage.query(&[], &conninfo, sql).output().expect("runs");
    assert_eq!(stage.compressed(), 0);
    let before = stage.gateway.registry().totals();
    let mut command = stage.query(&[], &format!("{conninfo} compression=zstd:1"), sql);
    let output = command.output().expect("runs");
    let (code, _, stderr) = said(&output);
    assert_eq!(code, Some(0));
    assert!(
        is_summary(&stderr) && stderr.contains("1 session: 9.") && stderr.contains(" MB travelled as "),
        "{stderr}"
    );
    assert!(plain.stdout.len() > 9_000_000 && output.stdout == plain.stdout);
    wait_until(PATIENCE, "the session to be counted", || stage.gateway.registry().is_empty()).expect("ends");
    let after = stage.gateway.registry().totals();
    let wire = after.to_client.wire_bytes - before.to_client.wire_bytes;
    assert!((1..2_000_000).contains(&wire), "{wire} bytes on the wire for {}", output.stdout.len());
}

#[test]
fn uris_environment_services_and_options_lead_to_the_gateway() {
    let stage = Stage::new(Auth::Trust);
    let port = stage.port().to_string();
    let uri = format!("postgresql://postgres@127.0.0.1:{port}/postgres?compression=lz4");
    stage.check(&mut stage.query(&[], &uri, "select 1"), "1");
    let psql = stage.psql();
    let flags = [
        "--compression=lz4",
        "--",
        &psql,
        "-h",
        "127.0.0.1",
        "-p",
        &port,
        "-U",
        "postgres",
        "-XAtc",
        "select 2",
    ];
    stage.check(&mut stage.place.run(&flags), "2");
    let script = format!("{psql} -U postgres -XAtc 'select 3'");
    let mut environment = stage.place.run(&["--", "sh", "-c", &script]);
    environment.env("PGHOST", "127.0.0.1").env("PGPORT", &port).env("PGCOMPRESSION", "zstd");
    stage.check(&mut environment, "3");
    let service = format!("[s]\nhost=127.0.0.1\nport={port}\nuser=postgres\ncompression=zstd:3\n");
    stage.place.home(".pg_service.conf", &service);
    stage.check(&mut stage.query(&[], "service=s", "select 4"), "4");
    stage.check(
        stage.place.run(&["--", "sh", "-c", &format!("{psql} -XAtc 'select 5'")]).env("PGSERVICE", "s"),
        "5",
    );
    let listed = stage.query(&["-v"], &uri, "select 6").output().expect("runs");
    assert!(
        said(&listed).2.starts_with(&format!("pgshrink: connection string: 127.0.0.1 port {port} through "))
    );
}

#[test]
fn passwords_come_from_where_they_came_from_before() {
    let stage = Stage::new(Auth::Scram);
    let port = stage.port();
    let conninfo = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres compression=zstd:1");
    stage.place.home(".pgpass", &format!("127.0.0.1:{port}:*:postgres:{SUPERUSER_PASSWORD}\n"));
    stage.check(&mut stage.query(&[], &conninfo, "select 1"), "1");
    stage.place.home(".pgpass", "other:*:*:*:x\n");
    stage.check(stage.query(&[], &conninfo, "select 2").env("PGPASSWORD", SUPERUSER_PASSWORD), "2");
    let refused = stage.query(&[], &format!("{conninfo} password=wrong"), "select 3").output().expect("runs");
    let (code, _, stderr) = said(&refused);
    assert!(code == Some(2) && stderr.contains("password authentication failed"), "{code:?} {stderr}");
}

#[test]
fn of_several_hosts_the_client_chooses() {
    let stage = Stage::new(Auth::Trust);
    let dead = free_port().expect("a port");
    let conninfo = format!(
        "host=127.0.0.1,127.0.0.1 port={dead},{} user=postgres dbname=postgres target_session_attrs=read-write \
         compression=zstd:1",
        stage.port()
    );
    stage.check(&mut stage.query(&[], &conninfo, "select 1"), "1");
}

#[test]
fn certificates_are_checked_by_the_stand_in() {
    let authority = Authority::new().expect("an authority");
    let keys = TempDir::new().expect("a directory");
    let server = authority.server(&["localhost"]).expect("a certificate");
    let (cert, key) = server.write_to(keys.path(), "server").expect("written");
    let stage = Stage::with(Auth::Trust, |config| {
        let tls = ListenTlsConfig { cert, key, client_ca: None, require_client_cert: false, required: true };
        config.tls = Some(tls);
    });
    let conninfo = |host: &str| {
        let port = stage.port();
        format!(
            "host={host} port={port} user=postgres dbname=postgres sslmode=verify-full compression=zstd:1"
        )
    };
    stage.place.home(".postgresql/root.crt", &authority.certificate_pem());
    stage.check(&mut stage.query(&[], &conninfo("localhost"), "select 1"), "1");
    let wrong_name = stage.query(&[], &conninfo("127.0.0.1"), "select 2").output().expect("runs");
    let (code, _, stderr) = said(&wrong_name);
    assert!(code == Some(2) && stderr.contains("certificate"), "{code:?} {stderr}");
    stage.place.home(".postgresql/root.crt", &Authority::new().expect("another").certificate_pem());
    let wrong_root = stage.query(&[], &conninfo("localhost"), "select 3").output().expect("runs");
    let (code, _, stderr) = said(&wrong_root);
    assert!(code == Some(2) && stderr.contains("certificate"), "{code:?} {stderr}");
}

/// A command in a terminal of its own, typed to and read from.
struct Terminal {
    child: Child,
    seen: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
}

/// A test that fails does not leave a shell behind, which would hold the test run's output open.
impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn start(place: &Place, command: &str) -> Self {
        let mut script = Command::new("script");
        script.args(["-qefc", command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        place.surround(&mut script);
        script.env("TERM", "dumb").env("PS1", "$ ").env("SHELL", "/bin/sh");
        let mut child = script.spawn().expect("script(1) of util-linux");
        let mut out = child.stdout.take().expect("piped");
        let seen = std::sync::Arc::<std::sync::Mutex<Vec<u8>>>::default();
        let to = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                to.lock().expect("sound").extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, seen }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("sound")).into_owned()
    }

    /// Waits until the text has been written, and forgets everything up to it.
    fn expect(&self, text: &str) {
        let found = wait_for(PATIENCE, text, || {
            let mut seen = self.seen.lock().expect("sound");
            let at = seen.windows(text.len()).position(|window| window == text.as_bytes())?;
            seen.drain(..at + text.len());
            Some(())
        });
        assert!(found.is_ok(), "no {text:?} on the screen:\n{}", self.screen());
    }

    fn write(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("piped");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("a terminal");
    }
}

fn pgshrink_run(rest: &str) -> String {
    format!("{} run {rest}", env!("CARGO_BIN_EXE_pgshrink"))
}

/// For a shell to be replaced by: one that waits would itself end with Ctrl-C.
fn exec(command: &str) -> String {
    format!("exec {command}")
}

#[test]
fn a_password_can_be_typed_and_a_query_interrupted() {
    let stage = Stage::new(Auth::Scram);
    let conninfo =
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres compression=zstd:1", stage.port());
    let command = pgshrink_run(&format!("-- {} -X -P pager=off '{conninfo}'", stage.psql()));
    let mut terminal = Terminal::start(&stage.place, &exec(&command));
    terminal.expect("Password for user postgres:");
    terminal.write(&format!("{SUPERUSER_PASSWORD}\n"));
    terminal.expect("postgres=#");
    assert!(!terminal.screen().contains(SUPERUSER_PASSWORD));
    terminal.write("select pg_sleep(60);\n");
    let running = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'";
    wait_until(PATIENCE, "the query", || stage.cluster.sql(running).is_ok_and(|count| count.trim() == "1"))
        .expect("starts");
    terminal.write("\x03");
    terminal.expect("canceling statement due to user request");
    terminal.expect("postgres=#");
    terminal.write("select 40 + 2;\n");
    terminal.expect("42");
    terminal.write("\\q\n");
    assert_eq!(terminal.child.wait().expect("ends").code(), Some(0));
    assert_eq!(stage.place.left(), [""; 0]);
    assert_eq!(stage.compressed(), 1);
}

#[test]
fn a_shell_can_stop_and_continue_it() {
    let place = Place::new();
    let mut terminal = Terminal::start(&place, "bash --norc --noprofile -i");
    terminal.expect("$ ");
    let child = "sh -c \"echo rea''dy; trap 'exit 5' INT; while :; do sleep 0.05; done\"";
    terminal.write(&format!("{}\n", pgshrink_run(&format!("--compression=lz4 -- {child}"))));
    terminal.expect("ready");
    terminal.write("\x1a");
    terminal.expect("Stopped");
    terminal.write("jobs\n");
    terminal.expect("Stopped");
    terminal.write("bg\n");
    terminal.write("jobs\n");
    terminal.expect("Running");
    terminal.expect("sleep 0.05; done");
    terminal.write("fg\n");
    terminal.expect("sleep 0.05; done");
    // The shell names the job before it hands it the terminal.
    std::thread::sleep(Duration::from_millis(300));
    terminal.write("\x03");
    terminal.expect("$ ");
    terminal.write("echo code=$?\n");
    terminal.expect("code=5");
    terminal.write("exit\n");
    terminal.child.wait().expect("ends");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn it_stops_with_a_command_that_is_stopped_alone() {
    let place = Place::new();
    let mut script = Script::start(&place, "echo ready; kill -STOP $$; echo continued");
    let pid = script.child.id();
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    wait_until(PATIENCE, "pgshrink to stop", || state() == Some('T')).expect("stops");
    script.signal(Signal::CONT);
    assert_eq!(script.line(), "continued");
    assert_eq!(script.child.wait().expect("ends").code(), Some(0));
}

#[test]
fn starting_costs_little() {
    let place = Place::new();
    let start = Instant::now();
    let rounds = 5;
    for _ in 0..rounds {
        assert!(place.run(&[BUSY, &["true"]].concat()).status().expect("runs").success());
    }
    // The bound is for a debug build on a busy machine; it catches a forgotten timer, not a slow start.
    let each = start.elapsed() / rounds;
    assert!(each < Duration::from_secs(3), "{each:?} each");
}
