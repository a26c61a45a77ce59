//! One name for each setting: flags, variables, file keys and the ranges in their help.

use clap::{Arg, Command};
use pgshrink_cli::args::{self, Cli};
use pgshrink_cli::{environment, settings};
use pgshrink_gateway::config::{ListenTlsConfig, ServerConfig, TargetConfig, UnixSocketConfig};
use pgshrink_gateway::{ConnectorConfig, GatewayConfig};
use pgshrink_testkit::{TempDir, checkout};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use toml::Value;

/// Tables whose keys are flags without the table's name.
const TABLES_WITHOUT_PREFIX: [&str; 4] = ["limits", "policy", "target", "timeouts"];
/// Flags that are about the file, or about one run.
const FLAGS_ONLY: [&str; 3] = ["check", "config", "help"];
/// Keys of a gateway that only a file has: rarely changed, or a part of one flag (`--server`).
const GATEWAY_FILE_ONLY: [&str; 11] = [
    "admin-trust-own-user",
    "cancel-timeout-s",
    "max-auth-message-size",
    "observe-clients",
    "observe-days",
    "observe-write-s",
    "tcp-backlog",
    "tcp-keepalive-count",
    "tcp-keepalive-idle-s",
    "tcp-keepalive-interval-s",
    "tcp-user-timeout-s",
];
/// The same of a connector. `host`, `port`, `hostaddr` and `sslhost` are parts of `--target`.
const CONNECTOR_FILE_ONLY: [&str; 12] = [
    "admin-trust-own-user",
    "cancel-timeout-s",
    "host",
    "hostaddr",
    "max-auth-message-size",
    "port",
    "sslhost",
    "tcp-backlog",
    "tcp-keepalive-count",
    "tcp-keepalive-idle-s",
    "tcp-keepalive-interval-s",
    "tcp-user-timeout-s",
];

fn subcommand(name: &str) -> Command {
    let mut command = args::command();
    command.build();
    command.find_subcommand(name).expect("a subcommand").clone()
}

fn flags(name: &str) -> BTreeSet<String> {
    let command = subcommand(name);
    let flags = command.get_arguments().filter_map(Arg::get_long).map(str::to_owned);
    flags.filter(|flag| !FLAGS_ONLY.contains(&flag.as_str())).collect()
}

/// Names of flags that keys of a file should have, and `[log]`, which is this program's.
fn flags_of_keys(config: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::from(["log-level".to_owned(), "log-format".to_owned()]);
    for (key, value) in config.as_table().expect("a table") {
        match value {
            Value::Table(table) if TABLES_WITHOUT_PREFIX.contains(&key.as_str()) => {
                names.extend(table.keys().map(|name| name.replace('_', "-")));
            }
            Value::Table(table) => {
                names.extend(table.keys().map(|name| format!("{key}_{name}").replace('_', "-")));
            }
            _ => _ = names.insert(key.replace('_', "-")),
        }
    }
    names
}

fn tls() -> Option<ListenTlsConfig> {
    let path = || Path::new("x").to_owned();
    Some(ListenTlsConfig {
        cert: path(),
        key: path(),
        client_ca: Some(path()),
        require_client_cert: false,
        required: false,
    })
}

/// With a value for everything, so that every key is written.
fn full_target() -> TargetConfig {
    let mut target = TargetConfig::new("h", 1);
    target.hostaddr = Some([127, 0, 0, 1].into());
    let tls = &mut target.tls;
    tls.sslhost = Some("x".to_owned());
    (tls.sslrootcert, tls.sslcert, tls.sslkey) = (Some("x".into()), Some("x".into()), Some("x".into()));
    target
}

#[test]
fn flags_of_the_gateway_are_the_keys_of_its_file() {
    let mut config = GatewayConfig {
        unix_socket: Some(UnixSocketConfig::new("/", 1)),
        servers: vec![ServerConfig::new(full_target())],
        tls: tls(),
        metrics_listen: Some("x".into()),
        threads: Some(1),
        ..GatewayConfig::default()
    };
    config.admin.password_file = Some("x".into());
    let mut expected = flags_of_keys(&Value::try_from(&config).expect("a table"));
    for name in GATEWAY_FILE_ONLY {
        assert!(expected.remove(name), "{name} is no key");
    }
    assert_eq!(flags("gateway"), expected);
}

#[test]
fn flags_of_the_connector_are_the_keys_of_its_file() {
    let mut config = ConnectorConfig {
        unix_socket: Some(UnixSocketConfig::new("/", 1)),
        tls: tls(),
        metrics_listen: Some("x".into()),
        threads: Some(1),
        ..ConnectorConfig::default()
    };
    config.admin.password_file = Some("x".into());
    let mut value = Value::try_from(&config).expect("a table");
    let table = value.as_table_mut().expect("a table");
    let mut expected = flags_of_keys(&Value::Table(table.clone()));
    // Flags hold for all targets; the file has them in each.
    let target = Value::try_from(full_target()).expect("a table");
    let target = toml::Table::from_iter([("target".to_owned(), target)]);
    expected.extend(flags_of_keys(&Value::Table(target)));
    for name in CONNECTOR_FILE_ONLY {
        assert!(expected.remove(name), "{name} is no key");
    }
    assert_eq!(flags("connect"), expected);
}

/// A server in a flag and in a file has the same keys.
#[test]
fn keywords_of_a_server_are_the_keys_of_its_table() {
    let mut server = ServerConfig::new(full_target());
    (server.name, server.libpq_compression, server.send_proxy) =
        (Some("n".into()), Some("off".into()), Some(1));
    let value = Value::try_from(&server).expect("a table");
    let mut keys: Vec<&str> = value.as_table().expect("a table").keys().map(String::as_str).collect();
    // In a flag, the name stands in front; policies of one route are only in a file.
    keys.retain(|key| !["name", "policy"].contains(key));
    keys.sort_unstable();
    let error = gateway_error(&["--listen=127.0.0.1:0", "--server=host=a,x=1"]);
    let listed = error.split("allowed are ").nth(1).expect("a list");
    let mut listed: Vec<&str> = listed.split(", ").collect();
    listed.sort_unstable();
    assert_eq!(listed, keys);
}

fn gateway_error(words: &[&str]) -> String {
    let words = ["pgshrink", "gateway"].iter().chain(words);
    let args::Command::Gateway(args) = Cli::read(words).expect("accepted").command else {
        panic!("not the gateway")
    };
    settings::gateway(&args).expect_err("refused").to_string()
}

#[test]
fn numbers_with_a_unit_have_it_in_their_name() {
    let units = [("SECONDS", "-s"), ("MIB", "-mib"), ("PERCENT", "-percent")];
    let mut command = args::command();
    command.build();
    let all = command.get_subcommands().flat_map(|sub| sub.get_arguments().map(move |arg| (sub, arg)));
    let mut seen = 0;
    for (sub, arg) in all {
        let Some(long) = arg.get_long() else { continue };
        let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        if let Some((_, suffix)) = units.iter().find(|(unit, _)| *unit == value) {
            assert!(long.ends_with(suffix), "{} --{long} is in {value}", sub.get_name());
            seen += 1;
        }
    }
    assert!(seen >= 12, "only {seen} were found");
}

#[test]
fn every_variable_is_named_after_its_flag() {
    let prefixes = [
        ("gateway", "PGSHRINK_"),
        ("connect", "PGSHRINK_"),
        ("run", "PGSHRINK_"),
        ("backup", "PGSHRINK_BACKUP_"),
        ("restore", "PGSHRINK_BACKUP_"),
        ("verify", "PGSHRINK_BACKUP_"),
        ("list", "PGSHRINK_BACKUP_"),
        ("expire", "PGSHRINK_BACKUP_"),
        ("advise", "PGSHRINK_ADVISE_"),
    ];
    for (name, prefix) in prefixes {
        for arg in subcommand(name).get_arguments() {
            let Some(variable) = arg.get_env() else { continue };
            let name = arg.get_long().map_or(arg.get_id().as_str(), |long| long);
            let expected = format!("{prefix}{}", name.to_uppercase().replace('-', "_"));
            assert_eq!(variable, OsString::from(expected).as_os_str());
        }
    }
}

#[test]
fn advise_is_quiet_as_the_other_commands_are() {
    Cli::read(["pgshrink", "advise", "-q"]).expect("accepted");
}

#[test]
fn a_key_that_is_not_known_comes_with_those_that_are() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("p.toml");
    let flag = format!("--config={}", path.display());
    let tables = [
        ("[policy]\ngroup_size_min = 1\n", "policy.group_size_min", " min_group_size,"),
        ("[limits]\ncodec_memory_mib = 1\n", "limits.codec_memory_mib", " max_codec_memory_mib"),
        ("[timeouts]\nlogin_s = 1\n", "timeouts.login_s", " login_timeout_s,"),
        ("workers = 1\n", "workers", " threads,"),
        ("workers = 1\n", "workers", ", log"),
        ("[admin]\nadmin_users = []\n", "admin.admin_users", " users,"),
        ("[[server]]\nhost = \"h\"\ndatabases = []\n", "server.databases", " database,"),
    ];
    for (text, key, accepted) in tables {
        fs::write(&path, text).expect("a file");
        let error = gateway_error(&[&flag]);
        let (found, list) = error.split_once(": unknown; known are").unwrap_or_else(|| panic!("{error}"));
        assert!(found.ends_with(&format!(" {key}")), "{error}");
        assert!(list.contains(accepted), "{error}");
    }
    fs::write(&path, "[backup]\nserver_timeout = 1\n").expect("a file");
    let error = Cli::read(["pgshrink", "list", &flag]).expect_err("refused").to_string();
    assert!(error.contains("backup.server_timeout: unknown; known are "), "{error}");
    assert!(error.contains("server_timeout_s"), "{error}");
}

/// `N to M` in the help of a flag, if it has a range.
fn range(arg: &Arg) -> Option<(f64, f64)> {
    let help = arg.get_help()?.to_string();
    let words: Vec<&str> = help.split_whitespace().map(|word| word.trim_end_matches([',', ';'])).collect();
    let at = words.windows(3).find(|three| three[1] == "to" && three[0].parse::<f64>().is_ok())?;
    Some((at[0].parse().ok()?, at[2].parse().ok()?))
}

#[test]
fn ranges_in_the_help_are_those_of_the_code() {
    let gateway = subcommand("gateway");
    let mut seen = 0;
    for arg in gateway.get_arguments().filter(|arg| arg.get_id() != "libpq_compression") {
        let (Some(long), Some((first, last))) = (arg.get_long(), range(arg)) else { continue };
        let step = if first.fract() == 0.0 { 1.0 } else { 0.005 };
        let check = |value: f64| {
            let words = [
                "pgshrink".to_owned(),
                "gateway".to_owned(),
                "--listen=127.0.0.1:0".to_owned(),
                "--unix-socket-directory=".to_owned(),
                "--server=host=db".to_owned(),
                format!("--{long}={value}"),
            ];
            let Ok(cli) = Cli::read(words) else { return false };
            let args::Command::Gateway(args) = cli.command else { panic!("not the gateway") };
            settings::gateway(&args).is_ok()
        };
        assert!(check(first) && check(last), "--{long}: {first} to {last} are not accepted");
        assert!(!check(first - step) && !check(last + step), "--{long}: more than {first} to {last}");
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} ranges were found");
}

/// Every variable that a source file of this checkout names is known.
#[test]
fn no_variable_of_this_checkout_is_warned_about() {
    let mut names = BTreeSet::new();
    for dir in ["crates", "extensions", "bench", "tests", "tools", "fuzz", "packaging", "docs"] {
        variables_below(&checkout().join(dir), &mut names);
    }
    // What tests write on purpose.
    let misspelled =
        ["LISTN", "LOGIN_TIMEOUT", "WINDOWLOG", "BACKUP_KEYFILE", "FOO", "STATS_USERS", "MEMORY_LIMIT"]
            .map(|name| format!("PGSHRINK_{name}"));
    names.retain(|name| !misspelled.contains(name) && !name.ends_with('_') && name != "PGSHRINK_PGX_BIN");
    assert!(names.len() > 100, "only {} were found", names.len());
    assert!(names.contains("PGSHRINK_PG18_BIN"), "names with digits are whole");
    // Written as a format: the number of a release follows.
    names.remove("PGSHRINK_PG");
    assert_eq!(environment::warnings("backup", names.into_iter().map(OsString::from)), [""; 0]);
}

fn variables_below(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() && !["target", "node_modules"].contains(&entry.file_name().to_str().unwrap_or("")) {
            variables_below(&path, names);
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            for (at, _) in text.match_indices("PGSHRINK_") {
                let rest = text[at..].find(|c: char| !matches!(c, '_' | 'A'..='Z' | '0'..='9'));
                names.insert(text[at..rest.map_or(text.len(), |end| at + end)].to_owned());
            }
        }
    }
}

#[test]
fn a_command_warns_of_a_variable_that_nothing_reads() {
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let output = command.args(words).env("PGSHRINK_LISTN", "secret").output().expect("the binary runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let warning = "environment variable PGSHRINK_LISTN is unknown and ignored; \
                   the nearest known one is PGSHRINK_LISTEN";
    for words in [&["decode", "/nonexistent"][..], &["run", "true"]] {
        let said = run(words);
        assert_eq!(said.lines().next(), Some(&*format!("pgshrink: warning: {warning}")), "{said}");
    }
    // A service has it in its log.
    let said =
        run(&["gateway", "--listen=192.0.2.1:1", "--unix-socket-directory=", "--server=host=/nonexistent"]);
    let line = said.lines().find(|line| line.contains(warning));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{said}");
    assert!(!said.contains("secret"), "{said}");
    // One that only another command reads.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["connect", "--check", "--listen=127.0.0.1:1", "--target=db"]);
    let output = command.env("PGSHRINK_TRUSTED_PROXIES", "10.0.0.0/8").output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let warning =
        "environment variable PGSHRINK_TRUSTED_PROXIES is read by pgshrink gateway, not by pgshrink connect";
    assert_eq!(said, format!("pgshrink: warning: {warning}\n"));
    assert_eq!(run(&["completions", "bash"]), "");
}
