//! Encrypted backups with real servers.

use super::backup::{Kept, SUMS, backup, damaged, done, pgshrink, refused, repository, restored, start};
use pgshrink_testkit::{Seed, Server, TempDir};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file with a key, and the key's id as SHA-256 has it.
pub(crate) fn key_file(keep: &TempDir, digit: char) -> (String, &'static str) {
    let path = keep.path().join(format!("key-{digit}"));
    fs::write(&path, format!("{}\n", String::from(digit).repeat(64))).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let id = match digit {
        '1' => "b659b72b4e78fd4a67c0956b0295fe2f",
        '2' => "173da42e815158fb358a548af70b1dab",
        _ => panic!("two keys are known"),
    };
    (path.to_str().unwrap().to_owned(), id)
}

/// All files below a directory.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

pub(crate) fn files_with(folder: &Path, text: &[u8]) -> usize {
    let has_it = |path: &PathBuf| fs::read(path).unwrap().windows(text.len()).any(|part| part == text);
    files(folder).iter().filter(|path| has_it(path)).count()
}

fn states(repository: &str, words: &[&str]) -> (Option<i32>, Vec<(String, String)>) {
    let output = pgshrink(&[&["list", "--from", repository, "--json"], words].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
    let states = found.as_array().unwrap().iter().map(|found| (text(found, "backup"), text(found, "state")));
    (output.status.code(), states.collect())
}

#[test]
fn an_encrypted_backup_is_restored_with_its_key_and_shows_nothing() {
    Server::each("encrypted backup and restore", &[15, 18], |server| {
        let cluster = start(server);
        // Bytes that do not compress are stored as they are.
        cluster
            .sql(
                "create table noise (value bytea);
                 alter table noise alter value set storage external;
                 insert into noise select string_agg(decode(md5('noise' || n), 'hex'), '') from generate_series(1, 9999) n;
                 checkpoint",
            )
            .unwrap();
        let marker = cluster.sql("select substr(value, 70001, 24) from noise").unwrap();
        let marker: Vec<u8> = (2..marker.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&marker[at..at + 2], 16).unwrap())
            .collect();
        let expected = cluster.sql(SUMS).unwrap();
        let keep = TempDir::new().unwrap();
        let (key, _) = key_file(&keep, '1');
        let label = "a label that is found nowhere";
        let plain = keep.path().join("plain");
        backup(&cluster, plain.to_str().unwrap(), &["--label", label, "--compression", "none"]);
        let with_key = repository(&keep);
        let name =
            backup(&cluster, &with_key, &["--label", label, "--compression", "none", "--key-file", &key]);
        for (text, count) in [(&marker[..], 1), (label.as_bytes(), 1), (b"PostgreSQL-Backup-Manifest", 1)] {
            assert!(files_with(&plain, text) >= count, "the test looks for what is there");
            assert_eq!(files_with(Path::new(&with_key), text), 0);
        }
        let words = ["list", "--from", &with_key, "--key-file", &key];
        assert_eq!(done(&words)[0]["details"]["label"], label);
        let command = format!("cat {key}");
        let words = ["verify", "latest", "--from", &with_key, "--key-command", &command];
        assert_eq!(done(&words)["backup"], name);
        let copy = restored(server, &with_key, &name, &["--key-file", &key]);
        assert_eq!(copy.sql(SUMS).unwrap(), expected);
    });
}

#[test]
fn a_key_of_a_flag_is_stronger_than_one_of_the_environment_and_that_than_one_of_a_file() {
    let keep = TempDir::new().unwrap();
    let ((key, id), (other, other_id)) = (key_file(&keep, '1'), key_file(&keep, '2'));
    let kept = Kept::new(&["--key-file", &key]);
    let from = kept.repository();
    let run = |variable: (&str, &str), words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let words = [&["list", "--from", &from], words].concat();
        let output = command.args(words).env(variable.0, variable.1).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let ways = |path: &str| {
        let command = format!("cat {path}");
        [
            ("PGSHRINK_BACKUP_KEY_FILE", "--key-file", path.to_owned()),
            ("PGSHRINK_BACKUP_KEY_COMMAND", "--key-command", command),
        ]
    };
    for ((variable, flag, value), (_, _, other)) in ways(&key).into_iter().zip(ways(&other)) {
        let (code, text) = run((variable, &value), &[]);
        assert!(code == Some(0) && !text.contains("locked"), "{text}");
        let (_, text) = run((variable, &value), &[flag, &other]);
        assert!(text.contains("locked") && text.contains(id) && text.contains(other_id), "{text}");
        let (code, text) = run((variable, "/nonexistent"), &[]);
        assert!(code == Some(2) && (text.contains("nonexistent") || text.contains(flag)), "{text}");
        let (code, text) = run((variable, ""), &[]);
        assert!(
            code == Some(2) && (text.contains(flag) || text.contains(variable)),
            "an empty one is not taken for none: {text}"
        );
    }
    let config = keep.path().join("backup.toml");
    fs::write(&config, format!("[backup]\nkey_file = {key:?}\n")).unwrap();
    let config = ["--config", config.to_str().unwrap()];
    assert!(!run(("HOME", "/nowhere"), &config).1.contains("locked"));
    let (_, text) = run(("PGSHRINK_BACKUP_KEY_FILE", &other), &config);
    assert!(text.contains("locked") && text.contains(id) && text.contains(other_id), "{text}");
}

#[test]
fn what_has_no_key_or_another_one_is_refused_with_the_next_step() {
    let keep = TempDir::new().unwrap();
    let ((key, id), (other, other_id)) = (key_file(&keep, '1'), key_file(&keep, '2'));
    let kept = Kept::new(&["--key-file", &key]);
    let from = kept.repository();
    let into = keep.path().join("into").to_str().unwrap().to_owned();
    for words in [
        &["verify", &kept.name, "--from", &from][..],
        &["restore", &kept.name, "--from", &from, "--into", &into],
    ] {
        let text = refused(words);
        assert!(text.contains("is encrypted") && text.contains(id) && text.contains("--key-file"), "{text}");
        let text = refused(&[words, &["--key-file", &other]].concat());
        assert!(
            text.contains(id) && text.contains(other_id),
            "the key that is needed and the one given: {text}"
        );
    }
    assert!(!Path::new(&into).exists());
    // A backup without a key beside encrypted ones: the key was forgotten.
    let conninfo = kept.cluster.conninfo("postgres");
    let text = refused(&["backup", &conninfo, "--to", &from]);
    assert!(text.contains(id) && text.contains("--key-file") && text.contains("prefix"), "{text}");
    assert_eq!(fs::read_dir(&from).unwrap().count(), 1);

    // Files that give no key.
    fs::set_permissions(&other, Permissions::from_mode(0o640)).unwrap();
    if !fs::metadata(&other).is_ok_and(|file| std::os::unix::fs::MetadataExt::uid(&file) == 0) {
        let text = refused(&["list", "--from", &from, "--key-file", &other]);
        assert!(text.contains("chmod 600"), "{text}");
    }
    fs::set_permissions(&other, Permissions::from_mode(0o604)).unwrap();
    let text = refused(&["list", "--from", &from, "--key-file", &other]);
    assert!(text.contains("key-2") && text.contains("chmod 600"), "{text}");
    let text = refused(&["list", "--from", &from, "--key-command", "echo correct horse battery"]);
    assert!(text.contains("openssl rand -hex 32") && !text.contains("horse"), "{text}");
}

#[test]
fn each_backup_needs_its_own_key_and_plain_ones_are_shown_as_such() {
    let keep = TempDir::new().unwrap();
    let ((first, first_id), (second, _)) = (key_file(&keep, '1'), key_file(&keep, '2'));
    let kept = Kept::new(&[]);
    let from = keep.path().join("repository").to_str().unwrap().to_owned();
    let one = backup(&kept.cluster, &from, &["--key-file", &first]);
    let two = backup(&kept.cluster, &from, &["--key-file", &second]);
    // Nobody could read the latest of both kinds.
    let (conninfo, plain) = (kept.cluster.conninfo("postgres"), kept.repository());
    let text = refused(&["backup", &conninfo, "--to", &plain, "--key-file", &first]);
    assert!(text.contains("is not encrypted") && text.contains("another directory or prefix"), "{text}");
    assert_eq!(fs::read_dir(&plain).unwrap().count(), 1);
    // Somebody puts one there.
    fs::rename(Path::new(&plain).join(&kept.name), Path::new(&from).join(&kept.name)).unwrap();
    let of = |words: &[&str]| {
        let (code, states) = states(&from, words);
        let state = |backup: &str| states.iter().find(|(name, _)| name == backup).unwrap().1.clone();
        (code, [state(&kept.name), state(&one), state(&two)])
    };
    let shown = |states: [&str; 3]| states.map(str::to_owned);
    assert_eq!(of(&[]), (Some(0), shown(["complete", "locked", "locked"])));
    assert_eq!(of(&["--key-file", &first]), (Some(1), shown(["unencrypted", "complete", "locked"])));
    let both = ["--key-file", &second, "--key-file", &first];
    assert_eq!(of(&both), (Some(1), shown(["unencrypted", "complete", "complete"])));
    // In the table too, with the key that is needed.
    let text = damaged(&["list", "--from", &from, "--key-file", &second]);
    assert!(text.contains("locked") && text.contains("unencrypted") && text.contains(first_id), "{text}");

    done(&["verify", &two, "--from", &from, "--key-file", &second]);
    done(&[&["verify", &one, "--from", &from][..], &both].concat());
    // Nobody knows how new a backup is whose record cannot be read.
    let text = damaged(&[&["verify", "latest", "--from", &from][..], &both].concat());
    assert!(text.contains(&kept.name) && text.contains("is not encrypted"), "{text}");
    let text = damaged(&["verify", &kept.name, "--from", &from, "--key-file", &first]);
    assert!(text.contains("replaced") && text.contains("--key-file"), "{text}");
    let into = keep.path().join("into").to_str().unwrap().to_owned();
    let words = ["restore", &kept.name, "--from", &from, "--into", &into, "--key-file", &first];
    assert!(refused(&words).contains("is not encrypted") && !Path::new(&into).exists());
    done(&["verify", &kept.name, "--from", &from]);
}

#[test]
fn a_changed_swapped_cut_or_replaced_object_is_found_and_named() {
    let keep = TempDir::new().unwrap();
    let (key, _) = key_file(&keep, '1');
    let kept = Kept::new(&["--key-file", &key]);
    let from = kept.repository();
    let root = Path::new(&from).join(&kept.name);
    let verify = ["verify", &kept.name, "--from", &from, "--key-file", &key];
    let mut rng = Seed::from_env_or_time().rng();
    let objects = files(&root);
    assert!(objects.len() > 3, "{objects:?}");
    for object in &objects {
        let bytes = fs::read(object).unwrap();
        let name = object.strip_prefix(&from).unwrap().to_str().unwrap();
        let found = |changed: &[u8]| {
            fs::write(object, changed).unwrap();
            let text = damaged(&verify);
            assert!(text.contains(name), "{name}: {text}");
        };
        // Header, salt, key id, the last tag, and anywhere.
        let fixed = [0, 9, 20, 40, 95, bytes.len() - 1];
        let drawn: Vec<_> = (0..6).map(|_| rng.below(bytes.len())).collect();
        for at in fixed.into_iter().chain(drawn) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << rng.below(8);
            found(&flipped);
        }
        found(&bytes[..bytes.len() - 1]);
        found(b"{}");
        found(b"");
        let other = objects.iter().find(|other| *other != object).unwrap();
        found(&fs::read(other).unwrap());
        fs::write(object, &bytes).unwrap();
    }
    done(&verify);
    // The whole backup under another name: none of its objects opens.
    let copy = format!("20990101T000000Z-{}", &kept.name[kept.name.len() - 8..]);
    fs::rename(&root, root.with_file_name(&copy)).unwrap();
    let text = damaged(&["verify", &copy, "--from", &from, "--key-file", &key]);
    assert!(text.contains(&copy) && text.contains("from elsewhere"), "{text}");
}
