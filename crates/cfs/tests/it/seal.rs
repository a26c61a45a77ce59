//! Sealing: what opens where, and what does not.

pub mod container;
mod fork;
mod golden;
mod keys;

use pgshrink_cfs::seal::{DataKey, KeySlot, MasterKey, OVERHEAD_BYTES, Random, Seal, Secret, StretchCost};
use pgshrink_testkit::Seed;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// getrandom(2), as a shell calls it.
#[derive(Clone, Copy)]
pub struct Kernel;

impl Random for Kernel {
    fn fill(&self, bytes: &mut [u8]) {
        let filled = rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
        assert_eq!(filled, bytes.len());
    }
}

/// What a shell must not do: a generator of the process's own. A clone of it is what a fork makes.
#[derive(Clone)]
pub struct Seeded(RefCell<u64>);

impl Random for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.0.borrow_mut();
        for byte in bytes {
            *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *byte = (*state >> 56) as u8;
        }
    }
}

pub fn key(byte: u8) -> Secret {
    Secret::parse(format!("{byte:02x}").repeat(32).as_bytes()).unwrap()
}

pub fn passphrase(text: &str) -> Secret {
    Secret::parse(text.as_bytes()).unwrap()
}

/// As cheap as a slot may ask for: these tests are not about how long stretching takes.
pub const CHEAP: StretchCost = StretchCost { memory_kib: 8, passes: 1 };

pub fn container_of(master: &MasterKey, id: u8) -> (impl Seal, KeySlot) {
    let (data, slot): (DataKey, KeySlot) = master.new_data_key(&[id; 16], &Kernel);
    (data.into_seal(master.id(), Kernel), slot)
}

pub fn sealed(seal: &impl Seal, associated: &[u8], plaintext: &[u8]) -> Vec<u8> {
    let mut out = vec![9, 9];
    seal.seal(associated, plaintext, &mut out);
    assert_eq!(out[..2], [9, 9], "what was in the buffer stays");
    assert_eq!(out.len(), 2 + plaintext.len() + OVERHEAD_BYTES);
    out.split_off(2)
}

pub fn opened(seal: &impl Seal, associated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0; sealed.len()];
    let length = seal.open(associated, sealed, &mut out)?;
    out.truncate(length);
    Some(out)
}

/// Nonces that occur more than once.
pub fn repeated_nonces<'r>(records: impl IntoIterator<Item = &'r Vec<u8>>) -> usize {
    let mut seen = BTreeSet::new();
    records.into_iter().filter(|record| !seen.insert(&record[..12])).count()
}

/// A page's associated data as `formats/cfs.md` has it.
fn associated(container: u8, block: u32, version: u64, mode: u8) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&block.to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes()[..6]);
    out.extend_from_slice(&[mode, 0]);
    out.extend_from_slice(&[container; 16]);
    out
}

#[test]
fn what_is_sealed_opens_again_at_every_length() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (seal, _) = container_of(&master, 1);
    assert_eq!(seal.key_id(), master.id());
    let mut rng = Seed(8452).rng();
    for length in (0..70).chain([127, 1024, 1500, 8192, 8448, 1 << 20]) {
        let plaintext = rng.bytes(length);
        let bytes = sealed(&seal, b"place", &plaintext);
        assert_eq!(opened(&seal, b"place", &bytes), Some(plaintext));
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_refused() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (seal, _) = container_of(&master, 1);
    let place = associated(1, 7, 5, 12);
    let whole = sealed(&seal, &place, b"a page's payload of a few bytes");
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(opened(&seal, &place, &bytes), None, "bit {bit}");
    }
    for end in 0..whole.len() {
        assert_eq!(opened(&seal, &place, &whole[..end]), None, "{end} bytes");
        assert_eq!(opened(&seal, &place, &whole[end + 1..]), None, "without {end} bytes");
    }
    for bit in 0..place.len() * 8 {
        let mut elsewhere = place.clone();
        elsewhere[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(opened(&seal, &elsewhere, &whole), None, "associated bit {bit}");
    }
}

#[test]
fn a_refused_record_leaves_no_plaintext_and_a_short_buffer_nothing_at_all() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (seal, _) = container_of(&master, 1);
    let mut bytes = sealed(&seal, b"place", &[0x55; 600]);
    let mut out = [0; 599];
    assert_eq!(seal.open(b"place", &bytes, &mut out), None);
    assert_eq!(out, [0; 599]);
    bytes[300] ^= 1;
    let mut out = [0; 700];
    assert_eq!(seal.open(b"place", &bytes, &mut out), None);
    assert!(out.windows(8).all(|window| window != [0x55; 8]));
}

#[test]
fn a_record_opens_at_its_block_version_and_mode_of_its_container_only() {
    let master = MasterKey::new(&key(1), &Kernel).unwrap();
    let (seal, slot) = container_of(&master, 1);
    let bytes = sealed(&seal, &associated(1, 7, 5, 12), b"payload");
    assert!(opened(&seal, &associated(1, 7, 5, 12), &bytes).is_some());
    for wrong in [associated(1, 8, 5, 12), associated(1, 7, 6, 12), associated(1, 7, 5, 4)] {
        assert_eq!(opened(&seal, &wrong, &bytes), None);
    }
    // In another container of the same master key, under either one's associated data.
    let (other, _) = container_of(&master, 2);
    assert_eq!(opened(&other, &associated(1, 7, 5, 12), &bytes), None);
    assert_eq!(opened(&other, &associated(2, 7, 5, 12), &bytes), None);
    // In one that was given the first one's slot, id and all: a copy. It opens, as it should.
    let copy = master.unwrap(&[1; 16], &slot).unwrap().into_seal(master.id(), Kernel);
    assert!(opened(&copy, &associated(1, 7, 5, 12), &bytes).is_some());
    assert_eq!(opened(&copy, &associated(2, 7, 5, 12), &bytes), None);
}
