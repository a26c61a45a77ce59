//! Backups that somebody else takes over, completes or removes at a bad moment.

use crate::backup::{Kept, Running, SUMS, damaged, done, restored};
use crate::backup_resume::{Slow, entries, state};
use pgshrink_testkit::wait_until;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A backup that is complete but for its manifest, which is on its way: its writer is taken for dead, and another attempt goes on
/// with it. Then the manifest comes.
fn late(kept: &Kept, packs: usize) -> Slow {
    let place = Path::new(&kept.repository()).join(&kept.name);
    let (manifest, way) = (place.join("backup_manifest"), kept.keep.path().join("on its way"));
    fs::rename(&manifest, &way).unwrap();
    let slow = Slow::start_within(kept, &kept.repository(), &kept.name, packs);
    fs::rename(&way, &manifest).unwrap();
    slow
}

#[test]
fn a_manifest_that_comes_after_a_takeover_makes_a_backup_that_list_and_verify_agree_on() {
    let kept = Kept::new(&["--pack-size-mib", "1", "--compression", "none"]);
    let (repository, expected) = (kept.repository(), kept.cluster.sql(SUMS).unwrap());
    let packs = entries(&Path::new(&repository).join(&kept.name).join("packs")).len();
    kept.cluster.sql("update t set note = 'changed' where n % 7 = 0; checkpoint").unwrap();
    // Who took it over is killed as well.
    assert_eq!(late(&kept, packs + 1).kill(), kept.name);
    assert_eq!(state(&repository, &kept.name), "complete");
    assert_eq!(done(&["verify", "latest", "--from", &repository])["backup"], kept.name);
    let copy = restored(kept.cluster.server(), &repository, "latest", &[]);
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
}

#[test]
fn a_later_attempt_replaces_a_manifest_that_comes_late_and_leaves_nothing_of_it() {
    let kept = Kept::new(&["--pack-size-mib", "1", "--compression", "none"]);
    let repository = kept.repository();
    let place = Path::new(&repository).join(&kept.name);
    kept.cluster.sql("update t set note = 'changed' where n % 7 = 0; checkpoint").unwrap();
    let expected = kept.cluster.sql(SUMS).unwrap();
    let (code, text) = late(&kept, entries(&place.join("packs")).len() + 1).end();
    assert_eq!(code, Some(0), "{text}");
    let names = entries(&place);
    for (name, is_there) in [
        ("backup_manifest", false),
        ("backup.json", false),
        ("backup_manifest-0001", true),
        ("backup-0001.json", true),
    ] {
        assert_eq!(names.contains(name), is_there, "{name}: {names:?}");
    }
    done(&["verify", &kept.name, "--from", &repository]);
    let copy = restored(kept.cluster.server(), &repository, &kept.name, &[]);
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
    // Which attempt began it is a part of the backup.
    let begun = place.join("begun-0001.json");
    fs::rename(&begun, kept.keep.path().join("begun")).unwrap();
    assert!(damaged(&["verify", &kept.name, "--from", &repository]).contains("begun-0001.json"));
}

#[test]
fn a_manifest_that_comes_during_a_removal_makes_no_backup() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let newest = crate::backup::backup(&kept.cluster, &repository, &[]);
    let place = Path::new(&repository).join(&kept.name);
    // The removal has begun with the record and was interrupted, and the writer was killed before it looked again.
    fs::write(place.join("removing.json"), b"{}").unwrap();
    fs::remove_file(place.join("backup.json")).unwrap();
    assert_eq!(state(&repository, &kept.name), "removing");
    assert_eq!(done(&["verify", "latest", "--from", &repository])["backup"], newest);
    assert_eq!(done(&["expire", "--from", &repository, "--keep-last", "1"])["removed"], 1);
    assert!(!place.exists());
}

#[test]
fn a_resume_begins_anew_if_the_backup_is_removed_meanwhile() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let killed = Slow::start(&kept, &repository, 1).kill();
    // It has looked which backup it goes on with, and waits for a checkpoint that takes its time.
    kept.cluster.sql("update t set note = 'dirty'").unwrap();
    let conninfo = kept.cluster.conninfo("postgres");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args([
        "backup",
        &conninfo,
        "--to",
        &repository,
        "--resume",
        "--checkpoint",
        "spread",
        "-q",
        "--json",
    ]);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let phase = || kept.cluster.sql("select phase from pg_stat_progress_basebackup").unwrap();
    wait_until(PATIENCE, "a checkpoint", || phase() == "waiting for checkpoint to finish").unwrap();
    let words = ["expire", "--from", &repository, "--keep-last", "1", "--abandoned"];
    assert_eq!(done(&words)["removed"], 1);
    assert_eq!(phase(), "waiting for checkpoint to finish");
    kept.cluster.sql("checkpoint").unwrap();
    let code = child.0.wait().unwrap().code();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.0.stderr.take().unwrap(), &mut text).unwrap();
    assert!(
        code == Some(0) && text.contains(&killed) && text.contains("was removed in the meantime"),
        "{text}"
    );
    assert!(!Path::new(&repository).join(&killed).exists());
    assert_ne!(done(&["verify", "latest", "--from", &repository])["backup"], kept.name);
    done(&["verify", &kept.name, "--from", &repository]);
}

#[test]
fn a_resumed_backup_that_is_removed_while_it_is_written_is_not_completed_and_leaves_nothing() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let killed = Slow::start(&kept, &repository, 1).kill();
    let place = Path::new(&repository).join(&killed);
    let slow = Slow::start_within(&kept, &repository, &killed, entries(&place.join("packs")).len() + 1);
    // All that was there when the removal listed it, its mark among it.
    for name in ["begun.json", "packs/00000001.pack"] {
        fs::remove_file(place.join(name)).unwrap();
    }
    let (code, text) = slow.end();
    assert!(
        code == Some(2) && text.contains("removed this backup") && text.contains("run pgshrink"),
        "{text}"
    );
    assert_eq!(state(&repository, &killed), "none");
    let left = fs::read_dir(place.join("packs")).into_iter().flatten().count();
    assert_eq!(left, 0, "its packs went");
    done(&["verify", "latest", "--from", &repository]);
}
