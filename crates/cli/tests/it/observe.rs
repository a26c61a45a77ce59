//! `pgshrink gateway --observe` as a process: kills, full disks, users without rights, reloads, checks.

use crate::cfs_kills::Small;
use crate::service::{PATIENCE, Service, query, start};
use pgshrink_egress::{DEFAULT_LIMITS, Ledger};
use pgshrink_testkit::run::Owner;
use pgshrink_testkit::{Auth, Cluster, TempDir, or_skip, wait_until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn cluster() -> Cluster {
    Cluster::builder().auth(Auth::Trust).start().expect("a server")
}

/// The configuration of a gateway that observes into `file`.
fn observing(cluster: &Cluster, file: &Path) -> String {
    let (file, port) = (file.display(), cluster.port());
    format!(
        "observe = true\nobserve_file = \"{file}\"\nobserve_write_s = 1\n[[server]]\nhost = \"127.0.0.1\"\nport = {port}\n"
    )
}

fn read(path: &Path) -> Result<Ledger, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    pgshrink_egress::file::read(&bytes, DEFAULT_LIMITS).map_err(|error| error.to_string())
}

/// Bytes to clients in a file.
fn bytes(path: &Path) -> u64 {
    let ledger = read(path).expect("a whole file");
    ledger.estimates().iter().map(|(.., estimate)| estimate.to_client.bytes).sum()
}

/// Makes traffic of more than 100,000 bytes.
fn ask(cluster: &Cluster, service: &Service) {
    assert_eq!(
        query(cluster, service.port, "select length(repeat('x', 9)), repeat('y', 100000)").len(),
        100_002
    );
}

#[test]
fn a_kill_at_any_time_loses_at_most_an_interval_and_never_the_file() {
    let cluster = cluster();
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("egress");
    for round in 1..=5u64 {
        let service = start("gateway", &observing(&cluster, &file), &[]);
        ask(&cluster, &service);
        wait_until(PATIENCE, "the interval to pass", || bytes(&file) >= round * 100_000).expect("written");
        let kept = bytes(&file);
        // Lost, or written just in time.
        ask(&cluster, &service);
        std::thread::sleep(std::time::Duration::from_millis(211 * round));
        service.daemon.signal(Signal::KILL).expect("alive");
        service.daemon.wait(PATIENCE).expect("ends");
        assert!(bytes(&file) >= kept, "round {round}");
    }
    // What a kill in the middle of a write leaves beside it.
    fs::write(dir.path().join("egress.tmp"), "half of").expect("a file");
    let before = bytes(&file);
    let service = start("gateway", &observing(&cluster, &file), &[]);
    ask(&cluster, &service);
    service.daemon.signal(Signal::TERM).expect("alive");
    assert_eq!(service.daemon.wait(PATIENCE).expect("ends").code(), Some(0));
    assert!(bytes(&file) > before + 100_000, "the end writes without waiting for the interval");
}

#[test]
fn a_reload_begins_and_ends_to_observe() {
    let cluster = cluster();
    let dir = TempDir::new().expect("a directory");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let plain = format!("[[server]]\nhost = \"127.0.0.1\"\nport = {}\n", cluster.port());
    let service = start("gateway", &plain, &[]);
    let mut reloads = 0;
    let mut reload = |rest: &str, says: &str| {
        fs::write(&service.config, format!("listen = [\"127.0.0.1:{}\"]\n{rest}", service.port))
            .expect("a file");
        service.daemon.signal(Signal::HUP).expect("alive");
        reloads += 1;
        let seen = || {
            service.daemon.log().matches("configuration reloaded").count()
                + service.daemon.log().matches("configuration not reloaded").count()
        };
        wait_until(PATIENCE, "the reload", || seen() == reloads).expect("reloads");
        assert!(service.daemon.log().contains(says), "{says} in\n{}", service.daemon.log());
    };
    ask(&cluster, &service);
    reload(&observing(&cluster, &first), "configuration reloaded");
    ask(&cluster, &service);
    wait_until(PATIENCE, "the file", || bytes(&first) > 100_000).expect("written");
    assert!(bytes(&first) < 150_000, "only what came while it was observed");
    fs::write(&second, "something else\n").expect("a file");
    reload(&observing(&cluster, &second), "the old one stays in effect");
    fs::remove_file(&second).expect("gone");
    reload(&observing(&cluster, &second), "configuration reloaded");
    ask(&cluster, &service);
    wait_until(PATIENCE, "the other file", || bytes(&second) > 100_000).expect("written");
    reload(&plain, "configuration reloaded");
    ask(&cluster, &service);
    service.daemon.signal(Signal::TERM).expect("alive");
    assert_eq!(service.daemon.wait(PATIENCE).expect("ends").code(), Some(0));
    assert!(bytes(&first) < 150_000 && bytes(&second) < 150_000);
}

fn check(words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let Output { status, stderr, .. } = command.args(words).output().expect("runs");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn a_check_finds_settings_that_measure_nothing_and_files_that_cannot_be_used() {
    let dir = TempDir::new().expect("a directory");
    let bad = dir.path().join("bad");
    fs::write(&bad, "{\"format\":\"pgshrink-egress\",\"version\":1}\n").expect("a file");
    let base = ["gateway", "--check", "--listen=127.0.0.1:0", "--unix-socket-directory=", "--server=host=db"];
    for (words, code, says) in [
        (&["--observe", "--libpq-compression=off"][..], 1, "observe: libpq_compression allows no algorithm"),
        (&["--observe", "--observe-cpu-percent=0"], 1, "observe_cpu_percent: 0: allowed are 0.01 to 50"),
        (
            &["--observe", "--observe-file=/nonexistent/a"],
            1,
            "observe_file: /nonexistent/a: cannot be written",
        ),
        (&["--observe", &format!("--observe-file={}", bad.display())], 1, "move it away to start"),
        (&["--observe", "--observe-file="], 0, ""),
        (&["--observe", &format!("--observe-file={}", dir.path().join("new").display())], 0, ""),
    ] {
        let (found, stderr) = check(&[&base[..], words].concat());
        assert!(found == Some(code) && stderr.contains(says), "{words:?}: {found:?} {stderr}");
    }
    assert!(!dir.path().join("new").exists(), "a check writes nothing");
    let (code, stderr) = check(&["connect", "--target=db", "--listen=127.0.0.1:0", "--observe"]);
    assert!(code == Some(2) && stderr.contains("unexpected argument '--observe'"), "{stderr}");
    let config = dir.path().join("p.toml");
    fs::write(&config, "listen = [\"127.0.0.1:0\"]\nobserve = true\n[[target]]\nhost = \"h\"\n")
        .expect("a file");
    let (code, stderr) = check(&["connect", "--check", "--config", &config.display().to_string()]);
    assert!(code == Some(1) && stderr.contains("p.toml:2: observe: unknown; known are "), "{stderr}");
}

#[test]
fn a_user_without_rights_is_told_at_the_start() {
    let owner = or_skip!("an egress meter without rights", Owner::find());
    let dir = TempDir::new().expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).expect("allowed");
    let mut command = owner.command(env!("CARGO_BIN_EXE_pgshrink"));
    command.args([
        "gateway",
        "--listen=127.0.0.1:0",
        "--unix-socket-directory=",
        "--server=host=127.0.0.1",
        "--observe",
    ]);
    command.arg("--observe-file").arg(dir.path().join("egress"));
    let output = command.output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot be written: Permission denied"), "{stderr}");
}

#[test]
fn a_full_file_system_loses_nothing_once_there_is_room_again() {
    let small = or_skip!("totals of an egress meter on a full disk", Small::new(64));
    let cluster = cluster();
    let [file, filler]: [PathBuf; 2] = ["egress", "filler"].map(|name| small.root.path().join(name));
    let service = start("gateway", &observing(&cluster, &file), &[]);
    // As much as goes.
    let _ = fs::write(&filler, vec![1; 128 << 10]);
    ask(&cluster, &service);
    service.daemon.wait_for_log(PATIENCE, "observe_file not written").expect("says so");
    assert!(service.daemon.log().contains("No space left on device"), "{}", service.daemon.log());
    assert_eq!(bytes(&file), 0, "the old version is whole");
    fs::remove_file(&filler).expect("gone");
    wait_until(PATIENCE, "a write that works", || bytes(&file) > 100_000).expect("written");
}
