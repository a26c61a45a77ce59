//! The durable map: leaves of 512 entries, an index of leaves, and deltas on top.
//!
//! A commit writes what changed: into the root if it fits, else as a delta. When deltas are as long as the
//! leaves they change, the leaves are written anew (a map checkpoint). A map checkpoint takes its entries
//! from the map in memory alone, so whatever state an interrupted commit left behind, a map checkpoint is a
//! correct successor.

use crate::format::entry::{Entry, TAGS};
use crate::format::root::{Place, Reader, put_items, put_place};
use crate::format::units::{Block, LEAF_ENTRIES, LEAVES_MAX, Leaf, PAGES_MAX};

const RAW: u8 = 0;
const PACKED: u8 = 1;

/// Appends a leaf's payload: the shorter of eight bytes an entry and one that is short for pages written in
/// sequence.
pub(crate) fn encode_leaf(leaf: Leaf, entries: &[Entry], out: &mut Vec<u8>) {
    assert!(!entries.is_empty() && entries.len() <= LEAF_ENTRIES);
    let head = |form: u8, out: &mut Vec<u8>| {
        out.extend_from_slice(&(leaf.0 as u16).to_le_bytes());
        out.extend_from_slice(&(entries.len() as u16).to_le_bytes());
        out.push(form);
    };
    let start = out.len();
    head(PACKED, out);
    let mut before = Entry::MISSING;
    for entry in entries {
        pack(entry.clean(), before, out);
        before = entry.clean();
    }
    if out.len() - start > 5 + entries.len() * 8 {
        out.truncate(start);
        head(RAW, out);
        entries.iter().for_each(|entry| out.extend_from_slice(&entry.clean().0.to_le_bytes()));
    }
}

/// Reads a leaf's payload: its number and entries. None: it is no leaf.
pub(crate) fn decode_leaf(payload: &[u8], entries: &mut [Entry; LEAF_ENTRIES]) -> Option<(Leaf, usize)> {
    let mut rest = Reader(payload);
    let number = usize::from(rest.u16()?);
    let count = usize::from(rest.u16()?);
    let form = rest.take(1)?[0];
    if number >= LEAVES_MAX || count == 0 || count > LEAF_ENTRIES || form > PACKED {
        return None;
    }
    let mut before = Entry::MISSING;
    for slot in &mut entries[..count] {
        *slot = if form == RAW { raw(&mut rest)? } else { unpack(&mut rest, before)? };
        if !slot.is_storable() {
            return None;
        }
        before = *slot;
    }
    rest.0.is_empty().then_some((Leaf(number), count))
}

/// Three numbers, each small where a page was written right after the one before: how far its record is from
/// the end of that one's, how much longer it is, how many versions came in between.
fn pack(entry: Entry, before: Entry, out: &mut Vec<u8>) {
    let (span, last) = (entry.span(), before.span());
    let expected = last.location.0.wrapping_add(last.units.0);
    put_varint(out, zigzag(span.location.0.wrapping_sub(expected)));
    put_varint(out, zigzag(span.units.0.wrapping_sub(last.units.0)));
    let tag_step = entry.tag().wrapping_sub(before.tag().wrapping_add(1)) & (TAGS - 1);
    put_varint(out, tag_step as u32);
}

fn unpack(rest: &mut Reader<'_>, before: Entry) -> Option<Entry> {
    let last = before.span();
    let expected = last.location.0.wrapping_add(last.units.0);
    let location = unzigzag(varint(rest)?).wrapping_add(expected);
    let units = unzigzag(varint(rest)?).wrapping_add(last.units.0);
    let tag = u64::from(varint(rest)?).wrapping_add(before.tag() + 1);
    Entry::from_parts(location, units, tag)
}

fn raw(rest: &mut Reader<'_>) -> Option<Entry> {
    rest.u64().map(Entry)
}

fn zigzag(difference: u32) -> u32 {
    let signed = difference as i32;
    ((signed << 1) ^ (signed >> 31)) as u32
}

fn unzigzag(value: u32) -> u32 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

fn put_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(rest: &mut Reader<'_>) -> Option<u32> {
    let mut value = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = rest.take(1)?[0];
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return u32::try_from(value).ok();
        }
    }
    None
}

/// Appends the index's payload: a place for each leaf.
pub(crate) fn encode_index(leaves: &[Place], out: &mut Vec<u8>) {
    out.extend_from_slice(&(leaves.len() as u32).to_le_bytes());
    leaves.iter().for_each(|place| put_place(out, *place));
}

/// Reads an index's payload.
pub(crate) fn decode_index(payload: &[u8]) -> Option<Vec<Place>> {
    let mut rest = Reader(payload);
    let count = rest.u32()? as usize;
    if count > LEAVES_MAX {
        return None;
    }
    let leaves: Option<Vec<Place>> = (0..count).map(|_| rest.place()).collect();
    leaves.filter(|_| rest.0.is_empty())
}

/// Appends a delta's payload.
pub(crate) fn encode_delta(items: &[(Block, Entry)], out: &mut Vec<u8>) {
    out.extend_from_slice(&(items.len() as u32).to_le_bytes());
    put_items(out, items);
}

/// Reads a delta's payload.
pub(crate) fn decode_delta(payload: &[u8]) -> Option<Vec<(Block, Entry)>> {
    let mut rest = Reader(payload);
    let count = rest.u32()? as usize;
    if count > PAGES_MAX as usize {
        return None;
    }
    let items = rest.items(count)?;
    (rest.0.is_empty() && items.last().is_none_or(|(block, _)| block.0 < PAGES_MAX)).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::units::{Location, Span, Units, Version};

    fn record(location: u32, units: u32, version: u64) -> Entry {
        let span = Span { location: Location(location), units: Units(units) };
        Entry::record(span, Version(version))
    }

    fn there_and_back(entries: &[Entry]) -> usize {
        let mut payload = Vec::new();
        encode_leaf(Leaf(7), entries, &mut payload);
        let mut read = [Entry::MISSING; LEAF_ENTRIES];
        assert_eq!(decode_leaf(&payload, &mut read), Some((Leaf(7), entries.len())));
        assert_eq!(&read[..entries.len()], entries);
        for end in (0..payload.len()).step_by(if cfg!(miri) { 101 } else { 1 }) {
            assert_eq!(decode_leaf(&payload[..end], &mut read), None);
        }
        payload.len()
    }

    #[test]
    fn leaves_come_back_and_are_short_for_pages_written_in_sequence() {
        let in_sequence: Vec<Entry> =
            (0..512).map(|i| record(1000 + i * 100, 100, u64::from(i) + (1 << 21) - 9)).collect();
        assert!(there_and_back(&in_sequence) < 512 * 4);
        let mut rng = pgshrink_testkit::seed::Seed(3).rng();
        let random: Vec<Entry> = (0..300)
            .map(|_| match rng.below(5) {
                0 => Entry::MISSING,
                1 => Entry::zeros(Version(rng.bits())),
                _ => record(rng.bits() as u32 | 1, rng.between(1, 1023) as u32, rng.bits()),
            })
            .collect();
        assert!(there_and_back(&random) <= 5 + 300 * 8);
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        let with = |entry: u64| {
            let payload = [&[0, 0, 1, 0, RAW][..], &entry.to_le_bytes()].concat();
            decode_leaf(&payload, &mut [Entry::MISSING; LEAF_ENTRIES])
        };
        let good = record(9, 2, 1);
        assert_eq!(with(good.0), Some((Leaf(0), 1)));
        // Marked; a location without a length; a length that is no code, without a location; a tag alone.
        for entry in [good.dirty().0, 9, 7 << 32, 1 << 42] {
            assert_eq!(with(entry), None, "{entry:#x}");
        }
    }

    #[test]
    fn deltas_and_indexes_come_back_and_nothing_cut_off_passes() {
        let items = vec![
            (Block(3), record(9, 2, 1)),
            (Block(70_000), Entry::zeros(Version(5))),
            (Block(70_001), Entry::MISSING),
        ];
        let mut payload = Vec::new();
        encode_delta(&items, &mut payload);
        assert_eq!(decode_delta(&payload), Some(items));
        assert!((0..payload.len()).all(|end| decode_delta(&payload[..end]).is_none()));
        let leaves = [Place::of(Location(5), 6, Version(7)), Place::default()];
        let mut payload = Vec::new();
        encode_index(&leaves, &mut payload);
        assert_eq!(decode_index(&payload).as_deref(), Some(&leaves[..]));
        assert!((0..payload.len()).all(|end| decode_index(&payload[..end]).is_none()));
    }
}
