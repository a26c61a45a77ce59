//! The recording: one record after the other, in the order in which the changes were made.
//!
//! A record is [`HEADER_BYTES`] bytes and two texts: four 32-bit numbers (kind, length of the first text, length of the
//! second, process) and three 64-bit ones (inode, `a`, `b`), all in the machine's order. The recorder and the tests
//! that read the recording share this file.

/// Bytes of a record before its texts.
pub const HEADER_BYTES: usize = 40;

/// What was done. The comments say what `a`, `b` and the texts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// A regular file was made: mode; its path.
    Create = 1,
    /// Bytes were written: offset; the bytes.
    Write = 2,
    /// A file got another size: size.
    Truncate = 3,
    /// A range became zeros: offset, length.
    Punch = 4,
    /// A range got space: offset, length; it may grow the file.
    Allocate = 5,
    /// An fsync begins: token.
    SyncBegin = 6,
    /// An fsync has succeeded: the token of its begin.
    SyncEnd = 7,
    /// A name was changed: from, to.
    Rename = 8,
    /// A file got another name: the old one, the new one.
    Link = 9,
    /// A name was removed: path.
    Unlink = 10,
    /// A directory was made: mode; path.
    Mkdir = 11,
    /// A directory was removed: path.
    Rmdir = 12,
    /// A symbolic link was made: target, path.
    Symlink = 13,
    /// Everything is synced, as by syncfs: token.
    SyncAllBegin = 14,
    /// That has succeeded: token.
    SyncAllEnd = 15,
    /// A call that the recorder cannot follow: its name.
    Unknown = 16,
    /// Two names were exchanged: one, the other.
    Exchange = 17,
}

impl Kind {
    /// The kind of this number.
    pub fn of(number: u32) -> Option<Kind> {
        use Kind::*;
        let all = [
            Create,
            Write,
            Truncate,
            Punch,
            Allocate,
            SyncBegin,
            SyncEnd,
            Rename,
            Link,
            Unlink,
            Mkdir,
            Rmdir,
            Symlink,
            SyncAllBegin,
            SyncAllEnd,
            Unknown,
            Exchange,
        ];
        all.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// What is before a record's texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What was done.
    pub kind: u32,
    /// Bytes of the first and of the second text.
    pub lengths: [u32; 2],
    /// The process.
    pub pid: u32,
    /// The file or directory, where the call had a descriptor or made it.
    pub inode: u64,
    /// As [`Kind`] says.
    pub a: u64,
    /// As [`Kind`] says.
    pub b: u64,
}

impl Header {
    /// As it is in the recording.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [self.kind, self.lengths[0], self.lengths[1], self.pid];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        for (place, word) in bytes[16..].chunks_exact_mut(8).zip([self.inode, self.a, self.b]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The header of a record.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Header {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| {
            let mut long = [0; 8];
            long.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(long)
        };
        let (inode, a, b) = (long(16), long(24), long(32));
        Header { kind: word(0), lengths: [word(4), word(8)], pid: word(12), inode, a, b }
    }
}
