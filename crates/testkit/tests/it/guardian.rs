//! What is left when a test process is killed: nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pgshrink_testkit::daemon::Signal;
use pgshrink_testkit::{Cluster, Daemon, wait_until};

const SOON: Duration = Duration::from_secs(60);

const VICTIM: &str = "PGSHRINK_TESTKIT_VICTIM";

/// Not a test by itself: the process that the next test starts and kills.
#[test]
fn a_victim_waits_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let cluster = Cluster::builder().start().unwrap();
    let daemon = Daemon::spawn(Command::new("sleep").arg("600")).unwrap();
    println!("\nvictim {} {} {}", cluster.pid().unwrap(), daemon.pid(), cluster.data_dir().display());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_test_process_leaves_no_server_and_no_files() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "guardian::a_victim_waits_to_be_killed", "--nocapture"]).env(VICTIM, "1");
    let victim = Daemon::spawn(&mut command).unwrap();
    victim.wait_for_log(SOON, "\nvictim ").unwrap();
    let log = victim.log();
    let victims = log.lines().find_map(|line| line.strip_prefix("victim ")).unwrap();
    let [postmaster, daemon, data] = victims.split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert!(Path::new(data).join("PG_VERSION").exists());
    wait_until(SOON, "the victim's own daemon", || runs_sleep(daemon)).unwrap();

    victim.signal(Signal::KILL).unwrap();
    victim.wait(SOON).unwrap();
    let process_dir = Path::new(data).ancestors().nth(2).unwrap();
    wait_until(SOON, "the victim's files to go", || !process_dir.exists()).unwrap();
    assert!(!runs_sleep(daemon), "the daemon still runs");
    let cwd = std::fs::read_link(format!("/proc/{postmaster}/cwd"));
    assert!(!cwd.is_ok_and(|cwd| cwd.starts_with(process_dir)), "the postmaster still runs");
}

fn runs_sleep(pid: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00600\x00")
}
