//! Every decoder of stored bytes in one call, for the fuzzer: check sums would keep it from most of them.

use crate::fault::Fault;
use crate::format::entry::Entry;
use crate::format::map;
use crate::format::record::Header;
use crate::format::root::{DISK_BLOCK_BYTES, Root};
use crate::format::units::LEAF_ENTRIES;

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
    let mut slot = vec![0; DISK_BLOCK_BYTES];
    let length = bytes.len().min(DISK_BLOCK_BYTES);
    slot[..length].copy_from_slice(&bytes[..length]);
    slot[..8].copy_from_slice(b"pgshrcfs");
    let crc = crc32fast::hash(&slot[12..]);
    slot[8..12].copy_from_slice(&crc.to_le_bytes());
    if let Ok(root) = Root::decode(&slot, None, Fault::None) {
        assert_eq!(Root::decode(&root.encode(None), None, Fault::None).as_ref(), Ok(&root));
    }
}
