//! Keys, key slots, sealed records and sealed containers from anywhere: an error, or the very plaintext, in bounded memory.
#![no_main]

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;

use libfuzzer_sys::fuzz_target;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::seal::{KEY_SLOT_BYTES, Keyring, MasterKey, Random, RecordSeal, Seal, Secret};
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::{Container, Device, Folder, Geometry, Options, Recovery, Scratch, Stored, segment};

/// A container of `crates/cfs/tests/it/golden`, by the key of 32 bytes 1.
static SEALED: &[u8] = include_bytes!("../../formats/cfs/golden/sealed-key.cfs");
const CONTAINER: [u8; 16] = [6; 16];

struct Counting(AtomicU64);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let start = self.0.fetch_add(bytes.len() as u64, std::sync::atomic::Ordering::Relaxed);
        bytes.iter_mut().zip(start..).for_each(|(byte, value)| *byte = (value * 167 >> 3) as u8);
    }
}

fn random() -> Counting {
    Counting(AtomicU64::new(1))
}

fn secret() -> Secret {
    Secret::parse("01".repeat(32).as_bytes()).unwrap()
}

static SEAL: LazyLock<RecordSeal<Counting>> = LazyLock::new(|| {
    let head = segment::clear(&file_of(SEALED)).unwrap();
    let key = Keyring::new(vec![secret()]).data_key(&head.id, &head.key_id, &head.key).unwrap();
    key.into_seal(head.key_id, random())
});

fn file_of(bytes: &[u8]) -> pgshrink_cfs::sim::DiskFile {
    let file = Disk::new(1, || ()).create(segment::FILE_NAME).unwrap();
    file.pwrite(bytes, 0).unwrap();
    file
}

fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    match which % 4 {
        0 => drop(Secret::parse(data)),
        1 => slot(data),
        2 => record(data),
        _ => container(data),
    }
});

/// Any slot, with a key and a passphrase at hand: costs out of range are refused before they are obeyed.
fn slot(data: &[u8]) {
    let mut slot = [0; KEY_SLOT_BYTES];
    let length = data.len().min(KEY_SLOT_BYTES);
    slot[..length].copy_from_slice(&data[..length]);
    let memory = u32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
    let passes = u32::from_le_bytes([slot[8], slot[9], slot[10], slot[11]]);
    if (64..=1 << 20).contains(&memory) {
        // Within what a slot may ask for, and too slow for a fuzzer.
        slot[4..8].copy_from_slice(&(8 + memory % 56).to_le_bytes());
    }
    if (3..=64).contains(&passes) {
        slot[8..12].copy_from_slice(&(1 + passes % 2).to_le_bytes());
    }
    let master = MasterKey::new(&secret(), &random()).unwrap();
    let passphrase = Secret::parse(b"correct horse battery").unwrap();
    let mut keyring = Keyring::new(vec![secret(), passphrase]);
    // Whose data key it would be is not known: no slot but one that was wrapped so opens.
    assert!(keyring.data_key(&CONTAINER, &master.id(), &slot).is_err());
    let mut needed = [0; 16];
    needed[..length.min(16)].copy_from_slice(&data[..length.min(16)]);
    assert!(keyring.data_key(&CONTAINER, &needed, &slot).is_err());
}

/// What was sealed opens as it was, and in no other way.
fn record(data: &[u8]) {
    let [at, change, split, data @ ..] = data else { return };
    let (associated, plaintext) = data.split_at(usize::from(*split).min(data.len()));
    let mut out = vec![0; data.len() + 64];
    assert_eq!(SEAL.open(associated, plaintext, &mut out), None);
    let mut sealed = Vec::new();
    SEAL.seal(associated, plaintext, &mut sealed);
    let at = usize::from(*at) % sealed.len();
    sealed[at] ^= change;
    let opened = SEAL.open(associated, &sealed, &mut out);
    assert_eq!(opened.map(|length| &out[..length]), (*change == 0).then_some(plaintext));
}

/// A sealed container changed by somebody who can compute check sums: errors, or pages that its owner wrote.
fn container(data: &[u8]) {
    let mut bytes = SEALED.to_vec();
    for edit in data.chunks_exact(4) {
        let at = u32::from_le_bytes([edit[0], edit[1], edit[2], 0]) as usize % bytes.len();
        bytes[at] ^= edit[3];
    }
    for disk_block in bytes[..12288].chunks_exact_mut(4096) {
        let crc = crc32fast::hash(&disk_block[12..]);
        disk_block[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    let geometry = Geometry { pages_max: 64, extent_units: 256, extents_max: 400 };
    let options = Options { geometry, seal: Some(&*SEAL), read_only: true, ..Options::new(64) };
    let words: Vec<AtomicU64> = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let opened = Container::open(file_of(&bytes), Alone, &words, Recovery::Discard, options);
    let Ok((container, _)) = opened else { return };
    let mut scratch = Scratch::new();
    for block in 0..container.pages() {
        if let Ok(Stored::Record { payload, .. }) = container.read(block, &mut scratch) {
            let start = format!("block {block} generation ");
            assert!(payload.starts_with(start.as_bytes()) && payload.len() == 100 + block as usize * 7);
        }
    }
    for id in container.dictionary_ids().unwrap_or_default() {
        if let Ok((_, content)) = container.dictionary(id) {
            assert_eq!(content, b"what pages have in common");
        }
    }
}
