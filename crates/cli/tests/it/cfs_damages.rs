//! What `pgshrink cfs` reports of damaged containers: the same in every command, with the same fields.

use crate::cfs::{CONTAINER, database, json, packed, run};
use crate::cfs_trees::key;
use pgshrink_testkit::TempDir;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Names of the fields of every damage and of every failure.
const FIELDS: [&str; 5] = ["block", "bytes", "message", "offset", "part"];

/// The packed table alone, sealed if there is a key.
fn table(dir: &TempDir, key: Option<&Path>) -> PathBuf {
    let there = dir.path().join("packed");
    let table = database().dir.join(database().orders.to_string());
    let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"pack", &table, &there];
    if let Some(key) = &key {
        words.extend([&"--seal" as &dyn AsRef<OsStr>, &"--key-file", key]);
    }
    run(&words, 0);
    there
}

fn container(segment: &Path) -> File {
    fs::OpenOptions::new().read(true).write(true).open(segment.join(CONTAINER)).expect("a container")
}

/// The root with the highest sequence: its slot, and its end in bytes.
fn newest_root(file: &File) -> (u64, u64) {
    let slots = (0..3).map(|slot| {
        let mut bytes = [0; 4096];
        file.read_exact_at(&mut bytes, slot * 4096).expect("a slot");
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        (number(40), slot, number(212) * 16)
    });
    let (_, slot, end) = slots.max().expect("three slots");
    (slot, end)
}

fn fields_of(one: &Value) -> Vec<&str> {
    let mut names: Vec<_> = one.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// Info and verify with these options find this damage, and give it the same fields.
fn both_report(segment: &Path, key: Option<&Path>, part: Option<&str>, offset: u64) -> Value {
    let mut more: Vec<&dyn AsRef<OsStr>> = vec![&segment];
    if let Some(key) = &key {
        more.extend([&"--key-file" as &dyn AsRef<OsStr>, key]);
    }
    let info = json(&[&[&"info" as &dyn AsRef<OsStr>], &more[..]].concat(), 1)[0].clone();
    let verified = json(&[&[&"verify" as &dyn AsRef<OsStr>, &"--no-manifest"], &more[..]].concat(), 1);
    assert!(info["ratio"].is_null(), "{info}");
    for damages in [&info["damages"], &verified["containers"][0]["damages"]] {
        let damages = damages.as_array().expect("an array");
        damages.iter().for_each(|damage| assert_eq!(fields_of(damage), FIELDS, "{damage}"));
        let is_it = |damage: &&Value| damage["part"].as_str() == part && damage["offset"] == offset;
        assert!(damages.iter().any(|damage| is_it(&damage)), "{damages:?}");
    }
    info
}

#[test]
fn a_sealed_container_that_was_cut_is_damaged_with_and_without_its_key() {
    let dir = TempDir::new().expect("a directory");
    let key = key(dir.path(), "key", &"5a".repeat(32));
    let segment = table(&dir, Some(&key));
    let file = container(&segment);
    let (_, end) = newest_root(&file);
    assert!(json(&[&"info", &segment], 0)[0]["ratio"].as_f64().is_some_and(|ratio| ratio > 1.0));
    // A byte, a half, all but the roots, a part of the roots.
    for bytes in [end - 1, end / 2, 3 * 4096, 9000] {
        file.set_len(bytes).expect("cut");
        let info = json(&[&"info", &segment], 1)[0].clone();
        assert!(info["ratio"].is_null() && info["failed"] == Value::Array(Vec::new()), "{info}");
        assert_eq!(info["damages"][0]["offset"], bytes, "{info}");
        let text = run(&[&"info", &segment], 1);
        assert!(text.contains("it was cut off") && text.contains(" (-), file "), "{text}");
    }
    // With it, what info says is what verify says.
    file.set_len(end / 2).expect("cut");
    let info = json(&[&"info", &segment, &"--key-file", &key], 1)[0].clone();
    let verified = json(&[&"verify", &"--no-manifest", &segment, &"--key-file", &key], 1);
    assert_eq!(info["damages"][0]["offset"], verified["containers"][0]["damages"][0]["offset"]);
}

#[test]
fn a_wrong_key_hides_no_damage_that_is_proved_without_one() {
    let dir = TempDir::new().expect("a directory");
    let right = key(dir.path(), "right", &"5a".repeat(32));
    let wrong = key(dir.path(), "wrong", &"5b".repeat(32));
    let segment = table(&dir, Some(&right));
    let info = json(&[&"info", &segment, &"--key-file", &wrong], 2)[0].clone();
    assert_eq!(info["damages"], Value::Array(Vec::new()));
    assert_eq!(fields_of(&info["failed"][0]), ["block", "bytes", "message", "offset", "part", "path"]);
    assert_eq!(info["failed"][0]["path"], segment.to_str().expect("text"));
    container(&segment).set_len(20_000).expect("cut");
    let info = json(&[&"info", &segment, &"--key-file", &wrong], 1)[0].clone();
    assert!(info["damages"][0]["message"].as_str().is_some_and(|text| text.contains("cut off")), "{info}");
}

#[test]
fn info_calls_nothing_intact_that_verify_calls_damaged() {
    for is_sealed in [false, true] {
        let dir = TempDir::new().expect("a directory");
        let key = is_sealed.then(|| key(dir.path(), "key", &"5a".repeat(32)));
        let segment = table(&dir, key.as_deref());
        let file = container(&segment);
        let (newest, end) = newest_root(&file);
        let whole = fs::read(segment.join(CONTAINER)).expect("the container");
        let restore = || fs::write(segment.join(CONTAINER), &whole).expect("written");
        // One byte short.
        file.set_len(end - 1).expect("cut");
        both_report(&segment, key.as_deref(), None, end - 1);
        restore();
        // The newest root is its own copy's elsewhere; one of the others is broken.
        for slot in (0..3).filter(|slot| *slot != newest) {
            file.write_all_at(&[0xff; 4], slot * 4096 + 300).expect("written");
            let info = both_report(&segment, key.as_deref(), Some("root"), slot * 4096);
            let without = json(&[&"info", &segment], 1)[0].clone();
            assert_eq!(without["damages"][0]["offset"], slot * 4096, "{without}");
            assert!(info["pages"].is_u64(), "{info}");
            restore();
        }
        // The only one that is left may be that of the empty container that it once was.
        let oldest = (0..3)
            .min_by_key(|slot| whole[slot * 4096 + 40..][..8].iter().rev().copied().collect::<Vec<u8>>());
        let oldest = oldest.expect("three slots") as u64;
        for slot in (0..3).filter(|slot| *slot != oldest) {
            file.write_all_at(&[0xff; 4096], slot * 4096).expect("written");
        }
        let words: [&dyn AsRef<OsStr>; 2] = [&"info", &segment];
        let info = json(&words, 1)[0].clone();
        assert!(info["pages"].is_null() && info["sequence"].is_null(), "{info}");
        assert!(run(&words, 1).contains("pages       unreadable"));
    }
}

#[test]
fn damaged_pages_are_no_part_of_the_map() {
    let dir = TempDir::new().expect("a directory");
    let segment = table(&dir, None);
    let map_bytes =
        |code| json(&[&"info", &segment], code)[0]["inside"]["map_bytes"].as_u64().expect("bytes");
    let whole = map_bytes(0);
    let file = container(&segment);
    let (_, end) = newest_root(&file);
    // Pages in the middle; roots, map and dictionary are at both ends.
    let (from, to) = (end / 3, 2 * end / 3);
    file.write_all_at(&vec![0xa5; (to - from) as usize], from).expect("written");
    assert_eq!(map_bytes(1), whole);
    let info = &json(&[&"info", &segment], 1)[0];
    let damaged = info["inside"]["modes"]["damaged"].as_u64().expect("a count");
    let listed = info["damages"].as_array().expect("an array");
    assert_eq!(listed.len() as u64, damaged.min(100));
    assert!(
        listed.iter().all(|one| one["part"] == "page" && one["block"].is_u64() && one["offset"].is_u64())
    );
    let text = run(&[&"info", &segment], 1);
    assert!(text.contains("damaged; pgshrink cfs verify lists them"), "{text}");
}

#[test]
fn what_unpack_leaves_out_has_the_fields_that_verify_gives() {
    let dir = TempDir::new().expect("a directory");
    let there = dir.path().join("packed");
    packed(&there, &[]);
    let segment = there.join(database().orders.to_string());
    let file = container(&segment);
    let size = file.metadata().expect("metadata").len();
    file.write_all_at(&[0xa5; 64], size / 2).expect("written");
    let verified = json(&[&"verify", &segment], 1);
    let report = json(&[&"unpack", &there, &dir.path().join("plain")], 1);
    let (damage, failed) = (&verified["containers"][0]["damages"][0], &report["failed"][0]);
    assert_eq!(failed["path"], segment.to_str().expect("text"));
    for field in ["part", "block", "offset", "bytes"] {
        assert!(!failed[field].is_null(), "{field}: {failed}");
        assert_eq!(failed[field], damage[field], "{field}");
    }
    assert!(failed["message"].as_str().is_some_and(|text| text.contains("salvage")), "{failed}");
    // Without the key there is no damage: what could not be looked at has the same fields.
    let key = key(dir.path(), "key", &"5a".repeat(32));
    let sealed = TempDir::new().expect("a directory");
    let sealed = table(&sealed, Some(&key));
    let report = json(&[&"verify", &"--no-manifest", &sealed], 2);
    assert_eq!(
        fields_of(&report["not_verified"][0]),
        ["block", "bytes", "message", "offset", "part", "path"]
    );
}
