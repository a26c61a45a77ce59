//! `pgshrink cfs` refuses what would mislead: plain files where sealed ones are expected, copies that lack a part, wrong keys.

use crate::cfs::{CONTAINER, cfs, ended, files, json, run};
use crate::cfs_trees::{data_directory, key, pages};
use pgshrink_testkit::{Kind, Missing, TempDir, or_skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST: &str = "pgshrink-manifest.json";

/// A data directory packed sealed and packed plain, and the key.
fn sealed_and_plain(dir: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let data = data_directory(dir);
    let key = key(dir, "key", &"5a".repeat(32));
    let (sealed, plain) = (dir.join("sealed"), dir.join("plain"));
    run(&[&"pack", &"--seal", &"--key-file", &key, &data, &sealed], 0);
    run(&[&"pack", &data, &plain], 0);
    (sealed, plain, key)
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

/// Verify and unpack, with the key, both refuse it and name the file.
fn both_refuse(tree: &Path, key: &Path, more: &[&str], name: &str) {
    let back = tree.with_extension("back");
    let verify = cfs(&[&"verify", &"--key-file", &key, &tree]).args(more).output().unwrap();
    let unpack = cfs(&[&"unpack", &"--key-file", &key, &tree, &back]).args(more).output().unwrap();
    for output in [verify, unpack] {
        let said = ended(&output, 2);
        assert!(said.contains("expected an encrypted container, because a key was given; found"), "{said}");
        assert!(said.contains(name) && said.contains("leave out --key-file"), "{said}");
        assert!(!said.contains("all intact"), "{said}");
    }
    assert!(!back.exists());
}

#[test]
fn with_a_key_what_is_not_sealed_is_an_error() {
    let dir = TempDir::new().unwrap();
    let (sealed, plain, key) = sealed_and_plain(dir.path());
    let forged = dir.path().join("forged");

    // A plain tree in the place of the sealed one, with a manifest that fits.
    both_refuse(&plain, &key, &[], MANIFEST);
    both_refuse(&plain, &key, &["--no-manifest"], "PG_VERSION");
    both_refuse(&plain.join("base/5/16384"), &key, &["--no-manifest"], "16384");
    // Part of it: what is left is sealed, and the list is not.
    copy(&sealed, &forged);
    for name in [MANIFEST, "postgresql.conf", "base"] {
        fs::remove_dir_all(forged.join(name)).unwrap();
    }
    fs::write(forged.join("postgresql.conf"), "archive_command = 'false'\n").unwrap();
    fs::copy(plain.join(MANIFEST), forged.join(MANIFEST)).unwrap();
    both_refuse(&forged, &key, &[], MANIFEST);
    // The list in a container, which is not sealed.
    let other = dir.path().join("other");
    run(&[&"pack", &plain_relation(dir.path()), &other], 0);
    fs::remove_file(other.join(MANIFEST)).unwrap();
    copy(&sealed, &forged);
    fs::remove_dir_all(forged.join(MANIFEST)).unwrap();
    copy(&other, &forged.join(MANIFEST));
    both_refuse(&forged, &key, &[], "container that is not encrypted");
    // A file of the same content, plain; a container that is not sealed.
    copy(&sealed, &forged);
    fs::remove_dir_all(forged.join("postgresql.conf")).unwrap();
    fs::copy(plain.join("postgresql.conf"), forged.join("postgresql.conf")).unwrap();
    both_refuse(&forged, &key, &[], "postgresql.conf");
    copy(&sealed, &forged);
    copy(&plain.join("base/5/16384"), &forged.join("base/5/16384"));
    both_refuse(&forged, &key, &[], "base/5/16384");
    let new = dir.path().join("new");
    let said = run(&[&"salvage", &"--key-file", &key, &forged.join("base/5/16384"), &new], 2);
    assert!(said.contains("expected an encrypted container") && !new.exists(), "{said}");
    // The variable is a key as well.
    let output = cfs(&[&"verify", &plain]).env("PG_CIPHER_KEY", "5a".repeat(32)).output().unwrap();
    assert!(ended(&output, 2).contains("expected an encrypted container"));
    // Both trees are whole by their own rules.
    assert!(run(&[&"verify", &"--key-file", &key, &sealed], 0).contains("all intact"));
    assert!(run(&[&"verify", &plain], 0).contains("all intact"));
}

#[test]
fn with_a_key_plain_files_are_taken_only_when_that_is_said() {
    let dir = TempDir::new().unwrap();
    let (sealed, plain, key) = sealed_and_plain(dir.path());
    // As a server's encrypted tablespace: sealed containers, one that is not, and plain files.
    let mixed = dir.path().join("mixed");
    fs::create_dir(&mixed).unwrap();
    copy(&sealed.join("base/5/16384"), &mixed.join("16384"));
    copy(&plain.join("base/5/16384"), &mixed.join("16390"));
    fs::write(mixed.join("16384_vm"), pages(1)).unwrap();
    both_refuse(&mixed, &key, &["--no-manifest"], "--allow-plain");
    let with: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"--no-manifest", &"--allow-plain", &"--key-file", &key];
    let said = run(&[&[&"verify" as &dyn AsRef<std::ffi::OsStr>, &mixed], &with[..]].concat(), 0);
    assert!(said.contains("2 containers"), "{said}");
    let back = dir.path().join("back");
    run(&[&[&"unpack" as &dyn AsRef<std::ffi::OsStr>, &mixed, &back], &with[..]].concat(), 0);
    assert_eq!(fs::read(back.join("16384")).unwrap(), fs::read(back.join("16390")).unwrap());
    assert_eq!(fs::read(back.join("16384_vm")).unwrap(), pages(1));
    // Damage is damage all the same, and a wrong key is one.
    let other = crate::cfs_trees::key(dir.path(), "other", &"5b".repeat(32));
    let output =
        cfs(&[&"verify", &"--no-manifest", &"--allow-plain", &"--key-file", &other, &mixed]).output();
    assert!(ended(&output.unwrap(), 2).contains("keys supplied matches"));
}

/// A relation's file in a database's directory of its own.
fn plain_relation(dir: &Path) -> PathBuf {
    let database = dir.join("base/7");
    fs::create_dir_all(&database).unwrap();
    fs::write(database.join("PG_VERSION"), "15\n").unwrap();
    fs::write(database.join("16384"), pages(10)).unwrap();
    database.join("16384")
}

#[test]
fn a_key_without_seal_packs_nothing() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let key = key(dir.path(), "key", &"5a".repeat(32));
    let there = dir.path().join("there");
    let command = format!("cat '{}'", key.display());
    for words in [["--key-file", key.to_str().unwrap()], ["--key-command", &command]] {
        let said = ended(&cfs(&[&"pack", &data, &there]).args(words).output().unwrap(), 2);
        assert!(said.contains("a key was given, but not --seal") && said.contains(words[0]), "{said}");
    }
    let output = cfs(&[&"pack", &data, &there]).env("PG_CIPHER_KEY", "5a".repeat(32)).output().unwrap();
    assert!(ended(&output, 2).contains("PG_CIPHER_KEY: a key was given, but not --seal"));
    assert!(!there.exists() && !dir.path().join("there.incomplete").exists());
}

/// With a tablespace and pg_wal elsewhere: the data directory and the tablespace.
fn with_links(dir: &Path) -> (PathBuf, PathBuf) {
    let data = data_directory(dir);
    let space = dir.join("space");
    fs::create_dir_all(space.join("PG_15_202209061/5")).unwrap();
    fs::write(space.join("PG_15_202209061/5/16400"), pages(9)).unwrap();
    symlink(&space, data.join("pg_tblspc/16399")).unwrap();
    fs::rename(data.join("pg_wal"), dir.join("wal")).unwrap();
    symlink("../wal", data.join("pg_wal")).unwrap();
    (data, space)
}

#[test]
fn a_live_servers_tablespace_is_refused_by_whatever_link_it_is_named() {
    let dir = TempDir::new().unwrap();
    let (data, space) = with_links(dir.path());
    fs::write(data.join("postmaster.pid"), format!("{}\n", std::process::id())).unwrap();
    let there = dir.path().join("there");
    symlink("data/pg_tblspc/16399", dir.path().join("fast")).unwrap();
    let inside = "PG_15_202209061/5";
    let refused = |output: std::process::Output| {
        let said = ended(&output, 2);
        assert!(said.contains("a server is running here") && said.contains("data/postmaster.pid"), "{said}");
        assert!(!there.exists());
    };
    for source in [
        data.join("pg_tblspc/16399"),
        data.join("pg_tblspc/16399").join(inside),
        data.join("pg_tblspc/16399").join(inside).join("16400"),
        data.join("base/../pg_tblspc/16399"),
        data.join("pg_wal"),
        dir.path().join("fast").join(inside),
    ] {
        refused(cfs(&[&"pack", &source, &there]).output().unwrap());
    }
    // From a working directory that a shell went to by the link.
    let by_link = data.join("pg_tblspc/16399").join(inside);
    for source in [".", "16400"] {
        let mut command = cfs(&[&"pack", &source, &there]);
        refused(command.current_dir(&by_link).env("PWD", &by_link).output().unwrap());
    }
    let mut command = cfs(&[&"pack", &"pg_tblspc/16399", &there]);
    refused(command.current_dir(&data).env_remove("PWD").output().unwrap());
    // A variable that is not of this directory is not believed.
    let mut command = cfs(&[&"pack", &".", &there]);
    ended(&command.current_dir(&space).env("PWD", &data).output().unwrap(), 0);
    run(&[&"pack", &"--force", &data.join("pg_tblspc/16399"), &dir.path().join("forced")], 0);
    fs::remove_file(data.join("postmaster.pid")).unwrap();
    run(&[&"pack", &data.join("pg_tblspc/16399"), &dir.path().join("stopped")], 0);
}

#[test]
fn a_tablespace_link_that_leads_nowhere_is_refused_unless_forced() {
    let dir = TempDir::new().unwrap();
    let (data, space) = with_links(dir.path());
    let there = dir.path().join("there");
    fs::rename(&space, dir.path().join("unmounted")).unwrap();
    let said = run(&[&"pack", &data, &there], 2);
    assert!(said.contains("pg_tblspc/16399: expected a link to a directory"), "{said}");
    assert!(said.contains(space.to_str().unwrap()) && said.contains("No such file"), "{said}");
    fs::write(&space, "a file").unwrap();
    assert!(run(&[&"pack", &data, &there], 2).contains("it is not a directory"));
    fs::remove_file(&space).unwrap();
    assert!(!there.exists() && !dir.path().join("there.incomplete").exists());
    let said = run(&[&"pack", &"--force", &data, &there], 0);
    assert!(said.contains("pg_tblspc/16399 was copied as a link"), "{said}");
    fs::rename(dir.path().join("unmounted"), &space).unwrap();
    run(&[&"pack", &data, &dir.path().join("mounted")], 0);
}

#[test]
fn notes_of_links_are_of_what_is_unpacked() {
    let dir = TempDir::new().unwrap();
    let (data, _) = with_links(dir.path());
    let there = dir.path().join("there");
    run(&[&"pack", &data, &there], 0);
    let said = run(&[&"unpack", &there.join("base"), &dir.path().join("base-back")], 0);
    assert!(!said.contains("was a link to"), "{said}");
    let said = run(&[&"unpack", &there.join("pg_tblspc"), &dir.path().join("space-back")], 0);
    assert!(said.contains("16399 was a link to") && !said.contains("pg_wal"), "{said}");
}

/// Another user, who may do less.
fn as_nobody() -> Result<u32, Missing> {
    if rustix::process::geteuid().is_root() {
        return Ok(65534);
    }
    let missing =
        Missing::new("a tree that may not be read", "this is not root", "root, who may be another user");
    Err(missing.of(Kind::Privilege))
}

#[test]
fn a_manifest_that_may_not_be_looked_for_is_not_taken_for_an_interrupted_pack() {
    let nobody = or_skip!("a tree of another user", as_nobody());
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (_, plain, _) = sealed_and_plain(dir.path());
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o700)).unwrap();
    let back = dir.path().join("back");
    for mut command in [cfs(&[&"verify", &plain]), cfs(&[&"unpack", &plain, &back])] {
        let said = ended(&command.uid(nobody).gid(nobody).output().unwrap(), 2);
        assert!(said.contains("Permission denied") && !said.contains("interrupted"), "{said}");
    }
}

#[test]
fn a_wrong_key_is_an_error_of_every_command() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let [right, wrong, new] = ["5a", "5b", "5c"].map(|text| key(dir.path(), text, &text.repeat(32)));
    let there = dir.path().join("there");
    run(&[&"pack", &"--seal", &"--key-file", &right, &data, &there], 0);
    let (back, salvaged) = (dir.path().join("back"), dir.path().join("salvaged"));
    let one = there.join("base/5/16384");
    let commands: [Vec<&dyn AsRef<std::ffi::OsStr>>; 5] = [
        vec![&"info", &there],
        vec![&"verify", &there],
        vec![&"unpack", &there, &back],
        vec![&"rekey", &"--new-key-file", &new, &there],
        vec![&"salvage", &one, &salvaged],
    ];
    for words in &commands {
        let said = ended(&cfs(words).arg("--key-file").arg(&wrong).output().unwrap(), 2);
        // rekey has two keys, and says so of both.
        let reason =
            if words[0].as_ref() == "rekey" { "the old key does not match" } else { "keys supplied matches" };
        assert!(said.contains(reason) && said.contains("--key-file"), "{said}");
    }
    for words in &commands[1..3] {
        let said = ended(&cfs(words).output().unwrap(), 2);
        assert!(said.contains("no key was given; give it with --key-file"), "{said}");
    }
    // Damage elsewhere is still distinguished from a wrong key.
    fs::write(one.join(CONTAINER), [7; 100]).unwrap();
    run(&[&"info", &"--key-file", &wrong, &there], 1);
    run(&[&"rekey", &"--new-key-file", &new, &"--key-file", &wrong, &there], 1);
}

#[test]
fn a_key_file_with_blanks_around_the_key_and_one_that_is_a_directory() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let bare = key(dir.path(), "bare", &"5a".repeat(32));
    let blanks = key(dir.path(), "blanks", &format!(" {}\n\n", "5a".repeat(32)));
    let there = dir.path().join("there");
    run(&[&"pack", &"--seal", &"--key-file", &blanks, &data, &there], 0);
    assert!(run(&[&"verify", &"--key-file", &bare, &there], 0).contains("all intact"));
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for mode in [0o755, 0o700] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let said = run(&[&"verify", &"--key-file", &folder, &there], 2);
        assert!(said.contains("folder: expected a file with the key, found a directory"), "{said}");
    }
}

#[test]
fn differences_say_what_was_expected_what_was_found_and_what_to_do() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    run(&[&"pack", &data, &there], 0);
    fs::write(there.join("PG_VERSION"), "16\n").unwrap();
    fs::remove_file(there.join("base/5/PG_VERSION")).unwrap();
    fs::write(there.join("extra"), "").unwrap();
    // sha256sum of "15\n", of "16\n", and of nothing.
    let lines = [
        "base/5/PG_VERSION: expected a file of 3 bytes with sha256 238903180cc104ec..., found nothing",
        "extra: expected nothing, found a file of 0 bytes with sha256 e3b0c44298fc1c14...",
        "/PG_VERSION: expected a file of 3 bytes with sha256 238903180cc104ec..., found a file of 3 bytes with sha256 e6c21e8d260fe718...",
        "next step: get the listed files from another copy",
    ];
    let back = dir.path().join("back");
    for said in [run(&[&"verify", &there], 1), run(&[&"unpack", &there, &back], 1)] {
        lines.iter().for_each(|line| assert!(said.contains(line), "{line}\n{said}"));
    }
    let report = json(&[&"verify", &there], 1);
    let detail = &report["trees"][0]["details"]["base/5/PG_VERSION"];
    assert!(detail["expected"].is_string() && detail["found"].is_null(), "{report}");
}

#[test]
fn the_examples_of_the_help_run() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    fs::rename(data.join("base/5"), data.join("base/16384")).unwrap();
    fs::create_dir_all(dir.path().join("backup/packed")).unwrap();
    fs::create_dir_all(dir.path().join("restore")).unwrap();
    let help = run(&[&"--help"], 0);
    let is_example = |line: &&str| {
        ["pack base", "verify /backup", "unpack /backup"].iter().any(|start| line.contains(start))
    };
    let examples: Vec<&str> = help.lines().filter(is_example).collect();
    assert_eq!(examples.len(), 3, "{help}");
    for example in examples {
        let place =
            |word: &str| word.strip_prefix('/').map(|rest| dir.path().join(rest)).unwrap_or(word.into());
        let words: Vec<PathBuf> = example.split_whitespace().skip(2).map(place).collect();
        ended(&cfs(&[]).args(words).current_dir(&data).output().unwrap(), 0);
    }
    assert!(files(&dir.path().join("restore/16384")) == files(&data.join("base/16384")));
}

/// A packed tree's containers as a server has them: without a manifest, in a directory with a guard.
fn as_a_server_has_it(dir: &Path) -> PathBuf {
    let there = dir.join("PG_15_202209061");
    run(&[&"pack", &data_directory(dir).join("base"), &there], 0);
    fs::remove_file(there.join(MANIFEST)).unwrap();
    there
}

#[test]
fn a_copy_of_a_running_servers_containers_is_a_problem_until_it_is_accepted() {
    let dir = TempDir::new().unwrap();
    let there = as_a_server_has_it(dir.path());
    let database = there.join("5");
    // What a server left that was killed, in a file that is a copy of it.
    pgshrink_cfs_server::guard::accept(&database).unwrap();
    let guard = database.join(pgshrink_cfs_server::GUARD_NAME);
    fs::set_permissions(&guard, fs::Permissions::from_mode(0o600)).unwrap();
    run(&[&"verify", &"--no-manifest", &there], 0);
    fs::write(&guard, "half").unwrap();
    let back = dir.path().join("back");
    let verify = run(&[&"verify", &"--no-manifest", &there], 1);
    let unpack = run(&[&"unpack", &"--no-manifest", &there, &back], 2);
    for said in [verify, unpack] {
        assert!(
            said.contains("a running server was writing") && said.contains("pgshrink cfs accept"),
            "{said}"
        );
    }
    assert!(!back.exists());
    let container = database.join("16384").join(CONTAINER);
    let whole = fs::read(&container).unwrap();
    let mut damaged = whole.clone();
    let end = damaged.len() - 4096;
    damaged[end..].fill(0x55);
    fs::write(&container, &damaged).unwrap();
    let said = run(&[&"accept", &there], 1);
    assert!(said.contains("not accepted"), "{said}");
    fs::write(&container, &whole).unwrap();
    assert!(run(&[&"accept", &there], 0).contains("accepted"));
    // Accepted before, and damaged since.
    fs::write(&container, &damaged).unwrap();
    assert!(run(&[&"accept", &there], 1).contains("not accepted"));
    // By way of a data directory.
    let data = TempDir::new().unwrap();
    fs::create_dir(data.path().join("pg_tblspc")).unwrap();
    std::os::unix::fs::symlink(dir.path(), data.path().join("pg_tblspc/16399")).unwrap();
    assert!(run(&[&"verify", &"--no-manifest", &data.path()], 1).contains("1 DAMAGED"));
    fs::write(&container, &whole).unwrap();
    run(&[&"verify", &"--no-manifest", &there], 0);
    run(&[&"unpack", &"--no-manifest", &there, &back], 0);
    // A server that crashed before its first checkpoint after it had made a file: the log has the pages.
    let sequence = |slot: usize| u64::from_le_bytes(whole[slot * 4096 + 40..][..8].try_into().unwrap());
    let oldest = (0..3).min_by_key(|slot| sequence(*slot)).unwrap();
    let mut young = whole.clone();
    (0..3).filter(|slot| *slot != oldest).for_each(|slot| young[slot * 4096..][..4096].fill(0));
    fs::write(&container, &young).unwrap();
    run(&[&"verify", &"--no-manifest", &there], 1);
    fs::remove_file(&guard).unwrap();
    assert!(run(&[&"accept", &there], 0).contains("accepted"));
}

#[test]
fn a_packed_tree_and_a_running_servers_directory_are_not_accepted() {
    let dir = TempDir::new().unwrap();
    let (_, plain, _) = sealed_and_plain(dir.path());
    assert!(run(&[&"accept", &plain], 2).contains("a packed tree"));
    let there = as_a_server_has_it(&dir.path().join("more"));
    fs::write(there.join("postmaster.pid"), format!("{}\n", std::process::id())).unwrap();
    assert!(run(&[&"accept", &there], 2).contains("is alive"));
}

#[test]
fn a_tablespace_that_a_server_has_is_not_changed() {
    let dir = TempDir::new().unwrap();
    let there = as_a_server_has_it(dir.path());
    // As a server holds the directory; there is no postmaster.pid above it.
    let held = fs::File::open(&there).unwrap();
    rustix::fs::fcntl_lock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "07".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    for place in [dir.path(), &there, &there.join("5")] {
        for said in [
            run(&[&"accept", &place], 2),
            run(&[&"rekey", &"--key-file", &key, &"--new-key-file", &key, &place], 2),
            run(&[&"unpack", &"--no-manifest", &place, &dir.path().join("back")], 2),
            run(&[&"salvage", &there.join("5/16384"), &dir.path().join("back")], 2),
        ] {
            assert!(said.contains("is in use by a server"), "{said}");
        }
    }
    drop(held);
    assert!(run(&[&"accept", &there], 0).contains("accepted"));
}

#[test]
fn a_servers_own_files_are_not_unpacked() {
    let dir = TempDir::new().unwrap();
    let there = as_a_server_has_it(dir.path());
    let (guard, reserve) = (pgshrink_cfs_server::GUARD_NAME, pgshrink_cfs_server::RESERVE_NAME);
    pgshrink_cfs_server::guard::accept(&there.join("5")).unwrap();
    fs::write(there.join(reserve), [0; 8192]).unwrap();
    let back = dir.path().join("back");
    run(&[&"unpack", &"--no-manifest", &there, &back], 0);
    let unpacked = files(&back);
    assert!(!unpacked.is_empty());
    assert!(unpacked.iter().all(|(path, _)| !path.ends_with(guard) && !path.ends_with(reserve)));
}
