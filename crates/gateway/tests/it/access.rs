//! Who is let in, and TLS on each leg.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use pgshrink_gateway::config::{
    GatewayConfig, ListenTlsConfig, SslMode, SslNegotiation, TargetConfig, TargetTlsConfig,
};
use pgshrink_gateway::{Running, start_connector, start_gateway};
use pgshrink_testkit::{Auth, Authority, Cluster, TempDir};

use crate::harness::{
    Raw, cluster, connector_config, event, field, gateway_config, impostor, message, port, psql, server,
    unix_socket,
};

/// Says it comes from elsewhere, as a load balancer would.
fn from_elsewhere(port: u16) -> Raw {
    let mut raw = Raw::connect(port);
    raw.send(b"PROXY TCP4 203.0.113.9 203.0.113.1 5555 5432\r\n");
    raw
}

fn behind_proxy(cluster: &Cluster) -> GatewayConfig {
    GatewayConfig { trusted_proxies: vec!["127.0.0.0/8".into()], ..gateway_config(cluster) }
}

#[test]
fn a_remote_client_that_the_server_does_not_challenge_is_refused() {
    let cluster = cluster(Auth::Trust);
    let mut config = behind_proxy(&cluster);
    let gateway = start_gateway(config.clone()).unwrap();
    let mut raw = from_elsewhere(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    let (tag, error) = raw.message().unwrap();
    assert_eq!((tag, field(&error, b'C')), (b'E', "28000".to_string()));
    assert!(field(&error, b'H').contains("allow_unchallenged"));
    assert!(raw.ends());
    assert_eq!(event(&gateway, |e| &e.refused_unchallenged), 1);
    config.allow_unchallenged = true;
    let gateway = start_gateway(config).unwrap();
    let mut raw = from_elsewhere(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    raw.until(b'Z');
    assert_eq!(gateway.registry().sessions()[0].peer().to_string(), "203.0.113.9:5555");
}

/// The first reply to a startup packet that follows `greeting`.
fn answer_to(gateway: &Running, greeting: &[u8]) -> (u8, Vec<u8>) {
    let mut raw = Raw::connect(port(gateway));
    raw.send(&[greeting, &Raw::startup(&[("user", "postgres")])].concat());
    raw.message().unwrap()
}

#[test]
fn a_trusted_proxy_that_sends_no_header_lets_nobody_in_as_local() {
    let cluster = cluster(Auth::Trust);
    let gateway = start_gateway(behind_proxy(&cluster)).unwrap();
    let (tag, error) = answer_to(&gateway, b"");
    assert_eq!((tag, field(&error, b'C')), (b'E', "08P01".to_string()));
    let said = field(&error, b'M');
    assert!(said.contains("expected a PROXY header from 127.0.0.1"), "{said}");
    assert!(field(&error, b'H').contains("send-proxy"));
    assert_eq!(event(&gateway, |e| &e.protocol_errors), 1);
    assert_eq!(event(&gateway, |e| &e.sessions), 0);
    // A header that names no client is no proof that the client is here.
    const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for unknown in [&b"PROXY UNKNOWN\r\n"[..], V2_LOCAL] {
        let (tag, error) = answer_to(&gateway, unknown);
        assert_eq!((tag, field(&error, b'C')), (b'E', "28000".to_string()));
    }
    // One that names a client on this machine is believed: the proxy is on it as well.
    let (tag, _) = answer_to(&gateway, b"PROXY TCP4 127.0.0.1 127.0.0.1 5555 5432\r\n");
    assert_eq!(tag, b'R');
}

#[test]
fn a_remote_client_with_a_password_is_let_in() {
    let cluster = cluster(Auth::Scram);
    let gateway = start_gateway(behind_proxy(&cluster)).unwrap();
    let mut raw = from_elsewhere(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    let (tag, body) = raw.message().unwrap();
    assert_eq!((tag, &body[..4]), (b'R', &[0, 0, 0, 10][..]));
}

#[test]
fn a_local_client_does_not_borrow_the_gateways_user_on_a_unix_socket() {
    let cluster = cluster(Auth::Trust);
    let mut config = gateway_config(&cluster);
    config.servers =
        vec![server(TargetConfig::new(cluster.socket_dir().to_string_lossy().into_owned(), cluster.port()))];
    let dir = TempDir::new().unwrap();
    config.unix_socket = unix_socket(dir.path(), 5999);
    let gateway = start_gateway(config).unwrap();
    let mut raw = Raw::connect(port(&gateway));
    raw.send(&Raw::startup(&[("user", "postgres")]));
    let (tag, error) = raw.message().unwrap();
    assert_eq!((tag, field(&error, b'C')), (b'E', "28000".to_string()));
    // The same user by the gateway's own Unix socket lends nothing.
    let through = cluster.psql().at(dir.path().to_string_lossy(), 5999);
    assert_eq!(through.sql("select 7").unwrap(), "7");
}

#[test]
fn a_proxy_header_from_anybody_else_is_refused() {
    let cluster = cluster(Auth::Trust);
    let gateway = start_gateway(gateway_config(&cluster)).unwrap();
    let mut raw = from_elsewhere(port(&gateway));
    assert_eq!(raw.message().unwrap().0, b'E');
    assert!(raw.ends());
}

pub(crate) struct Tls {
    authority: Arc<Authority>,
    dir: TempDir,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let tls = Self { authority: Arc::new(Authority::new().unwrap()), dir: TempDir::new().unwrap() };
        std::fs::write(tls.root(), tls.authority.certificate_pem()).unwrap();
        tls
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root.crt")
    }

    pub(crate) fn listen(&self) -> ListenTlsConfig {
        let identity = self.authority.server(&["localhost", "127.0.0.1"]).unwrap();
        let (cert, key) = identity.write_to(self.dir.path(), "server").unwrap();
        ListenTlsConfig { cert, key, client_ca: None, require_client_cert: false, required: false }
    }
}

fn tls_gateway(cluster: &Cluster, tls: &Tls) -> Running {
    start_gateway(GatewayConfig { tls: Some(tls.listen()), ..gateway_config(cluster) }).unwrap()
}

#[test]
fn psql_verifies_the_gateways_certificate_and_scram_works() {
    let (cluster, tls) = (cluster(Auth::Scram), Tls::new());
    let gateway = tls_gateway(&cluster, &tls);
    let through = |mode: &str| {
        psql(&cluster, &gateway).set("sslmode", mode).set("sslrootcert", tls.root().display()).sql("select 1")
    };
    assert_eq!(through("verify-full").unwrap(), "1");
    assert_eq!(through("disable").unwrap(), "1");
    let plain = start_gateway(gateway_config(&cluster)).unwrap();
    let error = psql(&cluster, &plain).set("sslmode", "require").sql("select 1").unwrap_err().to_string();
    assert!(error.contains("does not support SSL"), "{error}");
}

#[test]
fn the_connector_speaks_tls_to_the_gateway_as_libpq_would() {
    let (cluster, tls) = (cluster(Auth::Scram), Tls::new());
    let gateway = tls_gateway(&cluster, &tls);
    let other = Authority::new().unwrap();
    let other_root = tls.dir.path().join("other.crt");
    std::fs::write(&other_root, other.certificate_pem()).unwrap();
    let connect = |target: TargetTlsConfig, host: &str| {
        let mut config = connector_config(&gateway, "ack", "zstd:1");
        config.targets[0].host = host.into();
        config.targets[0].hostaddr = Some([127, 0, 0, 1].into());
        config.targets[0].tls = target;
        let connector = start_connector(config).unwrap();
        psql(&cluster, &connector).sql("select 1").map_err(|e| e.to_string())
    };
    let full =
        TargetTlsConfig { sslmode: SslMode::VerifyFull, sslrootcert: Some(tls.root()), ..Default::default() };
    assert_eq!(connect(full.clone(), "localhost").unwrap(), "1");
    let direct = TargetTlsConfig { sslnegotiation: SslNegotiation::Direct, ..full.clone() };
    assert_eq!(connect(direct, "localhost").unwrap(), "1");
    let error = connect(full.clone(), "elsewhere.example").unwrap_err();
    assert!(error.contains("does not match host name \"elsewhere.example\""), "{error}");
    let ca = TargetTlsConfig { sslmode: SslMode::VerifyCa, ..full.clone() };
    assert_eq!(connect(ca, "elsewhere.example").unwrap(), "1");
    let wrong = TargetTlsConfig { sslrootcert: Some(other_root), ..full };
    let error = connect(wrong, "localhost").unwrap_err();
    assert!(error.contains("SSL error") && error.contains("Compare sslmode, sslrootcert"), "{error}");
    for sslmode in [SslMode::Require, SslMode::Prefer, SslMode::Allow] {
        let loose = TargetTlsConfig { sslmode, ..Default::default() };
        assert_eq!(connect(loose, "elsewhere.example").unwrap(), "1", "{sslmode:?}");
    }
}

#[test]
fn a_server_whose_tls_fails_is_not_said_to_be_down() {
    let tls = Tls::new();
    let served = Cluster::builder().auth(Auth::Scram).tls_from(tls.authority.clone()).start().unwrap();
    let plain = cluster(Auth::Scram);
    let other_root = tls.dir.path().join("other.crt");
    std::fs::write(&other_root, Authority::new().unwrap().certificate_pem()).unwrap();
    for (cluster, sslmode, reason) in [
        (&served, SslMode::VerifyCa, "SSL error with server"),
        (&plain, SslMode::Require, "does not support SSL"),
    ] {
        let mut config = gateway_config(cluster);
        config.servers[0].target.tls =
            TargetTlsConfig { sslmode, sslrootcert: Some(other_root.clone()), ..Default::default() };
        let error = psql(cluster, &start_gateway(config).unwrap()).sql("select 1").unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("compare sslmode"), "{error}");
        assert!(!error.contains("Is the server running, and"), "{error}");
    }
}

#[test]
fn channel_binding_works_with_the_servers_own_certificate_and_is_explained_without() {
    let tls = Tls::new();
    let cluster = Cluster::builder().auth(Auth::Scram).tls_from(tls.authority.clone()).start().unwrap();
    let mut config = gateway_config(&cluster);
    config.servers[0].target.tls.sslmode = SslMode::Require;
    let foreign = start_gateway(GatewayConfig { tls: Some(tls.listen()), ..config.clone() }).unwrap();
    let bind = |gateway: &Running, binding: &str| {
        psql(&cluster, gateway).set("sslmode", "require").set("channel_binding", binding).sql("select 1")
    };
    let error = bind(&foreign, "prefer").unwrap_err().to_string();
    assert!(error.contains("channel_binding=disable"), "{error}");
    assert_eq!(bind(&foreign, "disable").unwrap(), "1");
    let own = ListenTlsConfig {
        cert: cluster.data_dir().join("server.crt"),
        key: cluster.data_dir().join("server.key"),
        client_ca: None,
        require_client_cert: false,
        required: false,
    };
    let same = start_gateway(GatewayConfig { tls: Some(own), ..config }).unwrap();
    assert_eq!(bind(&same, "require").unwrap(), "1");
}

/// A login that takes too long at the other end, a pooler or server that shuts down meanwhile.
#[test]
fn what_comes_instead_of_waiting_for_the_password_reaches_the_client() {
    let sasl = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let error = message(b'E', b"SFATAL\0C57P01\0Mshutting down\0\0");
    // A message without a body says nothing, and must not be looked into.
    let answer = [sasl, message(b'n', b""), error].concat();
    let target = TargetConfig::new("127.0.0.1", impostor(answer));
    let gateway = start_gateway(GatewayConfig {
        listen: vec!["127.0.0.1:0".into()],
        servers: vec![server(target)],
        ..GatewayConfig::default()
    })
    .unwrap();
    let connector = start_connector(connector_config(&gateway, "ack", "zstd:1")).unwrap();
    for end in [&gateway, &connector] {
        let mut raw = Raw::connect(port(end));
        raw.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres")]));
        assert_eq!(raw.message().unwrap().0, b'R');
        assert_eq!(raw.message().unwrap(), (b'n', vec![]));
        let (tag, error) = raw.message().unwrap();
        assert_eq!((tag, field(&error, b'C')), (b'E', "57P01".to_string()));
    }
}

#[test]
fn bytes_sent_ahead_of_the_tls_handshake_are_refused() {
    let (cluster, tls) = (cluster(Auth::Trust), Tls::new());
    let gateway = tls_gateway(&cluster, &tls);
    let mut raw = Raw::connect(port(&gateway));
    let smuggled = Raw::startup(&[("user", "postgres")]);
    raw.send(&[&[0, 0, 0, 8, 4, 210, 22, 47][..], &smuggled].concat());
    let (tag, body) = raw.message().unwrap();
    assert_eq!((tag, field(&body, b'C')), (b'E', "08P01".to_string()));
}

#[test]
fn a_client_certificate_is_asked_for_and_checked() {
    let (cluster, tls) = (cluster(Auth::Scram), Tls::new());
    let listen = ListenTlsConfig { client_ca: Some(tls.root()), require_client_cert: true, ..tls.listen() };
    let gateway = start_gateway(GatewayConfig { tls: Some(listen), ..gateway_config(&cluster) }).unwrap();
    let (cert, key) = tls.authority.client("postgres").unwrap().write_to(tls.dir.path(), "client").unwrap();
    let through = psql(&cluster, &gateway).set("sslmode", "require");
    assert!(through.clone().sql("select 1").is_err());
    let with = through.set("sslcert", cert.display()).set("sslkey", key.display());
    assert_eq!(with.sql("select 1").unwrap(), "1");
    let _ = TcpStream::connect(("127.0.0.1", port(&gateway)));
}
