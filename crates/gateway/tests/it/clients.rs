//! Clients that people use, on every path: direct to the gateway, over TLS, and through a connector in both dialects.
//!
//! The programs and their checks are in `tests/clients/`; they know nothing of pgshrink and expect the same answers
//! everywhere. One that cannot run here says which packages bring it.

use std::path::PathBuf;
use std::process::{Command, Output};

use pgshrink_gateway::config::ListenTlsConfig;
use pgshrink_gateway::{Running, start_gateway};
use pgshrink_testkit::{Auth, Authority, Cluster, Kind, Missing, TempDir, checkout, skipped};

use crate::harness::{connector, gateway_config, port};

const PASSWORD: &str = "a password, with: signs";

struct World {
    cluster: Cluster,
    gateway: Running,
    _files: TempDir,
    root: PathBuf,
}

impl World {
    /// A server that asks for `auth`, a gateway with TLS before it, and a role for clients.
    fn new(auth: Auth) -> Self {
        let cluster = Cluster::builder()
            .auth(auth)
            .conf("wal_level", "logical")
            .conf("max_wal_senders", 8)
            .start()
            .unwrap();
        let encryption = if auth == Auth::Md5 { "md5" } else { "scram-sha-256" };
        cluster
            .sql(&format!(
                "set password_encryption = '{encryption}';
                 create role client login replication superuser password '{PASSWORD}'"
            ))
            .unwrap();
        let files = TempDir::new().unwrap();
        let authority = Authority::new().unwrap();
        let identity = authority.server(&["localhost", "127.0.0.1"]).unwrap();
        let (cert, key) = identity.write_to(files.path(), "gateway").unwrap();
        let root = files.path().join("root.crt");
        std::fs::write(&root, authority.certificate_pem()).unwrap();
        let mut config = gateway_config(&cluster);
        config.libpq_compression = "zstd:1,lz4:1,zlib:1".into();
        config.tls =
            Some(ListenTlsConfig { cert, key, client_ca: None, require_client_cert: false, required: false });
        config.ignore_startup_parameters =
            ["driver_version", "os_version", "client_protocol_version"].map(String::from).into();
        Self { gateway: start_gateway(config).unwrap(), cluster, _files: files, root }
    }

    fn run(&self, client: &str, port: u16, more: &[(&str, &str)]) -> Output {
        Command::new(script(client))
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port.to_string())
            .env("PGUSER", "client")
            .env("PGPASSWORD", PASSWORD)
            .env("PGDATABASE", "postgres")
            .env("PGSSLMODE", "disable")
            .env("PGBIN", self.cluster.server().program("psql").parent().unwrap())
            .env("CLIENT_REPLICATION", "1")
            .envs(more.iter().copied())
            .output()
            .unwrap()
    }

    fn check(&self, client: &str, path: &str, port: u16, more: &[(&str, &str)]) {
        let output = self.run(client, port, more);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client} over {path}:\n{text}\n{errors}");
        let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
        assert!(passed >= 5, "{client} over {path} checked too little:\n{text}");
    }
}

fn script(client: &str) -> PathBuf {
    checkout().join("tests/clients").join(client).join("run")
}

/// False, with a report, where the client's runtime is not there.
fn is_ready(client: &str) -> bool {
    let probe = Command::new(script(client)).arg("--probe").output().unwrap();
    if probe.status.code() == Some(3) {
        let how = String::from_utf8_lossy(&probe.stdout).trim().to_string();
        let missing = Missing::new(client, "its runtime is not installed", how).of(Kind::Program);
        skipped(&format!("client {client}"), &missing);
        return false;
    }
    let build = Command::new(script(client)).arg("--build").output().unwrap();
    assert!(build.status.success(), "{client} --build: {}", String::from_utf8_lossy(&build.stderr));
    true
}

/// The whole set of checks on each path a client can take.
fn on_every_path(client: &str) {
    if !is_ready(client) {
        return;
    }
    let world = World::new(Auth::Scram);
    world.check(client, "the gateway", port(&world.gateway), &[]);
    let root = world.root.to_str().unwrap();
    let tls = [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", root), ("PGHOST", "localhost")];
    world.check(client, "the gateway with TLS", port(&world.gateway), &tls);
    for (dialect, list) in [("ack", "zstd:1"), ("restart", "lz4:1"), ("ack", "zlib:1")] {
        let connector = connector(&world.gateway, dialect, list);
        world.check(
            client,
            &format!("a connector, {dialect} {list}"),
            port(&connector),
            &[("CLIENT_COMPRESSION", list)],
        );
        let moved = connector.registry().totals();
        assert!(moved.to_client.frames > 10, "{client} {dialect} {list}: {moved:?}");
        assert!(
            moved.to_client.wire_bytes < moved.to_client.raw_bytes,
            "{client} {dialect} {list}: {moved:?}"
        );
    }
}

#[test]
fn psql_and_its_family_work_on_every_path() {
    on_every_path("psql");
}

#[test]
fn psycopg_works_on_every_path() {
    on_every_path("psycopg");
}

#[test]
fn pgjdbc_works_on_every_path() {
    on_every_path("pgjdbc");
}

#[test]
fn pgx_works_on_every_path() {
    on_every_path("pgx");
}

#[test]
fn node_postgres_works_on_every_path() {
    on_every_path("node-postgres");
}

#[test]
fn the_redshift_driver_compresses_with_a_stock_server_behind_the_gateway() {
    let client = "redshift-jdbc";
    if !is_ready(client) {
        return;
    }
    let world = World::new(Auth::Md5);
    let at = port(&world.gateway);
    world.check(client, "the gateway", at, &[("CLIENT_EXPECT_COMPRESSION", "1")]);
    let moved = world.gateway.registry().totals();
    assert!(moved.to_client.frames > 0 && moved.to_client.ratio() > 1.2, "{moved:?}");
    world.check(
        client,
        "the gateway, off",
        at,
        &[("CLIENT_MODE", "off"), ("CLIENT_EXPECT_COMPRESSION", "0")],
    );
}
