//! What can be wrong with what a server, a repository or a user says about backups.

use std::fmt::Write;

/// Every failure of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value does not have its form.
    #[error("{what}: expected {expected}, found {found}")]
    Malformed {
        /// The value.
        what: &'static str,
        /// Its form.
        expected: &'static str,
        /// What is there, shortened and escaped.
        found: String,
    },
    /// A backup manifest is wrong at a place.
    #[error("backup_manifest, line {line}, byte {offset}: expected {expected}, found {found}")]
    Manifest {
        /// Line, from 1.
        line: u64,
        /// Byte, from 0.
        offset: u64,
        /// What may be there.
        expected: &'static str,
        /// What is there, shortened and escaped.
        found: String,
    },
    /// The checksum in a manifest's last line is not that of the lines before it.
    #[error("backup_manifest: its lines have SHA-256 {found}, its last line says {expected}")]
    ManifestChecksum {
        /// The last line's, in hexadecimal.
        expected: String,
        /// Of the lines before it.
        found: String,
    },
    /// A size, count or number is over a named limit.
    #[error("{what} is {found}, over the limit of {allowed}")]
    Limit {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// A path could lead out of the backup, or is none that a server writes.
    #[error("path {path}: {why}")]
    UnsafePath {
        /// The path, shortened and escaped.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Written by a version that this code does not know.
    #[error("{what} is {found}, but this version supports only {known}")]
    Unsupported {
        /// Of what.
        what: &'static str,
        /// The version.
        found: String,
        /// The versions that are known.
        known: &'static str,
    },
    /// The server is too old for something.
    #[error("PostgreSQL {major} does not support {what}; {since} and later do")]
    TooOld {
        /// What it does not know.
        what: &'static str,
        /// The server's major version.
        major: u32,
        /// The first one that does.
        since: u32,
    },
    /// No plan of removals can be made; nothing may be removed.
    #[error("nothing is removed: {why}")]
    Retention {
        /// What is wrong with the backups or the rules.
        why: String,
    },
}

impl Error {
    pub(crate) fn malformed(what: &'static str, expected: &'static str, found: &[u8]) -> Error {
        Error::Malformed { what, expected, found: shown(found) }
    }
}

/// At most this much of the input is repeated in a message.
const SHOWN_BYTES_MAX: usize = 80;

/// Bytes of the input for a message: quoted, escaped, shortened.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in &bytes[..bytes.len().min(SHOWN_BYTES_MAX)] {
        let _ = write!(text, "{}", byte.escape_ascii());
    }
    text.push('"');
    if bytes.len() > SHOWN_BYTES_MAX {
        let _ = write!(text, "... of {} bytes", bytes.len());
    }
    text
}

#[test]
fn input_is_shown_short_and_printable() {
    assert_eq!(shown(b"a\n\xff"), "\"a\\n\\xff\"");
    assert_eq!(shown(&[b'x'; 81]), format!("\"{}\"... of 81 bytes", "x".repeat(80)));
}
