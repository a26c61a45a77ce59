//! The same settings by flag and by file mean the same.

use crate::config::{connect_args, file, gateway_args};
use pgshrink_cli::settings;
use pgshrink_gateway::config::{SslMode, TargetTlsConfig};

/// The TLS of a connector's only target.
fn target_tls(words: &[&str]) -> TargetTlsConfig {
    let words = [&["--listen=127.0.0.1:0"][..], words].concat();
    let found =
        settings::connector(&connect_args(&words)).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    found.config.targets[0].tls.clone()
}

#[test]
fn a_target_has_the_same_tls_by_flag_and_by_file() {
    let system = Some("system".into());
    let table = [
        ("db", &[][..], SslMode::Prefer, None),
        ("/run/pg", &[], SslMode::Disable, None),
        ("db", &[("sslmode", "disable")], SslMode::Disable, None),
        ("db", &[("sslmode", "allow")], SslMode::Allow, None),
        ("db", &[("sslrootcert", "system")], SslMode::VerifyFull, system.clone()),
        ("db", &[("sslmode", "verify-full"), ("sslrootcert", "system")], SslMode::VerifyFull, system),
    ];
    for (host, keys, mode, roots) in table {
        let flags = keys.iter().map(|(key, value)| format!("--{key}={value}"));
        let flags: Vec<String> = [format!("--target={host}")].into_iter().chain(flags).collect();
        let by_flag = target_tls(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let lines = keys.iter().map(|(key, value)| format!("{key} = \"{value}\"\n"));
        let text = [format!("[[target]]\nhost = \"{host}\"\n")].into_iter().chain(lines).collect::<String>();
        let by_file = target_tls(&[&file(&text).flag()]);
        assert_eq!(by_flag, by_file, "{host} {keys:?}");
        assert_eq!((by_file.sslmode, by_file.sslrootcert), (mode, roots), "{host} {keys:?}");
    }
    // A service has no home directory for libpq's default of this.
    let by_flag = target_tls(&["--target=db", "--sslmode=verify-full"]);
    assert_eq!(by_flag.sslrootcert, Some("system".into()));
}

#[test]
fn a_gateways_server_has_no_tls_unless_it_is_set_by_flag_and_by_file() {
    let mode = |words: &[&str]| {
        let words = [&["--listen=127.0.0.1:0", "--unix-socket-directory="][..], words].concat();
        settings::gateway(&gateway_args(&words)).expect("valid").config.servers[0].target.tls.sslmode
    };
    assert_eq!(mode(&["--server=host=db"]), SslMode::Disable);
    assert_eq!(mode(&[&file("[[server]]\nhost = \"db\"\n").flag()]), SslMode::Disable);
}

#[test]
fn metrics_and_console_of_a_connector_are_set_by_flag_and_by_file() {
    let read = |words: &[&str]| {
        let words = [&["--listen=127.0.0.1:0", "--target=db"][..], words].concat();
        settings::connector(&connect_args(&words)).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    };
    let by_flag = read(&[
        "--metrics-listen=127.0.0.1:1",
        "--admin-database=console",
        "--admin-users=ann,bob",
        "--admin-stats-users=monitor",
        "--admin-password-file=/x",
    ]);
    let text = "metrics_listen = \"127.0.0.1:1\"\n[admin]\ndatabase = \"console\"\nusers = [\"ann\", \"bob\"]\n\
                stats_users = [\"monitor\"]\npassword_file = \"/x\"\n";
    assert_eq!(by_flag, read(&[&file(text).flag()]));
    assert_eq!(by_flag.warnings, [""; 0]);
    let warnings = read(&["--admin-users=ann"]).warnings;
    assert_eq!(warnings, ["admin.users has no effect without admin.database: there is no console"]);
}
