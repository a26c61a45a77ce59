//! Signs of life, with short times: nothing depends on how long something takes.

use super::super::watched::Watched;
use super::*;
use pgshrink_backup::manifest::SystemIdentifier;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

const NEVER: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(1);

/// A backup that is written on another machine, as far as can be seen.
fn elsewhere(watched: &Watched) -> String {
    let claim = Claim::take(watched, SystemIdentifier(7)).unwrap();
    let path = watched.folder.path().join(&claim.name).join("begun.json");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let other = text.replace(boot.trim(), "another machine");
    assert_ne!(other, text);
    fs::write(&path, other).unwrap();
    claim.name
}

#[test]
fn a_writer_elsewhere_that_gives_a_sign_of_life_is_alive_and_one_that_gives_none_is_not() {
    let looks = AtomicUsize::new(0);
    let watched = Watched::new(move |call, inner| {
        // Before the third look.
        if call.starts_with("list") && looks.fetch_add(1, Ordering::Relaxed) == 2 {
            let sign = format!("{}/lease/0000-000000000001", call.strip_prefix("list ").unwrap());
            inner.create(&ObjectName::new(&sign).unwrap(), b"").unwrap();
        }
    });
    let name = [elsewhere(&watched)];
    assert_eq!(observe_for(&watched, &name, (NEVER, SOON)).unwrap(), [Lease::Renewed]);
    assert_eq!(observe_for(&watched, &name, (20 * SOON, SOON)).unwrap(), [Lease::Silent]);
}

#[test]
fn a_process_of_this_machine_is_seen_at_once() {
    let watched = Watched::quiet();
    let claim = Claim::take(&watched, SystemIdentifier(7)).unwrap();
    let found = observe_for(&watched, &[claim.name], (NEVER, NEVER)).unwrap();
    assert_eq!(found, [Lease::Renewed]);
}

#[test]
fn signs_of_life_change_until_the_end_and_there_is_always_one() {
    let renewed = Arc::new(Mutex::new(None));
    let (sender, receiver) = sync_channel(0);
    *renewed.lock().unwrap() = Some(sender);
    let count = AtomicUsize::new(0);
    let until = Arc::clone(&renewed);
    let watched = Watched::new(move |call, inner| {
        if call.starts_with("remove") {
            let others = inner
                .list(None, 10)
                .unwrap()
                .into_iter()
                .filter(|found| found.name.as_str().contains("/lease/"));
            assert!(others.count() == 2 || until.lock().unwrap().is_none(), "{call}");
        }
        if call.starts_with("create")
            && call.contains("/lease/")
            && count.fetch_add(1, Ordering::Relaxed) == 3
        {
            // It is told to end.
            *until.lock().unwrap() = None;
        }
    });
    let claim = Claim::take(&watched, SystemIdentifier(7)).unwrap();
    keep_every(SOON, &watched, &claim, &receiver);
    let names: Vec<_> = watched.calls("create").into_iter().filter(|call| call.contains("/lease/")).collect();
    assert!(names.len() >= 4 && names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    assert_eq!(watched.inner().list(None, 10).unwrap().len(), 1, "begun.json alone");
}
