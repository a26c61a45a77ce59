//! The Debian packages, in a minimal Debian 12: installed, used, upgraded, removed.
//!
//! `tests/packages/run` does it. The packages hold the program that these tests are run with, and the extensions of 15.

use std::process::Command;

use pgshrink_testkit::{Kind, Missing, checkout, skipped};

#[test]
fn packages_are_installed_used_upgraded_and_removed() {
    let test = "packages_are_installed_used_upgraded_and_removed";
    let run = checkout().join("tests/packages/run");
    let probe = Command::new(&run).arg("--probe").output().unwrap();
    let said = String::from_utf8_lossy(&probe.stdout);
    let how = said.trim().trim_start_matches("missing: ");
    match probe.status.code() {
        Some(0) => {}
        Some(3) => {
            let missing = Missing::new("debhelper and mmdebstrap", "they are not installed", how);
            return skipped(test, &missing.of(Kind::Program));
        }
        code => {
            assert_eq!(code, Some(4), "{said}");
            let missing = Missing::new("a root directory of its own", "it needs rights", how);
            return skipped(test, &missing.of(Kind::Privilege));
        }
    }
    let output = Command::new(&run).env("BUILT", checkout().join("target/debug")).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    let passed = text.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(passed >= 11, "too little was checked:\n{text}");
}
