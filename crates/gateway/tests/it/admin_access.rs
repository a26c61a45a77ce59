//! Who may use the console.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pgshrink_gateway::config::AdminConfig;
use pgshrink_gateway::{GatewayConfig, start_gateway};
use pgshrink_testkit::run::Owner;
use pgshrink_testkit::{Auth, Cluster, Psql, TempDir};

use crate::admin::{SOCKET_PORT, Site, tls_files};
use crate::harness::{Raw, cluster, event, field, gateway_config, port, unix_socket};

/// A password file for `ann` (may change), `bob` (may look) and `eve` (neither), with `ann`'s as a server stores it.
fn passwords(cluster: &Cluster, dir: &TempDir) -> AdminConfig {
    cluster.sql("create role ann password 'ann''s pass'").unwrap();
    let verifier = cluster.sql("select rolpassword from pg_authid where rolname = 'ann'").unwrap();
    let path = dir.path().join("userlist.txt");
    let text = format!("; users\n\"ann\" \"{verifier}\"\n\"bob\" \"b\u{f6}b\"\n\"eve\" \"eve\"\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    AdminConfig {
        users: vec!["ann".into()],
        stats_users: vec!["bob".into()],
        password_file: Some(path),
        ..AdminConfig::default()
    }
}

fn over_tcp(site: &Site, user: &str, password: &str) -> Psql {
    let psql = Psql::new("psql").at("127.0.0.1", port(&site.gateway)).user(user).database("pgshrink");
    psql.arg("-v").arg("VERBOSITY=verbose").env("PGPASSWORD", password)
}

#[test]
fn clients_over_tcp_prove_who_they_are() {
    let cluster = cluster(Auth::Scram);
    let dir = TempDir::new().unwrap();
    let admin = passwords(&cluster, &dir);
    let site = Site::new(&cluster, |c| c.admin = admin);
    let ask = |user: &str, password: &str, sql: &str| {
        over_tcp(&site, user, password).arg("-c").arg(sql).run().map_err(|e| e.to_string())
    };
    assert!(ask("ann", "ann's pass", "show version").is_ok());
    assert!(ask("ann", "ann's pass", "set compression all off").is_ok());
    assert!(ask("bob", "b\u{f6}b", "show clients").is_ok());
    let error = ask("bob", "b\u{f6}b", "shutdown").unwrap_err();
    assert!(error.contains("42501") && error.contains("admin.users"), "{error}");
    let began = Instant::now();
    let refusal = |user: &str, password| ask(user, password, "show version").unwrap_err().replace(user, "X");
    let wrong = refusal("ann", "wrong");
    assert!(wrong.contains("password authentication failed for user \"X\""), "{wrong}");
    assert!(began.elapsed() >= Duration::from_secs(1), "guessing is slow");
    assert_eq!(refusal("nobody", "wrong"), wrong, "who exists is not told");
    let error = ask("eve", "eve", "show version").unwrap_err();
    assert!(error.contains("may not use the console") && error.contains("admin.stats_users"), "{error}");
    assert_eq!(event(&site.gateway, |e| &e.refused_console), 3);
}

#[test]
fn the_own_system_user_is_not_trusted_where_the_operator_says_so() {
    let cluster = cluster(Auth::Scram);
    let dir = TempDir::new().unwrap();
    let admin = AdminConfig { trust_own_user: false, ..passwords(&cluster, &dir) };
    let site = Site::new(&cluster, |c| c.admin = admin);
    let ask =
        |password| site.psql().user("ann").env("PGPASSWORD", password).arg("-c").arg("show version").run();
    assert!(ask("ann's pass").is_ok());
    assert!(ask("wrong").unwrap_err().to_string().contains("password authentication failed"));
}

#[test]
fn without_a_password_file_tcp_clients_are_refused_with_advice() {
    let cluster = cluster(Auth::Trust);
    let site = Site::new(&cluster, |_| {});
    let mut raw = Raw::connect(port(&site.gateway));
    raw.send(&Raw::startup(&[("user", "root"), ("database", "pgshrink")]));
    let (tag, body) = raw.message().unwrap();
    assert_eq!((tag, field(&body, b'C').as_str()), (b'E', "28000"));
    assert_eq!(field(&body, b'S'), "FATAL");
    assert!(field(&body, b'H').contains("admin.password_file"));
    assert!(raw.ends());
}

#[test]
fn a_password_is_not_asked_over_a_line_that_others_can_read() {
    let cluster = cluster(Auth::Trust);
    let dir = TempDir::new().unwrap();
    let admin = passwords(&cluster, &dir);
    let files = TempDir::new().unwrap();
    let site = Site::new(&cluster, |c| {
        c.admin = admin;
        c.tls = Some(tls_files(&files));
        c.trusted_proxies = vec!["127.0.0.2".into()];
    });
    let mut raw = Raw::connect_from([127, 0, 0, 2], port(&site.gateway));
    raw.send(b"PROXY TCP4 192.0.2.7 192.0.2.1 4000 6432\r\n");
    raw.send(&Raw::startup(&[("user", "ann"), ("database", "pgshrink")]));
    let (tag, body) = raw.message().unwrap();
    assert_eq!((tag, field(&body, b'C').as_str()), (b'E', "28000"), "refused before the exchange");
    assert!(field(&body, b'H').contains("sslmode=require"));
    let local = over_tcp(&site, "ann", "ann's pass").set("sslmode", "require");
    assert!(local.arg("-c").arg("show version").run().is_ok());
}

#[test]
fn another_system_user_needs_a_password_on_the_socket_too() {
    let cluster = cluster(Auth::Trust);
    let owner = Owner::find().unwrap();
    let dir = TempDir::owned_by(&owner).unwrap();
    let config =
        GatewayConfig { unix_socket: unix_socket(dir.path(), SOCKET_PORT), ..gateway_config(&cluster) };
    let _gateway = start_gateway(config).unwrap();
    let conninfo = format!("host={} port={SOCKET_PORT} user=root dbname=pgshrink", dir.path().display());
    let ask = |mut command: Command| {
        command.args(["-XAtw", "-d", &conninfo, "-c", "show version"]).output().unwrap()
    };
    assert!(ask(Command::new("psql")).status.success(), "the gateway's own user");
    let said = ask(owner.command(psql_path()));
    let said = (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned());
    if !is_root() {
        assert!(said.0, "the cluster's owner is who runs this test: {}", said.1);
        return;
    }
    assert!(!said.0 && said.1.contains("does not admit system user"), "{}", said.1);
    assert!(said.1.contains("admin.password_file"), "{}", said.1);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

fn psql_path() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join("psql")).find(|p| p.exists()).unwrap()
}

#[test]
fn a_password_file_that_everybody_can_read_stops_the_start() {
    let cluster = cluster(Auth::Trust);
    let dir = TempDir::new().unwrap();
    let admin = passwords(&cluster, &dir);
    std::fs::set_permissions(admin.password_file.as_ref().unwrap(), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    let error = match start_gateway(GatewayConfig { admin, ..gateway_config(&cluster) }) {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("admin.password_file") && error.contains("0644"), "{error}");
}
