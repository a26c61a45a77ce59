//! The hooks in the import table of this very executable. In a process of its own: other tests call libc.
// C functions are called, and a process forks.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use pgshrink_interpose::imports::Imports;
use pgshrink_interpose::{PAGE_BYTES, install, install_despite, table};
use pgshrink_testkit::TempDir;

use crate::plain_front::{FRONT, c_path};

const FOLDER: &str = "PGSHRINK_TEST_FOLDER";

/// Imports of Rust's standard library, which does not use them on managed files here.
fn of_rust() -> Vec<String> {
    let imports = Imports::of_this_process().unwrap();
    let refused = table::check(imports.names(), &[]);
    refused
        .into_iter()
        .map(|problem| match problem {
            table::Problem::Refused { name, .. } => name,
            table::Problem::Unknown { name } => panic!("{name} is in no class"),
            table::Problem::Missing { names } => panic!("{names:?} are not imported"),
        })
        .collect()
}

fn protections() -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let executable = std::env::current_exe().unwrap().display().to_string();
    maps.lines().filter(|line| line.ends_with(&executable)).map(str::to_owned).collect()
}

#[test]
fn calls_of_an_executable_arrive_at_the_front_once_the_hooks_are_installed() {
    let folder = TempDir::new().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "installed::a_process_with_hooks", "--ignored", "--nocapture"])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let told =
        format!("{}{}", String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && told.contains("all as it should be"), "{told}");
}

#[test]
#[ignore = "a process of the test of installing"]
fn a_process_with_hooks() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let despite = of_rust();
    let despite: Vec<&str> = despite.iter().map(String::as_str).collect();
    let before = protections();
    assert!(install(&FRONT).is_err(), "the standard library calls system calls by number");
    let installed = install_despite(&FRONT, &despite).unwrap();
    assert!(installed.changed >= installed.hooked.len(), "{installed:?}");
    assert!(installed.hooked.iter().any(|name| name == "pread64"), "{installed:?}");
    assert_eq!(protections(), before, "pages are protected as before");
    assert_eq!(install_despite(&FRONT, &despite).unwrap().changed, 0, "twice is once");
    use_files(Path::new(&folder));
    println!("all as it should be");
}

fn use_files(folder: &Path) {
    let path = folder.join("managed-file");
    let name = c_path(&path);
    let calls = || FRONT.calls.load(Ordering::Relaxed);
    // SAFETY: strings and buffers of these lengths.
    unsafe {
        let fd = libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
        assert!(fd >= 0);
        let page = [7_u8; PAGE_BYTES];
        let before = calls();
        assert_eq!(libc::pwrite64(fd, page.as_ptr().cast(), PAGE_BYTES, 0), PAGE_BYTES as isize);
        let mut back = [0_u8; PAGE_BYTES];
        assert_eq!(libc::pread64(fd, back.as_mut_ptr().cast(), PAGE_BYTES, 0), PAGE_BYTES as isize);
        assert!(back == page && calls() == before + 2);
        assert_eq!(libc::lseek(fd, 0, libc::SEEK_END), PAGE_BYTES as i64);
        assert_eq!(libc::ftruncate(fd, 0), 0);
        assert_eq!(libc::fsync(fd), 0);
        in_a_child(fd);
        assert_eq!(libc::lseek(fd, 0, libc::SEEK_END), PAGE_BYTES as i64, "what the child has written");
        assert_eq!(libc::close(fd), 0);
        assert_eq!(libc::pread64(fd, back.as_mut_ptr().cast(), PAGE_BYTES, 0), -1);
        assert_eq!(*libc::__errno_location(), libc::EBADF);
        let mut stat: libc::stat = std::mem::zeroed();
        assert_eq!(libc::stat(name.as_ptr(), &raw mut stat), 0);
        assert_eq!((stat.st_mode & libc::S_IFMT, stat.st_size), (libc::S_IFREG, PAGE_BYTES as i64));
    }
    // The standard library goes through the same imports.
    assert_eq!(fs::read(&path).unwrap(), [9; PAGE_BYTES]);
    fs::remove_file(&path).unwrap();
    assert!(fs::metadata(&path).is_err());
    fs::write(folder.join("plain"), b"plain").unwrap();
    assert_eq!(fs::read(folder.join("plain")).unwrap(), b"plain");
}

/// A forked process has the table of its parent.
fn in_a_child(fd: c_int) {
    // SAFETY: the child does nothing but system calls through the hooks.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let page = [9_u8; PAGE_BYTES];
            let written = libc::pwrite64(fd, page.as_ptr().cast(), PAGE_BYTES, 0);
            libc::_exit(i32::from(written != PAGE_BYTES as isize));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}
