//! What `pgshrink cfs exec` does not run, and what it says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pgshrink_testkit::Stop;

use super::{done, exec, outcome};
use crate::compressed::{on_each_major, table};

#[test]
fn a_running_server_is_refused_but_for_reading() {
    on_each_major("cfs exec beside a running server", |server| {
        server.sql(&table("t", 5_000));
        server.sql("checkpoint");
        let data = server.cluster.data_dir();
        let (code, said) = outcome(exec(&server.cluster, &[], "cp").arg("-a").arg(&data).arg("/nowhere"));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("a server is running here. Stop it, or use --read-only"), "{said}");
        let file = server.sql("select pg_relation_filepath('t')");
        let copy = server.directory("copies").join("copy");
        done(
            exec(&server.cluster, &["--read-only"], "cp")
                .env("PGDATA", &data)
                .arg(data.join(&file))
                .arg(&copy),
        );
        let bytes: u64 = server.sql("select pg_relation_size('t')").parse().unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().len(), bytes);
        let mut writes = exec(&server.cluster, &["--read-only"], "truncate");
        let (code, said) = outcome(writes.env("PGDATA", &data).args(["-s", "0"]).arg(data.join(&file)));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("Read-only file system"), "{said}");
        assert_eq!(server.sql("select count(*) from t"), "5000");
    });
}

#[test]
fn programs_that_cannot_be_hooked_and_wrong_directories_are_refused() {
    on_each_major("refusals of cfs exec", |server| {
        server.sql(&table("t", 1_000));
        server.cluster.stop(Stop::Fast).unwrap();
        let data = server.cluster.data_dir().display().to_string();
        let there = ["--data-directory", data.as_str()];
        let scripts = server.directory("programs");
        let script = scripts.join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let other = scripts.join("other");
        fs::write(&other, "other").unwrap();
        for path in [&script, &other] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let refused = |options: &[&str], program: &Path, expected: &str| {
            let (code, said) = outcome(&mut exec(&server.cluster, options, program));
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains(expected), "expected {expected}\n{said}");
        };
        refused(&there, &script, "found a script. Name the program that it runs");
        refused(&there, &other, "found a file of another format");
        refused(&there, Path::new("no-such-program"), "no such program in PATH");
        refused(&there, Path::new("su"), "found a setuid or setgid program");
        for name in ["pg_upgrade", "postgres"] {
            refused(&there, &server.cluster.server().program(name), "found one that starts servers");
        }
        refused(&there, &scripts, "found: a directory");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o644)).unwrap();
        refused(&there, &other, "found: a file without execute permission");
        refused(&there, &scripts.join("missing"), "found: No such file");
        refused(
            &["--data-directory", "/tmp"],
            Path::new("cp"),
            "expected a data directory; found no PG_VERSION",
        );
        refused(
            &["--data-directory", "/nowhere"],
            Path::new("cp"),
            "expected a data directory; found: No such file",
        );
        refused(&[], Path::new("cp"), "found none: the program has no -D option");
        let library = ["--library", "/no/such.so", there[0], there[1]];
        refused(&library, Path::new("cp"), "/no/such.so: No such file");
    });
}
