//! Names that are exchanged while others open, ask for and cut what has them: the hooks' functions, on this front.
// C functions, called with strings.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use pgshrink_cfs_server::DEFAULT_TABLESPACE;
use pgshrink_cfs_server::server::{begin_exchange, enter_directory};
use pgshrink_interpose::hooks::hook_of;
use pgshrink_interpose::{Front, prepare};

use crate::elsewhere::made;
use crate::server::{FRONT, close, in_a_server, page, path, process, write};

const NAME: &CStr = c"base/5/16401";
const OTHER: &CStr = c"base/5/16401.pgshrink-new.77";
/// Pages of the container and of the plain file.
const PAGES: [u32; 2] = [3, 5];
const ROUNDS: u32 = 20_000;

/// The hook of a function.
macro_rules! hook {
    ($name:literal, fn($($kind:ty),*) -> $result:ty) => {
        // SAFETY: the hook of this name has this signature.
        unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($kind),*) -> $result>(
                hook_of($name).expect("the function is hooked"),
            )
        }
    };
}

/// Runs `work` in a process of a server in whose `base/5` a container and a plain file exchange their names all the time.
/// `makes_anew`: both are made anew before each round, which leaves the name free.
fn while_names_change(work: impl Fn(u32), makes_anew: bool) {
    let rounds = if makes_anew { ROUNDS / 10 } else { ROUNDS };
    in_a_server(|| {
        process(|| {
            prepare(&FRONT).unwrap();
            enter_directory(DEFAULT_TABLESPACE, 5).unwrap();
            if !makes_anew {
                make();
            }
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        exchange();
                        // Now and then somebody is amid for longer.
                        std::thread::yield_now();
                    }
                });
                // A test that fails ends the other thread as well.
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    (0..rounds).for_each(|round| {
                        if makes_anew {
                            make_dummies();
                        }
                        work(round);
                    });
                }));
                is_over.store(true, Ordering::Relaxed);
                done.unwrap();
            });
        });
    });
}

fn make() {
    let file = made(NAME);
    write(file, 0, &(0..PAGES[0]).map(page).collect::<Vec<_>>()).unwrap();
    FRONT.sync(file).unwrap();
    close(file);
    fs::write(OTHER.to_str().unwrap(), vec![7; PAGES[1] as usize * 8192]).unwrap();
}

/// A plain file and a directory with something in a container's place. The name is free, so that nobody exchanges it
/// until both are there.
fn make_dummies() {
    let (name, other) = (NAME.to_str().unwrap(), OTHER.to_str().unwrap());
    let _ = fs::remove_dir_all(other).or_else(|_| fs::remove_file(other));
    fs::create_dir("base/5/making").unwrap();
    fs::write("base/5/making/segment.pgshrink", "").unwrap();
    fs::write(name, "plain").unwrap();
    fs::rename("base/5/making", other).unwrap();
}

fn exchange() {
    exchange_of(NAME, OTHER);
}

fn exchange_of(name: &CStr, other: &CStr) {
    let _exchanging = begin_exchange().unwrap();
    // SAFETY: strings. It fails where one of the two is not there.
    unsafe {
        let (name, other) = (name.as_ptr(), other.as_ptr());
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            name,
            libc::AT_FDCWD,
            other,
            libc::RENAME_EXCHANGE,
        );
    }
}

/// Inode numbers of the container's file and of the plain one.
fn inodes() -> [u64; 2] {
    let inode =
        |path: String| fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| found.ino());
    let [name, other] = [NAME, OTHER].map(|path| path.to_str().unwrap().to_owned());
    loop {
        let containers = [&name, &other].map(|path| inode(format!("{path}/segment.pgshrink")));
        let plain = [name.clone(), other.clone()].map(inode);
        if let (
            [Some(container), None] | [None, Some(container)],
            [Some(plain), None] | [None, Some(plain)],
        ) = (containers, plain)
        {
            return [container, plain];
        }
    }
}

/// What the kernel says of a descriptor.
fn stat_of(fd: c_int) -> libc::stat {
    // SAFETY: all zeros is a value of this struct of numbers, which the call fills.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        assert_eq!(libc::fstat(fd, &mut found), 0);
        found
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Whether the hooks have a descriptor for a managed one: that cannot be duplicated.
fn is_managed(fd: c_int) -> bool {
    let dup = hook!("dup", fn(c_int) -> c_int);
    // SAFETY: takes a number.
    let copy = unsafe { dup(fd) };
    if copy >= 0 {
        // SAFETY: just made.
        unsafe { libc::close(copy) };
    }
    copy < 0
}

#[test]
fn an_open_across_an_exchange_gives_the_plain_file_or_the_container_and_never_a_directory() {
    let kinds = std::sync::Mutex::new(BTreeMap::new());
    while_names_change(
        |round| {
            let open = hook!("open", fn(*const c_char, c_int, c_int) -> c_int);
            let close = hook!("close", fn(c_int) -> c_int);
            let flags = if round.is_multiple_of(2) { libc::O_RDONLY } else { libc::O_RDWR };
            // SAFETY: strings, and descriptors that are closed once.
            unsafe {
                let fd = open(NAME.as_ptr(), flags | libc::O_CLOEXEC, 0);
                assert!(fd >= 0, "round {round}: error {}", errno());
                let found = stat_of(fd);
                assert_eq!(found.st_mode & libc::S_IFMT, libc::S_IFREG, "round {round}");
                let place = inodes().iter().position(|inode| *inode == found.st_ino);
                assert_eq!(place, Some(usize::from(!is_managed(fd))), "round {round}");
                *kinds.lock().unwrap().entry(place).or_insert(0) += 1;
                assert_eq!(close(fd), 0);
            }
            if round == ROUNDS - 1 {
                let kinds = kinds.lock().unwrap();
                assert!(kinds.len() == 2, "both kinds were met: {kinds:?}");
            }
        },
        false,
    );
}

#[test]
fn a_stream_across_an_exchange_is_of_a_file() {
    while_names_change(
        |round| {
            let fopen = hook!("fopen", fn(*const c_char, *const c_char) -> *mut libc::FILE);
            // SAFETY: strings, and a stream that is closed once.
            unsafe {
                let stream = fopen(NAME.as_ptr(), c"rb".as_ptr());
                assert!(!stream.is_null(), "round {round}: error {}", errno());
                let fd = libc::fileno(stream);
                assert!(fd < 0 || stat_of(fd).st_mode & libc::S_IFMT == libc::S_IFREG, "round {round}");
                libc::fclose(stream);
            }
        },
        false,
    );
}

#[test]
fn attributes_across_an_exchange_are_those_of_a_file() {
    while_names_change(
        |round| {
            let calls = [
                hook!("stat", fn(*const c_char, *mut libc::stat) -> c_int),
                hook!("lstat", fn(*const c_char, *mut libc::stat) -> c_int),
            ];
            let access = hook!("access", fn(*const c_char, c_int) -> c_int);
            // SAFETY: strings, and room for the answers.
            unsafe {
                let mut found: libc::stat = std::mem::zeroed();
                assert_eq!(calls[round as usize % 2](NAME.as_ptr(), &mut found), 0, "error {}", errno());
                assert_eq!(found.st_mode & libc::S_IFMT, libc::S_IFREG, "round {round}");
                let pages = found.st_size / 8192;
                assert!(PAGES.contains(&(pages as u32)), "round {round}: {pages} pages");
                assert_eq!(access(NAME.as_ptr(), libc::F_OK), 0);
                assert_eq!(access(NAME.as_ptr(), libc::X_OK), -1);
            }
        },
        false,
    );
}

#[test]
fn a_truncation_across_an_exchange_is_done() {
    while_names_change(
        |round| {
            let truncate = hook!("truncate", fn(*const c_char, libc::off_t) -> c_int);
            // SAFETY: a string.
            let done = unsafe { truncate(NAME.as_ptr(), 2 * 8192) };
            assert_eq!(done, 0, "round {round}: error {}", errno());
        },
        false,
    );
}

#[test]
fn a_file_that_is_removed_across_an_exchange_is_gone_whatever_it_was() {
    while_names_change(
        |round| {
            let unlink = hook!("unlink", fn(*const c_char) -> c_int);
            // SAFETY: a string.
            let done = unsafe { unlink(NAME.as_ptr()) };
            assert_eq!(done, 0, "round {round}: error {}", errno());
            assert!(fs::symlink_metadata(NAME.to_str().unwrap()).is_err(), "round {round}");
            let left = fs::read_dir("base/5").unwrap().map(|entry| entry.unwrap().file_name());
            assert!(left.into_iter().all(|name| !name.to_str().unwrap().contains("-old.")), "round {round}");
        },
        true,
    );
}

#[test]
fn an_exchange_that_never_ends_keeps_nobody_from_files_and_directories() {
    in_a_server(|| {
        process(|| {
            prepare(&FRONT).unwrap();
            enter_directory(DEFAULT_TABLESPACE, 5).unwrap();
            make();
            // As of a process that is stopped amid it.
            let _exchanging = begin_exchange().unwrap();
            let open = hook!("open", fn(*const c_char, c_int, c_int) -> c_int);
            let opened = |path: &CStr, flags: c_int| {
                // SAFETY: a string.
                let fd = unsafe { open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) };
                if fd >= 0 { Ok(fd) } else { Err(errno()) }
            };
            let plain = c"base/5/16402";
            let create = libc::O_RDWR | libc::O_CREAT;
            assert!(opened(plain, create | libc::O_EXCL).is_ok_and(|fd| !is_managed(fd)));
            assert_eq!(opened(plain, create | libc::O_EXCL), Err(libc::EEXIST));
            assert!(opened(plain, create).is_ok() && opened(plain, libc::O_RDONLY).is_ok());
            assert_eq!(opened(c"base/5/16403", libc::O_RDWR), Err(libc::ENOENT));
            assert!(opened(NAME, libc::O_RDWR).is_ok_and(is_managed));
            for directory in [c"base/5", c"./base/5", c"pg_tblspc/16400", c"."] {
                assert!(opened(directory, libc::O_RDONLY).is_ok(), "{directory:?}");
            }
            assert_eq!(opened(c"base/5", libc::O_RDWR), Err(libc::EISDIR));
            let truncate = hook!("truncate", fn(*const c_char, libc::off_t) -> c_int);
            let unlink = hook!("unlink", fn(*const c_char) -> c_int);
            let rename = hook!("rename", fn(*const c_char, *const c_char) -> c_int);
            // SAFETY: strings.
            unsafe {
                assert_eq!(truncate(plain.as_ptr(), 8192), 0);
                assert_eq!(rename(plain.as_ptr(), c"base/5/16404".as_ptr()), 0);
                assert_eq!((rename(plain.as_ptr(), NAME.as_ptr()), errno()), (-1, libc::EPERM));
                assert_eq!((unlink(plain.as_ptr()), errno()), (-1, libc::ENOENT));
                assert_eq!((unlink(c"base/5".as_ptr()), errno()), (-1, libc::EISDIR));
                assert_eq!(unlink(NAME.as_ptr()), 0);
            }
        });
    });
}

/// A whole conversion and the way back, of files without pages: what had the name goes after each exchange.
fn convert_and_back(name: &CStr, other: &CStr) {
    let (text, beside) = (name.to_str().unwrap(), other.to_str().unwrap());
    let container = format!("{beside}/segment.pgshrink");
    fs::create_dir(beside).unwrap();
    fs::write(&container, "").unwrap();
    exchange_of(name, other);
    fs::remove_file(beside).unwrap();
    fs::write(beside, "plain").unwrap();
    exchange_of(name, other);
    fs::remove_file(&container).unwrap();
    fs::remove_dir(beside).unwrap();
    assert!(fs::symlink_metadata(text).unwrap().is_file());
}

#[test]
fn a_container_that_goes_after_its_exchange_is_never_taken_for_one_that_was_not_made() {
    in_a_server(|| {
        process(|| {
            prepare(&FRONT).unwrap();
            // Where files are born compressed: one that is taken for missing would be made.
            let (name, other) = (path("16401"), path("16401.pgshrink-new.77"));
            fs::write(name.to_str().unwrap(), "plain").unwrap();
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        convert_and_back(&name, &other);
                    }
                });
                let open = hook!("open", fn(*const c_char, c_int, c_int) -> c_int);
                let close = hook!("close", fn(c_int) -> c_int);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    for round in 0..ROUNDS {
                        let flags = if round.is_multiple_of(2) { libc::O_CREAT } else { 0 };
                        // SAFETY: a string, and a descriptor that is closed once.
                        unsafe {
                            let fd = open(name.as_ptr(), flags | libc::O_RDWR | libc::O_CLOEXEC, 0o600);
                            assert!(fd >= 0, "round {round}: error {}", errno());
                            assert_eq!(stat_of(fd).st_mode & libc::S_IFMT, libc::S_IFREG);
                            close(fd);
                        }
                    }
                }));
                is_over.store(true, Ordering::Relaxed);
                done.unwrap();
            });
            assert!(fs::metadata(name.to_str().unwrap()).unwrap().is_file());
        });
    });
}
