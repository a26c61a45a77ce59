//! What is damaged in a container, as fields and as words.

use super::Failure;
use crate::ending::{Damage, Fault};
use pgshrink_cfs::segment::Clear;
use pgshrink_cfs::{OpenReport, store};
use pgshrink_codec::counted;

impl From<&pgshrink_cfs::Error> for Damage {
    fn from(error: &pgshrink_cfs::Error) -> Damage {
        let words = Damage::from(error.to_string());
        match error {
            pgshrink_cfs::Error::Damaged(damage) => Damage {
                part: Some(damage.part.name()),
                block: damage.block,
                offset: Some(damage.offset),
                bytes: Some(damage.length),
                ..words
            },
            _ => words,
        }
    }
}

impl From<&store::Error> for Damage {
    fn from(error: &store::Error) -> Damage {
        let words = Damage::from(error.to_string());
        match error {
            store::Error::Container(error) => Damage::from(error),
            store::Error::Page { block, .. } => Damage { part: Some("page"), block: Some(*block), ..words },
            store::Error::Dictionary { block, source, .. } => {
                Damage { block: Some(*block), message: words.message, ..Damage::from(source) }
            }
            _ => words,
        }
    }
}

/// A container that does not open.
impl From<Failure> for Damage {
    fn from(failure: Failure) -> Damage {
        Fault::from(failure).damage
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        let message = failure.reason;
        let damage = match failure.damage {
            Some(damage) => Damage { message, ..*damage },
            None => Damage::from(message),
        };
        Fault { path: failure.what, damage }
    }
}

/// Of a file of so many bytes that opening found, beside its pages.
pub(super) fn of_report(report: &OpenReport, file_bytes: u64) -> Vec<Damage> {
    let mut damages = missing(report.missing_bytes, file_bytes);
    let broken = &report.broken_roots;
    // A crash amid a commit breaks the one slot that was being written.
    if broken.len() > usize::from(!report.was_closed) {
        damages.extend(broken.iter().map(|damage| Damage::from(&pgshrink_cfs::Error::from(damage.clone()))));
    }
    damages
}

/// What is proved without the key of a file of so many bytes.
pub(super) fn of_head(head: &Clear, file_bytes: u64) -> Vec<Damage> {
    let mut damages = match file_bytes < super::container::ROOTS_BYTES as u64 {
        true => vec![cut_off(file_bytes)],
        false => missing(head.missing_bytes(file_bytes), file_bytes),
    };
    let slots = head.broken_roots.iter().zip((0..).step_by(SLOT_BYTES as usize));
    let broken: Vec<Damage> = slots
        .filter_map(|(reason, offset)| {
            let (part, block, length) = (pgshrink_cfs::Part::Root, None, SLOT_BYTES);
            Some(pgshrink_cfs::Damage { part, block, offset, length, reason: (*reason)? })
        })
        .map(|damage| Damage::from(&pgshrink_cfs::Error::from(damage)))
        .collect();
    if broken.len() > usize::from(!head.is_closed) {
        damages.extend(broken);
    }
    if head.may_be_older(file_bytes) {
        damages.push(older(head.discarded_bytes(file_bytes)));
    }
    damages
}

const SLOT_BYTES: u64 = super::container::ROOTS_BYTES as u64 / 3;

fn missing(bytes: u64, file_bytes: u64) -> Vec<Damage> {
    if bytes == 0 {
        return Vec::new();
    }
    let message =
        format!("the file is {} shorter than its root says: it was cut off", counted(bytes, "byte", "bytes"));
    vec![Damage { offset: Some(file_bytes), bytes: Some(bytes), ..Damage::from(message) }]
}

/// A file that has not all of its ring.
pub(super) fn cut_off(file_bytes: u64) -> Damage {
    let all = super::container::ROOTS_BYTES as u64;
    let has = counted(file_bytes, "byte", "bytes");
    let message = format!("the file has {has}; its roots alone take {all}: it was cut off");
    let bytes = Some(all - file_bytes.min(all));
    Damage {
        part: Some(pgshrink_cfs::Part::Root.name()),
        offset: Some(file_bytes),
        bytes,
        ..Damage::from(message)
    }
}

/// A root that may not be the last one.
pub(super) fn older(discarded_bytes: u64) -> Damage {
    let message = format!(
        "expected at least two intact roots, found one, and {} after what it refers to: later commits may be lost, \
         unless there were none; pgshrink cfs salvage finds their pages",
        counted(discarded_bytes, "byte", "bytes")
    );
    Damage { part: Some(pgshrink_cfs::Part::Root.name()), ..Damage::from(message) }
}
