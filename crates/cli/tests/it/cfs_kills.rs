//! `pgshrink cfs` killed at any moment, on a full disk, beside another of itself: whole, absent or refused, never half.

use crate::cfs::{CONTAINER, cfs, ended, files, run};
use crate::cfs_trees::{data_directory, key, pages};
use pgshrink_testkit::seed::{Rng, Seed};
use pgshrink_testkit::{Kind, Missing, TempDir, or_skip};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A tree that takes long enough to be hit everywhere.
fn larger(dir: &Path) -> PathBuf {
    let data = data_directory(dir);
    for number in 0..6 {
        fs::write(data.join(format!("base/5/{}", 17000 + number)), pages(60 + number)).unwrap();
    }
    data
}

/// Runs it once to its end for how long it takes, undone by `undo`, then kills it at `count` moments of that time.
/// `look` sees what each kill left.
fn kill_at(count: u64, rng: &mut Rng, mut command: impl FnMut() -> Command, mut look: impl FnMut(bool)) {
    let begin = Instant::now();
    let output = command().output().unwrap();
    ended(&output, 0);
    let whole = begin.elapsed();
    look(true);
    for _ in 0..count {
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(rng.below(whole.as_micros() as usize + 1) as u64));
        child.kill().unwrap();
        look(child.wait().unwrap().success());
    }
}

fn remove(path: &Path) {
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
}

/// What a killed run leaves under the destination's name is whole or nothing.
fn pack_and_unpack(kills: u64) {
    let dir = TempDir::new().unwrap();
    let data = larger(dir.path());
    let plain = files(&data);
    let key = key(dir.path(), "key", &"5a".repeat(32));
    let mut rng = Seed::from_env_or_time().rng();
    let (there, whole, back) = (dir.path().join("there"), dir.path().join("whole"), dir.path().join("back"));
    run(&[&"pack", &"--seal", &"--key-file", &key, &data, &whole], 0);
    let with_key = ["--key-file", key.to_str().unwrap()];
    for words in [&[][..], &with_key] {
        let with = |command: &str| {
            let mut command = cfs(&[&command]);
            command.args(words);
            command
        };
        let pack = || {
            let mut command = with("pack");
            command.args(words.first().map(|_| "--seal")).arg(&data).arg(&there);
            command
        };
        kill_at(kills, &mut rng, pack, |done| {
            assert!(!done || there.exists());
            if there.exists() {
                let verified = with("verify").arg(&there).output().unwrap();
                assert!(ended(&verified, 0).contains("all intact"));
                ended(&with("unpack").arg(&there).arg(&back).output().unwrap(), 0);
                assert!(files(&back) == plain);
            } else if dir.path().join("there.incomplete").exists() {
                // What was left is no tree, and a next run does not take it for one.
                let left = dir.path().join("there.incomplete/made");
                let code = with("verify").arg(&left).output().unwrap().status.code();
                assert!(left.join("pgshrink-manifest.json").exists() || code == Some(2), "{code:?}");
                assert!(run(&[&"pack", &data, &there], 2).contains("interrupted"));
            }
            ["there", "there.incomplete", "back"].iter().for_each(|name| remove(&dir.path().join(name)));
        });
    }
    let unpack = || cfs(&[&"unpack", &"--key-file", &key, &whole, &back]);
    kill_at(kills, &mut rng, unpack, |done| {
        assert!(!done || back.exists());
        assert!(!back.exists() || files(&back) == plain);
        ["back", "back.incomplete"].iter().for_each(|name| remove(&dir.path().join(name)));
    });
}

/// Every container opens with one of both keys, whenever the change was ended; a second run ends it.
fn rekey(kills: u64) {
    let dir = TempDir::new().unwrap();
    let data = larger(dir.path());
    let keys = ["5a", "5b"].map(|text| key(dir.path(), text, &text.repeat(32)));
    let there = dir.path().join("there");
    run(&[&"pack", &"--seal", &"--key-file", &keys[0], &data, &there], 0);
    let mut rng = Seed::from_env_or_time().rng();
    let (mut round, last) = (std::cell::Cell::new(0_usize), kills + 1);
    let keys_of = |round: usize| (&keys[round % 2], &keys[(round + 1) % 2]);
    let command = || {
        let (old, new) = keys_of(round.get());
        cfs(&[&"rekey", &"--new-key-file", &new, &"--key-file", &old, &there])
    };
    kill_at(kills, &mut rng, command, |_| {
        let (old, new) = keys_of(round.get());
        let said = run(&[&"verify", &"--key-file", &old, &"--key-file", &new, &there], 0);
        assert!(said.contains("all intact"), "{said}");
        run(&[&"rekey", &"--new-key-file", &new, &"--key-file", &old, &there], 0);
        assert!(run(&[&"verify", &"--key-file", &new, &there], 0).contains("all intact"));
        run(&[&"verify", &"--key-file", &old, &there], 2);
        round.set(round.get() + 1);
    });
    assert_eq!(*round.get_mut() as u64, last);
    let (back, key) = (dir.path().join("back"), keys_of(round.get()).0);
    run(&[&"unpack", &"--key-file", &key, &there, &back], 0);
    assert!(files(&back) == files(&data));
}

fn salvage(kills: u64) {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    fs::write(data.join("base/5/16384"), pages(600)).unwrap();
    let (there, new) = (dir.path().join("there"), dir.path().join("new"));
    run(&[&"pack", &data.join("base/5/16384"), &there], 0);
    let file = fs::OpenOptions::new().write(true).open(there.join(CONTAINER)).unwrap();
    (0..3).for_each(|root_slot| file.write_all_at(&[0xff], root_slot * 4096 + 300).unwrap());
    let before = fs::read(there.join(CONTAINER)).unwrap();
    let mut rng = Seed::from_env_or_time().rng();
    kill_at(
        kills,
        &mut rng,
        || cfs(&[&"salvage", &there, &new]),
        |done| {
            assert!(!done || new.exists());
            if new.exists() {
                assert!(run(&[&"verify", &new], 0).contains("600 pages: all intact"));
            }
            assert!(fs::read(there.join(CONTAINER)).unwrap() == before, "the source is as it was");
            ["new", "new.incomplete"].iter().for_each(|name| remove(&dir.path().join(name)));
        },
    );
}

#[test]
fn a_killed_pack_or_unpack_leaves_nothing_under_the_name_of_a_whole_one() {
    pack_and_unpack(4);
}

#[test]
fn a_killed_change_of_keys_loses_nothing_and_is_ended_by_the_next() {
    rekey(4);
}

#[test]
fn a_killed_salvage_leaves_its_source_as_it_was() {
    salvage(4);
}

#[test]
#[ignore = "a long run: make soak"]
fn hundreds_of_kills_leave_nothing_half_made() {
    pack_and_unpack(150);
    rekey(150);
    salvage(150);
}

/// A filesystem of its own in memory, of so many kB.
pub struct Small {
    pub root: TempDir,
}

impl Small {
    pub fn new(size_kb: u32) -> Result<Small, Missing> {
        let root = TempDir::new().unwrap();
        let size = format!("size={size_kb}k,mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(root.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Small { root }),
            other => {
                let why = format!("{other:?}");
                Err(Missing::new("a small filesystem", why, "root, who may mount one").of(Kind::Privilege))
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.root.path()).status();
    }
}

#[test]
fn on_a_full_disk_everything_fails_cleanly_and_loses_nothing() {
    let small = or_skip!("the offline tool on a full disk", Small::new(128));
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let keys = ["5a", "5b"].map(|text| key(dir.path(), text, &text.repeat(32)));
    let there = dir.path().join("there");
    run(&[&"pack", &"--seal", &"--key-file", &keys[0], &data, &there], 0);
    let full = small.root.path();
    let dest = full.join("dest");
    let nothing_is_left = || assert_eq!(fs::read_dir(full).unwrap().count(), 0);
    for words in [&["pack"][..], &["pack", "--seal", "--key-file", keys[0].to_str().unwrap()]] {
        let said = ended(&cfs(words_of(words).as_slice()).arg(&data).arg(&dest).output().unwrap(), 2);
        assert!(said.to_lowercase().contains("no space"), "{said}");
        nothing_is_left();
    }
    let said = run(&[&"unpack", &"--key-file", &keys[0], &there, &dest], 2);
    assert!(said.to_lowercase().contains("no space"), "{said}");
    nothing_is_left();

    // Changing keys in place where not a byte is left: done or refused, and it opens as before or as after.
    let here = full.join("here");
    run(&[&"pack", &"--seal", &"--key-file", &keys[0], &data.join("base/5/16384"), &here], 0);
    let mut filler = fs::File::create(full.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[7; 512]).is_ok() {}
    let rekeyed =
        cfs(&[&"rekey", &"--new-key-file", &keys[1], &"--key-file", &keys[0], &here]).output().unwrap();
    println!("on a full disk: {}", ended(&rekeyed, rekeyed.status.code().unwrap()));
    run(&[&"verify", &"--key-file", &keys[0], &"--key-file", &keys[1], &here], 0);
    fs::remove_file(full.join("filler")).unwrap();
    run(&[&"rekey", &"--new-key-file", &keys[1], &"--key-file", &keys[0], &here], 0);
    assert!(run(&[&"verify", &"--key-file", &keys[1], &here], 0).contains("all intact"));
}

fn words_of<'w>(words: &'w [&'w str]) -> Vec<&'w dyn AsRef<std::ffi::OsStr>> {
    words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>).collect()
}

#[test]
fn of_two_that_pack_to_one_name_one_does_and_the_other_says_why_not() {
    let dir = TempDir::new().unwrap();
    let data = larger(dir.path());
    let there = dir.path().join("there");
    let start =
        || cfs(&[&"pack", &data, &there]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let outputs = [start(), start(), start()].map(|child| child.wait_with_output().unwrap());
    let done: Vec<_> = outputs.iter().filter(|output| output.status.success()).collect();
    assert_eq!(done.len(), 1, "{outputs:?}");
    for output in outputs.iter().filter(|output| !output.status.success()) {
        let said = ended(output, 2);
        // Between the making and the locking of the directory the other is taken for dead.
        let known = ["another pgshrink process is writing there", "already exists"];
        assert!(known.iter().any(|known| said.contains(known)), "{said}");
    }
    assert!(run(&[&"verify", &there], 0).contains("all intact"));
    assert!(!dir.path().join("there.incomplete").exists());
}

#[test]
fn a_container_that_another_process_has_open_is_not_rekeyed() {
    use rustix::fs::{FlockOperation, flock};
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let keys = ["5a", "5b"].map(|text| key(dir.path(), text, &text.repeat(32)));
    let there = dir.path().join("there");
    run(&[&"pack", &"--seal", &"--key-file", &keys[0], &data.join("base/5/16384"), &there], 0);
    let before = fs::read(there.join(CONTAINER)).unwrap();
    let other = fs::File::open(there.join(CONTAINER)).unwrap();
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    let rekey =
        ["rekey", "--new-key-file", keys[1].to_str().unwrap(), "--key-file", keys[0].to_str().unwrap()];
    let said = ended(&cfs(&words_of(&rekey)).arg(&there).output().unwrap(), 1);
    assert!(said.contains("the container is in use"), "{said}");
    assert!(fs::read(there.join(CONTAINER)).unwrap() == before);
    // Reading beside a reader goes; beside a writer it does not. The manifest has its new key already.
    run(&[&"verify", &"--key-file", &keys[0], &"--key-file", &keys[1], &there], 0);
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    let said =
        ended(&cfs(&[&"verify", &"--no-manifest", &"--key-file", &keys[0], &there]).output().unwrap(), 2);
    assert!(said.contains("the container is in use"), "{said}");
    // Once it is free, the same command with both keys goes on.
    drop(other);
    ended(&cfs(&words_of(&rekey)).arg(&there).output().unwrap(), 0);
    assert!(run(&[&"verify", &"--key-file", &keys[1], &there], 0).contains("all intact"));
}

#[test]
fn a_truncated_container_is_damage_wherever_it_is_cut() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    run(&[&"pack", &data, &there], 0);
    let path = there.join("base/5/16384").join(CONTAINER);
    let whole = fs::read(&path).unwrap();
    for cut in [0, 1, 300, 4096, 8192 + 17, 3 * 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        let said = run(&[&"verify", &there], 1);
        assert!(said.contains("16384") && said.contains("1 DAMAGED"), "{cut}: {said}");
        let back = dir.path().join(format!("back-{cut}"));
        let said = ended(&cfs(&[&"unpack", &there, &back]).output().unwrap(), 1);
        assert!(said.contains("LEFT OUT") || said.contains("MISSING"), "{cut}: {said}");
        let partial = dir.path().join(format!("back-{cut}.incomplete/made"));
        assert!(!back.exists() && !partial.join("base/5/16384").exists());
        // All other files came back.
        assert_eq!(files(&partial).len() + 1, files(&data).len());
    }
}

#[test]
fn a_target_that_cannot_be_written_to_is_named() {
    let dir = TempDir::new().unwrap();
    let data = data_directory(dir.path());
    let there = dir.path().join("there");
    for dest in ["/proc/there", "/dev/null/there", "/nowhere/there"] {
        let said = run(&[&"pack", &data, &dest], 2);
        assert!(said.contains(dest.trim_end_matches("/there")), "{said}");
    }
    // The report cannot be printed: no success, though the tree is whole.
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = cfs(&[&"pack", &data, &there]).stdout(full).output().unwrap();
    assert!(ended(&output, 2).contains("standard output"));
    assert!(run(&[&"verify", &there], 0).contains("all intact"));
}
