//! Programs beside a test.

use std::process::Command;
use std::time::Duration;

use pgshrink_testkit::Daemon;
use pgshrink_testkit::daemon::Signal;

const SOON: Duration = Duration::from_secs(20);

fn shell(script: &str) -> Daemon {
    Daemon::spawn(Command::new("sh").args(["-c", script])).unwrap()
}

#[test]
fn a_signal_and_the_exit_code_reach_their_ends() {
    let daemon = shell("trap 'echo drained; exit 7' TERM; echo ready >&2; while :; do sleep 0.05; done");
    daemon.wait_for_log(SOON, "ready").unwrap();
    assert!(daemon.is_running() && daemon.cpu_seconds().is_some() && daemon.resident_size() > Some(100_000));
    daemon.signal(Signal::TERM).unwrap();
    assert_eq!(daemon.wait(SOON).unwrap().code(), Some(7));
    assert_eq!(daemon.log(), "ready\ndrained\n");
    daemon.signal(Signal::TERM).unwrap();
}

#[test]
fn waiting_for_a_program_that_ends_shows_what_it_said() {
    let error = shell("echo cannot listen; exit 2").wait_for_log(SOON, "ready").unwrap_err().to_string();
    assert!(error.contains("ended before it printed `ready`") && error.contains("cannot listen"), "{error}");
}

#[test]
fn a_dropped_program_is_gone() {
    let daemon = shell("trap '' TERM INT; echo up; while :; do sleep 0.05; done");
    daemon.wait_for_log(SOON, "up").unwrap();
    let process = format!("/proc/{}/stat", daemon.pid());
    assert!(std::path::Path::new(&process).exists());
    drop(daemon);
    assert!(!std::path::Path::new(&process).exists());
}
