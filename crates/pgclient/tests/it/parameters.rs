//! Explicit over service over environment over default.

use crate::world::World;
use pgshrink_pgclient::{Conninfo, Error, Parameters, Source};

#[test]
fn the_stronger_source_wins() {
    let world = World::new()
        .env("PGHOST", "env")
        .env("PGUSER", "env")
        .env("PGDATABASE", "env")
        .env("PGCOMPRESSION", "lz4")
        .env("PGSERVICE", "s")
        .file("/home/ann/.pg_service.conf", "[s]\nhost=service\nuser=service\ncompression=zstd\n");
    let merged = world.parameters("host=explicit");
    let table: [(&str, &[u8], Source); 6] = [
        ("host", b"explicit", Source::Explicit),
        ("user", b"service", Source::Service),
        ("dbname", b"env", Source::Environment),
        ("port", b"5432", Source::Default),
        ("compression", b"zstd", Source::Service),
        ("sslmode", b"prefer", Source::Default),
    ];
    for (keyword, value, source) in table {
        assert_eq!((merged.get(keyword), merged.source(keyword)), (Some(value), Some(source)), "{keyword}");
    }
}

#[test]
fn an_empty_explicit_value_hides_the_weaker_ones() {
    let world = World::new().env("PGHOSTADDR", "10.0.0.1").env("PGCOMPRESSION", "lz4");
    let merged = world.parameters("hostaddr='' compression=''");
    assert_eq!(merged.get("hostaddr"), Some(&b""[..]));
    assert_eq!(merged.get_nonempty("hostaddr"), None);
    assert_eq!(merged.get_nonempty("compression"), None);
}

#[test]
fn the_last_explicit_mention_wins() {
    assert_eq!(World::new().parameters("host=a host=b").get("host"), Some(&b"b"[..]));
    assert_eq!(World::new().parameters("postgres://a/?host=b").get("host"), Some(&b"b"[..]));
}

#[test]
fn sslmode_has_more_defaults_than_others() {
    let table = [
        (World::new(), "", "prefer"),
        (World::new().env("PGREQUIRESSL", "1"), "", "require"),
        (World::new().env("PGREQUIRESSL", "0"), "", "prefer"),
        (World::new().env("PGREQUIRESSL", "1").env("PGSSLMODE", "allow"), "", "allow"),
        (World::new(), "sslrootcert=system", "verify-full"),
        (World::new().env("PGSSLROOTCERT", "system"), "", "verify-full"),
        (World::new().env("PGSSLROOTCERT", "system"), "sslmode=require", "require"),
        (World::new().env("PGREQUIRESSL", "1"), "sslrootcert=system", "require"),
    ];
    for (world, conninfo, mode) in table {
        let merged = world.parameters(conninfo);
        assert_eq!(merged.text("sslmode"), Ok(Some(mode)), "{conninfo}");
    }
}

#[test]
fn a_service_that_is_not_there_is_an_error() {
    let conninfo = Conninfo::parse(b"service=nope").unwrap();
    let merged = Parameters::of(&conninfo, &World::new().around());
    assert_eq!(merged, Err(Error::ServiceNotFound { name: "nope".to_owned() }));
}

#[test]
fn debug_output_hides_secrets() {
    let world = World::new().env("PGPASSWORD", "hunter2");
    let shown = format!("{:?}", world.parameters("sslpassword=hunter2 user=ann"));
    assert!(shown.contains("ann") && shown.contains("***") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn integers_are_read_as_libpq_reads_them() {
    let world = World::new();
    assert_eq!(world.parameters("keepalives_idle=' 7 '").integer("keepalives_idle"), Ok(Some(7)));
    assert_eq!(world.parameters("").integer("keepalives_idle"), Ok(None));
    for wrong in ["7s", "", "99999999999"] {
        let read = world.parameters(&format!("keepalives_idle='{wrong}'")).integer("keepalives_idle");
        let message = read.unwrap_err().to_string();
        assert_eq!(
            message,
            format!("invalid integer value \"{wrong}\" for connection option \"keepalives_idle\"")
        );
    }
}
