//! Reaching real servers: authentication, hosts, TLS.

use crate::session::{MAJORS, around, knows, open, open_in, start_with_tls, value, with};
use pgshrink_pgclient::Error;
use pgshrink_testkit::{Auth, Authority, Cluster, SUPERUSER_PASSWORD, Server, TempDir, free_port};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[test]
fn each_authentication_method_lets_the_right_password_in_and_no_other() {
    Server::each("authentication", &MAJORS, |server| {
        for auth in [Auth::Trust, Auth::Password, Auth::Md5, Auth::Scram] {
            let cluster = Cluster::builder().server(server).auth(auth).start().unwrap();
            for conninfo in [cluster.conninfo("postgres"), cluster.conninfo_unix("postgres")] {
                let mut connection = open(&conninfo).unwrap();
                assert_eq!(value(&mut connection, "select current_user"), "postgres", "{auth:?}");
                assert_eq!(connection.server_version().unwrap() / 10_000, server.major);
                if auth == Auth::Trust {
                    continue;
                }
                let wrong = open(&with(&conninfo, "password", "hunter-two")).unwrap_err();
                assert_eq!(wrong.sqlstate(), Some("28P01"), "{auth:?}: {wrong}");
                assert!(!format!("{wrong} {wrong:?}").contains("hunter"), "{wrong:?}");
                let none = open(&with(&conninfo, "password", "")).unwrap_err();
                assert!(matches!(none, Error::Authentication { .. }), "{none:?}");
            }
        }
    });
}

#[test]
fn a_uri_and_its_defaults_connect_as_well() {
    let cluster = Cluster::builder().start().unwrap();
    let uri = format!("postgresql://postgres@127.0.0.1:{}/template1?application_name=me", cluster.port());
    let mut connection = open(&uri).unwrap();
    let seen =
        value(&mut connection, "select current_database() || ' ' || current_setting('application_name')");
    assert_eq!(seen, "template1 me");
    let mut plain = open(&cluster.conninfo("postgres")).unwrap();
    assert_eq!(value(&mut plain, "show application_name"), "pgshrink");
    assert_eq!(value(&mut plain, "show client_encoding"), "UTF8");
    let set = with(&cluster.conninfo("postgres"), "options", "-c work_mem=77MB");
    assert_eq!(value(&mut open(&set).unwrap(), "show work_mem"), "77MB");
}

#[test]
fn passwords_come_from_the_environment_and_from_a_file_that_only_the_user_can_read() {
    let cluster = Cluster::builder().auth(Auth::Scram).start().unwrap();
    let plain = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", cluster.port());
    let port = cluster.port().to_string();
    assert!(matches!(open(&plain), Err(Error::Authentication { .. })));
    assert!(open_in(&plain, &around(&[("PGPASSWORD", SUPERUSER_PASSWORD)], None)).is_ok());
    let env = [("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres")];
    let env = [&env[..], &[("PGPASSWORD", SUPERUSER_PASSWORD)]].concat();
    assert!(open_in("", &around(&env, None)).is_ok());

    let dir = TempDir::new().unwrap();
    let file = dir.path().join(".pgpass");
    let lines = format!("other:*:*:*:no\n127.0.0.1:{port}:*:postgres:{SUPERUSER_PASSWORD}\n");
    std::fs::write(&file, lines).unwrap();
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o600);
    assert!(open_in(&plain, &around(&[], Some(dir.path()))).is_ok());
    assert!(open_in(&plain, &around(&[("PGPASSFILE", file.to_str().unwrap())], None)).is_ok());
    mode(0o640);
    assert!(matches!(open_in(&plain, &around(&[], Some(dir.path()))), Err(Error::Authentication { .. })));
}

#[test]
fn the_password_file_has_one_for_replication_under_that_name() {
    let cluster = Cluster::builder().auth(Auth::Scram).start().unwrap();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(".pgpass");
    std::fs::write(&file, format!("*:*:replication:postgres:{SUPERUSER_PASSWORD}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let plain = format!("host=127.0.0.1 port={} user=postgres", cluster.port());
    let around = around(&[], Some(dir.path()));
    assert!(open_in(&format!("{plain} replication=true"), &around).is_ok());
    assert!(matches!(open_in(&plain, &around), Err(Error::Authentication { .. })));
}

#[test]
fn nobody_there_is_an_error_that_says_where() {
    let refused = open(&format!("host=127.0.0.1 port={} user=u", free_port().unwrap())).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("at \"127.0.0.1\", port "), "{refused}");
    let unknown = open("host=no-such-host.invalid user=u").unwrap_err();
    assert!(
        unknown.to_string().contains("could not translate host name \"no-such-host.invalid\""),
        "{unknown}"
    );
    let dir = TempDir::new().unwrap();
    let socket = open(&format!("host={} user=u", dir.path().display())).unwrap_err();
    assert!(
        socket.to_string().contains("on socket \"") && socket.to_string().contains(".s.PGSQL.5432"),
        "{socket}"
    );
}

#[test]
fn hosts_are_tried_in_order_until_one_will_do() {
    let cluster = Cluster::builder().start().unwrap();
    let hosts = format!(
        "host=127.0.0.1,no-such-host.invalid,localhost hostaddr=127.0.0.1,,127.0.0.1 port={},1,{} user=postgres",
        free_port().unwrap(),
        cluster.port()
    );
    let mut connection = open(&hosts).unwrap();
    assert_eq!(connection.place().host, "localhost");
    assert_eq!(value(&mut connection, "select 1"), "1");

    let all = open(&with(&hosts, "target_session_attrs", "standby")).unwrap_err();
    let text = all.to_string();
    assert!(text.contains("not in hot standby mode") && text.contains("could not translate"), "{text}");
    assert!(matches!(&all, Error::AllFailed(errors) if errors.len() == 3), "{all:?}");
    for attributes in ["primary", "read-write", "prefer-standby", "any"] {
        assert!(open(&with(&hosts, "target_session_attrs", attributes)).is_ok(), "{attributes}");
    }
    let standby = cluster.standby().start().unwrap();
    let both = format!("host=127.0.0.1,127.0.0.1 port={},{} user=postgres", cluster.port(), standby.port());
    for attributes in ["standby", "prefer-standby", "read-only"] {
        let found = open(&with(&both, "target_session_attrs", attributes)).unwrap();
        assert_eq!(found.place().port, standby.port(), "{attributes}");
    }
}

#[test]
fn a_final_answer_ends_the_search() {
    let cluster = Cluster::builder().start().unwrap();
    let port = cluster.port();
    let hosts = format!("host=127.0.0.1,localhost port={port} user=postgres dbname=no_such_database");
    let error = open(&hosts).unwrap_err();
    assert_eq!(error.sqlstate(), Some("3D000"));
    assert!(matches!(error, Error::Server { .. }), "{error:?}");
}

/// A file with the authority's certificate.
fn root(dir: &Path, authority: &Authority, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, authority.certificate_pem()).unwrap();
    path
}

#[test]
fn verify_full_accepts_the_right_certificate_and_name_only() {
    Server::each("TLS", &MAJORS, |server| {
        let builder = Cluster::builder().server(server).tls(true).auth(Auth::Scram);
        let Some(cluster) = start_with_tls("TLS", builder) else { return };
        let dir = TempDir::new().unwrap();
        let ours = root(dir.path(), cluster.authority().unwrap(), "ours.crt");
        let foreign = root(dir.path(), &Authority::new().unwrap(), "foreign.crt");
        let to = |host: &str, mode: &str, root: &Path| {
            let conninfo = cluster.conninfo_at(host, cluster.port(), "postgres");
            open(&format!("{conninfo} hostaddr=127.0.0.1 sslmode={mode} sslrootcert={}", root.display()))
        };
        for host in ["localhost", "127.0.0.1", "db.example"] {
            let mut connection = to(host, "verify-full", &ours).unwrap();
            assert!(connection.is_encrypted());
            assert_eq!(
                value(&mut connection, "select ssl from pg_stat_ssl where pid = pg_backend_pid()"),
                "t"
            );
        }
        let name = to("elsewhere.example", "verify-full", &ours).unwrap_err();
        assert!(matches!(name, Error::Insecure { .. }), "{name:?}");
        assert!(name.to_string().contains("does not match host name \"elsewhere.example\""), "{name}");
        assert!(to("elsewhere.example", "verify-ca", &ours).is_ok());
        let chain = to("localhost", "verify-ca", &foreign).unwrap_err();
        assert!(matches!(chain, Error::Insecure { .. }), "{chain:?}");
        if knows(server, 17) {
            let conninfo = cluster.conninfo_at("localhost", cluster.port(), "postgres");
            let direct = format!("{conninfo} sslmode=require sslnegotiation=direct");
            assert!(open(&direct).unwrap().is_encrypted());
        }
    });
}

#[test]
fn channel_binding_and_required_methods_are_insisted_on() {
    Server::each("channel binding", &MAJORS, |server| {
        let builder = Cluster::builder().server(server).tls(true).auth(Auth::Scram);
        let builder = builder.hba("host template1 all all trust");
        let Some(cluster) = start_with_tls("channel binding", builder) else { return };
        let conninfo = cluster.conninfo("postgres");
        let bound = with(&conninfo, "channel_binding", "require");
        assert!(open(&format!("{bound} sslmode=require")).is_ok());
        assert!(open(&format!("{conninfo} sslmode=require channel_binding=disable")).is_ok());
        let plain = open(&format!("{bound} sslmode=disable")).unwrap_err();
        assert!(plain.to_string().contains("channel binding required, but SSL not in use"), "{plain}");
        let trusted = open(&format!("{} sslmode=require", with(&bound, "dbname", "template1"))).unwrap_err();
        assert!(trusted.to_string().contains("without channel binding"), "{trusted}");

        assert!(open(&with(&conninfo, "require_auth", "scram-sha-256")).is_ok());
        assert!(open(&with(&conninfo, "require_auth", "!none")).is_ok());
        for (database, methods) in [("postgres", "md5,password"), ("template1", "scram-sha-256")] {
            let refused = open(&with(&with(&conninfo, "dbname", database), "require_auth", methods));
            assert!(matches!(refused, Err(Error::Authentication { .. })), "{refused:?}");
        }
    });
}

#[test]
fn prefer_and_allow_fall_back_to_the_other_way() {
    let encrypted = |conninfo: &str| open(conninfo).map(|connection| connection.is_encrypted());
    let bare = Cluster::builder().start().unwrap();
    let bare = bare_conninfo(&bare);
    assert!(!encrypted(&format!("{bare} sslmode=prefer")).unwrap());
    let required = encrypted(&format!("{bare} sslmode=require")).unwrap_err();
    assert!(required.to_string().contains("server does not support SSL"), "{required}");

    let only_tls = Cluster::builder().tls(true).hba("hostnossl all all all reject").start().unwrap();
    let only_tls = bare_conninfo(&only_tls);
    assert!(encrypted(&format!("{only_tls} sslmode=allow")).unwrap());
    assert_eq!(encrypted(&format!("{only_tls} sslmode=disable")).unwrap_err().sqlstate(), Some("28000"));

    let only_plain = Cluster::builder().tls(true).hba("hostssl all all all reject").start().unwrap();
    let only_plain = bare_conninfo(&only_plain);
    assert!(!encrypted(&format!("{only_plain} sslmode=prefer")).unwrap());
    assert!(!encrypted(&format!("{only_plain} sslmode=allow")).unwrap());
    assert_eq!(encrypted(&format!("{only_plain} sslmode=require")).unwrap_err().sqlstate(), Some("28000"));
}

/// Keeps no cluster alive: the caller does.
fn bare_conninfo(cluster: &Cluster) -> String {
    format!("host=127.0.0.1 port={} user=postgres dbname=postgres", cluster.port())
}

#[test]
fn a_client_certificate_is_a_role_and_one_of_another_authority_is_not() {
    Server::each("client certificates", &MAJORS, |server| {
        let builder = Cluster::builder().server(server).tls(true).auth(Auth::Cert);
        let Some(cluster) = start_with_tls("client certificates", builder) else { return };
        let dir = TempDir::new().unwrap();
        let ours = cluster.authority().unwrap().client("postgres").unwrap();
        let foreign = Authority::new().unwrap().client("postgres").unwrap();
        let conninfo = format!("{} sslmode=require", bare_conninfo(&cluster));
        let with_identity = |(cert, key): (PathBuf, PathBuf)| {
            open(&format!("{conninfo} sslcert={} sslkey={}", cert.display(), key.display()))
        };
        assert!(with_identity(ours.write_to(dir.path(), "ours").unwrap()).is_ok());
        assert!(with_identity(foreign.write_to(dir.path(), "foreign").unwrap()).is_err());
        assert_eq!(open(&conninfo).unwrap_err().sqlstate(), Some("28000"));
    });
}

#[test]
fn a_server_that_never_answers_costs_the_connect_timeout_and_no_more() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let cluster = Cluster::builder().start().unwrap();
    for mode in ["disable", "require"] {
        let before = Instant::now();
        let conninfo = format!("host=127.0.0.1 port={port} user=postgres connect_timeout=2 sslmode={mode}");
        let error = open(&conninfo).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
        let took = before.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&took), "{took:?}");
        let next = format!("{conninfo} host=127.0.0.1,127.0.0.1 port={port},{}", cluster.port());
        let next = next.replacen("sslmode=require", "sslmode=prefer", 1);
        assert!(open(&next).is_ok());
    }
}

#[test]
fn what_libpq_has_and_this_client_has_not_is_refused_by_name() {
    for setting in ["requirepeer=postgres", "gssencmode=require"] {
        let error = open(&format!("host=/nowhere user=u {setting}")).unwrap_err();
        assert!(error.to_string().contains(setting.split('=').next().unwrap()), "{error}");
    }
    assert!(matches!(open("host=/nowhere user=u no_such_keyword=1"), Err(Error::UnknownOption { .. })));
}
