//! Backups that are interrupted and go on, and writers that are not alone.

use crate::backup::{Kept, Running, SUMS, backup, done, refused, restored, start};
use crate::backup_sealed::key_file;
use pgshrink_testkit::Server;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A slow backup of small packs, once it has stored some.
pub(crate) struct Slow {
    child: Running,
    /// The backup's directory.
    place: PathBuf,
}

impl Slow {
    pub(crate) fn start(kept: &Kept, repository: &str, packs: usize) -> Slow {
        Slow::start_with(kept, repository, packs, &[])
    }

    fn start_with(kept: &Kept, repository: &str, packs: usize, more: &[&str]) -> Slow {
        let before = entries(Path::new(repository));
        let child = Slow::spawn(kept, repository, more);
        let new = || entries(Path::new(repository)).difference(&before).next().cloned();
        Slow::stored(child, repository, packs, new)
    }

    /// Goes on with a backup until it has so many packs.
    pub(crate) fn start_within(kept: &Kept, repository: &str, name: &str, packs: usize) -> Slow {
        let child = Slow::spawn(kept, repository, &["--resume"]);
        Slow::stored(child, repository, packs, || Some(name.to_owned()))
    }

    fn spawn(kept: &Kept, repository: &str, more: &[&str]) -> Running {
        let conninfo = kept.cluster.conninfo("postgres");
        let words =
            ["backup", &conninfo, "--to", repository, "--checkpoint", "fast", "--compression", "none"];
        let slow = ["--pack-size-mib", "1", "--max-rate", "5000", "-q"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let child: Child = command.args(words).args(slow).args(more).stderr(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    fn stored(mut child: Running, repository: &str, packs: usize, name: impl Fn() -> Option<String>) -> Slow {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < Duration::from_secs(60), "it stores packs");
            assert!(child.0.try_wait().unwrap().is_none(), "it is slow enough");
            if let Some(name) = name()
                && entries(&Path::new(repository).join(&name).join("packs")).len() >= packs
            {
                return Slow { child, place: Path::new(repository).join(name) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn name(&self) -> String {
        self.place.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Kills it.
    pub(crate) fn kill(mut self) -> String {
        assert!(self.child.0.try_wait().unwrap().is_none(), "it is slow enough to be killed");
        self.name()
    }

    /// Waits for its end, and gives its code and what it said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.0.wait().unwrap().code();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.child.0.stderr.take().unwrap(), &mut text).unwrap();
        (code, text)
    }
}

/// Names in a directory, but for those of unfinished objects.
pub(crate) fn entries(place: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(place) else { return BTreeSet::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

pub(crate) fn state(repository: &str, name: &str) -> String {
    let found = done(&["list", "--from", repository]);
    let found: Vec<&Value> =
        found.as_array().unwrap().iter().filter(|found| found["backup"] == name).collect();
    found.first().map_or("none", |found| found["state"].as_str().unwrap()).to_owned()
}

#[test]
fn a_backup_that_was_killed_goes_on_with_what_it_has_stored() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let slow = Slow::start(&kept, &repository, 2);
    let (name, place) = (slow.name(), slow.place.clone());
    assert_eq!(state(&repository, &name), "writing");
    assert_eq!(entries(&place.join("lease")).len(), 1);
    drop(slow);
    assert_eq!(state(&repository, &name), "incomplete");
    let old = entries(&place.join("packs"));
    // Some of what it has stored is out of date, and all else is not.
    kept.cluster.sql("update t set note = 'changed' where n % 5000 = 0; checkpoint").unwrap();
    let expected = kept.cluster.sql(SUMS).unwrap();
    assert_eq!(backup(&kept.cluster, &repository, &["--resume", "--pack-size-mib", "1"]), name);
    let new = entries(&place.join("packs"));
    assert!(old.iter().filter(|pack| new.contains(*pack)).count() >= 1, "{old:?} {new:?}");
    assert!(new.iter().any(|pack| pack.starts_with("001")), "{new:?}");
    let record = fs::read_to_string(place.join("backup-0001.json")).unwrap();
    assert!(record.contains("\"unused\":["), "some chunks of old packs are out of date");
    assert_eq!(entries(&place.join("lease")).len(), 1, "the killed one's");
    done(&["verify", &name, "--from", &repository]);
    let copy = restored(kept.cluster.server(), &repository, &name, &[]);
    assert_eq!(copy.sql(SUMS).unwrap(), expected);
    // What is complete is not gone on with.
    assert_ne!(backup(&kept.cluster, &repository, &["--resume"]), name);
}

#[test]
fn an_encrypted_backup_goes_on_with_the_key_that_it_was_begun_with() {
    let kept = Kept::new(&[]);
    let repository = kept.keep.path().join("encrypted").to_str().unwrap().to_owned();
    let ((key, _), (new, _)) = (key_file(&kept.keep, '1'), key_file(&kept.keep, '2'));
    let slow = Slow::start_with(&kept, &repository, 2, &["--key-file", &key]);
    let place = slow.place.clone();
    let name = slow.kill();
    let old = entries(&place.join("packs"));
    // With a new key before the old one, objects of one backup would need both.
    let both = ["--key-file", &new, "--key-file", &key];
    let other = backup(&kept.cluster, &repository, &[&["--resume"][..], &both].concat());
    assert_ne!(other, name);
    done(&["verify", &other, "--from", &repository, "--key-file", &new]);
    assert_eq!(backup(&kept.cluster, &repository, &["--resume", "--key-file", &key]), name);
    assert!(entries(&place.join("packs")).intersection(&old).next().is_some());
    done(&["verify", &name, "--from", &repository, "--key-file", &key]);
}

#[test]
fn a_resumed_backup_stores_only_what_is_new() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let slow = Slow::start(&kept, &repository, 2);
    let place = slow.place.clone();
    let name = slow.kill();
    let old = entries(&place.join("packs"));
    let bytes = |packs: &BTreeSet<String>| -> u64 {
        packs.iter().map(|pack| fs::metadata(place.join("packs").join(pack)).unwrap().len()).sum()
    };
    let before = bytes(&old);
    assert_eq!(backup(&kept.cluster, &repository, &["--resume"]), name);
    let new: BTreeSet<_> = entries(&place.join("packs")).difference(&old).cloned().collect();
    let whole = done(&["list", "--from", &repository]);
    let stored = |name: &str| {
        let found = whole.as_array().unwrap().iter().find(|found| found["backup"] == name).unwrap();
        found["details"]["stored_bytes"].as_u64().unwrap()
    };
    // The other backup of the same data says what all of it takes.
    assert!(bytes(&new) + before / 2 < stored(&kept.name), "{} {before} {}", bytes(&new), stored(&kept.name));
}

#[test]
fn a_cut_connection_leaves_packs_and_says_how_to_go_on() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let slow = Slow::start(&kept, &repository, 2);
    let name = slow.name();
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_replication where state = 'backup'";
    assert_eq!(kept.cluster.sql(end).unwrap(), "1");
    let (code, text) = slow.end();
    assert!(code == Some(2) && text.contains("--resume") && text.contains(&name), "{text}");
    assert_eq!(state(&repository, &name), "incomplete");
    assert_eq!(backup(&kept.cluster, &repository, &["--resume"]), name);
    done(&["verify", &name, "--from", &repository]);
}

#[test]
fn nobody_goes_on_with_a_backup_that_is_being_written_or_is_of_another_cluster() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let slow = Slow::start(&kept, &repository, 1);
    let name = slow.name();
    let other = backup(&kept.cluster, &repository, &["--resume"]);
    assert_ne!(other, name);
    assert_eq!(state(&repository, &name), "writing");
    drop(slow);
    // Clusters of one version come from one template here, and have its system identifier.
    let foreign = start(&Server::find(18).unwrap());
    assert_ne!(backup(&foreign, &repository, &["--resume", "--compression", "none"]), name);
    let text = refused(&["restore", "latest", "--from", &repository, "--into", "/proc/x"]);
    assert!(text.contains("several clusters"), "{text}");
    assert_eq!(state(&repository, &name), "incomplete");
}

#[test]
fn a_writer_whose_backup_was_taken_over_or_removed_does_not_complete_it() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    for (object, what) in
        [("begun-0001.json", "taken over this backup"), ("removing.json", "removed this backup")]
    {
        let slow = Slow::start(&kept, &repository, 1);
        let (name, place) = (slow.name(), slow.place.clone());
        fs::write(place.join(object), b"{}").unwrap();
        let (code, text) = slow.end();
        assert!(code == Some(2) && text.contains(what), "{text}");
        assert!(!place.join("backup_manifest").exists());
        let text = refused(&["restore", &name, "--from", &repository, "--into", "/proc/x"]);
        assert!(text.contains("this backup is incomplete") || text.contains("being removed"), "{text}");
    }
}

#[test]
fn a_damaged_pack_of_an_earlier_attempt_is_not_relied_on() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let slow = Slow::start(&kept, &repository, 2);
    let place = slow.place.clone();
    let name = slow.kill();
    let pack = place.join("packs/00000001.pack");
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
    assert_eq!(backup(&kept.cluster, &repository, &["--resume"]), name);
    done(&["verify", &name, "--from", &repository]);
}

#[test]
fn of_two_that_go_on_with_a_backup_one_does_and_the_backup_is_whole() {
    let kept = Kept::new(&[]);
    let repository = kept.repository();
    let slow = Slow::start(&kept, &repository, 2);
    let name = slow.kill();
    let conninfo = kept.cluster.conninfo("postgres");
    let words =
        ["backup", &conninfo, "--to", &repository, "--checkpoint", "fast", "--resume", "--json", "-q"];
    let spawn = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let both = [spawn(), spawn()].map(|child| child.wait_with_output().unwrap());
    let said = |at: usize| String::from_utf8_lossy(&both[at].stderr).into_owned();
    assert!(both.iter().any(|output| output.status.success()), "{} {}", said(0), said(1));
    for output in &both {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() || text.contains("another pgshrink process is resuming it"),
            "{text}"
        );
    }
    assert_eq!(state(&repository, &name), "complete");
    done(&["verify", &name, "--from", &repository]);
}
