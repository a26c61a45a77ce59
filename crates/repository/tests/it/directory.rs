//! A repository in a directory.

use super::model::{self, name};
use pgshrink_repository::{Error, Location, Repository, Variables};
use pgshrink_testkit::TempDir;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn open(path: &Path) -> Arc<dyn Repository> {
    Location::Directory(path.to_owned()).create(&Variables::default()).unwrap()
}

fn fresh(test: impl FnOnce(&dyn Repository)) {
    let folder = TempDir::new().unwrap();
    test(&*open(&folder.path().join("deep/er/backups")));
}

#[test]
fn objects_are_kept_and_listed() {
    fresh(model::keeps_objects);
}

#[test]
fn an_object_is_created_once() {
    fresh(model::creates_once);
}

#[test]
fn of_many_who_create_an_object_at_once_one_does() {
    fresh(model::lets_one_of_many_create);
}

#[test]
fn large_objects_are_kept() {
    fresh(model::keeps_large_objects);
}

#[test]
fn what_was_not_finished_is_not_there() {
    fresh(model::forgets_unfinished_objects);
}

#[test]
fn nobody_else_can_read_objects() {
    let folder = TempDir::new().unwrap();
    let repository = open(&folder.path().join("backups"));
    repository.create(&name("one/object"), b"x").unwrap();
    for (path, mode) in [("backups", 0o700), ("backups/one", 0o700), ("backups/one/object", 0o600)] {
        let found = fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{path}");
    }
}

#[test]
fn a_writer_does_not_replace_an_object() {
    let folder = TempDir::new().unwrap();
    let repository = open(folder.path());
    let mut writer = repository.writer(&name("one")).unwrap();
    repository.create(&name("one"), b"first").unwrap();
    writer.write_all(b"second").unwrap();
    assert!(matches!(writer.finish(), Err(Error::Exists { .. })));
    assert_eq!(repository.read(&name("one"), 0, 5).unwrap(), b"first");
}

fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".pgshrink-")).collect()
}

#[test]
fn what_a_killed_writer_left_is_removed_and_a_live_writers_file_is_not() {
    let folder = TempDir::new().unwrap();
    let repository = open(folder.path());
    let left = folder.path().join(".pgshrink-killed");
    fs::write(&left, b"half").unwrap();
    let mut alive = repository.writer(&name("alive")).unwrap();
    alive.write_all(b"slow").unwrap();
    repository.create(&name("other"), b"x").unwrap();
    assert!(!left.exists());
    assert_eq!(unfinished(folder.path()).len(), 1);
    alive.finish().unwrap();
    assert_eq!(repository.read(&name("alive"), 0, 4).unwrap(), b"slow");
}

#[test]
fn with_the_last_object_go_directories_in_which_a_writer_was_killed() {
    let folder = TempDir::new().unwrap();
    let repository = open(folder.path());
    repository.create(&name("one/object"), b"x").unwrap();
    fs::create_dir_all(folder.path().join("one/packs")).unwrap();
    fs::write(folder.path().join("one/packs/.pgshrink-killed"), b"half").unwrap();
    fs::create_dir_all(folder.path().join("two/packs")).unwrap();
    repository.remove(&name("one/object")).unwrap();
    assert!(!folder.path().join("one").exists());
    assert!(folder.path().join("two/packs").exists(), "it is another's");
}

#[test]
fn what_is_not_ours_is_not_listed_and_not_removed() {
    let folder = TempDir::new().unwrap();
    let repository = open(folder.path());
    fs::write(folder.path().join("a file"), b"").unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    fs::write(folder.path().join(".hidden"), b"").unwrap();
    repository.create(&name("one/object"), b"x").unwrap();
    assert_eq!(repository.list(None, 10).unwrap().len(), 1);
    repository.remove(&name("one/object")).unwrap();
    assert!(!folder.path().join("one").exists(), "an empty directory of ours goes");
    for path in ["a file", "lost+found", ".hidden"] {
        assert!(folder.path().join(path).exists(), "{path}");
    }
}

#[test]
fn a_file_in_the_place_of_the_directory_is_an_error_that_names_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, b"").unwrap();
    for path in [path.clone(), path.join("below")] {
        let error = Location::Directory(path).create(&Variables::default()).unwrap_err().to_string();
        assert!(error.contains("file") && error.contains("irectory"), "{error}");
    }
}

#[test]
fn what_is_no_file_is_damage_and_does_not_make_anybody_wait() {
    let folder = TempDir::new().unwrap();
    let repository = open(folder.path());
    repository.create(&name("a/1"), b"one").unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    for pipe in ["pipe", ".pgshrink-pipe"] {
        let path = folder.path().join("a").join(pipe);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    fs::create_dir(folder.path().join("a/folder")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("a/device")).unwrap();
    for object in ["a/pipe", "a/folder", "a/device"] {
        let found = repository.size(&name(object));
        assert!(matches!(found, Err(Error::Damaged { .. })), "{object}: {found:?}");
        assert!(repository.read(&name(object), 0, 1).is_err(), "{object}");
    }
    // What a killed writer may have left is looked for.
    repository.create(&name("a/2"), b"two").unwrap();
}

#[test]
fn nothing_is_listed_or_removed_through_a_symbolic_link() {
    let folder = TempDir::new().unwrap();
    let repository = open(&folder.path().join("one"));
    let other = open(&folder.path().join("other"));
    repository.create(&name("a/1"), b"one").unwrap();
    other.create(&name("b/1"), b"one").unwrap();
    std::os::unix::fs::symlink(folder.path().join("other/b"), folder.path().join("one/b")).unwrap();
    assert_eq!(repository.top(10).unwrap(), ["a"]);
}

#[test]
fn two_who_remove_the_same_objects_do_not_disturb_each_other() {
    let folder = TempDir::new().unwrap();
    let repository = &open(folder.path());
    let names = |last| (0..1000).map(move |number| name(&format!("{number}/packs/{last}")));
    (0..2).flat_map(names).for_each(|name| repository.create(&name, b"bytes").unwrap());
    std::thread::scope(|scope| {
        let remove = |last| names(last).try_for_each(|name| repository.remove(&name));
        let threads = [0, 1].map(|last| scope.spawn(move || remove(last)));
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
    assert_eq!(repository.list(None, 10).unwrap(), []);
}
