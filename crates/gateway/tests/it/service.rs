//! Running as a service: proxies before and behind, reload, sockets, successors.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use pgshrink_gateway::config::{GatewayConfig, ListenTlsConfig, TargetConfig};
use pgshrink_gateway::{Control, Error, start_gateway};
use pgshrink_testkit::{Auth, Authority, TempDir, wait_until};

use crate::harness::{Raw, cluster, gateway, gateway_config, port, psql, server, tags, unix_socket};

#[test]
fn the_clients_address_is_sent_to_a_server_that_takes_it() {
    let cluster = cluster(Auth::Trust);
    for (version, expected) in
        [(1, &b"PROXY TCP4 127.0.0.1 127.0.0.1 "[..]), (2, b"\r\n\r\n\0\r\nQUIT\n\x21\x11")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = gateway_config(&cluster);
        config.servers = vec![server(TargetConfig::new("127.0.0.1", listener.local_addr().unwrap().port()))];
        config.servers[0].send_proxy = Some(version);
        let gateway = start_gateway(config).unwrap();
        let mut raw = Raw::connect(port(&gateway));
        raw.send(&Raw::startup(&[("user", "postgres")]));
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = vec![0; expected.len()];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(got, expected, "version {version}");
    }
}

#[test]
fn a_reload_takes_a_new_certificate_for_new_sessions_and_keeps_the_old_ones() {
    let cluster = cluster(Auth::Trust);
    let dir = TempDir::new().unwrap();
    let (cert, key) = (dir.path().join("c.crt"), dir.path().join("c.key"));
    let install = |authority: &Authority| {
        let identity = authority.server(&["localhost"]).unwrap();
        std::fs::write(&cert, identity.certificate_pem).unwrap();
        std::fs::write(&key, identity.key_pem).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let root = dir.path().join("root.crt");
        std::fs::write(&root, authority.certificate_pem()).unwrap();
        root
    };
    let root = install(&Authority::new().unwrap());
    let tls = ListenTlsConfig {
        cert: cert.clone(),
        key: key.clone(),
        client_ca: None,
        require_client_cert: false,
        required: false,
    };
    let gateway = start_gateway(GatewayConfig { tls: Some(tls), ..gateway_config(&cluster) }).unwrap();
    let through = || {
        psql(&cluster, &gateway)
            .set("host", "localhost")
            .set("hostaddr", "127.0.0.1")
            .set("sslmode", "verify-full")
            .set("sslrootcert", root.display())
            .sql("select 1")
    };
    let mut old = Raw::login(port(&gateway));
    assert_eq!(through().unwrap(), "1");
    install(&Authority::new().unwrap());
    // The old certificate is still shown, so the new root does not verify it.
    assert!(through().is_err());
    gateway.order(Control::Reload);
    wait_until(Duration::from_secs(10), "the new certificate", || through().is_ok()).unwrap();
    std::fs::write(&cert, "nonsense").unwrap();
    gateway.order(Control::Reload);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(through().unwrap(), "1", "a broken file replaces nothing");
    old.query("select 1");
    assert_eq!(tags(&old.until(b'Z')), "TDCZ");
}

#[test]
fn a_unix_socket_is_open_to_all_and_taken_over_only_from_the_dead() {
    let cluster = cluster(Auth::Trust);
    let dir = TempDir::new().unwrap();
    let mut config = gateway_config(&cluster);
    config.unix_socket = unix_socket(dir.path(), 6000);
    let path = dir.path().join(".s.PGSQL.6000");
    let first = start_gateway(config.clone()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
    assert_eq!(cluster.psql().at(dir.path().display(), 6000).sql("select 1").unwrap(), "1");
    assert!(matches!(start_gateway(config.clone()), Err(Error::SocketInUse { .. })));
    assert_eq!(cluster.psql().at(dir.path().display(), 6000).sql("select 1").unwrap(), "1", "still served");
    first.end(Control::Drain).unwrap();
    assert!(!path.exists());
    // What a killed process leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    std::fs::write(dir.path().join(".s.PGSQL.6000.lock"), "1\n").unwrap();
    let _second = start_gateway(config).unwrap();
    assert_eq!(cluster.psql().at(dir.path().display(), 6000).sql("select 1").unwrap(), "1");
    // PostgreSQL's own socket is not taken away.
    let mut on_server = gateway_config(&cluster);
    on_server.unix_socket = unix_socket(&cluster.socket_dir(), cluster.port());
    assert!(matches!(start_gateway(on_server), Err(Error::SocketInUse { .. })));
    assert_eq!(cluster.sql("select 1").unwrap(), "1");
}

#[test]
fn startup_parameters_on_the_list_do_not_reach_the_server() {
    let cluster = cluster(Auth::Trust);
    let plain = gateway(&cluster);
    let ask = |entry: u16| {
        let mut raw = Raw::connect(entry);
        raw.send(&Raw::startup(&[("user", "postgres"), ("driver_version", "9")]));
        raw.message().unwrap();
        raw.message().unwrap().0
    };
    assert_eq!(ask(port(&plain)), b'E');
    let config = GatewayConfig {
        ignore_startup_parameters: vec!["driver_version".into()],
        ..gateway_config(&cluster)
    };
    assert_eq!(ask(port(&start_gateway(config).unwrap())), b'S');
}
