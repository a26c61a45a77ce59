//! Where libpq connects.

use crate::world::World;
use pgshrink_pgclient::target::{self, Endpoint, Keepalive};

fn endpoints(world: &World, conninfo: &str) -> Result<String, String> {
    let targets = target::targets(&world.parameters(conninfo), &world.around()).map_err(|e| e.to_string())?;
    let shown = |endpoint: Endpoint| match endpoint {
        Endpoint::Tcp { host, port } => format!("{host} {port}"),
        Endpoint::Unix(path) => path.display().to_string(),
        Endpoint::Abstract(name) => format!("@{name}"),
    };
    Ok(targets.iter().map(|target| shown(target.endpoint())).collect::<Vec<_>>().join("; "))
}

#[test]
fn hosts_addresses_and_ports_are_matched_as_in_libpq() {
    let world = World::new();
    let table = [
        ("", Ok("/var/run/postgresql/.s.PGSQL.5432")),
        ("host=''", Ok("/var/run/postgresql/.s.PGSQL.5432")),
        ("port=6432", Ok("/var/run/postgresql/.s.PGSQL.6432")),
        ("host=a", Ok("a 5432")),
        ("host=a,b,c port=1", Ok("a 1; b 1; c 1")),
        ("host=a,b port=1,2", Ok("a 1; b 2")),
        ("host=a,b port=,2", Ok("a 5432; b 2")),
        ("host=a, port=1,2", Ok("a 1; /var/run/postgresql/.s.PGSQL.2")),
        ("host=a,b hostaddr=1.1.1.1,", Ok("1.1.1.1 5432; b 5432")),
        ("hostaddr=1.1.1.1,2.2.2.2", Ok("1.1.1.1 5432; 2.2.2.2 5432")),
        ("hostaddr='' host=a", Ok("a 5432")),
        ("host=/s,@abs,::1 port=7", Ok("/s/.s.PGSQL.7; @abs/.s.PGSQL.7; ::1 7")),
        ("port=''", Ok("/var/run/postgresql/.s.PGSQL.5432")),
        ("postgres://a,b:7/", Ok("a 5432; b 7")),
        ("host=a,b hostaddr=1.1.1.1", Err("could not match 2 host names to 1 hostaddr values")),
        ("host=a,b port=1,2,3", Err("could not match 3 port numbers to 2 hosts")),
        ("host=a,b,c port=1,2", Err("could not match 2 port numbers to 3 hosts")),
        ("port=1,2", Err("could not match 2 port numbers to 1 hosts")),
        ("port=0", Err("invalid port number: \"0\" (allowed: 1 to 65535)")),
        ("port=65536", Err("invalid port number: \"65536\" (allowed: 1 to 65535)")),
        ("port=x", Err("invalid integer value \"x\" for connection option \"port\"")),
    ];
    for (conninfo, expected) in table {
        let expected = expected.map(str::to_owned).map_err(str::to_owned);
        assert_eq!(endpoints(&world, conninfo), expected, "{conninfo}");
    }
}

#[test]
fn without_debians_socket_directory_the_default_is_tmp() {
    let world = World::default().with_dir("/tmp");
    assert_eq!(endpoints(&world, ""), Ok("/tmp/.s.PGSQL.5432".to_owned()));
}

#[test]
fn certificates_are_checked_against_the_host_even_with_an_address() {
    let world = World::new();
    let one =
        |conninfo: &str| target::targets(&world.parameters(conninfo), &world.around()).unwrap().remove(0);
    let both = one("host=db.example hostaddr=10.0.0.1");
    assert_eq!(both.endpoint(), Endpoint::Tcp { host: "10.0.0.1".to_owned(), port: 5432 });
    assert_eq!((both.certificate_host(), both.server_name()), (Some("db.example"), Some("db.example")));
    assert_eq!(one("host=10.0.0.1").server_name(), None);
    assert_eq!(one("host=::1").server_name(), None);
    assert_eq!(one("hostaddr=10.0.0.1").certificate_host(), None);
    assert_eq!(both.passfile_host(), "db.example");
}

#[test]
fn keepalives_are_on_unless_turned_off() {
    let read = |conninfo: &str| target::keepalive(&World::new().parameters(conninfo));
    let on = Keepalive {
        enabled: true,
        idle_seconds: None,
        interval_seconds: None,
        count: None,
        user_timeout_ms: None,
    };
    assert_eq!(read(""), Ok(on.clone()));
    assert_eq!(read("keepalives=0"), Ok(Keepalive { enabled: false, ..on.clone() }));
    let set = read("keepalives_idle=9 keepalives_interval=-1 keepalives_count=0 tcp_user_timeout=1500");
    assert_eq!(set, Ok(Keepalive { idle_seconds: Some(9), user_timeout_ms: Some(1500), ..on }));
    assert!(read("tcp_user_timeout=soon").is_err());
}
