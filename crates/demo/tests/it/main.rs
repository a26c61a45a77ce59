//! The program as `make demo` starts it, with stand-ins for what is slow: its ends and what it leaves behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up its case fails")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use pgshrink_testkit::{Server, or_skip, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const FEW_PACKAGES: &str = "for n in 1 2 3; do printf 'Package: p%s\\nDepends: a, b\\n\\n' $n; done";

/// A demo to be started, in a place of its own.
struct Demo {
    programs: TempDir,
    place: TempDir,
}

impl Demo {
    /// With shell scripts for `apt-cache` and `pgshrink`.
    fn with(apt_cache: &str, pgshrink: &str) -> Demo {
        let place =
            tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o711)).tempdir_in("/tmp");
        let demo = Demo { programs: TempDir::new().unwrap(), place: place.unwrap() };
        for (name, script) in [("apt-cache", apt_cache), ("pgshrink", pgshrink)] {
            let path = demo.programs.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        demo
    }

    fn pgshrink(&self) -> PathBuf {
        self.programs.path().join("pgshrink")
    }

    fn start(&self, pgshrink: &Path) -> Child {
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        Command::new(env!("CARGO_BIN_EXE_pgshrink-demo"))
            .arg("--pgshrink")
            .arg(pgshrink)
            .env("PATH", path)
            .env("PGSHRINK_TEST_DIR", self.place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.log_path()).unwrap())
            .spawn()
            .unwrap()
    }

    fn run(&self, pgshrink: &Path) -> Output {
        self.start(pgshrink).wait_with_output().unwrap()
    }

    fn log_path(&self) -> PathBuf {
        self.programs.path().join("log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Ends it as `kill` does once it has said `needle`, and returns its exit code.
    fn ended_after(&self, needle: &str) -> Option<i32> {
        let mut child = self.start(&self.pgshrink());
        let said = wait_until(Duration::from_secs(120), needle, || self.log().contains(needle));
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let status = child.wait().unwrap();
        said.unwrap();
        status.code()
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let left: Vec<_> =
            fs::read_dir(self.place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        let place = self.place.path().to_string_lossy().into_owned();
        let running = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            let link = |name: &str| fs::read_link(process.path().join(name)).unwrap_or_default();
            let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
            link("cwd").starts_with(&place) || String::from_utf8_lossy(&arguments).contains(&place)
        });
        let running: Vec<_> = running.map(|process| process.path()).collect();
        assert!(running.is_empty(), "still running: {running:?}");
    }
}

#[test]
fn a_machine_without_package_lists_is_told_how_to_get_them() {
    or_skip!("the demo without package lists", Server::find(15));
    let demo = Demo::with("exit 0", "exit 0");
    let output = demo.run(&demo.pgshrink());
    assert_eq!(output.status.code(), Some(2));
    assert!(demo.log().contains("apt-get update"), "{}", demo.log());
    assert!(output.stdout.is_empty());
    demo.assert_nothing_left();
}

#[test]
fn a_missing_binary_is_told_with_the_command_that_builds_it() {
    let demo = Demo::with(FEW_PACKAGES, "exit 0");
    let output = demo.run(&demo.programs.path().join("nowhere"));
    assert_eq!(output.status.code(), Some(2));
    assert!(demo.log().contains("cargo build --release -p pgshrink-cli"), "{}", demo.log());
    demo.assert_nothing_left();
}

#[test]
fn a_gateway_that_does_not_start_fails_the_demo_with_what_it_said() {
    or_skip!("the demo with a broken gateway", Server::find(15));
    let demo = Demo::with(FEW_PACKAGES, "echo no such flag; exit 2");
    let output = demo.run(&demo.pgshrink());
    assert_eq!(output.status.code(), Some(2));
    assert!(demo.log().contains("no such flag"), "{}", demo.log());
    assert!(!String::from_utf8_lossy(&output.stdout).contains("saved"), "nothing to praise");
    demo.assert_nothing_left();
}

#[test]
fn a_demo_that_is_ended_while_reading_leaves_nothing() {
    or_skip!("the demo ended while reading", Server::find(15));
    let demo = Demo::with("while :; do printf 'Package: a\\n\\n'; done", "exit 0");
    assert_eq!(demo.ended_after("package index"), Some(130), "{}", demo.log());
    demo.assert_nothing_left();
}

#[test]
fn a_demo_that_is_ended_beside_a_running_server_leaves_nothing() {
    or_skip!("the demo ended beside a server", Server::find(15));
    // The gateway never listens: the demo waits for it.
    let demo = Demo::with(FEW_PACKAGES, "exec sleep 600");
    assert_eq!(demo.ended_after("COPY out, plain"), Some(130), "{}", demo.log());
    demo.assert_nothing_left();
}
