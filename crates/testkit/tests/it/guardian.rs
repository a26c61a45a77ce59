//! What is left when a test process is killed: nothing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pgshrink_testkit::{Cluster, Daemon, wait_until};

const VICTIM: &str = "PGSHRINK_TESTKIT_VICTIM";

/// Not a test by itself: the process that the next test starts and kills.
#[test]
fn a_victim_waits_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let cluster = Cluster::builder().start().unwrap();
    let daemon = Daemon::spawn(Command::new("sleep").arg("600")).unwrap();
    println!("victim {} {} {}", cluster.pid().unwrap(), daemon.pid(), cluster.data_dir().display());
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_test_process_leaves_no_server_and_no_files() {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "guardian::a_victim_waits_to_be_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(victim.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.split_once("victim ").map(|(_, told)| told.to_owned()))
        .unwrap();
    let [postmaster, daemon, data] = told.split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert!(Path::new(data).join("PG_VERSION").exists());
    assert!(runs_sleep(daemon));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let process_dir = Path::new(data).ancestors().nth(2).unwrap();
    wait_until(Duration::from_secs(20), "the victim's files to go", || !process_dir.exists()).unwrap();
    assert!(!runs_sleep(daemon), "the daemon still runs");
    let cwd = std::fs::read_link(format!("/proc/{postmaster}/cwd"));
    assert!(!cwd.is_ok_and(|cwd| cwd.starts_with(process_dir)), "the postmaster still runs");
}

fn runs_sleep(pid: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00600\x00")
}
