//! `pgshrink cfs rekey`: another master key for containers, without rewriting what is in them.

use super::container::{Means, NoMeans, ROOTS_BYTES, head_of, is_sealed};
use super::file::{SegmentFolder, in_use};
use super::keys::{self, Kernel};
use super::output::{self, Progress, counted};
use super::{Failure, Verdict, running, walk};
use crate::args::RekeyArgs;
use crate::ending::{Damage, Fault};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::seal::{HexId, KeyError, Keyring};
use pgshrink_cfs::{Container, Device, Error, Folder, Recovery, segment};
use serde::Serialize;
use std::path::Path;

/// One container.
#[derive(Serialize)]
struct Rekeyed {
    path: String,
    /// None: it is not sealed.
    key_before: Option<String>,
    key_after: Option<String>,
    /// Why it still has the key it had.
    failed: Vec<Fault>,
    /// Another key may open it: the container is not at fault.
    #[serde(skip)]
    wants_key: bool,
}

pub(super) fn run(args: &RekeyArgs) -> Result<Verdict, Failure> {
    for path in &args.paths {
        running::refuse(path, args.force)?;
    }
    let containers = walk::containers(&args.paths)?;
    let mut keyring = keys::keyring_with_new(args)?;
    let random = Kernel::new()?;
    let progress = Progress::new(containers.len() as u64, &args.output);
    let mut all = Vec::new();
    for (path, file) in &containers {
        progress.at(path);
        let path = path.display().to_string();
        let (failed, wants_key) = (Vec::new(), false);
        let mut rekeyed = Rekeyed { path, key_before: None, key_after: None, failed, wants_key };
        if let Err(damage) = rekey(file, &mut keyring, random, &mut rekeyed) {
            rekeyed.failed.push(Fault { path: rekeyed.path.clone(), damage });
        }
        all.push(rekeyed);
        progress.add(1);
    }
    drop(progress);
    output::print(&args.output, &all, |all| text(all))?;
    let is_damaged = all.iter().any(|rekeyed| !rekeyed.failed.is_empty() && !rekeyed.wants_key);
    Ok(Verdict::of_faults(is_damaged, all.iter().any(|rekeyed| rekeyed.wants_key)))
}

fn rekey(file: &Path, keyring: &mut Keyring, random: Kernel, rekeyed: &mut Rekeyed) -> Result<(), Damage> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let head = head_of(file)?;
    if !is_sealed(&head) {
        return Ok(());
    }
    rekeyed.key_before = Some(HexId(head.key_id).to_string());
    let data_key = keyring.data_key(&head.id, &head.key_id, &head.key).map_err(|error| {
        let wrong = wrong_key(&error);
        let reason = NoMeans::Key(error);
        rekeyed.wants_key = reason.is_for_want_of_key();
        wrong.unwrap_or_else(|| text(&reason))
    })?;
    let master = keyring.master(&random).map_err(|error| text(&error))?;
    let (key_id, slot) = (master.id(), master.wrap(&head.id, &data_key, &random));
    // Also where a run that was ended before had replaced the newest root only.
    let before = Means::new(head.pages_max, Some(data_key.clone().into_seal(head.key_id, random)));
    open(file, &before)?.rekey(key_id, slot).map_err(|error| text(&error))?;
    // Opening writes two roots, closing the third: then none of the ring carries an older slot.
    let after = Means::new(head.pages_max, Some(data_key.into_seal(key_id, random)));
    open(file, &after)?.close().map_err(|error| text(&error))?;
    let mut roots = vec![0; ROOTS_BYTES];
    folder(file)
        .open(segment::FILE_NAME)
        .and_then(|device| device.pread(&mut roots, 0))
        .map_err(|error| text(&error))?;
    let root_slots = roots.chunks(ROOTS_BYTES / 3);
    if !root_slots.into_iter().all(|root_slot| root_slot.windows(slot.len()).any(|window| window == slot)) {
        let older = "an older root still has the data key encrypted with the previous key; run it again";
        return Err(older.to_owned().into());
    }
    rekeyed.key_after = Some(HexId(key_id).to_string());
    Ok(())
}

fn folder(file: &Path) -> SegmentFolder {
    SegmentFolder(super::copy::parent(file).to_owned())
}

/// For writing: the tool has the container to itself.
fn open<'m>(file: &Path, means: &'m Means) -> Result<super::container::Alones<'m>, String> {
    let device = folder(file).open(segment::FILE_NAME).map_err(|error| error.to_string())?;
    let opened = Container::open(device, Alone, means.words(), Recovery::Discard, means.options(false));
    opened.map(|(container, _)| container).map_err(|error| match error {
        Error::InUse => in_use(),
        error => error.to_string(),
    })
}

/// What is said if neither the new key nor another one is the container's.
fn wrong_key(error: &KeyError) -> Option<String> {
    let KeyError::Wrong { needed, of, tried } = error else { return None };
    let found = match tried.saturating_sub(1) {
        0 => "the new key is another one, and no old key was given".to_owned(),
        1 => "the old key does not match, nor does the new one".to_owned(),
        old => format!("none of the {old} old keys matches, nor does the new one"),
    };
    Some(format!(
        "the container is encrypted with key {needed}, derived from {of}; {found}. Give its key with --key-file or \
         --key-command"
    ))
}

/// A line for each container; for those that failed for the same reason, one together.
fn text(all: &[Rekeyed]) -> String {
    let (mut text, mut failed) = (String::new(), Vec::<(&str, &str, u64)>::new());
    for rekeyed in all {
        let result = match (rekeyed.failed.first(), &rekeyed.key_before, &rekeyed.key_after) {
            (Some(fault), _, _) => {
                let reason = fault.damage.message.as_str();
                match failed.iter_mut().find(|(_, known, _)| *known == reason) {
                    Some((_, _, count)) => *count += 1,
                    None => failed.push((&rekeyed.path, reason, 1)),
                }
                continue;
            }
            (None, Some(before), Some(after)) => format!("{before} -> {after}"),
            _ => "not encrypted".to_owned(),
        };
        text.push_str(&format!("{}: {result}\n", rekeyed.path));
    }
    for (path, reason, count) in failed {
        let others = match count {
            1 => String::new(),
            _ => format!(" and {}", counted(count - 1, "other container", "other containers")),
        };
        text.push_str(&format!("{path}{others}: PROBLEM: {reason}\n"));
    }
    text
}

#[test]
fn containers_with_the_same_problem_share_a_line() {
    let rekeyed = |path: &str, problem: Option<&str>| {
        let failed = problem.map(|problem| Fault::new(path, problem)).into_iter().collect();
        let path = path.to_owned();
        Rekeyed { path, key_before: None, key_after: None, failed, wants_key: false }
    };
    let all = [
        rekeyed("a", Some("wrong")),
        rekeyed("b", None),
        rekeyed("c", Some("wrong")),
        rekeyed("d", Some("cut")),
    ];
    assert_eq!(text(&all), "b: not encrypted\na and 1 other container: PROBLEM: wrong\nd: PROBLEM: cut\n");
}

#[test]
fn a_wrong_key_is_told_as_old_and_new() {
    let said = |tried| {
        wrong_key(&KeyError::Wrong { needed: HexId([7; 16]), of: "a passphrase", tried }).unwrap_or_default()
    };
    assert!(said(1).contains("no old key was given"), "{}", said(1));
    assert!(said(2).contains("the old key does not match, nor does the new one"), "{}", said(2));
    assert!(said(4).contains("none of the 3 old keys"), "{}", said(4));
}
