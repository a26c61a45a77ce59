//! Encrypted files, and the keys that they need.
// The server's own calls.
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pgshrink_cfs_server::keys::{self, Sources};
use pgshrink_cfs_server::server::set;
use pgshrink_cfs_server::setting::Setting;
use pgshrink_interpose::{Errno, Front};

use crate::server::{
    FRONT, TABLESPACE, close, create, in_a_server, in_two_servers, open, page, path, process, read, real,
    restart, setting, write,
};

const LIST: &str = "pg_cfs/keys";

/// A key of 32 bytes that are all this one.
fn key(byte: u8) -> PathBuf {
    key_file(&format!("raw{byte}"), &format!("{byte:02x}").repeat(32))
}

fn key_file(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(format!("{name}.key"));
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn given(file: PathBuf) -> Sources {
    Sources { file: Some(file), ..Sources::default() }
}

fn begin(sources: &Sources) -> Result<(), String> {
    keys::begin(Path::new("."), sources, &[TABLESPACE]).map_err(|problem| problem.to_string())
}

/// The same on a server that is not there yet.
fn begin_encrypted(sources: &Sources) {
    begin(sources).unwrap();
    set(TABLESPACE, setting(true)).unwrap();
}

fn restart_encrypted() {
    restart();
    set(TABLESPACE, setting(true)).unwrap();
}

fn key_of(name: &str) -> Option<String> {
    let relation = name.parse().unwrap();
    let key = pgshrink_cfs::slots::SegmentKey {
        tablespace: TABLESPACE,
        database: 5,
        relation,
        fork: 0,
        segment: 0,
    };
    keys::of_segment(&key)
}

fn current() -> String {
    keys::known().into_iter().find(|key| key.is_current).unwrap().id
}

fn make(name: &str) {
    let file = create(name);
    let pages: Vec<_> = (0..40).map(page).collect();
    assert_eq!(write(file, 0, &pages), Ok(40));
    FRONT.sync(file).unwrap();
    close(file);
}

fn is_whole(name: &str) -> bool {
    let file = open(name);
    let found = read(file, 0, 40).unwrap();
    close(file);
    found == (0..40).map(page).collect::<Vec<_>>()
}

/// The container's whole file.
fn stored(name: &str) -> Vec<u8> {
    fs::read(real(name).join("segment.pgshrink")).unwrap()
}

#[test]
fn an_encrypted_file_shows_nothing_of_its_pages_and_is_read_by_every_process_and_after_a_restart() {
    in_a_server(|| {
        begin_encrypted(&given(key(7)));
        // Noise is stored as it is.
        let mut state = 1u64;
        let noise = std::array::from_fn(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        let with_noise = |name: &str| {
            let file = create(name);
            assert_eq!(write(file, 0, &[noise, page(1)]), Ok(2));
            FRONT.sync(file).unwrap();
            close(file);
        };
        process(|| with_noise("16401"));
        process(|| {
            set(TABLESPACE, setting(false)).unwrap();
            with_noise("16402");
            // What is encrypted stays so, whatever the setting says by now.
            let file = open("16401");
            assert_eq!(write(file, 2, &[noise]), Ok(1));
            FRONT.sync(file).unwrap();
            close(file);
        });
        let shows = |name: &str| {
            stored(name).windows(8).any(|found| noise[4000..4100].windows(8).any(|part| part == found))
        };
        assert!(shows("16402") && !shows("16401"), "{}", shows("16402"));
        assert_eq!((key_of("16401"), key_of("16402")), (Some(current()), None));
        restart_encrypted();
        process(|| {
            let file = open("16401");
            assert!(read(file, 0, 3) == Ok(vec![noise, page(1), noise]));
        });
    });
}

#[test]
fn without_a_key_nothing_is_born_plain_in_an_encrypted_tablespace() {
    in_a_server(|| {
        set(TABLESPACE, setting(true)).unwrap();
        process(|| {
            let made = FRONT.open(&path("16401"), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600);
            assert_eq!(made, Some(Err(Errno(libc::EACCES))));
        });
        assert!(!real("16401").exists() && fs::read_dir(real(".")).unwrap().count() <= 1);
        let refused = begin(&Sources::default()).unwrap_err();
        assert_eq!(refused, "tablespace 16400 is encrypted, but no key is configured");
        set(TABLESPACE, Setting::PLAIN).unwrap();
    });
}

#[test]
fn a_wrong_key_is_refused_at_start_with_the_id_of_the_right_one() {
    for lost in [None, Some(""), Some("cfs keys 1\ndamaged")] {
        in_two_servers(
            |_| {
                begin_encrypted(&given(key(7)));
                process(|| make("16401"));
                fs::write("id", current()).unwrap();
            },
            || {},
            || {
                match lost {
                    None => {}
                    Some("") => fs::remove_file(LIST).unwrap(),
                    Some(text) => fs::write(LIST, text).unwrap(),
                }
                let id = fs::read_to_string("id").unwrap();
                for wrong in
                    [given(key(8)), given(key_file("phrase", "correct horse battery")), Sources::default()]
                {
                    let refused = begin(&wrong).unwrap_err();
                    assert!(
                        refused.contains(&id) && refused.contains("/5/16401\" of tablespace 16400"),
                        "{refused}"
                    );
                }
                begin(&given(key(7))).unwrap();
                restart_encrypted();
                process(|| assert!(is_whole("16401")));
            },
        );
    }
}

#[test]
fn a_passphrase_gives_the_same_key_at_every_start_and_from_every_source() {
    const PHRASE: &str = "correct horse battery";
    in_two_servers(
        |_| {
            begin_encrypted(&given(key_file("phrase", PHRASE)));
            process(|| make("16401"));
            fs::write("id", current()).unwrap();
        },
        || {},
        || {
            let command = Some(format!("echo '{PHRASE}'"));
            begin_encrypted(&Sources { command, ..Sources::default() });
            assert_eq!(current(), fs::read_to_string("id").unwrap());
            process(|| assert!(is_whole("16401")));
            assert!(!fs::read_to_string(LIST).unwrap().contains(PHRASE));
        },
    );
}

#[test]
fn the_master_key_changes_while_processes_write_and_the_old_one_is_not_needed_any_more() {
    in_two_servers(
        |_| {
            begin_encrypted(&given(key(7)));
            process(|| (16401..16421).for_each(|name| make(&name.to_string())));
            let old = current();
            // SAFETY: the child makes files and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let files =
                    std::panic::catch_unwind(|| (16421..16461).for_each(|name| make(&name.to_string())));
                // SAFETY: ends the process.
                unsafe { libc::_exit(i32::from(files.is_err())) }
            }
            process(|| {
                // Open before and after.
                let file = open("16401");
                assert!(read(file, 0, 1) == Ok(vec![page(0)]));
                let rotated = keys::rotate(Path::new("."), &given(key(8)), || {}).unwrap();
                assert!(rotated.files >= 20 && rotated.id != old, "{rotated:?}");
                assert_eq!((keys::known().len(), current()), (1, rotated.id));
                assert_eq!(write(file, 0, &[page(0)]), Ok(1));
                FRONT.sync(file).unwrap();
            });
            let mut status = 0;
            // SAFETY: a child of this process, and a number to be written to.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the process that made files failed");
            let text = keys::known()[0].id.clone();
            assert!((16401..16461).all(|name| key_of(&name.to_string()).as_ref() == Some(&text)));
            let again = process_result(|| keys::rotate(Path::new("."), &given(key(8)), || {}).unwrap().files);
            assert_eq!(again, 0);
            fs::write("id", &old).unwrap();
        },
        || {},
        || {
            // No root of the ring names the old key.
            let old = fs::read_to_string("id").unwrap();
            let old: Vec<u8> =
                (0..16).map(|at| u8::from_str_radix(&old[2 * at..2 * at + 2], 16).unwrap()).collect();
            for name in 16401..16461 {
                let roots = stored(&name.to_string());
                assert!(!roots.windows(16).any(|found| found == old), "{name}");
            }
            assert!(begin(&given(key(7))).is_err());
            begin_encrypted(&given(key(8)));
            process(|| assert!((16401..16461).all(|name| is_whole(&name.to_string()))));
        },
    );
}

fn process_result(work: impl FnOnce() -> u64) -> u64 {
    process(|| fs::write("result", work().to_string()).unwrap());
    fs::read_to_string("result").unwrap().parse().unwrap()
}

#[test]
fn a_change_of_the_master_key_that_was_interrupted_needs_both_keys_and_is_ended_by_another() {
    in_two_servers(
        |_| {
            begin_encrypted(&given(key(7)));
            process(|| (16401..16411).for_each(|name| make(&name.to_string())));
            let mut left = 5;
            let code = crate::server::exit_code_of(|| {
                let interrupted = || {
                    left -= 1;
                    // SAFETY: ends the process.
                    if left == 0 {
                        unsafe { libc::_exit(9) }
                    }
                };
                keys::rotate(Path::new("."), &given(key(8)), interrupted).unwrap();
            });
            assert_eq!(code, 9);
        },
        || {},
        || {
            for one in [key(7), key(8)] {
                assert!(begin(&given(one)).is_err());
            }
            let both = Sources { file: Some(key(8)), old_file: Some(key(7)), ..Sources::default() };
            begin_encrypted(&both);
            process(|| assert!((16401..16411).all(|name| is_whole(&name.to_string()))));
            let files = process_result(|| keys::rotate(Path::new("."), &both, || {}).unwrap().files);
            assert!((6..10).contains(&files), "{files}");
            assert_eq!(keys::known().len(), 1);
        },
    );
}

#[test]
fn a_change_of_the_master_key_waits_for_files_that_are_being_made_and_they_for_its_begin() {
    in_a_server(|| {
        begin_encrypted(&given(key(7)));
        process(|| make("16401"));
        let old = key_of("16401");
        // Another change is under way.
        let other = fs::File::create("pg_cfs/keys.lock").unwrap();
        other.lock().unwrap();
        process(|| {
            let mut waits = 0;
            let interrupted = || {
                waits += 1;
                assert!(waits < 3, "it waits");
            };
            let rotate = || keys::rotate(Path::new("."), &given(key(8)), interrupted).map(drop);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(rotate)).is_err());
        });
        drop(other);
        assert_eq!(key_of("16401"), old);
        let lock = |kind| {
            let directory = fs::File::open("pg_cfs").unwrap();
            // SAFETY: takes numbers.
            assert_eq!(unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(&directory), kind) }, 0);
            directory
        };
        let unlock = |directory: &fs::File| {
            // SAFETY: takes numbers.
            assert_eq!(unsafe { libc::flock(std::os::fd::AsRawFd::as_raw_fd(directory), libc::LOCK_UN) }, 0);
        };
        // As the maker of a file holds it.
        let held = lock(libc::LOCK_SH);
        process(|| {
            let mut waits = 0;
            let interrupted = || {
                waits += 1;
                if waits == 20 {
                    assert_eq!(key_of("16401"), old);
                    unlock(&held);
                }
            };
            assert_eq!(keys::rotate(Path::new("."), &given(key(8)), interrupted).unwrap().files, 1);
            assert_ne!(key_of("16401"), old);
            assert!(waits >= 20, "{waits}");
        });
        drop(held);
        let held = lock(libc::LOCK_EX);
        // SAFETY: the child makes a file and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let made = std::panic::catch_unwind(|| make("16402"));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(made.is_err())) }
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!real("16402").exists());
        unlock(&held);
        let mut status = 0;
        // SAFETY: a child of this process, and a number to be written to.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(status == 0 && key_of("16402") == Some(current()));
    });
}

#[test]
fn files_of_a_key_that_is_not_listed_are_found_at_start() {
    in_two_servers(
        |_| {
            begin_encrypted(&given(key(7)));
            fs::copy(LIST, "list7").unwrap();
            process(|| drop(keys::rotate(Path::new("."), &given(key(8)), || {}).unwrap()));
            process(|| make("16401"));
        },
        || {},
        || {
            fs::copy("list7", LIST).unwrap();
            let refused = begin(&given(key(7))).unwrap_err();
            assert!(refused.contains("/5/16401\""), "{refused}");
            begin_encrypted(&Sources { file: Some(key(7)), old_file: Some(key(8)), ..Sources::default() });
            process(|| assert!(is_whole("16401")));
        },
    );
}
