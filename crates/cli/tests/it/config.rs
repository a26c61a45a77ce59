//! Flags over environment over file over defaults, and what a mistake in one of them says.

use pgshrink_cli::args::{Cli, Command, ConnectArgs, GatewayArgs, LogLevel};
use pgshrink_cli::settings;
use pgshrink_gateway::config::{SslMode, WindowSetting};
use pgshrink_gateway::{ConnectorConfig, GatewayConfig};
use pgshrink_testkit::TempDir;
use std::path::PathBuf;
use std::process::Output;

pub(crate) fn gateway_args(words: &[&str]) -> GatewayArgs {
    match Cli::read(["pgshrink", "gateway"].iter().chain(words)).expect("accepted").command {
        Command::Gateway(args) => args,
        _ => panic!("not the gateway"),
    }
}

pub(crate) fn connect_args(words: &[&str]) -> ConnectArgs {
    match Cli::read(["pgshrink", "connect"].iter().chain(words)).expect("accepted").command {
        Command::Connect(args) => args,
        _ => panic!("not the connector"),
    }
}

pub(crate) struct File {
    _dir: TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn file(text: &str) -> File {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("p.toml");
    std::fs::write(&path, text).expect("a file");
    File { _dir: dir, path }
}

impl File {
    pub(crate) fn flag(&self) -> String {
        format!("--config={}", self.path.display())
    }
}

pub(crate) const MINIMAL: &str = "listen = [\"127.0.0.1:0\"]\n[[server]]\nhost = \"db\"\n";

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let text =
        format!("libpq_compression = \"lz4\"\n{MINIMAL}[policy]\nwindow_log = 20\n[log]\nlevel = \"warn\"\n");
    let file = file(&text);
    let found =
        settings::gateway(&gateway_args(&[&file.flag(), "--window-log", "17", "--unix-socket-directory="]))
            .unwrap();
    let policy = &found.config.policy;
    assert_eq!((policy.window_log.clone(), &policy.context[..]), (WindowSetting::Log(17), "preserved"));
    assert_eq!((&found.config.libpq_compression[..], found.log_level), ("lz4", LogLevel::Warn));
    assert_eq!(found.config.servers[0].target.host, "db");
    let replaced =
        settings::gateway(&gateway_args(&[&file.flag(), "--server", "host=other,port=7"])).unwrap();
    let hosts: Vec<_> = replaced.config.servers.iter().map(|s| (&s.target.host[..], s.target.port)).collect();
    assert_eq!(hosts, [("other", 7)]);
}

#[test]
fn a_switch_of_the_file_can_be_turned_off_by_a_flag() {
    let file = file(&format!("allow_unchallenged = true\n{MINIMAL}"));
    let read = |words: &[&str]| settings::gateway(&gateway_args(words)).unwrap().config.allow_unchallenged;
    assert!(read(&[&file.flag()]));
    assert!(!read(&[&file.flag(), "--allow-unchallenged=false"]));
    assert!(read(&["--listen=127.0.0.1:0", "--server=host=db", "--allow-unchallenged"]));
}

#[test]
fn what_the_kernel_would_refuse_of_each_session_is_refused_at_once() {
    for (line, message) in [
        ("keepalive_count = 200", "p.toml:5: tcp.keepalive_count: 200: allowed are 1 to 127"),
        ("keepalive_interval_s = 0", "p.toml:5: tcp.keepalive_interval_s: 0: allowed are 1 to 32767"),
        ("keepalive_idle_s = 99999", "p.toml:5: tcp.keepalive_idle_s: 99999: allowed are 0 to 32767"),
    ] {
        let file = file(&format!("{MINIMAL}[tcp]\n{line}\n"));
        let args = gateway_args(&[&file.flag(), "--unix-socket-directory="]);
        let error = settings::gateway(&args).unwrap_err().to_string();
        assert!(error.contains(message), "{line}\ngave {error}");
    }
}

#[test]
fn mistakes_in_a_file_are_told_with_line_and_what_is_allowed() {
    let table = [
        ("listen = [\n", "p.toml:1: "),
        ("listen = [\"127.0.0.1:0\"]\nwrong = 1\n", "p.toml:2: wrong: unknown; known are listen, "),
        (
            &format!("{MINIMAL}\n[policy]\nwindow = 1\n")[..],
            "p.toml:6: policy.window: unknown; known are message_types, ",
        ),
        (
            "listen = [\"127.0.0.1:0\"]\n\n[limits]\nmax_clients = \"x\"\n",
            "p.toml:4: limits.max_clients: expected a number, 0 or more; found \"x\"",
        ),
        ("[log]\nlevel = \"loud\"\n", "p.toml:2: log.level: 'loud' is unknown; allowed are error, warn"),
        (
            &format!("{MINIMAL}sslmode = \"maybe\"\n")[..],
            "p.toml:4: server.sslmode: 'maybe' is unknown; allowed are disable",
        ),
        (&format!("{MINIMAL}hots = \"x\"\n")[..], "p.toml:4: server.hots: unknown; known are name, "),
        (
            &format!("{MINIMAL}[policy]\ncontext = \"none\"\n")[..],
            "p.toml:5: policy.context: 'none': allowed are preserved, per-transaction and per-frame",
        ),
        ("listen = \"127.0.0.1:0\"\n", "p.toml:1: listen: expected a list, as in [\"127.0.0.1:0\"]; found "),
        ("listen = [\n  \"127.0.0.1:0\",\n  1,\n]\n", "p.toml:3: listen: expected a string; found 1"),
        (
            &format!("{MINIMAL}port = \"x\"\n")[..],
            "p.toml:4: server.port: expected a number from 0 to 65535; found \"x\"",
        ),
        (&format!("{MINIMAL}[[server]]\nport = 1\n")[..], "p.toml:4: server: host is missing"),
        (
            &format!("{MINIMAL}[policy]\nwindow_log = true\n")[..],
            "p.toml:5: policy.window_log: allowed are auto and 10",
        ),
        (
            &format!("{MINIMAL}policy = {{ pack_rows = 1 }}\n")[..],
            "p.toml:4: server.policy.pack_rows: expected true or false; found 1",
        ),
        (
            &format!("{MINIMAL}[[server]]\nhost = \"b\"\nport = 0\n")[..],
            "p.toml:6: server[2].port: 0: allowed are 1 to 65535",
        ),
        (&format!("libpq_compression = \"zstd:99\"\n{MINIMAL}")[..], "p.toml:1: libpq_compression: "),
        ("[server]\nhost = \"a\"\n", "p.toml:1: server: [server] must be written [[server]]"),
        (
            &format!("{MINIMAL}database = \"app\"\n")[..],
            "p.toml:4: server.database: expected a list, as in [\"app\"]",
        ),
        ("\nlisten = [127.0.0.1:6432]\n", "p.toml:2: strings must be quoted: listen = [\"127.0.0.1:6432\"]"),
        ("[[server]]\nhost=127.0.0.1\n", "p.toml:2: strings must be quoted: host = \"127.0.0.1\""),
        (
            "max_clients = 5\n",
            "p.toml:1: max_clients: not a setting of the top level; put it below a line [limits]",
        ),
    ];
    for (text, message) in table {
        let file = file(text);
        let error = settings::gateway(&gateway_args(&[&file.flag(), "--unix-socket-directory="]))
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{text}\ngave {error}");
        assert!(error.contains("p.toml"), "{error}");
    }
    let error = settings::gateway(&gateway_args(&["--config=/nonexistent/x"])).unwrap_err().to_string();
    assert!(error.starts_with("cannot read configuration file /nonexistent/x: "), "{error}");
}

#[test]
fn a_wrong_value_of_a_variable_names_the_variable() {
    let says = |words: &[&str], name: &str, value: &str| {
        let output = pgshrink(words, &[(name, value)]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (words, name, value, reason) in [
        (&["gateway"][..], "PGSHRINK_MAX_CLIENTS", "many", "expected a number"),
        (&["backup", "host=x", "--to=x"], "PGSHRINK_BACKUP_RESUME", "yes", "allowed are true, false"),
        (&["backup", "host=x", "--to=x"], "PGSHRINK_BACKUP_MAX_RATE", "1MB", "expected a number"),
    ] {
        let said = says(words, name, value);
        assert!(said.contains(&format!("{name}: invalid value '{value}': {reason}")), "{said}");
        assert!(!said.contains("--"), "{said}");
    }
    // Stronger than the variable.
    let said = says(&["gateway", "--max-clients=few"], "PGSHRINK_MAX_CLIENTS", "many");
    assert!(said.contains("'few' for '--max-clients <COUNT>'") && !said.contains("PGSHRINK"), "{said}");
}

#[test]
fn the_example_files_are_accepted_and_show_the_defaults() {
    let packaging = pgshrink_testkit::checkout().join("packaging");
    let example = |name: &str| format!("--config={}", packaging.join(name).display());
    let found = settings::gateway(&gateway_args(&[&example("gateway.toml")])).unwrap();
    assert_eq!(found.warnings, [""; 0]);
    let mut found = found.config;
    // The directory that the systemd unit makes.
    let socket = found.unix_socket.take().expect("a console for the gateway's own user");
    let unit = std::fs::read_to_string(packaging.join("systemd/pgshrink-gateway.service")).expect("a unit");
    let made = unit.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).expect("a directory");
    assert_eq!(socket.directory, std::path::Path::new("/run").join(made));
    let shown = found.clone();
    // Who may use the console is an example, not the default.
    let (listen, servers, admin) = (shown.listen, shown.servers, shown.admin);
    assert_eq!(found, GatewayConfig { listen, servers, admin, ..GatewayConfig::default() });
    let found = settings::connector(&connect_args(&[&example("connect.toml")])).unwrap().config;
    let defaults = ConnectorConfig {
        listen: found.listen.clone(),
        targets: found.targets.clone(),
        ..Default::default()
    };
    assert_eq!(found, defaults);
}

/// The sample with everything in it that is commented out, and with files that exist.
fn whole_sample(name: &str, dir: &TempDir) -> String {
    let text =
        std::fs::read_to_string(pgshrink_testkit::checkout().join("packaging").join(name)).expect("a sample");
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting.to_owned(),
        _ => line.to_owned(),
    };
    let text: Vec<_> = text.lines().map(uncommented).collect();
    text.join("\n").replace("/etc/pgshrink", dir.path().to_str().expect("text"))
}

#[test]
fn the_example_files_are_valid_with_every_setting_and_leave_none_out() {
    let dir = TempDir::new().expect("a directory");
    let authority = pgshrink_testkit::Authority::new().expect("an authority");
    for name in ["server", "client", "root", "clients"] {
        authority
            .server(&["localhost"])
            .and_then(|identity| identity.write_to(dir.path(), name))
            .expect("files");
    }
    std::fs::write(dir.path().join("userlist.txt"), "\"ann\" \"x\"\n").expect("a file");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir.path().join("userlist.txt"), std::fs::Permissions::from_mode(0o600))
        .expect("a mode");
    let mut known = 0;
    for name in ["gateway", "connect"] {
        let whole = whole_sample(&format!("{name}.toml"), &dir);
        let check = |text: &str| {
            let file = file(text);
            let output = pgshrink(&[name, "--check", &file.flag()], &[]);
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        assert_eq!(check(&whole), (Some(0), String::new()), "{name}");
        let (top, rest) = whole.split_once("\n[").expect("tables");
        let mut parts = vec![("", top)];
        parts.extend(rest.split("\n[").map(|part| {
            let (header, body) = part.split_once('\n').expect("settings");
            (header.trim_matches(['[', ']']), body)
        }));
        // The message about an unknown key lists those that a table can have.
        for (table, body) in &parts {
            let unknown = match *table {
                "" => "zzz = 1\n".to_owned(),
                "server" | "target" => format!("[[{table}]]\nhost = \"x\"\nzzz = 1\n"),
                _ => format!("[{table}]\nzzz = 1\n"),
            };
            let (_, said) = check(&unknown);
            let names = said.split("known are ").nth(1).unwrap_or_else(|| panic!("{name} {table}: {said}"));
            let is_table = |key: &str| parts.iter().any(|(table, _)| *table == key);
            for key in names.trim().split(", ").filter(|key| !table.is_empty() || !is_table(key)) {
                let has = body.lines().any(|line| line.starts_with(&format!("{key} = ")));
                assert!(has, "{name}.toml: [{table}] lacks {key}");
                known += 1;
            }
        }
    }
    assert!(known > 80, "{known}");
}

#[test]
fn servers_are_described_with_libpqs_keywords() {
    let server = r"sales:host=10.0.0.5,port=6,database=sales,database=crm_*,user=ann,sslmode=verify-full,sslrootcert=a\,b,send_proxy=2";
    let args = [
        "--listen=127.0.0.1:0",
        "--unix-socket-directory=",
        "--server",
        server,
        "--server=host=[::1],hostaddr=::1",
    ];
    let found = settings::gateway(&gateway_args(&args)).unwrap().config.servers;
    let first = &found[0];
    assert_eq!(
        (first.name.as_deref(), &first.target.host[..], first.target.port),
        (Some("sales"), "10.0.0.5", 6)
    );
    assert_eq!(
        (&first.database[..], &first.user[..]),
        (&["sales".into(), "crm_*".into()][..], &["ann".into()][..])
    );
    let tls = &first.target.tls;
    assert_eq!((tls.sslmode, tls.sslrootcert.clone()), (SslMode::VerifyFull, Some("a,b".into())));
    assert_eq!((first.send_proxy, found[1].name.clone(), found[1].target.port), (Some(2), None, 5432));
}

#[test]
fn mistakes_in_a_server_name_the_setting_and_what_is_allowed() {
    let table = [
        ("port=1", "--server: no host: name one as host="),
        ("host=a,prot=1", "--server: \"prot=1\": unknown keyword; allowed are host, hostaddr, port"),
        ("host=a,b", "--server: \"b\": expected KEYWORD=VALUE"),
        ("host=a,port=x", "--server: \"port=x\": not a port"),
        ("host=a,sslmode=on", "--server: \"sslmode=on\": 'on' is unknown; allowed are disable, allow"),
        (
            "x:host=a port=5432, user=b",
            "--server: \"host=a port=5432\": settings are separated by commas: x:host=a,port=5432,user=b",
        ),
        ("host=a,hostaddr=b", "--server: \"hostaddr=b\": not an IP address"),
    ];
    for (server, message) in table {
        let args = gateway_args(&["--listen=127.0.0.1:0", "--server", server]);
        let error = settings::gateway(&args).unwrap_err().to_string();
        assert!(error.starts_with(message), "{server} gave {error}");
    }
}

#[test]
fn flags_that_need_each_other_say_so() {
    let base = ["--listen=127.0.0.1:0", "--server=host=db"];
    let table = [
        (&["--tls-cert=c"][..], "--tls-cert needs --tls-key as well"),
        (&["--tls-key=k"], "--tls-key needs --tls-cert as well"),
        (&["--tls-required"], "--tls-required needs --tls-cert and --tls-key as well"),
        (
            &["--tls-cert=c", "--tls-key=k", "--tls-require-client-cert"],
            "--tls-require-client-cert needs --tls-client-ca as well",
        ),
        (&["--unix-socket-mode=888"], "--unix-socket-mode needs --unix-socket-directory as well"),
        (&["--unix-socket-port=5433"], "--unix-socket-port needs --unix-socket-directory as well"),
        (&["--unix-socket-directory=/d"], "--unix-socket-directory needs --unix-socket-port as well"),
    ];
    for (flags, message) in table {
        let error = settings::gateway(&gateway_args(&[&base[..], flags].concat())).unwrap_err().to_string();
        assert_eq!(error, message);
    }
}

#[test]
fn targets_may_be_hosts_or_connection_strings() {
    let read = |to: &[&str], flags: &[&str]| {
        let mut words = vec!["--listen=127.0.0.1:0"];
        to.iter().for_each(|to| words.extend(["--target", to]));
        words.extend(flags);
        settings::connector(&connect_args(&words))
            .map(|found| found.config.targets)
            .map_err(|e| e.to_string())
    };
    let shown = |to: &str| {
        let targets = read(&[to], &[]).unwrap();
        targets
            .iter()
            .map(|t| format!("{}:{}:{:?}", t.host, t.port, t.tls.sslmode))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(shown("db"), "db:5432:Prefer");
    assert_eq!(shown("db:6432"), "db:6432:Prefer");
    assert_eq!(shown("[::1]:6432"), "::1:6432:Prefer");
    assert_eq!(shown("::1"), "::1:5432:Prefer");
    assert_eq!(shown("/run/pg:7"), "/run/pg:7:Disable");
    assert_eq!(shown("postgresql://a:1,b:2/?sslmode=require"), "a:1:Require b:2:Require");
    assert_eq!(shown("host=db port=6 sslmode=disable"), "db:6:Disable");
    let targets = read(&["db", "host=other sslmode=disable"], &["--sslmode=require"]).unwrap();
    assert_eq!(
        targets.iter().map(|t| t.tls.sslmode).collect::<Vec<_>>(),
        [SslMode::Require, SslMode::Disable]
    );
    let table = [
        (&["db:x"][..], &[][..], "--target: invalid integer value \"x\" for connection option \"port\""),
        (
            &["host=db,port=6432"],
            &[],
            "--target: \"host=db,port=6432\": settings of a target are separated by blanks: host=db port=6432",
        ),
        (&["a:1,b:2"], &[], "--target: \"a:1,b:2\": expected one HOST:PORT; repeat --target for several"),
        (&["db:6432:1"], &[], "--target: \"db:6432:1\": expected HOST:PORT"),
        (&["host=db zzz=1"], &[], "--target: invalid connection option \"zzz\""),
        (
            &["db"],
            &["--sslmode=verify-ca"],
            "--target: sslmode=verify-ca needs root certificates: name them with sslrootcert",
        ),
        (&["db"], &["--sslmode=on"], "--target: invalid sslmode value: \"on\" (allowed: disable"),
        (
            &["db"],
            &["--sslrootcert=/gone", "--sslmode=verify-ca"],
            "--target: root certificate file \"/gone\" does not exist",
        ),
        (&[], &[], "target: no target is configured"),
    ];
    for (to, flags, message) in table {
        let error = read(to, flags).unwrap_err();
        assert!(error.starts_with(message), "{to:?} {flags:?} gave {error}");
    }
}

pub(crate) fn pgshrink(words: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(words).envs(env.iter().copied()).output().expect("the binary runs")
}

#[test]
fn checking_a_configuration_ends_with_zero_or_one() {
    let file = file(MINIMAL);
    let base = ["gateway", "--check", &file.flag(), "--unix-socket-directory="];
    let check = |flags: &[&str], env: &[(&str, &str)]| {
        let output = pgshrink(&[&base[..], flags].concat(), env);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).trim().to_owned())
    };
    assert_eq!(check(&[], &[]), (Some(0), String::new()));
    let (code, said) = check(&[], &[("PGSHRINK_WINDOW_LOG", "40")]);
    assert!(code == Some(1) && said.starts_with("pgshrink: policy.window_log: "), "{code:?} {said}");
    assert_eq!(check(&["--window-log=18"], &[("PGSHRINK_WINDOW_LOG", "40")]).0, Some(0));
    assert_eq!(check(&["--window-log=x"], &[]).0, Some(2));
    assert_eq!(check(&["--window-log=auto"], &[]).0, Some(0));
}

#[test]
fn a_check_loads_what_a_start_loads_and_reports_every_fault() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().expect("a directory");
    let (cert, key) = (dir.path().join("s.crt"), dir.path().join("s.key"));
    let identity = pgshrink_testkit::Authority::new().and_then(|authority| authority.server(&["localhost"]));
    identity.expect("a certificate").write_to(dir.path(), "s").expect("files");
    let users = dir.path().join("users.txt");
    std::fs::write(&users, "\"ann\" \"x\"\n").expect("a file");
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let text = format!(
        "{MINIMAL}libpq_compression = \"zstd:1\"\nsslmode = \"require\"\nsslrootcert = \"/gone/root.crt\"\n\
         [tls]\ncert = {cert:?}\nkey = {key:?}\n[admin]\npassword_file = {users:?}\n[limits]\nmax_clients = 0\n"
    );
    let check = |text: &str| {
        let file = file(text);
        let output = pgshrink(&["gateway", "--check", &file.flag(), "--unix-socket-directory="], &[]);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // What a route has from the gateway is reported once.
    let twice = format!(
        "libpq_compression = \"zstd:99\"\n{MINIMAL}[[server]]\nhost = \"b\"\n[policy]\ncontext = \"x\"\n"
    );
    let (code, said) = check(&twice);
    assert_eq!((code, said.lines().count()), (Some(1), 2), "{said}");
    mode(&key, 0o644);
    mode(&users, 0o644);
    let (code, said) = check(&text);
    assert_eq!((code, said.lines().count()), (Some(1), 4), "{said}");
    for part in [
        "limits.max_clients: 0",
        "s.key: mode 0644",
        "users.txt: mode 0644",
        "p.toml:6: server.sslrootcert: ",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    mode(&key, 0o600);
    mode(&users, 0o600);
    let good =
        text.replace("sslrootcert = \"/gone/root.crt\"\n", "").replace("max_clients = 0", "max_clients = 9");
    assert_eq!(check(&good), (Some(0), String::new()));
    // A key of another certificate.
    let other = pgshrink_testkit::Authority::new().and_then(|authority| authority.server(&["localhost"]));
    let (_, other_key) = other.expect("a certificate").write_to(dir.path(), "other").expect("files");
    std::fs::copy(&other_key, &key).expect("copies");
    let (code, said) = check(&good);
    assert!(code == Some(1) && said.contains("tls.cert and tls.key"), "{said}");
}

#[test]
fn what_cannot_run_ends_with_two() {
    for words in [
        &["gateway"][..],
        &["gateway", "--nonsense"],
        &["nonsense"],
        &[],
        &["connect", "--config=/nonexistent/x"],
        &["connect", "--config=/nonexistent/x", "--check"],
        &["gateway", "--config=/nonexistent/x", "--check"],
    ] {
        let output = pgshrink(words, &[]);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{words:?}");
    }
    assert_eq!(pgshrink(&["--version"], &[]).status.code(), Some(0));
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let output = pgshrink(&["completions", shell], &[]);
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("libpq-compression")
        );
    }
    let page = pgshrink(&["man"], &[]);
    assert!(String::from_utf8_lossy(&page.stdout).contains(".TH pgshrink 1"));
    let dir = TempDir::new().expect("a directory");
    let written = pgshrink(&["man", "--dir", dir.path().to_str().expect("text")], &[]);
    assert!(written.status.success());
    for name in ["pgshrink", "pgshrink-gateway", "pgshrink-connect", "pgshrink-run", "pgshrink-cfs-verify"] {
        let page = std::fs::read_to_string(dir.path().join(format!("man1/{name}.1"))).expect(name);
        assert!(page.starts_with(&format!(".TH {name} 1")) && page.contains("SYNOPSIS"), "{name}");
    }
    for name in ["gateway", "connect", "backup"] {
        let name = format!("pgshrink-{name}.toml");
        let page = std::fs::read_to_string(dir.path().join(format!("man5/{name}.5"))).expect(&name);
        assert!(page.starts_with(&format!(".TH {name} 5")) && page.contains(".SH \"SEE ALSO\""), "{name}");
    }
}
