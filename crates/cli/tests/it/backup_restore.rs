//! Restores that are interrupted and go on.

use crate::backup::{Kept, Running, SUMS, backup, boot, done, pgshrink, refused};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MARKER: &str = "pgshrink_restore.json";

fn last_pack(repository: &str, name: &str) -> PathBuf {
    let packs = fs::read_dir(Path::new(repository).join(name).join("packs")).unwrap();
    packs.map(|entry| entry.unwrap().path()).max().unwrap()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_interrupted_restore_goes_on_and_mends_what_is_wrong() {
    let kept = Kept::new(&["--pack-size-mib", "1"]);
    let repository = kept.repository();
    let other = backup(&kept.cluster, &repository, &[]);
    let expected = kept.cluster.sql(SUMS).unwrap();
    let pack = last_pack(&repository, &kept.name);
    let copy = boot(kept.cluster.server(), |into| {
        let words = ["restore", &kept.name, "--from", &repository, "--into", into.to_str().unwrap()];
        flip(&pack, 100);
        let output = pgshrink(&[&words[..], &["--threads", "1"]].concat());
        assert!(!output.status.success(), "the last pack is damaged");
        assert!(into.join(MARKER).exists() && !into.join("global/pg_control").exists());
        flip(&pack, 100);
        let text = refused(&words);
        assert!(text.contains("not empty") && text.contains("run it again with --resume"), "{text}");
        let again = ["restore", &other, "--from", &repository, "--into", into.to_str().unwrap(), "--resume"];
        let text = refused(&again);
        assert!(text.contains(&kept.name) && text.contains(&other), "{text}");
        // What a power loss may do to what was not yet durable.
        let mut files: Vec<_> =
            fs::read_dir(into.join("base")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files = files
            .iter()
            .flat_map(|folder| fs::read_dir(folder).unwrap())
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort_by_key(|path| fs::metadata(path).unwrap().len());
        let [removed, .., cut, flipped] = &files[..] else { panic!("some files are there: {files:?}") };
        let marker = fs::read(into.join(MARKER)).unwrap();
        fs::remove_file(removed).unwrap();
        fs::write(cut, b"short").unwrap();
        flip(flipped, 9000);
        done(&[&words[..], &["--resume"]].concat());
        assert!(!into.join(MARKER).exists());
        assert!(refused(&[&words[..], &["--resume"]].concat()).contains("not empty"));
        // As if it had been killed at its very end. Nobody writes to it again: a server may have run there since.
        fs::write(into.join(MARKER), marker).unwrap();
        assert!(refused(&[&words[..], &["--resume"]].concat()).contains("already complete"));
        fs::remove_file(into.join(MARKER)).unwrap();
    });
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
}

#[test]
fn a_restore_that_is_killed_at_any_time_goes_on_or_begins_anew() {
    let kept = Kept::new(&["--pack-size-mib", "1"]);
    let repository = kept.repository();
    let expected = kept.cluster.sql(SUMS).unwrap();
    let copy = boot(kept.cluster.server(), |into| {
        let words =
            ["restore", &kept.name, "--from", &repository, "--into", into.to_str().unwrap(), "--resume"];
        for wait in [10, 30, 60, 100, 150, 220, 300] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
            let command = command.args(words).args(["-q", "--threads", "1"]).stdout(Stdio::null());
            let child = Running(command.stderr(Stdio::null()).spawn().unwrap());
            std::thread::sleep(Duration::from_millis(wait));
            drop(child);
            let is_complete = into.join("global/pg_control").exists();
            if is_complete || !into.join(MARKER).exists() && into.exists() {
                // Complete, or killed before it could say whose restore it is.
                fs::remove_dir_all(into).unwrap();
            }
        }
        done(&words);
    });
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
}

#[test]
fn an_interrupted_restore_says_how_to_go_on() {
    let kept = Kept::new(&["--pack-size-mib", "1"]);
    let repository = kept.repository();
    for signal in [Signal::INT, Signal::TERM] {
        let into = kept.keep.path().join(format!("{signal:?}"));
        let words = ["restore", "latest", "--from", &repository, "--into", into.to_str().unwrap(), "-q"];
        let said = (0..50).find_map(|_| interrupted(&words, &into, signal));
        let said = said.expect("a restore that does not end before its signal comes");
        let expected = format!("{} is not complete; run it again with --resume", into.display());
        assert!(said.contains(&expected), "{said}");
        assert!(!into.join("global/pg_control").exists());
        done(&[&words[..6], &["--resume"]].concat());
    }
}

/// What a restore says that gets a signal when it has begun. `None`: it was complete before, and is removed.
fn interrupted(words: &[&str], into: &Path, signal: Signal) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let mut child = command.args(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if into.join(MARKER).exists() {
            kill_process(Pid::from_child(&child), signal).unwrap();
            break;
        }
        std::thread::yield_now();
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.success() {
        fs::remove_dir_all(into).unwrap();
        return None;
    }
    assert_eq!(output.status.signal(), Some(signal.as_raw()), "a shell sees that it was interrupted: {said}");
    Some(said)
}
