//! Reads what the recorder has written.

// The recorder's own: its library must not be linked with the tests, as it replaces functions of libc.
#[path = "../../../../recorder/src/format.rs"]
#[allow(dead_code)]
mod format;

use std::path::{Path, PathBuf};

pub use format::Kind;
use format::{HEADER_BYTES, Header};

/// One change.
pub struct Record<'r> {
    pub kind: Kind,
    pub inode: u64,
    pub a: u64,
    pub b: u64,
    pub first: &'r [u8],
    second: &'r [u8],
    /// Where the next record begins.
    pub end: u64,
}

impl Record<'_> {
    pub fn path(&self) -> &str {
        std::str::from_utf8(self.first).unwrap()
    }

    pub fn second_path(&self) -> &str {
        std::str::from_utf8(self.second).unwrap()
    }
}

/// The records of a recording's bytes, up to the first that is not whole.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (head, rest) = bytes.get(at..)?.split_first_chunk::<HEADER_BYTES>()?;
        let header = Header::parse(head);
        let [first, second] = header.lengths.map(|length| length as usize);
        let (first, rest) = rest.split_at_checked(first)?;
        let second = rest.get(..second)?;
        at += HEADER_BYTES + first.len() + second.len();
        let kind = Kind::of(header.kind).expect("a kind of record");
        let Header { inode, a, b, .. } = header;
        Some(Record { kind, inode, a, b, first, second, end: at as u64 })
    })
}

/// The library for `LD_PRELOAD`: cargo builds it with the tests, beside them.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let library = tests.parent().unwrap().join("libpgshrink_recorder.so");
    assert!(library.exists(), "no {}", library.display());
    library
}

/// How long a recording is by now.
pub fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}
