//! Numbers by what they stand for: tables that are made once and then only read.

use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::memory;

/// Finds a number by the hash of what it stands for. Whoever asks compares: hashes of different things may be the same.
#[derive(Clone, Default, Debug)]
pub(super) struct Index {
    /// The upper half of a hash, and a number and one; zero where there is none. As many as a power of two, and at most
    /// half of them in use.
    slots: Vec<(u32, u32)>,
}

impl Index {
    /// One for so many numbers.
    pub(super) fn with_room_for(count: usize) -> Result<Index, Error> {
        let size = (2 * count.max(2)).next_power_of_two();
        let mut slots = Vec::new();
        memory::reserve_exact(&mut slots, size)?;
        slots.resize(size, (0, 0));
        Ok(Index { slots })
    }

    /// Adds a number, below `u32::MAX`. There is room for it.
    pub(super) fn insert(&mut self, hash: u64, number: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at].1 != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = ((hash >> 32) as u32, number + 1);
    }

    /// The number of this hash that `is_it`.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let (mut at, upper) = (hash as usize & mask, (hash >> 32) as u32);
        loop {
            let (found, number) = *self.slots.get(at)?;
            let number = number.checked_sub(1)?;
            if found == upper && is_it(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_size(&self) -> usize {
        self.slots.capacity() * size_of::<(u32, u32)>()
    }
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const OTHER: u64 = 0xe703_7ed1_a0b4_28db;

/// Of bytes, and of what they belong to. Never leaves the process.
#[inline]
pub(super) fn hash_of(seed: u64, bytes: &[u8]) -> u64 {
    let word =
        |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word));
    let (first, last) = match bytes.len() {
        0..=7 => (bytes.iter().fold(0, |known, byte| known << 8 | u64::from(*byte)), 0),
        8..=16 => (word(0).unwrap_or(0), word(bytes.len() - 8).unwrap_or(0)),
        _ => (XxHash3_64::oneshot(bytes), 0),
    };
    mix(mix(seed ^ (bytes.len() as u64) << 48, first), last)
}

/// Of a hash and what comes next.
#[inline]
pub(super) fn mix(hash: u64, next: u64) -> u64 {
    let product = u128::from(hash ^ ODD) * u128::from(next ^ OTHER);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_found_and_no_other() {
        let names: Vec<Vec<u8>> =
            (0..3000u32).map(|n| n.to_le_bytes()[..1 + n as usize % 4].to_vec()).collect();
        let mut index = Index::with_room_for(names.len()).unwrap();
        for (at, name) in names.iter().enumerate() {
            index.insert(hash_of(at as u64 % 7, name), at as u32);
        }
        for (at, name) in names.iter().enumerate() {
            assert_eq!(index.find(hash_of(at as u64 % 7, name), |n| n == at as u32), Some(at as u32));
            assert_eq!(index.find(hash_of(at as u64 % 7, name), |_| false), None);
        }
        assert_eq!(Index::default().find(7, |_| true), None);
    }

    #[test]
    fn bytes_of_every_length_have_hashes_of_their_own() {
        let text: Vec<u8> = (0..64).collect();
        let mut hashes: Vec<u64> = (0..=64).map(|end| hash_of(1, &text[..end])).collect();
        hashes.extend((0..64).map(|end| hash_of(2, &text[..end])));
        hashes.extend((1..64).map(|start| hash_of(1, &text[start..])));
        let count = hashes.len();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }
}
