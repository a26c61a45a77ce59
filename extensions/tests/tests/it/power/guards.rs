//! Guards of database directories in images.
//!
//! A guard says which file it is, so that a copy of it is known for one. An image stands for the disk itself, whose files
//! keep their numbers; so a guard that survived whole is given the number that it has in the image. One that did not stays
//! as it is, and the server has to cope with that.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

/// As `crates/cfs-server/src/guard.rs` has it.
const LINE_BYTES: usize = 96;

/// What an image has of a file with these bytes: if it is a whole guard, it names `image` instead of `inode`.
pub fn readdressed(mut bytes: Vec<u8>, inode: u64, image: &Metadata) -> Vec<u8> {
    let line = bytes.get(..LINE_BYTES).and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    if !line.starts_with("pgshrink guard 1 ") {
        return bytes;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let [magic, kind, version, state, number, _, sum] = words[..] else { return bytes };
    let is_whole =
        line.trim_end().rsplit_once(' ').is_some_and(|(head, _)| format!("{:08x}", crc32(head)) == sum);
    if !is_whole || number != inode.to_string() {
        return bytes;
    }
    let born = image.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos());
    let head = format!("{magic} {kind} {version} {state} {} {born}", image.ino());
    let line = format!("{head} {:08x}", crc32(&head));
    bytes[..LINE_BYTES].copy_from_slice(format!("{line:LINE_BYTES$}").as_bytes());
    bytes
}

fn crc32(text: &str) -> u32 {
    !text.bytes().fold(u32::MAX, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    })
}
