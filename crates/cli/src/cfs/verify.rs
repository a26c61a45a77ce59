//! `pgshrink cfs verify`.

use super::container::{Means, head_of};
use super::keys::{self, Kernel};
use super::output::{self, Progress};
use super::{Failure, Verdict, walk};
use crate::args::VerifyArgs;
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::seal::Keyring;
use serde::Serialize;
use std::path::Path;

/// Damages of one container that are listed; the rest is counted.
const LISTED_MAX: usize = 100;

/// One container.
#[derive(Serialize)]
struct Verified {
    path: String,
    pages: u32,
    /// Pages that cannot be had.
    damaged_pages: u32,
    /// What is wrong, by page where it is one.
    damages: Vec<String>,
    /// What a crash leaves, and opening mends.
    notes: Vec<String>,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Verdict, Failure> {
    let containers = walk::containers(&args.paths)?;
    let mut keyring = keys::keyring(&args.key)?;
    let random = Kernel::new()?;
    let sizes =
        containers.iter().filter_map(|(_, file)| head_of(file).ok()).map(|head| u64::from(head.pages));
    let progress = Progress::new(sizes.sum::<u64>() * PAGE_SIZE as u64, &args.output);
    let mut all = Vec::new();
    let mut unknown = Vec::new();
    for (path, file) in &containers {
        progress.at(path);
        match verify(path, file, &mut keyring, random, &progress) {
            Ok(verified) => all.push(verified),
            Err(failure) => unknown.push(failure),
        }
    }
    drop(progress);
    let good = all.iter().all(|verified| verified.damages.is_empty());
    output::print(&args.output, &all, |all| text(all))?;
    unknown.iter().for_each(|failure| eprintln!("pgshrink: not verified: {failure}"));
    match unknown.into_iter().next() {
        Some(failure) if good => Err(failure),
        _ => Ok(Verdict::of(good)),
    }
}

/// An error: it could not be looked at, for want of its key or of the right to read it.
fn verify(
    path: &Path,
    file: &Path,
    keyring: &mut Keyring,
    random: Kernel,
    progress: &Progress,
) -> Result<Verified, Failure> {
    // Whether it can be read at all is not the container's fault.
    std::fs::File::open(file).map_err(Failure::reading(file))?;
    let mut verified = Verified {
        path: path.display().to_string(),
        pages: 0,
        damaged_pages: 0,
        damages: Vec::new(),
        notes: Vec::new(),
    };
    let head = match head_of(file) {
        Ok(head) => head,
        Err(failure) => {
            verified.damages.push(failure.to_string());
            return Ok(verified);
        }
    };
    verified.pages = head.pages;
    let means = Means::of(&head, keyring, random).map_err(|reason| Failure::new(path, reason))?;
    let (mut reader, report) = match means.open(file) {
        Ok(opened) => opened,
        Err(failure) => {
            verified.damages.push(failure.to_string());
            return Ok(verified);
        }
    };
    if let Some(report) = report {
        if report.missing_bytes > 0 {
            verified
                .damages
                .push(format!("the file is {} bytes shorter than its root says", report.missing_bytes));
        }
        // A crash amid a commit breaks the one sheet that was being written.
        if report.broken_roots > 1 || report.broken_roots == 1 && report.was_closed {
            verified.damages.push(format!("{} of the root sheets are broken", report.broken_roots));
        } else if report.broken_roots == 1 {
            verified.notes.push("a root was being written at a crash".to_owned());
        }
        if report.discarded_bytes > 0 {
            verified
                .notes
                .push(format!("{} bytes were written after the last commit", report.discarded_bytes));
        }
    }
    // Leaves of the map, and whether their pages share space.
    verified.damages.extend(reader.container.complete().err().map(|error| error.to_string()));
    let mut page = [0; PAGE_SIZE];
    for block in 0..reader.container.pages() {
        if let Err(fault) = reader.page(block, &mut page) {
            verified.damaged_pages += 1;
            if verified.damages.len() < LISTED_MAX {
                verified.damages.push(fault.to_string());
            }
        }
        progress.add(PAGE_SIZE as u64);
    }
    Ok(verified)
}

fn text(all: &[Verified]) -> String {
    let mut text = String::new();
    for verified in all {
        for damage in &verified.damages {
            text.push_str(&format!("{}: {damage}\n", verified.path));
        }
        let listed = verified.damages.len() as u32;
        if verified.damaged_pages > listed {
            text.push_str(&format!(
                "{}: and {} more pages\n",
                verified.path,
                verified.damaged_pages - listed
            ));
        }
        for note in &verified.notes {
            text.push_str(&format!("{}: note: {note}\n", verified.path));
        }
    }
    let pages: u64 = all.iter().map(|verified| u64::from(verified.pages)).sum();
    let bad = all.iter().filter(|verified| !verified.damages.is_empty()).count();
    let result = if bad == 0 { "all whole".to_owned() } else { format!("{bad} DAMAGED") };
    text + &format!("{} containers, {pages} pages: {result}\n", all.len())
}
