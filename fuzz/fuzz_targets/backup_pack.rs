//! Any bytes as the footer and the trailer of a pack, with their check sums put right, and as a backup record: an error, or
//! what lies inside of the pack and comes back from its writer. Byte 0 picks how many payload bytes the pack has.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_backup::checksum::Crc32c;
use pgshrink_backup::chunk::CHUNK_BYTES_MAX;
use pgshrink_backup::control::{self, CONTROL_BYTES};
use pgshrink_backup::pack::{
    BackupId, Footer, HEADER_BYTES, PackNumber, PackWriter, TRAILER_BYTES, Trailer, check_header,
};
use pgshrink_backup::record::Record;

const BACKUP: BackupId = BackupId([7; 16]);
const NUMBER: PackNumber = PackNumber(3);
/// Offsets in the trailer (`formats/backup.md`).
const FOOTER_AT: usize = 32;
const FOOTER_BYTES: usize = 40;
const FOOTER_CHECKSUM: usize = 44;
const CHECKSUM: usize = 60;

fuzz_target!(|data: &[u8]| {
    let [pick, bytes @ ..] = data else { return };
    let payload_bytes = u64::from(*pick) << 12;
    footer(bytes, payload_bytes);
    if let Some(trailer) = bytes.first_chunk() {
        let _ = Trailer::read(&with_checksum(*trailer), payload_bytes, BACKUP, NUMBER);
    }
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let _ = check_header(&with_checksum(*header), BACKUP, NUMBER);
    }
    if let Ok(record) = Record::read(bytes) {
        assert_eq!(Record::read(&record.write().unwrap()).unwrap(), record);
    }
    let mut file = bytes.to_vec();
    file.resize(CONTROL_BYTES, 0);
    let _ = control::check(&file);
});

/// The last four bytes become the check sum of those before.
fn with_checksum<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    let checksum = Crc32c::of(&bytes[..N - 4]).0;
    bytes[N - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn footer(bytes: &[u8], payload_bytes: u64) {
    let end = HEADER_BYTES as u64 + payload_bytes;
    let ending = PackWriter::new(BACKUP, NUMBER).finish().bytes;
    let mut trailer: [u8; TRAILER_BYTES] = *ending.last_chunk().unwrap();
    trailer[FOOTER_AT..FOOTER_BYTES].copy_from_slice(&end.to_le_bytes());
    trailer[FOOTER_BYTES..FOOTER_CHECKSUM].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    trailer[FOOTER_CHECKSUM..FOOTER_CHECKSUM + 4].copy_from_slice(&Crc32c::of(bytes).0.to_le_bytes());
    assert_eq!(CHECKSUM, TRAILER_BYTES - 4);
    let trailer = with_checksum(trailer);
    let pack_bytes = end + bytes.len() as u64 + TRAILER_BYTES as u64;
    let Ok(trailer) = Trailer::read(&trailer, pack_bytes, BACKUP, NUMBER) else {
        assert!(bytes.len() < 8);
        return;
    };
    let Ok(footer) = Footer::read(bytes, &trailer) else { return };
    let mut writer = PackWriter::new(BACKUP, NUMBER);
    for file in &footer.files {
        writer.add_empty(file).unwrap();
    }
    let mut next = HEADER_BYTES as u64;
    for chunk in &footer.chunks {
        let file = &footer.files[chunk.file];
        assert!(u64::from(chunk.at) == next && chunk.stored_bytes > 0);
        assert!((1..=CHUNK_BYTES_MAX as u32).contains(&chunk.facts.raw_bytes));
        next += u64::from(chunk.stored_bytes);
        writer.add(file, &chunk.facts, &vec![0; chunk.stored_bytes as usize]).unwrap();
    }
    assert_eq!(next, end);
    assert_eq!(writer.finish().bytes.len(), bytes.len() + TRAILER_BYTES);
}
