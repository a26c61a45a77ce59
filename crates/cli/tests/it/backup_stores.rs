//! Backups in more stores than `make test` has.

use super::backup::{SUMS, boot, start};
use pgshrink_testkit::{Azure, S3, Server, TempDir, skipped};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// An encrypted backup there is listed, verified, and restored to a server that answers.
fn back_up_and_restore(place: &str, variables: &[(String, String)]) {
    let cluster = start(&Server::find(15).unwrap());
    let expected = cluster.sql(SUMS).unwrap();
    let keep = TempDir::new().unwrap();
    let key = keep.path().join("key");
    fs::write(&key, "1".repeat(64)).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        command.args(words).args(["-q", "--json"]).env("PGSHRINK_BACKUP_KEY_FILE", &key);
        let output = command.envs(variables.iter().cloned()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    };
    run(&["backup", &cluster.conninfo("postgres"), "--to", place, "--checkpoint", "fast"]);
    run(&["list", "--from", place]);
    run(&["verify", "latest", "--from", place]);
    let copy = boot(cluster.server(), |into| {
        run(&["restore", "latest", "--from", place, "--into", into.to_str().unwrap()]);
    });
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
}

#[test]
#[ignore = "soak: needs versitygw"]
fn a_backup_is_restored_from_a_second_s3_server() {
    if let Err(missing) = S3::find_versity() {
        return skipped("backup_stores::a_second_s3_server", &missing);
    }
    let server = S3::start_versity().unwrap();
    back_up_and_restore("s3://backups/db1", &server.variables("secret"));
}

#[test]
#[ignore = "soak: needs Azurite"]
fn a_backup_is_restored_from_azure() {
    if let Err(missing) = Azure::find() {
        return skipped("backup_stores::azure", &missing);
    }
    let server = Azure::start().unwrap();
    back_up_and_restore("az://backups/db1", &server.variables());
}
