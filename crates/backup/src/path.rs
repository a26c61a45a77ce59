//! Paths of files inside a backup, relative to the data directory.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, shown};

/// PostgreSQL's `MAXPGPATH`, less the terminating zero (`src/include/pg_config_manual.h`).
pub const PATH_BYTES_MAX: usize = 1023;

/// A relative path without a way out: `base/5/16384`, `pg_tblspc/16400/PG_18_202506291/5/16401`.
///
/// Its components are divided by single slashes, and none is empty, `.` or `..`. It holds no NUL and has 1 to
/// [`PATH_BYTES_MAX`] bytes. It may hold anything else, as names in a data directory need not be UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackupPath(Box<[u8]>);

impl BackupPath {
    /// Checks a path.
    ///
    /// # Errors
    /// [`Error::UnsafePath`] when it is absolute, too long, or has a component that is empty, `.`, `..` or
    /// holds a NUL.
    pub fn new(path: &[u8]) -> Result<BackupPath, Error> {
        let refused = |why| Err(Error::UnsafePath { path: shown(path), why });
        if path.is_empty() {
            return refused("it is empty");
        }
        if path.len() > PATH_BYTES_MAX {
            return refused("it is longer than 1023 bytes");
        }
        if path.starts_with(b"/") {
            return refused("it is absolute");
        }
        if path.contains(&0) {
            return refused("it contains a NUL byte");
        }
        for component in path.split(|byte| *byte == b'/') {
            match component {
                b"" => return refused("a component is empty"),
                b"." | b".." => return refused("a component is `.` or `..`"),
                _ => {}
            }
        }
        Ok(BackupPath(path.into()))
    }

    /// The path as the operating system takes it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path, where it is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Its components, at least one.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// The last component.
    pub fn name(&self) -> &[u8] {
        self.components().last().unwrap_or_default()
    }
}

impl FromStr for BackupPath {
    type Err = Error;

    fn from_str(path: &str) -> Result<BackupPath, Error> {
        BackupPath::new(path.as_bytes())
    }
}

/// Bytes that are not printable are escaped.
impl fmt::Display for BackupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_str() {
            Some(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for BackupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackupPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_data_directory_are_taken() {
        for path in ["PG_VERSION", "base/5/16384", "pg_tblspc/16400/PG_15_202209061/5/1", "..x/y..", "a b/ü"]
        {
            assert_eq!(BackupPath::new(path.as_bytes()).unwrap().to_string(), path);
        }
        let latin = BackupPath::new(b"conf/\xfc").unwrap();
        assert_eq!(
            (latin.to_string().as_str(), latin.as_str(), latin.name()),
            ("conf/\\xfc", None, &b"\xfc"[..])
        );
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "../a",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
        ] {
            assert!(matches!(BackupPath::new(path.as_bytes()), Err(Error::UnsafePath { .. })), "{path:?}");
        }
        assert!(BackupPath::new(&[b'a'; PATH_BYTES_MAX]).is_ok());
        assert!(BackupPath::new(&[b'a'; PATH_BYTES_MAX + 1]).is_err());
    }
}
