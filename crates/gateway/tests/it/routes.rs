//! What a `[[server]]` has of its own: by database, and by user.

use pgshrink_gateway::config::{ServerConfig, TargetConfig};
use pgshrink_gateway::start_gateway;
use pgshrink_testkit::Auth;

use crate::harness::{Raw, cluster, connector, gateway_config, port};

#[test]
fn compression_is_set_per_route_per_user_and_per_database() {
    let cluster = cluster(Auth::Trust);
    cluster.sql("create role quiet login; create database archive").unwrap();
    let route = |databases: &[&str], users: &[&str], list: Option<&str>| {
        let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let target = TargetConfig::new("127.0.0.1", cluster.port());
        ServerConfig {
            database: own(databases),
            user: own(users),
            libpq_compression: list.map(str::to_string),
            ..ServerConfig::new(target)
        }
    };
    let mut config = gateway_config(&cluster);
    config.libpq_compression = "zstd:1".into();
    config.servers = vec![
        route(&[], &["quiet"], Some("off")),
        route(&["archive"], &[], Some("lz4:1,zlib:9")),
        route(&[], &[], None),
    ];
    config.servers[2].policy = "pack_rows = false".parse().unwrap();
    let gateway = start_gateway(config).unwrap();
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let agreed = |user: &str, database: &str| {
        let mut raw = Raw::connect(port(&connector));
        raw.send(&Raw::startup(&[("user", user), ("database", database)]));
        raw.until(b'Z');
        let newest = gateway.registry().sessions().into_iter().max_by_key(|session| session.id).unwrap();
        newest.compression().map(|compression| compression.agreed).unwrap_or_default()
    };
    assert_eq!(agreed("quiet", "archive"), "", "per user");
    assert_eq!(agreed("postgres", "archive"), "lz4:1", "per database");
    assert_eq!(agreed("postgres", "postgres"), "zstd:1", "as the gateway");
}
