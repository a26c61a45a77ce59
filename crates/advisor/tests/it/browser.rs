//! The HTML report in a real browser: `tests/browser`.

use std::fs;
use std::process::Command;

use pgshrink_advisor::Report;
use pgshrink_advisor::report::{html, html_with_picture};
use pgshrink_testkit::{Kind, Missing, TempDir, checkout, skipped};

use super::report::example;

/// False, with a report, where there is no browser.
fn is_ready(test: &str) -> bool {
    let run = checkout().join("tests/browser/run");
    let probe = Command::new(&run).arg("--probe").output().unwrap();
    if probe.status.code() == Some(3) {
        let how = String::from_utf8_lossy(&probe.stdout).trim().to_owned();
        skipped(test, &Missing::new("a browser", "it is not installed", how).of(Kind::Browser));
        return false;
    }
    let build = Command::new(&run).arg("--build").output().unwrap();
    assert!(build.status.success(), "--build: {}", String::from_utf8_lossy(&build.stderr));
    true
}

#[test]
fn pages_fit_are_accessible_ask_for_nothing_and_print_in_a_browser() {
    if !is_ready("pages_fit_are_accessible_ask_for_nothing_and_print_in_a_browser") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let write = |name: &str, page: String, report: &Report| {
        fs::write(folder.path().join(format!("{name}.html")), page).unwrap();
        let json = serde_json::to_vec(report).unwrap();
        fs::write(folder.path().join(format!("{name}.json")), json).unwrap();
    };
    let everything = example::everything();
    write("everything", html_with_picture(&everything, &example::picture()), &everything);
    let mut many = example::odd(300);
    // A third of them is enough for a browser.
    many.findings.truncate(100);
    many.proposals.truncate(40);
    for (name, report) in [
        ("empty", example::empty()),
        ("small", example::small()),
        ("names", example::odd(example::ODD.len())),
        ("many", many),
    ] {
        write(name, html(&report), &report);
    }
    let output = Command::new(checkout().join("tests/browser/run"))
        .env("REPORTS", folder.path())
        // Half a minute on an idle machine.
        .env("CLIENT_TIMEOUT", "400")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = told.lines().filter(|line| line.starts_with("not ok")).collect();
    let passed = told.lines().filter(|line| line.starts_with("ok ")).count();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && failed.is_empty(), "{}\n{errors}\n{told}", failed.join("\n"));
    assert!(passed >= 60, "too little was looked at:\n{told}");
}
