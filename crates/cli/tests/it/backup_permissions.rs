//! Who may read and run the files of a restored cluster.

use crate::backup::{SUMS, boot, done, give, repository, start};
use crate::backup_formats::{mode, verified};
use pgshrink_testkit::{Cluster, Server, TempDir};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// What people put into a data directory, with other modes than the server's files have.
const OWN: [(&str, u32); 3] = [("server.key", 0o600), ("archive.sh", 0o750), ("mine.sh", 0o700)];

/// Puts them there.
fn add(cluster: &Cluster) {
    let home = fs::metadata(cluster.data_dir()).unwrap();
    for (name, mode) in OWN {
        let path = cluster.data_dir().join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        give(&path, home.uid(), home.gid());
    }
    fs::write(cluster.data_dir().join("empty.conf"), "").unwrap();
    give(&cluster.data_dir().join("empty.conf"), home.uid(), home.gid());
}

/// Runs it where new files are for their owner alone, unless it says otherwise.
fn under_a_strict_umask(words: &[&str]) {
    let program = env!("CARGO_BIN_EXE_pgshrink");
    let mut command = Command::new("sh");
    let output = command.args(["-c", "umask 077; exec \"$@\"", "sh", program]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn check_group_access(into: &Path, own: &[(&str, u32)]) {
    for folder in ["", "base/1", "pg_wal", "pg_wal/archive_status", "pg_notify"] {
        assert_eq!(mode(&into.join(folder)), 0o750, "{folder}");
    }
    for file in ["global/pg_control", "PG_VERSION", "backup_label", "backup_manifest", "empty.conf"] {
        assert_eq!(mode(&into.join(file)), 0o640, "{file}");
    }
    let mut segments = fs::read_dir(into.join("pg_wal")).unwrap().map(|entry| entry.unwrap().path());
    let segment = segments.find(|path| path.is_file()).unwrap();
    assert_eq!(mode(&segment), 0o640);
    own.iter().for_each(|(name, expected)| assert_eq!(mode(&into.join(name)), *expected, "{name}"));
}

#[test]
fn group_access_and_scripts_come_back_in_every_format() {
    let server = Server::find(15).unwrap();
    let cluster = Cluster::builder().server(&server).initdb_arg("--allow-group-access").start().unwrap();
    add(&cluster);
    let (keep, conninfo) = (TempDir::new().unwrap(), cluster.conninfo("postgres"));
    let take = |to: &Path, words: &[&str]| {
        let start = ["backup", &conninfo, "--to", to.to_str().unwrap(), "--checkpoint", "fast"];
        under_a_strict_umask(&[&start, words].concat());
    };
    let restore = |from: &Path, into: &Path| {
        let [from, into] = [from, into].map(|path| path.to_str().unwrap());
        under_a_strict_umask(&["restore", "latest", "--from", from, "--into", into]);
    };
    for threads in ["1", "4"] {
        let into = keep.path().join(format!("plain{threads}"));
        // A place that is there gets the mode of the server's.
        fs::create_dir(&into).unwrap();
        fs::set_permissions(&into, fs::Permissions::from_mode(0o755)).unwrap();
        take(&into, &["--format", "plain", "--threads", threads]);
        check_group_access(&into, &OWN);
        verified(&server, &into, &[]);
    }
    let [stream, parallel] = ["stream", "parallel"].map(|name| keep.path().join(name));
    take(&stream, &[]);
    restore(&stream, &keep.path().join("restored"));
    check_group_access(&keep.path().join("restored"), &OWN);
    // SQL does not say modes: all files are as the server makes them.
    take(&parallel, &["--route", "parallel"]);
    restore(&parallel, &keep.path().join("again"));
    check_group_access(&keep.path().join("again"), &OWN.map(|(name, _)| (name, 0o640)));
    let copy = boot(&server, |into| restore(&stream, into));
    assert_eq!(copy.sql("show data_directory_mode").unwrap(), "0750");
}

#[test]
fn without_group_access_files_are_for_their_owner() {
    let cluster = start(&Server::find(15).unwrap());
    add(&cluster);
    // Whatever the modes of files are, the server's directory lets nobody else in.
    let notes = cluster.data_dir().join("notes.txt");
    fs::write(&notes, "notes").unwrap();
    fs::set_permissions(&notes, fs::Permissions::from_mode(0o666)).unwrap();
    let keep = TempDir::new().unwrap();
    let from = repository(&keep);
    done(&["backup", &cluster.conninfo("postgres"), "--to", &from, "--checkpoint", "fast"]);
    let expected = cluster.sql(SUMS).unwrap();
    let copy = boot(cluster.server(), |into| {
        done(&["restore", "latest", "--from", &from, "--into", into.to_str().unwrap()]);
        for folder in ["", "base/1", "pg_wal"] {
            assert_eq!(mode(&into.join(folder)), 0o700, "{folder}");
        }
        for file in ["global/pg_control", "PG_VERSION", "empty.conf", "backup_manifest"] {
            assert_eq!(mode(&into.join(file)), 0o600, "{file}");
        }
        OWN.iter().for_each(|(name, expected)| assert_eq!(mode(&into.join(name)), *expected, "{name}"));
        assert_eq!(mode(&into.join("notes.txt")), 0o640, "nothing for others");
    });
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
}
