//! Two who do something with a backup at the same time, one step at a time.

use super::super::watched::Watched;
use super::*;
use std::fs;

const SYSTEM: SystemIdentifier = SystemIdentifier(7);

fn put(repository: &dyn Repository, name: &str) {
    repository.create(&ObjectName::new(name).unwrap(), b"{}").unwrap();
}

/// All that a backup of one attempt has, but for its manifest.
fn stored(repository: &dyn Repository) -> Claim {
    let claim = Claim::take(repository, SYSTEM).unwrap();
    for name in ["packs/00000001.pack", "packs/00000002.pack", "backup.json", "lease/0000-000000000000"] {
        put(repository, &format!("{}/{name}", claim.name));
    }
    claim
}

fn complete(repository: &dyn Repository) -> Claim {
    let claim = stored(repository);
    put(repository, &format!("{}/backup_manifest", claim.name));
    claim
}

fn stage(repository: &dyn Repository, name: &str) -> Stage {
    Seen::of(repository, name).unwrap().stage()
}

#[test]
fn a_removal_or_takeover_that_comes_with_the_manifest_ends_the_backup() {
    for (object, what) in [("removing.json", "has removed"), ("begun-0001.json", "has taken")] {
        let watched = Watched::new(move |call, inner| {
            if let Some(name) =
                call.strip_prefix("finish ").and_then(|name| name.strip_suffix("/backup_manifest"))
            {
                put(inner, &format!("{name}/{object}"));
            }
        });
        let claim = stored(&watched);
        let manifest = watched.writer(&claim.manifest_object().unwrap()).unwrap();
        let error = claim.commit(&watched, manifest).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(&claim.name), "{error}");
        assert!(!exists(watched.inner(), &claim.manifest_object().unwrap()).unwrap(), "it is no backup");
    }
}

#[test]
fn a_backup_that_is_another_ones_already_gets_no_manifest() {
    for object in ["removing.json", "begun-0001.json"] {
        let watched = Watched::quiet();
        let claim = stored(&watched);
        put(watched.inner(), &format!("{}/{object}", claim.name));
        let manifest = watched.writer(&claim.manifest_object().unwrap()).unwrap();
        assert!(claim.commit(&watched, manifest).is_err());
        assert_eq!(watched.calls("finish"), [""; 0], "{object}");
    }
}

#[test]
fn what_another_writer_has_put_in_the_place_of_its_beginning_is_noticed() {
    let watched = Watched::quiet();
    let claim = stored(&watched);
    claim.check(&watched).unwrap();
    let path = watched.folder.path().join(&claim.name).join("begun.json");
    let text = fs::read_to_string(&path).unwrap();
    // Of the same length.
    let pid = format!("\"pid\":{}", std::process::id());
    let other = text.replace(&pid, &pid.replace(|digit: char| digit.is_ascii_digit(), "1"));
    assert!(other != text && other.len() == text.len(), "{text}");
    fs::write(&path, other).unwrap();
    assert!(claim.check(&watched).unwrap_err().to_string().contains("taken over this backup"));
}

#[test]
fn a_backup_that_was_completed_is_not_taken_over() {
    let watched = Watched::quiet();
    let claim = complete(&watched);
    let error = Claim::take_over(&watched, (&claim.name, 1), SYSTEM).err().unwrap().to_string();
    assert!(error.contains("completed in the meantime"), "{error}");
    assert_eq!(stage(&watched, &claim.name), Stage::Complete(0));
}

#[test]
fn a_backup_that_is_being_removed_is_not_taken_over_and_another_one_begins() {
    let watched = Watched::new(|call, inner| {
        if let Some(name) =
            call.strip_prefix("create ").and_then(|name| name.strip_suffix("/begun-0001.json"))
        {
            put(inner, &format!("{name}/removing.json"));
        }
    });
    let claim = stored(&watched);
    assert!(Claim::take_over(&watched, (&claim.name, 1), SYSTEM).unwrap().is_none());
    assert!(!exists(&watched, &begun_object(&claim.name, 1).unwrap()).unwrap(), "nothing of it is left");
    assert_eq!(stage(&watched, &claim.name), Stage::Removing);
}

#[test]
fn a_backup_is_tried_so_often_and_no_more() {
    let watched = Watched::quiet();
    let claim = stored(&watched);
    let error = Claim::take_over(&watched, (&claim.name, ATTEMPTS_MAX), SYSTEM).err().unwrap().to_string();
    assert!(error.contains("start a new backup"), "{error}");
    assert_eq!(watched.calls("create").len(), 5, "nothing that no reader would see was written");
    assert!(Claim::take_over(&watched, (&claim.name, ATTEMPTS_MAX - 1), SYSTEM).unwrap().is_some());
}

#[test]
fn the_beginning_of_another_backup_is_damage() {
    let watched = Watched::quiet();
    let (claim, other) = (complete(&watched), complete(&watched));
    verify(&watched, (&claim.name, 0), claim.id).unwrap();
    let [own, others] =
        [&claim, &other].map(|claim| watched.folder.path().join(&claim.name).join("begun.json"));
    fs::copy(others, own).unwrap();
    let error = verify(&watched, (&claim.name, 0), claim.id).unwrap_err();
    assert!(matches!(error, Failure::Damage { .. }) && error.to_string().contains("begun.json"), "{error}");
}

#[test]
fn what_was_completed_before_its_mark_stays_unless_it_was_known_to_be_complete() {
    let watched = Watched::quiet();
    let (begun, completed) = (stored(&watched), complete(&watched));
    assert!(mark_for_removal(&watched, &begun.name, false).unwrap());
    assert!(
        !mark_for_removal(&watched, &completed.name, false).unwrap(),
        "it was begun when it was looked at"
    );
    assert!(mark_for_removal(&watched, &completed.name, true).unwrap());
    assert_eq!(stage(&watched, &begun.name), Stage::Removing);
}

#[test]
fn a_removal_that_is_interrupted_anywhere_leaves_a_removal_and_no_backup() {
    let watched = Watched::new(|call, inner| {
        let Some((name, _)) = call.strip_prefix("remove ").and_then(|object| object.split_once('/')) else {
            return;
        };
        let objects = inner.list(Some(&ObjectName::new(name).unwrap()), OBJECTS_MAX).unwrap().len();
        match stage(inner, name) {
            Stage::Complete(_) => assert_eq!(objects, 7, "{call}: a backup that looks whole is whole"),
            found => assert_eq!(found, Stage::Removing, "{call}"),
        }
    });
    let claim = complete(&watched);
    assert!(mark_for_removal(&watched, &claim.name, true).unwrap());
    remove(&watched, &claim.name).unwrap();
    assert_eq!(stage(&watched, &claim.name), Stage::Nothing);
    assert_eq!(watched.inner().list(None, 10).unwrap(), []);
    assert!(watched.calls("remove").last().unwrap().ends_with("removing.json"));
}
