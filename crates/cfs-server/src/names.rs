//! Paths of a server's tablespaces: which segment a path is of, and the path of a segment.
//!
//! The server names files relative to its data directory, `pg_tblspc/OID/PG_15_202209061/DATABASE/FILE`; a base
//! backup names them by the tablespace's location. Nothing here allocates.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgshrink_cfs::relation::{RelationName, number};
use pgshrink_cfs::segment::FILE_NAME;
use pgshrink_cfs::slots::SegmentKey;

/// Bytes at most of a path that is made here: three numbers, a version directory, a fork, the longest file name.
const PATH_BYTES: usize = 224;
/// Bytes at most of the version directory's name.
pub(crate) const VERSION_BYTES_MAX: usize = 40;

/// The file that keeps a server without the library from copying a directory with containers in it. Its name is
/// what such a server prints.
pub const GUARD_NAME: &str = "pgshrink-compressed-files-here-need-shared_preload_libraries-cfs";
/// Ends the name of a container's directory until there is a container in it, and when it is being removed; a
/// process id follows. No server takes such a name for a relation's.
const MAKING: &str = ".pgshrink-new.";
const REMOVING: &str = ".pgshrink-old.";
/// The file that holds space back for what must not fail on a full filesystem.
pub const RESERVE_NAME: &str = "pgshrink-reserve";

/// Where a data directory has its tablespaces.
pub(crate) const LINKS: &str = "pg_tblspc";

/// Where tablespaces are: their OID by the path that is no server's own.
pub(crate) trait Locations {
    /// The tablespace whose directory has this absolute path.
    fn tablespace_at(&self, directory: &[u8]) -> Option<u32>;
    /// Whether the tablespace may have compressed files.
    fn is_known(&self, tablespace: u32) -> bool;

    /// Asks for a tablespace that is not known, and waits for the answer.
    fn becomes_known(&self, tablespace: u32) -> bool {
        let _ = tablespace;
        false
    }
}

/// What a path inside a known tablespace names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// The version directory.
    Version { tablespace: u32 },
    /// A database's directory.
    Database { tablespace: u32, database: u32 },
    /// A file of a relation that may be compressed.
    Relation(SegmentKey),
}

/// Forks that are compressed: the main one and the free-space map. A visibility map is 32 KB for each GB, and an
/// initial fork is copied by a server in the midst of recovery.
fn is_compressed(fork: u8) -> bool {
    fork <= 1
}

/// Reads a path. `version`: the version directory's name.
pub(crate) fn parse(path: &[u8], version: &[u8], locations: &impl Locations) -> Option<Named> {
    // A base backup walks the data directory as ".".
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let (tablespace, inside) = match path.strip_prefix(b"pg_tblspc/") {
        Some(rest) => {
            let (oid, inside) = split(rest)?;
            (number(std::str::from_utf8(oid).ok()?)?, strip_version(inside, version)?)
        }
        None if path.first() == Some(&b'/') => {
            let at = find_version(path, version)?;
            (locations.tablespace_at(&path[..at])?, strip_version(&path[at + 1..], version)?)
        }
        None => return None,
    };
    let is_known = locations.is_known(tablespace);
    if inside.is_empty() {
        return is_known.then_some(Named::Version { tablespace });
    }
    let (database, file) = split(inside).unwrap_or((inside, b""));
    let database = number(std::str::from_utf8(database).ok()?)?;
    if file.is_empty() {
        return is_known.then_some(Named::Database { tablespace, database });
    }
    // The first file of a relation is made when the tablespace's transaction has committed, its directories before.
    if !is_known && !locations.becomes_known(tablespace) {
        return None;
    }
    let name = relation_name(file)?;
    let RelationName { number: relation, fork, segment } = name;
    let key = SegmentKey { tablespace, database, relation, fork, segment };
    is_compressed(fork).then_some(Named::Relation(key))
}

/// A relation's file as it may be in a database's directory.
pub(crate) fn relation_name(file: &[u8]) -> Option<RelationName> {
    RelationName::parse(std::str::from_utf8(file).ok()?)
}

/// Whether this is what a process left that died while it made or removed a container.
pub(crate) fn is_leftover(file: &[u8]) -> bool {
    let has = |mark: &str| file.windows(mark.len()).any(|window| window == mark.as_bytes());
    has(MAKING) || has(REMOVING)
}

fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().position(|byte| *byte == b'/')?;
    Some((&path[..at], &path[at + 1..]))
}

/// What follows the version directory, without its slash.
fn strip_version<'p>(path: &'p [u8], version: &[u8]) -> Option<&'p [u8]> {
    match path.strip_prefix(version)? {
        [] => Some(&[]),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Where the slash before the version directory is.
fn find_version(path: &[u8], version: &[u8]) -> Option<usize> {
    let mut at = path.len();
    while let Some(slash) = path[..at].iter().rposition(|byte| *byte == b'/') {
        if strip_version(&path[slash + 1..], version).is_some() {
            return Some(slash);
        }
        at = slash;
    }
    None
}

/// A path with its closing zero, on the stack.
pub(crate) struct PathBuffer {
    bytes: [u8; PATH_BYTES],
    length: usize,
}

impl PathBuffer {
    fn new() -> PathBuffer {
        PathBuffer { bytes: [0; PATH_BYTES], length: 0 }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> &mut PathBuffer {
        // A zero is always left at the end.
        let end = (self.length + bytes.len()).min(PATH_BYTES - 1);
        self.bytes[self.length..end].copy_from_slice(&bytes[..end - self.length]);
        self.length = end;
        self
    }

    fn push_number(&mut self, mut number: u32) -> &mut PathBuffer {
        let mut digits = [0; 10];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[at..])
    }

    /// The path.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    /// The same, for the standard library.
    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes[..self.length]))
    }

    /// `pg_tblspc/OID`: the link to the tablespace's location, or the directory itself.
    pub(crate) fn link(tablespace: u32) -> PathBuffer {
        let mut path = PathBuffer::new();
        path.push(b"pg_tblspc/").push_number(tablespace);
        path
    }

    /// A tablespace's directory of this version.
    pub(crate) fn version(tablespace: u32, version: &[u8]) -> PathBuffer {
        let mut path = PathBuffer::link(tablespace);
        path.push(b"/").push(version);
        path
    }

    /// A database's directory in a tablespace.
    pub(crate) fn database(tablespace: u32, database: u32, version: &[u8]) -> PathBuffer {
        let mut path = PathBuffer::version(tablespace, version);
        path.push(b"/").push_number(database);
        path
    }

    /// A file in a database's directory.
    pub(crate) fn in_database(tablespace: u32, database: u32, version: &[u8], name: &str) -> PathBuffer {
        PathBuffer::database(tablespace, database, version).with(name)
    }

    /// A segment's own path: a plain file, or the directory of its container.
    pub(crate) fn segment(key: &SegmentKey, version: &[u8]) -> PathBuffer {
        let SegmentKey { tablespace, database, relation, fork, segment } = *key;
        let mut path = PathBuffer::database(tablespace, database, version);
        path.push(b"/").push_number(relation);
        path.push([b"".as_slice(), b"_fsm", b"_vm", b"_init"][usize::from(fork).min(3)]);
        if segment > 0 {
            path.push(b".").push_number(segment);
        }
        path
    }

    /// A container's directory while this process makes it.
    pub(crate) fn making(key: &SegmentKey, version: &[u8], pid: u32) -> PathBuffer {
        let mut path = PathBuffer::segment(key, version);
        path.push(MAKING.as_bytes()).push_number(pid);
        path
    }

    /// A guard while this process makes it.
    pub(crate) fn making_guard(tablespace: u32, database: u32, version: &[u8], pid: u32) -> PathBuffer {
        let mut path = PathBuffer::in_database(tablespace, database, version, GUARD_NAME);
        path.push(MAKING.as_bytes()).push_number(pid);
        path
    }

    /// A container's directory while this process removes it.
    pub(crate) fn removing(key: &SegmentKey, version: &[u8], pid: u32) -> PathBuffer {
        let mut path = PathBuffer::segment(key, version);
        path.push(REMOVING.as_bytes()).push_number(pid);
        path
    }

    /// A file in this directory.
    pub(crate) fn with(mut self, name: &str) -> PathBuffer {
        self.push(b"/").push(name.as_bytes());
        self
    }

    /// A segment's container.
    pub(crate) fn container(key: &SegmentKey, version: &[u8]) -> PathBuffer {
        PathBuffer::segment(key, version).with(FILE_NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &[u8] = b"PG_15_202209061";

    struct Known;

    impl Locations for Known {
        fn tablespace_at(&self, directory: &[u8]) -> Option<u32> {
            (directory == b"/data/fast").then_some(16400)
        }

        fn is_known(&self, tablespace: u32) -> bool {
            tablespace == 16400
        }
    }

    fn parsed(path: &str) -> Option<Named> {
        parse(path.as_bytes(), VERSION, &Known)
    }

    #[test]
    fn relation_files_of_known_tablespaces_are_recognised_by_both_of_their_paths() {
        let key = SegmentKey { tablespace: 16400, database: 5, relation: 16401, fork: 1, segment: 2 };
        let expected = Some(Named::Relation(key));
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061/5/16401_fsm.2"), expected);
        assert_eq!(parsed("/data/fast/PG_15_202209061/5/16401_fsm.2"), expected);
        assert_eq!(parsed("./pg_tblspc/16400/PG_15_202209061/5/16401_fsm.2"), expected);
        let path = PathBuffer::segment(&key, VERSION);
        assert_eq!(path.as_c_str(), c"pg_tblspc/16400/PG_15_202209061/5/16401_fsm.2");
        assert_eq!(parse(path.as_c_str().to_bytes(), VERSION, &Known), expected);
    }

    #[test]
    fn directories_are_recognised_and_nothing_else_is() {
        let (tablespace, database) = (16400, 5);
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061"), Some(Named::Version { tablespace }));
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061/"), Some(Named::Version { tablespace }));
        let directory = Some(Named::Database { tablespace, database });
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061/5"), directory);
        assert_eq!(parsed("/data/fast/PG_15_202209061/5/"), directory);
        for other in [
            "base/5/16401",
            "global/1262",
            "pg_tblspc/16400",
            "pg_tblspc/16499/PG_15_202209061/5/16401",
            "pg_tblspc/16400/PG_14_202107181/5/16401",
            "pg_tblspc/16400/PG_15_202209061/5/t3_16401",
            "pg_tblspc/16400/PG_15_202209061/5/16401_vm",
            "pg_tblspc/16400/PG_15_202209061/5/16401_init",
            "pg_tblspc/16400/PG_15_202209061/5/PG_VERSION",
            "pg_tblspc/16400/PG_15_202209061/5/16401/segment.pgshrink",
            "pg_tblspc/16400/PG_15_202209061/5/16401.pgshrink-new.1",
            "pg_tblspc/16400/PG_15_202209061/5/16401.pgshrink-old.1",
            "pg_tblspc/16400/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0",
            "/data/slow/PG_15_202209061/5/16401",
            "/data/fast/PG_15_202209061x/5/16401",
            "",
            "/",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    #[test]
    fn the_longest_path_fits() {
        let key = SegmentKey {
            tablespace: u32::MAX,
            database: u32::MAX,
            relation: u32::MAX,
            fork: 3,
            segment: (1 << 24) - 1,
        };
        let version = [b'v'; VERSION_BYTES_MAX];
        let path = PathBuffer::making(&key, &version, u32::MAX).with(pgshrink_cfs::segment::NEW_FILE_NAME);
        let end = b"_init.16777215.pgshrink-new.4294967295/segment.pgshrink-new";
        assert!(path.as_c_str().to_bytes().ends_with(end));
        let path = PathBuffer::making_guard(u32::MAX, u32::MAX, &version, u32::MAX);
        assert!(path.as_c_str().to_bytes().ends_with(b"-cfs.pgshrink-new.4294967295"));
    }
}
