//! Copies of a running server's files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pgshrink_testkit::{Stop, run};

use super::{Compressed, GUARD, on_each_major, sum, table};

/// `cp -a`, as the server's user or as somebody who may read everything.
fn copied(server: &Compressed, may_read_all: bool) -> Result<PathBuf, String> {
    let copy = server.directory(if may_read_all { "copy" } else { "copy-of-user" });
    let from = server.location.path().join("fast");
    // As the superuser has it; tests may run as an ordinary user.
    let mode = |directory: &Path, mode| {
        guards(directory).for_each(|guard| fs::set_permissions(guard, Permissions::from_mode(mode)).unwrap());
    };
    if may_read_all {
        mode(&from, 0o400);
    }
    let mut command = server.cluster.owner().command(Path::new("cp"));
    let done = run::output(command.arg("-a").arg(from.join(".")).arg(&copy));
    mode(&from, 0);
    done.map(|_| mode(&copy, 0)).map_err(|error| error.to_string())?;
    Ok(copy)
}

/// Guards in all directories of databases.
fn guards(tablespace: &Path) -> impl Iterator<Item = PathBuf> {
    let below = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let databases = below(tablespace.to_owned()).flat_map(below);
    databases.map(|path| path.join(GUARD)).filter(|guard| guard.exists())
}

/// Puts a directory in the place of the tablespace's.
fn replace(server: &Compressed, by: &Path) {
    let own = server.location.path().join("fast");
    fs::rename(&own, server.location.path().join("original")).unwrap();
    fs::rename(by, &own).unwrap();
}

fn refused(server: &Compressed) -> String {
    server.cluster.start().expect_err("a start with a copy of a running server's files");
    server.cluster.log().unwrap()
}

#[test]
fn a_copy_of_a_running_servers_files_fails_as_the_servers_user_and_keeps_a_server_from_starting() {
    on_each_major("copies of a running server's files", |server| {
        server.sql(&table("t", 5_000));
        let before = server.sql(&sum("t"));
        let said = copied(server, false).expect_err("a copy as the server's user");
        assert!(said.contains("pgshrink-compressed-files-here"), "{said}");
        let copy = copied(server, true).unwrap();
        server.cluster.stop(Stop::Immediate).unwrap();
        replace(server, &copy);
        let log = refused(server);
        assert!(log.contains("may be a copy made while a server was running"), "{log}");
        assert!(log.contains("pgshrink cfs accept"), "{log}");
        fs::rename(server.location.path().join("fast"), &copy).unwrap();
        fs::rename(server.location.path().join("original"), server.location.path().join("fast")).unwrap();
        server.cluster.start().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
    });
}

#[test]
fn a_copy_of_a_stopped_servers_files_is_as_good_as_they_are() {
    on_each_major("copies of a stopped server's files", |server| {
        server.sql(&table("t", 5_000));
        let before = server.sql(&sum("t"));
        server.cluster.stop(Stop::Fast).unwrap();
        let copy = copied(server, true).unwrap();
        replace(server, &copy);
        server.cluster.start().unwrap();
        assert_eq!(server.sql(&sum("t")), before);
        // It is the server's own now: after a crash it is no copy.
        server.sql("update t set word = word || 'x'");
        server.cluster.stop(Stop::Immediate).unwrap();
        server.cluster.start().unwrap();
        server.sql("select count(*) from t");
    });
}
