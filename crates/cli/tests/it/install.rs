//! `make install` and `make uninstall`: the same files, and no others.

use pgshrink_testkit::{TempDir, checkout};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `tools/install` on the program under test.
fn install(keep: &TempDir, words: &[&str]) -> String {
    let built = keep.path().join("built");
    fs::create_dir_all(&built).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_pgshrink"), built.join("pgshrink")).unwrap();
    fs::write(built.join("libpgshrink_cfs_exec.so"), "a library").unwrap();
    let mut command = Command::new(checkout().join("tools/install"));
    command
        .args(words)
        .env("BUILT", built)
        .env("PREFIX", "/opt/shrink")
        .env("DESTDIR", keep.path().join("root"));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// All files and folders below.
fn tree(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().to_owned());
        }
    }
    found
}

#[test]
fn uninstalling_removes_what_was_installed_and_nothing_else() {
    let keep = TempDir::new().unwrap();
    let prefix = keep.path().join("root/opt/shrink");
    let others = [
        "bin/psql",
        "lib/pgshrink-else/x.so",
        "share/man/man1/pgshrink-else.1",
        "lib/systemd/system/pgshrink-else.service",
    ];
    for other in others {
        fs::create_dir_all(prefix.join(other).parent().unwrap()).unwrap();
        fs::write(prefix.join(other), "").unwrap();
    }
    install(&keep, &["program"]);
    let installed = tree(&prefix);
    for file in [
        "bin/pgshrink",
        "lib/pgshrink/libpgshrink_cfs_exec.so",
        "lib/systemd/system/pgshrink-connect.service",
        "lib/sysusers.d/pgshrink.conf",
        "share/man/man1/pgshrink-cfs-verify.1",
        "share/man/man5/pgshrink-gateway.toml.5",
        "share/bash-completion/completions/pgshrink",
        "share/doc/pgshrink/examples/haproxy.cfg",
    ] {
        assert!(installed.contains(Path::new(file)), "{file} is not in {installed:?}");
    }
    let unit = fs::read_to_string(prefix.join("lib/systemd/system/pgshrink-backup.service")).unwrap();
    assert!(
        unit.contains("ExecStart=/opt/shrink/bin/pgshrink backup ") && !unit.contains("/usr/local"),
        "{unit}"
    );
    let said = install(&keep, &["remove", "program"]);
    let files: Vec<_> = tree(&prefix).into_iter().filter(|path| prefix.join(path).is_file()).collect();
    let mut expected: Vec<_> = others.iter().map(PathBuf::from).collect();
    expected.sort();
    assert_eq!(files, expected, "{said}");
    for folder in ["lib/pgshrink", "share/doc/pgshrink"] {
        assert!(!prefix.join(folder).exists(), "{folder} is left");
    }
    // Nothing is there any more; that is no error.
    let said = install(&keep, &["remove", "program"]);
    assert!(said.contains("0 files removed"), "{said}");
}
