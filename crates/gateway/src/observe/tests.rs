//! The meter without sessions: settings that change, files that cannot be used.

use std::os::unix::fs::PermissionsExt;

use pgshrink_egress::{DEFAULT_LIMITS, Kind};
use pgshrink_testkit::TempDir;

use super::*;

fn settings(file: Option<&Path>) -> Settings {
    Settings {
        file: file.map(Path::to_owned),
        cpu_share: 0.1,
        interval: Duration::from_secs(3600),
        limits: DEFAULT_LIMITS,
        compression: "zstd:1".into(),
    }
}

fn client(n: u8) -> Peer {
    Peer::Address(format!("10.0.0.{n}:5").parse().unwrap())
}

/// A session that moved so much.
fn moved(core: &Arc<Core>, n: u8, bytes: usize) {
    let mut meter = core.meter(client(n), None, None);
    let talk = pgshrink_wire::Conversation::default();
    meter.see(pgshrink_egress::Direction::ToClient, &vec![b'x'; bytes], &talk);
}

fn bytes(ledger: &Ledger) -> u64 {
    let to_client = pgshrink_egress::Direction::ToClient;
    ledger
        .lines()
        .map(|(.., line)| Kind::ALL.iter().map(|k| line.get(to_client, *k).bytes).sum::<u64>())
        .sum()
}

fn read(path: &Path) -> Ledger {
    pgshrink_egress::file::read(&std::fs::read(path).unwrap(), DEFAULT_LIMITS).unwrap()
}

fn refused(path: &Path) -> String {
    Slot::default().apply(settings(Some(path))).err().map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn totals_survive_a_restart_and_only_the_owner_reads_them() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("egress");
    for round in 1..=3 {
        let slot = Slot::default();
        moved(&slot.apply(settings(Some(&path))).unwrap(), 1, 1000);
        assert_eq!(bytes(&slot.report().unwrap().days), round * 1000);
        assert_eq!(bytes(&slot.report().unwrap().since_start), 1000);
        slot.stop();
        assert_eq!(bytes(&read(&path)), round * 1000);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_file_that_another_meter_has_is_refused_also_after_it_was_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("egress");
    let slot = Slot::default();
    let core = slot.apply(settings(Some(&path))).unwrap();
    for _ in 0..3 {
        assert!(refused(&path).contains("another process is using it"), "{}", refused(&path));
        assert!(file_problem(&path).is_none(), "a check beside the running gateway finds nothing wrong");
        core.save(SystemTime::now()).unwrap();
    }
    // By another name.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(refused(&link).contains("another process is using it"));
    slot.stop();
    assert_eq!(refused(&link), "");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_damaged_file_is_refused_and_left_as_it_is() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("egress");
    let good = pgshrink_egress::file::write(&Ledger::default(), "zstd:1", "");
    let newer = String::from_utf8_lossy(&good).replace("\"version\":1", "\"version\":9").into_bytes();
    for (bad, says) in [
        (&good[..good.len() - 9], "damaged: "),
        (b"my notes\n", "expected a first line with"),
        (&newer[..], "version 9, this program reads 1"),
    ] {
        std::fs::write(&path, bad).unwrap();
        let error = refused(&path);
        assert!(error.starts_with("observe_file: ") && error.contains(says), "{error}");
        assert!(error.contains("move it away"), "{error}");
        assert_eq!(file_problem(&path).map(|e| e.to_string()), Some(error));
        assert_eq!(std::fs::read(&path).unwrap(), bad);
    }
    std::fs::write(&path, "").unwrap();
    assert_eq!(refused(&path), "", "an operator made it for us");
}

#[test]
fn what_cannot_be_written_is_told_at_the_start_and_by_a_check() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("no/such/directory");
    let occupied = dir.path().join("egress");
    std::fs::create_dir(occupied.with_extension("tmp")).unwrap();
    for path in [&missing, &occupied, &PathBuf::from("/proc/egress")] {
        let error = refused(path);
        assert!(
            error.contains("cannot be written: ") && error.contains("name a file in a directory"),
            "{error}"
        );
    }
    assert!(file_problem(&missing).is_some() && file_problem(dir.path()).is_some());
    assert!(refused(Path::new("/dev/null")).contains("expected a regular file"));
}

#[test]
fn a_write_that_fails_loses_nothing_and_is_tried_again() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("egress");
    let slot = Slot::default();
    let core = slot.apply(settings(Some(&path))).unwrap();
    moved(&core, 1, 500);
    core.collect(SystemTime::now());
    // In the way of the next version.
    let next = dir.path().join("egress.tmp");
    std::fs::create_dir(&next).unwrap();
    assert!(core.save(SystemTime::now()).is_err());
    assert_eq!((slot.report().unwrap().write_failures, bytes(&read(&path))), (1, 0));
    assert!(refused(&path).contains("another process"), "it is still locked");
    std::fs::remove_dir(&next).unwrap();
    core.save(SystemTime::now()).unwrap();
    assert_eq!(bytes(&read(&path)), 500);
}

#[test]
fn a_reload_changes_the_file_and_a_file_that_cannot_be_used_changes_nothing() {
    let dir = TempDir::new().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let slot = Slot::default();
    let core = slot.apply(settings(None)).unwrap();
    moved(&core, 1, 100);
    // What was in memory only goes into the first file.
    slot.apply(settings(Some(&first))).unwrap();
    moved(&core, 1, 20);
    std::fs::write(&second, "my notes\n").unwrap();
    assert!(slot.apply(settings(Some(&second))).is_err());
    assert_eq!(bytes(&slot.report().unwrap().days), 120);
    std::fs::remove_file(&second).unwrap();
    slot.apply(settings(Some(&second))).unwrap();
    assert_eq!((bytes(&read(&first)), bytes(&slot.report().unwrap().days)), (120, 0));
    moved(&core, 2, 3);
    slot.stop();
    assert_eq!((bytes(&read(&first)), bytes(&read(&second))), (120, 3));
}

#[test]
fn sessions_of_many_clients_are_lines_and_the_rest_is_summed() {
    let slot = Slot::default();
    let limits = Limits { days: 2, lines: 3 };
    let core = slot.apply(Settings { limits, ..settings(None) }).unwrap();
    (0..50).for_each(|n| moved(&core, n, 10));
    let report = slot.report().unwrap();
    let clients: Vec<&str> = report.days.lines().map(|(_, key, _)| key.client.as_str()).collect();
    assert_eq!(clients.len(), 4, "{clients:?}");
    assert!(clients.contains(&"other"));
    assert_eq!((bytes(&report.days), bytes(&report.since_start)), (500, 500));
}

#[test]
fn a_sample_stands_for_all_that_its_session_carried_since_the_one_before() {
    const READ: usize = 64 << 10;
    const READS: usize = 8000;
    let slot = Slot::default();
    let core = slot.apply(Settings { cpu_share: 0.03, ..settings(None) }).unwrap();
    let allowed =
        pgshrink_codec::AlgorithmList::parse("zstd:1", pgshrink_wire::negotiate::WIRE_ALGORITHMS).unwrap();
    let simulation = pgshrink_egress::Simulation::new(&allowed, false, Arc::default()).map(Arc::new);
    let mut meter = core.meter(client(1), None, simulation);
    // Rows of COPY, as many as a read has.
    let row = [b"d\0\0\0\x40".as_slice(), &[b'x'; 60]].concat();
    let read: Vec<u8> = row.iter().copied().cycle().take(READ / row.len() * row.len()).collect();
    let talk = pgshrink_wire::Conversation::default();
    let mut moved = 0;
    let mut see = |meter: &mut Meter| {
        moved += read.len() as u64;
        meter.see(pgshrink_egress::Direction::ToClient, &read, &talk);
    };
    (0..READS).for_each(|_| see(&mut meter));
    meter.release();
    let wait = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        pgshrink_testkit::wait_until(Duration::from_secs(60), what, is_so).unwrap();
    };
    wait("samples to be measured", &mut || slot.pending() == 0);
    wait("time for another sample", &mut || {
        see(&mut meter);
        slot.pending() > 0
    });
    (0..16).for_each(|_| see(&mut meter));
    drop(meter);
    wait("the last sample", &mut || slot.pending() == 0);
    let report = slot.report();
    let ledger = report.map(|report| report.days).unwrap_or_default();
    let sum = |of: fn(&pgshrink_egress::Sum) -> u64| -> u64 {
        let to_client = pgshrink_egress::Direction::ToClient;
        let lines =
            ledger.lines().flat_map(|(.., line)| Kind::ALL.map(|kind| of(&line.get(to_client, kind))));
        lines.sum()
    };
    let (sampled, stands_for) = (sum(|s| s.sampled_bytes), sum(|s| s.sampled.raw_bytes));
    assert_eq!(sum(|s| s.bytes), moved);
    assert!(sampled > 0 && sampled < moved / 4, "{sampled} of {moved} were measured");
    assert!(stands_for > moved / 10 * 9, "{sampled} stand for {stands_for} of {moved}");
}
