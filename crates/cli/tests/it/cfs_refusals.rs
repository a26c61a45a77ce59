//! `pgshrink cfs` refuses what would mislead: plain files where sealed ones are expected, copies that lack a part, wrong keys.

use crate::cfs::{CONTAINER, cfs, ended, run};
use crate::cfs_trees::{data_directory, key};
use pgshrink_testkit::TempDir;
use std::fs;
use std::os::unix::fs::PermissionsExt;

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
        assert!(said.contains("none is that key") && said.contains("--key-file"), "{said}");
    }
    for words in &commands[1..3] {
        let said = ended(&cfs(words).output().unwrap(), 2);
        assert!(said.contains("no key was given; give it with --key-file"), "{said}");
    }
    // Damage elsewhere is still told from a wrong key.
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
    assert!(run(&[&"verify", &"--key-file", &bare, &there], 0).contains("all whole"));
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    for mode in [0o755, 0o700] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let said = run(&[&"verify", &"--key-file", &folder, &there], 2);
        assert!(said.contains("folder: expected a file with the key, found a directory"), "{said}");
    }
}
