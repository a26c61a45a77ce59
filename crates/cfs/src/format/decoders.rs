//! Every decoder of stored bytes in one call, for the fuzzer: check sums would keep it from most of them.

use crate::format::entry::Entry;
use crate::format::map;
use crate::format::record::Header;
use crate::format::root::{Root, SHEET_BYTES};
use crate::format::units::LEAF_ENTRIES;
use crate::plant::Plant;

/// Decodes `bytes` as each thing that they could be; what can be decoded must come back from its encoder.
pub fn all(bytes: &[u8]) {
    let _ = Header::parse(bytes);
    let mut entries = [Entry::MISSING; LEAF_ENTRIES];
    if let Some((leaf, count)) = map::decode_leaf(bytes, &mut entries) {
        let mut payload = Vec::new();
        map::encode_leaf(leaf, &entries[..count], &mut payload);
        let mut again = [Entry::MISSING; LEAF_ENTRIES];
        assert_eq!(map::decode_leaf(&payload, &mut again), Some((leaf, count)));
        assert_eq!(entries, again);
    }
    let _ = map::decode_index(bytes);
    if let Some(items) = map::decode_delta(bytes) {
        let mut payload = Vec::new();
        map::encode_delta(&items, &mut payload);
        assert_eq!(payload, bytes);
    }
    let mut sheet = vec![0; SHEET_BYTES];
    let length = bytes.len().min(SHEET_BYTES);
    sheet[..length].copy_from_slice(&bytes[..length]);
    sheet[..8].copy_from_slice(b"pgshrcfs");
    let crc = crc32fast::hash(&sheet[12..]);
    sheet[8..12].copy_from_slice(&crc.to_le_bytes());
    if let Ok(root) = Root::decode(&sheet, None, Plant::None) {
        assert_eq!(Root::decode(&root.encode(None), None, Plant::None).as_ref(), Ok(&root));
    }
}
