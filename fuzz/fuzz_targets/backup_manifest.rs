//! Any bytes as a backup manifest: no panic, the same items or the same error however they are cut, within a
//! bound of memory. What is accepted comes back from the writer, which the reader accepts again. Byte 0 picks
//! whether the checksum is put right first, byte 1 the size of pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_backup::checksum::Hasher;
use pgshrink_backup::manifest::{Finished, Item, PathEncoding, Reader, Writer};
use pgshrink_backup::{ChecksumAlgorithm, Error};

fn read(bytes: &[u8], size: usize) -> (Vec<Item>, Result<Finished, Error>) {
    let (mut reader, mut items) = (Reader::new(), Vec::new());
    for mut piece in bytes.chunks(size) {
        loop {
            match reader.next(&mut piece) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Err(error)),
            }
        }
        assert!(piece.is_empty());
    }
    (items, reader.finish())
}

fuzz_target!(|data: &[u8]| {
    let [pick, size, bytes @ ..] = data else { return };
    let mut manifest = bytes.to_vec();
    if pick & 1 == 1 {
        let mut hasher = Hasher::new(ChecksumAlgorithm::Sha256);
        hasher.update(&manifest);
        manifest.extend_from_slice(format!("\"Manifest-Checksum\": \"{}\"}}\n", hasher.finish()).as_bytes());
    }
    let whole = read(&manifest, manifest.len().max(1));
    assert_eq!(read(&manifest, usize::from(*size) + 1), whole);
    let (items, Ok(finished)) = whole else { return };
    let encoding = if pick & 2 == 2 { PathEncoding::Always } else { PathEncoding::AsNeeded };
    let mut written = Vec::new();
    let mut writer = Writer::new(finished.system, encoding, &mut written);
    let mut ranges = Vec::new();
    for item in &items {
        match item {
            Item::File(entry) => writer.file(entry, &mut written),
            Item::WalRange(range) => ranges.push(*range),
        }
    }
    writer.end(&ranges, &mut written);
    let (back, again) = read(&written, written.len());
    // The writer puts files before ranges.
    let (files, others): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| matches!(item, Item::File(_)));
    assert_eq!(back, [files, others].concat());
    assert_eq!(again.unwrap().system, finished.system);
});
