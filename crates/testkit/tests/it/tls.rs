//! Certificates that libpq and the server accept, and those they refuse.

use pgshrink_testkit::{Auth, Authority, Cluster, Error, Server, TempDir, or_skip};

#[test]
fn a_server_certificate_is_good_for_its_names_only() -> Result<(), Error> {
    let cluster = Cluster::builder().tls(true).start()?;
    let dir = TempDir::new()?;
    let root = dir.path().join("root.crt");
    std::fs::write(&root, cluster.authority().unwrap().certificate_pem()).unwrap();
    let verified = |host: &str| {
        let psql = cluster.psql().at(host, cluster.port()).set("hostaddr", "127.0.0.1");
        let psql = psql.set("sslmode", "verify-full").set("sslrootcert", root.display());
        psql.sql("select ssl from pg_stat_ssl where pid = pg_backend_pid()")
    };
    for host in ["localhost", "127.0.0.1", "db.example"] {
        assert_eq!(verified(host)?, "t", "{host}");
    }
    let refused = verified("elsewhere.example").unwrap_err().to_string();
    assert!(refused.contains("does not match host name"), "{refused}");
    Ok(())
}

#[test]
fn a_client_certificate_of_the_authority_is_a_role_and_of_another_is_not() -> Result<(), Error> {
    let cluster = Cluster::builder().tls(true).auth(Auth::Cert).start()?;
    let dir = TempDir::new()?;
    let ours = cluster.authority().unwrap().client("postgres")?;
    let foreign = Authority::new()?.client("postgres")?;
    let mut answers = Vec::new();
    for (name, identity) in [("ours", ours), ("foreign", foreign)] {
        let (cert, key) = identity.write_to(dir.path(), name)?;
        let psql = cluster.psql().at("127.0.0.1", cluster.port()).set("sslmode", "require");
        answers.push(psql.set("sslcert", cert.display()).set("sslkey", key.display()).sql("select 1"));
    }
    assert_eq!(answers[0].as_deref().unwrap(), "1");
    let refused = answers[1].as_ref().unwrap_err().to_string();
    assert!(refused.contains("unknown ca"), "{refused}");
    Ok(())
}

#[test]
fn a_server_without_tls_is_reported_as_missing_it() {
    let server = or_skip!("a server without TLS", Server::find(16));
    match Cluster::builder().server(&server).tls(true).create() {
        Err(Error::Missing(missing)) => {
            assert!(missing.what.starts_with("TLS in PostgreSQL 16"), "{missing}")
        }
        // Some other 16 than the one fetched, with TLS.
        Ok(cluster) => cluster.start().unwrap(),
        Err(other) => panic!("{other}"),
    }
}
