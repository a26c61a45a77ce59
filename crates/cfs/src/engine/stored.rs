//! Finding and proving what is not a page: the newest root, records of the map, dictionaries.

use crate::device::Device;
use crate::engine::container::Options;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::record::{self, HEADER_BYTES, Kind};
use crate::format::root::{DISK_BLOCK_BYTES, FIRST_SLOT, Place, Root, SUPERBLOCK_SLOTS, peek};
use crate::format::units::ContainerId;

/// The newest root, and the ring behind it.
pub(crate) struct Found {
    pub(crate) root: Root,
    /// The slot last written.
    pub(crate) ring: u64,
    /// Slots that are neither empty nor whole, and the first one if it is empty.
    pub(crate) broken: Vec<Damage>,
    /// Of the ring, with an older key or not.
    pub(crate) whole: u32,
}

/// The newest whole root of the ring.
///
/// # Errors
/// [`Error::Unsupported`] if any slot is of a newer version; [`Error::KeyMissing`] if the newest is sealed
/// with another key; where no slot is whole, what is wrong with the first that is not empty, or
/// [`Error::Foreign`]; [`Error::Device`].
pub(crate) fn find_root(device: &impl Device, options: &Options<'_>) -> Result<Found, Error> {
    let mut newest: Option<(usize, Root)> = None;
    let mut sequences = [0; SUPERBLOCK_SLOTS];
    let (mut broken, mut whole, mut failure) = (Vec::new(), 0, None);
    let mut locked: Option<(u64, Error)> = None;
    for (index, sequence) in sequences.iter_mut().enumerate() {
        let mut slot = [0; DISK_BLOCK_BYTES];
        let offset = (index * DISK_BLOCK_BYTES) as u64;
        let got = device.pread(&mut slot, offset);
        let got = got.map_err(|source| Error::device("read", offset, DISK_BLOCK_BYTES, source))?;
        if slot[..got] == [0; DISK_BLOCK_BYTES][..got] {
            if index == FIRST_SLOT {
                broken.push(of_slot(offset, Reason::NoRoot));
            }
            continue;
        }
        if got < DISK_BLOCK_BYTES {
            // What is missing may have been zeros, and the checksum right.
            let damage =
                of_slot(offset, Reason::CutOff { expected: DISK_BLOCK_BYTES as u64, found: got as u64 });
            failure.get_or_insert(damage.clone().into());
            broken.push(damage);
            continue;
        }
        match Root::decode(&slot, options.seal_of(device), options.fault) {
            Ok(root) => {
                *sequence = root.sequence.0;
                whole += 1;
                if newest.as_ref().is_none_or(|(_, best)| best.sequence < root.sequence) {
                    newest = Some((index, root));
                }
            }
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            // From before the master key changed, unless it is the newest.
            Err(error @ Error::KeyMissing { .. }) => {
                *sequence = peek(&slot).map_or(0, |(root, _)| root.sequence.0);
                whole += 1;
                if locked.as_ref().is_none_or(|(newest, _)| newest < sequence) {
                    locked = Some((*sequence, error));
                }
            }
            Err(error) => {
                let (error, damage) = match error {
                    Error::Damaged(damage) => {
                        let damage = of_slot(offset, damage.reason);
                        (damage.clone().into(), damage)
                    }
                    error => (error, of_slot(offset, Reason::NoRoot)),
                };
                broken.push(damage);
                failure.get_or_insert(error);
            }
        }
    }
    if let Some((sequence, error)) = locked
        && newest.as_ref().is_none_or(|(_, root)| root.sequence.0 < sequence)
    {
        return Err(error);
    }
    let Some((index, root)) = newest else {
        return Err(failure.unwrap_or(Error::Foreign { found: [0; 8] }));
    };
    // What is written next must not be the newest root, nor the only copy of it.
    let after = (index + 1) % SUPERBLOCK_SLOTS;
    let ring = if sequences[after] == root.sequence.0 { after } else { index };
    Ok(Found { root, ring: ring as u64, broken, whole })
}

fn of_slot(offset: u64, reason: Reason) -> Damage {
    Damage { part: Part::Root, block: None, offset, length: DISK_BLOCK_BYTES as u64, reason }
}

/// Reads and proves a record that is no page's; returns its payload, opened.
///
/// # Errors
/// [`Error::Damaged`] if the record there is not whole, not of this kind, or not the one that the place
/// means; [`Error::Device`].
pub(crate) fn read_map(
    device: &impl Device,
    options: &Options<'_>,
    id: &ContainerId,
    place: Place,
    kind: Kind,
    part: Part,
) -> Result<Vec<u8>, Error> {
    let (offset, length) = (place.location.offset(), u64::from(place.bytes));
    let damage = |reason| Error::from(Damage { part, block: None, offset, length, reason });
    let limit = HEADER_BYTES + record::META_PAYLOAD_MAX;
    if place.bytes as usize > limit {
        return Err(damage(Reason::Over { what: "length", limit: limit as u64, found: length }));
    }
    let mut bytes = vec![0; place.bytes as usize];
    let got = device.pread(&mut bytes, offset);
    let got = got.map_err(|source| Error::device("read", offset, place.bytes as usize, source))?;
    if got < bytes.len() {
        return Err(damage(Reason::CutOff { expected: length, found: got as u64 }));
    }
    let header = record::check(&bytes, record::seed_of(id), place.location).map_err(damage)?;
    if header.kind != kind {
        return Err(damage(Reason::OtherKind));
    }
    if header.payload_len + HEADER_BYTES != bytes.len() {
        let found = (header.payload_len + HEADER_BYTES) as u64;
        return Err(damage(Reason::OtherLength { expected: length, found }));
    }
    if !place.has_tag_of(header.version) {
        let (expected_tag, found) = (place.tag.into(), header.version.0);
        return Err(damage(Reason::OtherSequence { expected_tag, found }));
    }
    let Some(seal) = options.seal_of(device) else {
        return Ok(bytes.split_off(HEADER_BYTES));
    };
    let mut opened = vec![0; header.payload_len];
    let associated = record::associated(id, &header);
    let length = seal.open(&associated, &bytes[HEADER_BYTES..], &mut opened);
    opened.truncate(length.ok_or_else(|| damage(Reason::Seal))?);
    Ok(opened)
}

/// What is recorded in the slots, whole or not: the container's id, and the highest sequence of a whole
/// one. None: there is no slot at all.
///
/// # Errors
/// [`Error::Device`].
pub(crate) fn whose(device: &impl Device) -> Result<Option<(ContainerId, u64)>, Error> {
    let mut found: Option<(ContainerId, u64)> = None;
    for index in 0..SUPERBLOCK_SLOTS {
        let (mut slot, offset) = ([0; DISK_BLOCK_BYTES], (index * DISK_BLOCK_BYTES) as u64);
        let got = device.pread(&mut slot, offset);
        let got = got.map_err(|source| Error::device("read", offset, DISK_BLOCK_BYTES, source))?;
        let Some((root, is_whole)) = peek(&slot) else { continue };
        // One that is cut off is no root to who opens the file either, though it was of zeros from there on.
        let is_whole = is_whole && got == DISK_BLOCK_BYTES;
        let sequence = if is_whole { root.sequence.0 } else { 0 };
        if found.is_none_or(|(_, best)| best < sequence) {
            found = Some((root.container, sequence));
        }
    }
    Ok(found)
}
