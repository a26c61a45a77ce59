//! `pgshrink cfs check-server`: servers that are supported, and executables that are not.

use crate::cfs::{cfs, ended};
use pgshrink_testkit::{Server, TempDir};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file with some bytes replaced by as many others.
fn changed(data: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut changed = data.to_vec();
    let mut count = 0;
    let mut at = 0;
    while let Some(found) = changed[at..].windows(from.len()).position(|window| window == from) {
        changed[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + from.len();
        count += 1;
    }
    assert!(count > 0 && to.len() <= from.len());
    changed
}

/// What is said of a file with these bytes, and that it ended so.
fn checked(path: &Path, data: &[u8], code: i32) -> String {
    fs::write(path, data).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    ended(&cfs(&[&"check-server", &path]).output().unwrap(), code)
}

fn server() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = TempDir::new().unwrap();
    let server = [15, 16, 18].iter().find_map(|major| Server::find(*major).ok()).expect("a server");
    let data = fs::read(server.program("postgres")).unwrap();
    let path = dir.path().join("postgres");
    (dir, path, data)
}

#[test]
fn supported_servers_pass_with_their_version() {
    let test = "cfs_check_server::supported_servers_pass_with_their_version";
    Server::each(test, &[15, 16, 18], |server| {
        let output = cfs(&[&"check-server", &server.program("postgres")]).output().unwrap();
        let said = ended(&output, 0);
        let version = format!("PostgreSQL {}", server.version);
        assert!(said.contains(&version) && said.contains("it supports compressed tables"), "{said}");
        let json = cfs(&[&"check-server", &"--json", &server.program("postgres")]).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert!(
            report["hooked"].as_array().unwrap().len() > 25 && report["problems"] == serde_json::json!([])
        );
    });
}

#[test]
fn an_import_that_is_not_known_is_refused_by_name() {
    let (_dir, path, data) = server();
    let said = checked(&path, &changed(&data, b"fdatasync\0", b"pwritev3\0"), 1);
    assert!(said.contains("pwritev3"), "{said}");
    for part in
        ["what: imports", "where: ", "expected: only imports", "found: pwritev3", "next step: run a server"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = checked(&path, &changed(&data, b"fdatasync\0", b"syscall\0"), 1);
    assert!(said.contains("found: syscall is imported, and syscall makes system calls"), "{said}");
}

#[test]
fn other_processors_and_c_libraries_are_refused_by_name() {
    let (_dir, path, mut data) = server();
    let loader = b"/lib64/ld-linux-x86-64.so.2\0";
    let said = checked(&path, &changed(&data, loader, b"/lib/ld-musl-x86_64.so.1\0"), 1);
    assert!(
        said.contains("found: musl (/lib/ld-musl-x86_64.so.1)") && said.contains("expected: glibc"),
        "{said}"
    );
    // The machine of the ELF header.
    data[18..20].copy_from_slice(&183_u16.to_le_bytes());
    let said = checked(&path, &data, 1);
    assert!(said.contains("found: arm64 (aarch64)") && said.contains("expected: x86-64"), "{said}");
}

#[test]
fn what_is_no_server_or_no_whole_executable_is_an_error() {
    let (_dir, path, data) = server();
    assert!(checked(&path, b"#!/bin/sh\n", 2).contains("found a script; next step: name the program"));
    assert!(checked(&path, b"", 2).contains("expected an ELF executable"));
    assert!(checked(&path, &data[..100], 2).contains("not a complete ELF file"));
    assert!(checked(&path, &data[..data.len() / 2], 2).contains("not a complete ELF file"));
    let missing = cfs(&[&"check-server", &path.with_extension("gone")]).output().unwrap();
    assert!(ended(&missing, 2).contains("No such file"));
    // This program is linked as it should be, and no server.
    let own = fs::read(env!("CARGO_BIN_EXE_pgshrink")).unwrap();
    assert!(checked(&path, &own, 1).contains("syscall is imported"));
}

#[test]
fn a_major_version_that_is_not_known_is_refused() {
    let (_dir, path, data) = server();
    let text = data.windows(9).position(|window| window == b"postgres ").expect("the version's text");
    let digits = data[text..].windows(13).position(|window| window == b"(PostgreSQL) ");
    let at = text + digits.expect("the version's text") + 13;
    let major = data[at..at + 2].to_vec();
    let from = [b"(PostgreSQL) ".as_slice(), &major].concat();
    let said = checked(&path, &changed(&data, &from, b"(PostgreSQL) 19"), 1);
    assert!(
        said.contains("found: PostgreSQL 19") && said.contains("expected: PostgreSQL 15, 16, 17 or 18"),
        "{said}"
    );
}
