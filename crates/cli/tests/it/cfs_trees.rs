//! Packed trees: whole or refused, sealed or not, whatever interrupted their making.

use crate::cfs::{CONTAINER, cfs, ended, files, json, run};
use pgshrink_testkit::TempDir;
use pgshrink_testkit::wait::wait_until;
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MANIFEST: &str = "pgshrink-manifest.json";
const SECRET: &str = "the row that nobody may read";

/// Bytes that compress, with the secret at the start of every page.
pub(crate) fn pages(count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * 8192];
    for (number, page) in bytes.chunks_mut(8192).enumerate() {
        let text = format!("{SECRET} {number} ");
        page[24..24 + text.len()].copy_from_slice(text.as_bytes());
    }
    bytes
}

/// A data directory, as far as its files go: relations of all sizes, and what else a server keeps.
pub(crate) fn data_directory(dir: &Path) -> PathBuf {
    let data = dir.join("data");
    for folder in ["base/5", "global", "pg_wal", "pg_xact", "pg_tblspc"] {
        fs::create_dir_all(data.join(folder)).unwrap();
    }
    let text = |lines: usize| format!("{SECRET}\n").repeat(lines).into_bytes();
    let all: [(&str, Vec<u8>); 11] = [
        ("PG_VERSION", b"15\n".to_vec()),
        ("postgresql.conf", text(3)),
        ("base/5/PG_VERSION", b"15\n".to_vec()),
        ("base/5/pg_filenode.map", text(18)),
        ("base/5/16384", pages(40)),
        ("base/5/16390", pages(3)),
        ("base/5/16391", Vec::new()),
        ("base/5/16392", pages(2)[..9000].to_vec()),
        ("global/1262", pages(1)),
        ("pg_wal/000000010000000000000001", text(40_000)),
        ("pg_xact/0000", pages(6)),
    ];
    all.iter().for_each(|(name, bytes)| fs::write(data.join(name), bytes).unwrap());
    data
}

pub(crate) fn key(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn a_sealed_tree_holds_nothing_in_clear_and_gives_all_of_it_back() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let (right, wrong) =
        (key(dir.path(), "right", &"5a".repeat(32)), key(dir.path(), "wrong", &"5b".repeat(32)));
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    run(&[&"pack", &"--seal", &"--key-file", &right, &data, &there], 0);
    for (name, bytes) in files(&there) {
        assert!(name.ends_with(CONTAINER), "{} is no container", name.display());
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "{}", name.display());
    }
    // A wrong key is an error, and nothing was found whole by it.
    for words in [&["--key-file", wrong.to_str().unwrap()][..], &[]] {
        let said = ended(&cfs(&[&"verify", &there]).args(words).output().unwrap(), 2);
        assert!(!said.contains("all intact") && said.contains("1 NOT VERIFIED"), "{said}");
        let said = ended(&cfs(&[&"verify", &"--no-manifest", &there]).args(words).output().unwrap(), 2);
        assert!(!said.contains("all intact") && said.contains("11 NOT VERIFIED"), "{said}");
        ended(&cfs(&[&"unpack", &there, &back]).args(words).output().unwrap(), 2);
        assert!(!back.exists());
    }
    assert!(run(&[&"verify", &"--key-file", &right, &there], 0).contains("all intact"));
    run(&[&"unpack", &"--key-file", &right, &there, &back], 0);
    assert!(files(&back) == files(&data));

    // The manifest is under the new key as well.
    run(&[&"rekey", &"--new-key-file", &wrong, &"--key-file", &right, &there], 0);
    assert!(run(&[&"verify", &"--key-file", &wrong, &there], 0).contains("all intact"));
    let said = run(&[&"unpack", &"--key-file", &right, &there, &dir.path().join("old")], 2);
    assert!(said.contains("keys supplied matches"), "{said}");

    // One file more, one less.
    fs::remove_dir_all(there.join("pg_xact/0000")).unwrap();
    let said = run(&[&"verify", &"--key-file", &wrong, &there], 1);
    assert!(said.contains("MISSING") && said.contains("pg_xact/0000"), "{said}");
}

#[test]
fn what_is_too_large_for_a_container_is_refused_before_anything_is_sealed() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    fs::File::create(data.join("server.log")).unwrap().set_len(1 << 30).unwrap();
    let key = key(dir.path(), "key", &"5a".repeat(32));
    let there = dir.path().join("there");
    let said = run(&[&"pack", &"--seal", &"--key-file", &key, &data, &there], 2);
    assert!(said.contains("server.log") && said.contains("move it out of SOURCE"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left of it");
}

#[test]
fn missing_extra_and_changed_files_are_named_by_verify_and_by_unpack() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    run(&[&"pack", &data, &there], 0);
    let whole = run(&[&"verify", &there], 0);
    assert!(whole.contains("1 container, 40 pages: all intact"), "{whole}");
    // A tree without any container is checked all the same.
    let few = dir.path().join("few");
    run(&[&"pack", &data.join("pg_xact"), &few], 0);
    assert!(run(&[&"verify", &few], 0).contains("all intact"));
    fs::write(few.join("0000"), "").unwrap();
    assert!(run(&[&"verify", &few], 1).contains("CHANGED"));
    // A part of it, too.
    assert!(run(&[&"verify", &there.join("base")], 0).contains("all intact"));

    fs::write(there.join("pg_xact/0000"), pages(5)).unwrap();
    fs::remove_file(there.join("base/5/pg_filenode.map")).unwrap();
    fs::write(there.join("base/5/16500"), pages(1)).unwrap();
    let report = json(&[&"verify", &there], 1);
    let list = |what: &str| report["trees"][0][what].as_array().unwrap().clone();
    assert_eq!(list("changed"), ["pg_xact/0000"]);
    assert_eq!(list("missing"), ["base/5/pg_filenode.map"]);
    assert_eq!(list("extra"), ["base/5/16500"]);
    let said = run(&[&"unpack", &there, &dir.path().join("back")], 1);
    for word in ["CHANGED", "MISSING", "EXTRA"] {
        assert!(said.contains(word), "{said}");
    }

    // A container that went, and one in its place that is another relation's.
    fs::remove_dir_all(there.join("base/5/16384")).unwrap();
    let other = dir.path().join("other");
    fs::write(data.join("base/5/16384"), pages(41)).unwrap();
    run(&[&"pack", &data.join("base/5/16384"), &other], 0);
    let said = run(&[&"verify", &"--no-manifest", &other], 0);
    assert!(said.contains("41 pages"), "{said}");
    fs::rename(&other, there.join("base/5/16384")).unwrap();
    fs::remove_file(there.join("base/5/16384").join(MANIFEST)).unwrap();
    let report = json(&[&"verify", &there], 1);
    assert_eq!(report["trees"][0]["changed"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn the_directory_of_a_relation_without_its_container_is_not_called_whole() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    run(&[&"pack", &data, &there], 0);
    // Directories that are no relation's.
    fs::create_dir_all(there.join("base/6")).unwrap();
    fs::create_dir_all(there.join("base/5/pgsql_tmp")).unwrap();
    assert!(run(&[&"verify", &"--no-manifest", &there], 0).contains("all intact"));
    for name in ["16500", "16500_fsm", "16500.3"] {
        let empty = there.join("base/5").join(name);
        fs::create_dir(&empty).unwrap();
        let said = run(&[&"verify", &"--no-manifest", &there], 2);
        assert!(
            said.contains(&empty.display().to_string()) && said.contains("segment.pgshrink, is missing"),
            "{said}"
        );
        fs::remove_dir(&empty).unwrap();
    }
}

#[test]
fn a_tree_without_its_manifest_is_refused() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    run(&[&"pack", &data, &there], 0);
    let text = fs::read(there.join(MANIFEST)).unwrap();
    fs::write(there.join(MANIFEST), &text[..text.len() / 2]).unwrap();
    assert!(run(&[&"verify", &there], 2).contains("the manifest is damaged"));
    fs::remove_file(there.join(MANIFEST)).unwrap();
    let said = run(&[&"verify", &there], 2);
    assert!(said.contains("pack was interrupted") && !said.contains("all intact"), "{said}");
    let back = dir.path().join("back");
    assert!(run(&[&"unpack", &there, &back], 2).contains("pack was interrupted"));
    assert!(run(&[&"verify", &"--no-manifest", &there], 0).contains("all intact"));
    run(&[&"unpack", &"--no-manifest", &there, &back], 0);
    assert!(files(&back) == files(&data));
}

#[test]
fn what_a_run_left_or_another_one_makes_is_not_touched() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    let incomplete = dir.path().join("there.incomplete");
    fs::create_dir(&incomplete).unwrap();
    let lock = fs::File::open(&incomplete).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let said = run(&[&"pack", &data, &there], 2);
    assert!(said.contains("another pgshrink process is writing there"), "{said}");
    drop(lock);
    // A program that another test is just starting may hold a copy of the descriptor until it runs.
    let free = || {
        let other = fs::File::open(&incomplete).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    wait_until(Duration::from_secs(10), "the lock to be free", free).unwrap();
    let said = run(&[&"pack", &data, &there], 2);
    assert!(said.contains("left by an interrupted run; remove it"), "{said}");
    assert!(incomplete.exists() && !there.exists());
    fs::remove_dir(&incomplete).unwrap();
    // With a slash at its end, as a shell completes it.
    run(&[&"pack", &data, &format!("{}/", there.display())], 0);
    assert!(!incomplete.exists());
    assert!(run(&[&"pack", &there, &dir.path().join("twice")], 2).contains("is already packed"));
}

#[test]
fn files_of_a_live_server_are_refused_unless_forced() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let pid_file = data.join("postmaster.pid");
    fs::write(&pid_file, format!("{}\n/data\n", std::process::id())).unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    for source in [data.clone(), data.join("base/5"), data.join("base/5/16384")] {
        let said = run(&[&"pack", &source, &one], 2);
        assert!(said.contains("a server is running here") && said.contains("--force"), "{said}");
        assert!(!one.exists());
    }
    run(&[&"pack", &"--force", &data, &one], 0);
    // Its process is gone: the server crashed, and nobody writes.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    fs::write(&pid_file, format!("{}\n", gone.id())).unwrap();
    run(&[&"pack", &data, &two], 0);
    fs::write(&pid_file, "nothing\n").unwrap();
    assert!(run(&[&"pack", &data, &dir.path().join("three")], 2).contains("contains no process id"));
}

#[test]
fn links_are_followed_where_a_data_directory_goes_on_and_reported_elsewhere() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let space = dir.path().join("space");
    fs::create_dir_all(space.join("PG_15_202209061/5")).unwrap();
    fs::write(space.join("PG_15_202209061/5/16400"), pages(9)).unwrap();
    symlink(&space, data.join("pg_tblspc/16399")).unwrap();
    fs::rename(data.join("pg_wal"), dir.path().join("wal")).unwrap();
    symlink(dir.path().join("wal"), data.join("pg_wal")).unwrap();
    symlink("/etc/ssl/cert.pem", data.join("server.crt")).unwrap();
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    let said = run(&[&"pack", &data, &there], 0);
    assert!(said.contains("pg_tblspc/16399 is a link") && said.contains("pg_wal is a link"), "{said}");
    assert!(
        said.contains("server.crt was copied as a link; its target, /etc/ssl/cert.pem, was not copied"),
        "{said}"
    );
    assert!(there.join("pg_tblspc/16399/PG_15_202209061/5/16400").join(CONTAINER).is_file());
    assert!(run(&[&"verify", &there], 0).contains("all intact"));
    let said = run(&[&"unpack", &there, &back], 0);
    assert!(said.contains("pg_tblspc/16399 was a link to"), "{said}");
    assert_eq!(fs::read(back.join("pg_tblspc/16399/PG_15_202209061/5/16400")).unwrap(), pages(9));
    assert!(back.join("pg_wal/000000010000000000000001").is_file());
    fs::remove_file(there.join("server.crt")).unwrap();
    symlink("/etc/passwd", there.join("server.crt")).unwrap();
    assert!(run(&[&"verify", &there], 1).contains("CHANGED"));
}

#[test]
fn a_file_that_is_no_relation_is_not_packed_by_itself() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    for name in ["postgresql.conf", "base/5/16390", "base/5/16392"] {
        let said = run(&[&"pack", &data.join(name), &there], 2);
        assert!(said.contains("nothing to pack"), "{said}");
        assert!(!there.exists());
    }
    let key = key(dir.path(), "key", &"5a".repeat(32));
    run(&[&"pack", &"--seal", &"--key-file", &key, &data.join("postgresql.conf"), &there], 0);
    let back = dir.path().join("back");
    run(&[&"unpack", &"--key-file", &key, &there, &back], 0);
    assert_eq!(fs::read(back).unwrap(), fs::read(data.join("postgresql.conf")).unwrap());
}

#[test]
fn a_database_whose_directory_has_another_name_is_not_copied_as_if_it_were_packed() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let (named, there) = (dir.path().join("shop"), dir.path().join("there"));
    fs::rename(data.join("base/5"), &named).unwrap();
    let said = run(&[&"pack", &named, &there], 2);
    assert!(said.contains("nothing to pack") && said.contains("is not the OID of a database"), "{said}");
    let said = run(&[&"pack", &named.join("16384"), &there], 2);
    assert!(said.contains("which has its OID as its name"), "{said}");
    assert!(!there.exists());
    let numbered = dir.path().join("5");
    fs::rename(&named, &numbered).unwrap();
    assert!(run(&[&"pack", &numbered, &there], 0).contains("1 relation file packed"));
    // What has no relation at all is copied, and that is said.
    let said = run(&[&"pack", &data.join("pg_xact"), &dir.path().join("copied")], 0);
    assert!(said.contains("everything was copied unchanged. Relation files are packed in global"), "{said}");
}
