//! `pgshrink expire`.

use crate::backup::{Kept, Running, backup, done, refused};
use pgshrink_backup::ServerTime;
use pgshrink_backup::record::Record;
use pgshrink_testkit::{Cluster, S3, Server, skipped};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn states(repository: &str) -> Vec<(String, String)> {
    let text = |found: &Value, key: &str| found[key].as_str().unwrap().to_owned();
    let found = done(&["list", "--from", repository]);
    let found = found.as_array().unwrap();
    found.iter().map(|found| (text(found, "backup"), text(found, "state"))).collect()
}

fn kept_and_removed(outcome: &Value) -> (BTreeSet<String>, BTreeSet<String>) {
    let lines = outcome["backups"].as_array().unwrap();
    let (kept, removed): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|line| line["keep"] == true);
    let names = |lines: Vec<&Value>| {
        lines.into_iter().map(|line| line["backup"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    (names(kept), names(removed))
}

/// A backup that runs for a while.
fn slow(cluster: &Cluster, repository: &str) -> Running {
    let begun = || {
        let backups = fs::read_dir(repository).unwrap().map(|entry| entry.unwrap().path());
        backups.filter(|backup| backup.join("begun.json").exists()).count()
    };
    let before = begun();
    let conninfo = cluster.conninfo("postgres");
    let words = ["backup", &conninfo, "--to", repository, "--checkpoint", "fast", "--compression", "none"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let command = command.args(words).args(["--max-rate", "10000", "--pack-size-mib", "1", "-q"]);
    let child = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while begun() == before {
        assert!(began.elapsed() < Duration::from_secs(60), "it begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn old_backups_go_and_the_rest_stays_whole() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let names =
        [kept.name.clone(), backup(&kept.cluster, &repository, &[]), backup(&kept.cluster, &repository, &[])];
    let words = ["expire", "--from", &repository, "--keep-last", "2"];
    let planned = done(&[&words[..], &["--dry-run"]].concat());
    let [oldest, others @ ..] = &names;
    let expected = (others.iter().cloned().collect(), BTreeSet::from([oldest.clone()]));
    assert_eq!(kept_and_removed(&planned), expected);
    assert_eq!(
        (states(&repository).len(), &planned["removed"]),
        (3, &Value::from(0)),
        "a dry run removes nothing"
    );
    let outcome = done(&words);
    assert_eq!(outcome["removed"], 1);
    assert_eq!(kept_and_removed(&outcome), kept_and_removed(&planned));
    assert_eq!(fs::read_dir(&repository).unwrap().count(), 2, "nothing of it is left");
    for name in &names[1..] {
        done(&["verify", name, "--from", &repository]);
    }
    // The newest stays, whatever the rules say, and so do those of the same age.
    let outcome = done(&["expire", "--from", &repository, "--keep-days", "1"]);
    assert_eq!(outcome["removed"], 0);
    assert!(refused(&["expire", "--from", &repository]).contains("--keep-last"));
    assert!(refused(&["expire", "--from", &repository, "--keep-last", "0"]).contains("--keep-last"));
    // Its name comes from a clock that may be wrong, and says nothing of its age.
    let (newest, old) = (Path::new(&repository).join(&names[2]), "20000101T000000Z-00000000");
    fs::rename(newest, Path::new(&repository).join(old)).unwrap();
    assert_eq!(done(&["verify", "latest", "--from", &repository])["backup"], old);
    // The server's clock was ten years ahead.
    let ahead = |name: &str| {
        let path = Path::new(&repository).join(name).join("backup.json");
        let bytes = fs::read(&path).unwrap();
        let mut record = Record::read(&bytes).unwrap();
        let seconds = record.stop_time.unix_seconds() + 10 * 365 * 86_400;
        record.stop_time = ServerTime::from_unix_seconds(seconds).unwrap();
        fs::write(&path, record.write().unwrap()).unwrap();
        (path, bytes)
    };
    // The WAL of the other one goes further.
    let (path, bytes) = ahead(&names[1]);
    assert_eq!(done(&["verify", "latest", "--from", &repository])["backup"], old);
    fs::write(path, bytes).unwrap();
    // Nobody knows how old the other one is, but for the clock of this machine.
    ahead(old);
    assert_eq!(done(&["expire", "--from", &repository, "--keep-days", "7"])["removed"], 0);
}

#[test]
fn a_backup_in_progress_stays_and_is_completed_and_one_that_was_killed_goes_if_asked() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    drop(slow(&kept.cluster, &repository));
    let mut running = slow(&kept.cluster, &repository);
    let before = states(&repository);
    let count = |state: &str| before.iter().filter(|(_, found)| found == state).count();
    assert_eq!((count("complete"), count("incomplete"), count("writing")), (1, 1, 1), "{before:?}");
    let words = ["expire", "--from", &repository, "--keep-last", "1"];
    assert_eq!(done(&words)["removed"], 0, "nobody asked for it");
    let outcome = done(&[&words[..], &["--abandoned"]].concat());
    assert_eq!(outcome["removed"], 1, "{outcome}");
    assert_eq!(running.0.wait().unwrap().code(), Some(0), "it is completed");
    let after = states(&repository);
    assert!(after.len() == 2 && after.iter().all(|(_, state)| state == "complete"), "{after:?}");
    done(&["verify", "latest", "--from", &repository]);
}

#[test]
fn a_removal_that_was_interrupted_is_no_backup_and_comes_to_its_end() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let other = backup(&kept.cluster, &repository, &[]);
    let place = Path::new(&repository).join(&other);
    fs::write(place.join("removing.json"), b"{}").unwrap();
    fs::remove_file(place.join("backup_manifest")).unwrap();
    assert!(states(&repository).contains(&(other.clone(), "removing".to_owned())));
    assert_eq!(done(&["verify", "latest", "--from", &repository])["backup"], kept.name);
    let text = refused(&["restore", &other, "--from", &repository, "--into", "/proc/x"]);
    assert!(text.contains("being removed"), "{text}");
    let words = ["expire", "--from", &repository, "--keep-last", "5"];
    assert_eq!(done(&[&words[..], &["--dry-run"]].concat())["removed"], 0);
    assert!(place.exists());
    assert_eq!(done(&words)["removed"], 1);
    assert!(!place.exists());
    assert_eq!(states(&repository), [(kept.name.clone(), "complete".to_owned())]);
}

/// A run of expire took it for abandoned, and was killed when it had said so, just when the backup was completed.
#[test]
fn a_backup_that_was_completed_before_it_was_marked_for_removal_stays() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    fs::write(Path::new(&repository).join(&kept.name).join("removing.json"), b"{}").unwrap();
    assert_eq!(states(&repository), [(kept.name.clone(), "complete".to_owned())]);
    assert_eq!(done(&["expire", "--from", &repository, "--keep-last", "1", "--abandoned"])["removed"], 0);
    done(&["verify", &kept.name, "--from", &repository]);
    // It is removed by the rules, as any other.
    let newest = backup(&kept.cluster, &repository, &[]);
    assert_eq!(done(&["expire", "--from", &repository, "--keep-last", "1"])["removed"], 1);
    assert_eq!(states(&repository), [(newest, "complete".to_owned())]);
}

#[test]
fn what_cannot_be_read_stays_for_people_unless_it_is_incomplete_and_named() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let damaged = backup(&kept.cluster, &repository, &[]);
    fs::write(Path::new(&repository).join(&damaged).join("backup.json"), b"{}").unwrap();
    drop(slow(&kept.cluster, &repository));
    let words = ["expire", "--from", &repository, "--keep-last", "1"];
    let outcome = done(&words);
    assert_eq!((&outcome["removed"], kept_and_removed(&outcome).0.len()), (&Value::from(0), 3), "{outcome}");
    let text = refused(&[&words[..], &["--remove", &kept.name]].concat());
    assert!(text.contains(&kept.name), "{text}");
    let text = refused(&[&words[..], &["--remove", &damaged]].concat());
    assert!(text.contains("cannot be read") && text.contains("by hand"), "{text}");
    let killed =
        fs::read_dir(&repository).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let killed = { killed }.find(|name| *name != kept.name && *name != damaged).unwrap();
    // Without a rule nothing else goes.
    let outcome = done(&["expire", "--from", &repository, "--remove", &killed]);
    assert_eq!((&outcome["removed"], kept_and_removed(&outcome).0.len()), (&Value::from(1), 2), "{outcome}");
    assert!(!Path::new(&repository).join(&killed).exists());
}

#[test]
fn backups_in_an_object_store_expire() {
    if let Err(missing) = S3::find() {
        return skipped("expiry in an object store", &missing);
    }
    let s3 = S3::start().unwrap();
    let cluster = crate::backup::start(&Server::find(15).unwrap());
    let run = |words: &[&str]| -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let output =
            command.args(words).args(["-q", "--json"]).envs(s3.variables("secret")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let conninfo = cluster.conninfo("postgres");
    for _ in 0..2 {
        run(&["backup", &conninfo, "--to", "s3://backups/db", "--checkpoint", "fast"]);
    }
    assert_eq!(run(&["expire", "--from", "s3://backups/db", "--keep-last", "1"])["removed"], 1);
    assert_eq!(run(&["list", "--from", "s3://backups/db"]).as_array().unwrap().len(), 1);
    run(&["verify", "latest", "--from", "s3://backups/db"]);
}
