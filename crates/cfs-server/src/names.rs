//! Paths of a server's tablespaces: which segment a path is of, and the path of a segment.
//!
//! The server names files relative to its data directory, `base/DATABASE/FILE` or
//! `pg_tblspc/OID/PG_15_202209061/DATABASE/FILE`; a base backup names the latter by the tablespace's location. SQL
//! functions that read files take any path, and so those that begin with the data directory's. What is in `global/` is
//! never ours. Nothing here allocates.
//!
//! A server's working directory is its data directory, and the paths that are made here begin there. A program that is no
//! server has another one: its library says once where the data directory is ([`set_root`]), and all paths that are made
//! begin with that. Paths that are read are relative to the data directory in either.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pgshrink_cfs::relation::{RelationName, number};
use pgshrink_cfs::segment::FILE_NAME;
use pgshrink_cfs::slots::SegmentKey;

/// Bytes at most of a path that is made here: three numbers, a version directory, a fork, the longest file name.
const INSIDE_BYTES: usize = 224;
/// Bytes at most of the data directory's path, with its closing slash, where it is no working directory.
pub(crate) const ROOT_BYTES_MAX: usize = 512;
const PATH_BYTES: usize = INSIDE_BYTES + ROOT_BYTES_MAX;
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

/// The file beside a container in which some of its pages are, or all.
pub(crate) use pgshrink_cfs::segment::BASE_NAME;

/// `pg_default`: the tablespace whose databases are in [`BASE`], which counts as its version directory. It has no link and
/// no setting.
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// Where a data directory has the databases of [`DEFAULT_TABLESPACE`].
pub(crate) const BASE: &str = "base";

/// Where a data directory has its tablespaces.
pub(crate) const LINKS: &str = "pg_tblspc";

/// What paths begin with, with a slash at its end; empty in a server.
static ROOT: OnceLock<Vec<u8>> = OnceLock::new();

fn root() -> &'static [u8] {
    ROOT.get().map_or(&[], Vec::as_slice)
}

/// Says where the data directory is, once; false where its path is too long.
pub(crate) fn set_root(data: &Path) -> bool {
    let mut bytes = data.as_os_str().as_bytes().to_vec();
    bytes.push(b'/');
    bytes.len() <= ROOT_BYTES_MAX && ROOT.set(bytes).is_ok()
}

/// A directory of the data directory, for the standard library.
pub(crate) fn in_root(name: &str) -> PathBuf {
    Path::new(OsStr::from_bytes(root())).join(name)
}

/// Where tablespaces are: their OID by the path that is no server's own.
pub(crate) trait Locations {
    /// The data directory's absolute path.
    fn data_directory(&self) -> &[u8];
    /// The tablespace whose directory has this absolute path.
    fn tablespace_at(&self, directory: &[u8]) -> Option<u32>;
    /// Whether the tablespace may have compressed files, in any directory.
    fn is_known(&self, tablespace: u32) -> bool;
    /// Whether this directory of a database may have compressed files, whatever is known of its tablespace.
    fn is_noted(&self, tablespace: u32, database: u32) -> bool;

    /// Asks for a tablespace that is not known, and waits for the answer.
    fn becomes_known(&self, tablespace: u32) -> bool {
        let _ = tablespace;
        false
    }
}

/// What a path names where there may be compressed files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// The version directory, of any tablespace.
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
    let path = in_data_directory(path, locations.data_directory());
    let (tablespace, inside) = if path == BASE.as_bytes() {
        (DEFAULT_TABLESPACE, b"".as_slice())
    } else if let Some(inside) = path.strip_prefix(b"base/") {
        (DEFAULT_TABLESPACE, inside)
    } else if let Some(rest) = path.strip_prefix(b"pg_tblspc/") {
        let (oid, inside) = split(rest)?;
        let oid = number(std::str::from_utf8(oid).ok()?).filter(|oid| *oid != DEFAULT_TABLESPACE);
        (oid?, strip_version(inside, version)?)
    } else if path.first() == Some(&b'/') {
        let at = find_version(path, version)?;
        (locations.tablespace_at(&path[..at])?, strip_version(&path[at + 1..], version)?)
    } else {
        return None;
    };
    if inside.is_empty() {
        return Some(Named::Version { tablespace });
    }
    let is_known = tablespace != DEFAULT_TABLESPACE && locations.is_known(tablespace);
    let (database, file) = split(inside).unwrap_or((inside, b""));
    let database = number(std::str::from_utf8(database).ok()?)?;
    if file.is_empty() {
        let is_ours = is_known || locations.is_noted(tablespace, database);
        return is_ours.then_some(Named::Database { tablespace, database });
    }
    // The first file of a relation is made when the tablespace's transaction has committed, its directories before.
    let is_ours = is_known
        || tablespace != DEFAULT_TABLESPACE && locations.becomes_known(tablespace)
        || locations.is_noted(tablespace, database);
    if !is_ours {
        return None;
    }
    let name = relation_name(file)?;
    let RelationName { number: relation, fork, segment } = name;
    let key = SegmentKey { tablespace, database, relation, fork, segment };
    is_compressed(fork).then_some(Named::Relation(key))
}

/// The path from the data directory on, where it is in there. A base backup walks the data directory as ".". A
/// tablespace's location may be in the data directory too, and is not meant.
fn in_data_directory<'p>(path: &'p [u8], data: &[u8]) -> &'p [u8] {
    if let Some(inside) = path.strip_prefix(b"./") {
        return inside;
    }
    let inside = path.strip_prefix(data).filter(|_| !data.is_empty());
    let inside = inside.and_then(|inside| inside.strip_prefix(b"/"));
    let is_meant = |inside: &&[u8]| {
        *inside == BASE.as_bytes() || inside.starts_with(b"base/") || inside.starts_with(b"pg_tblspc/")
    };
    inside.filter(is_meant).unwrap_or(path)
}

/// Any place: for who asks what a path is by its form alone.
struct Anywhere<'d>(&'d [u8]);

impl Locations for Anywhere<'_> {
    fn data_directory(&self) -> &[u8] {
        self.0
    }

    fn tablespace_at(&self, _: &[u8]) -> Option<u32> {
        Some(0)
    }

    fn is_known(&self, _: u32) -> bool {
        true
    }

    fn is_noted(&self, _: u32, _: u32) -> bool {
        true
    }
}

/// What a path would name if there were compressed files everywhere. The tablespace of an absolute one is not told.
pub(crate) fn parse_form(path: &[u8], version: &[u8], data: &[u8]) -> Option<Named> {
    parse(path, version, &Anywhere(data))
}

/// Whether a path may be a relation's file in a place that may have containers: a look at its two ends.
pub(crate) fn may_be_relation(path: &[u8]) -> bool {
    let is_in = match path.first() {
        Some(b'b') => path.starts_with(b"base/"),
        Some(b'p') => path.starts_with(b"pg_tblspc/"),
        first => matches!(first, Some(b'/' | b'.')),
    };
    is_in && (path.last().is_some_and(u8::is_ascii_digit) || path.ends_with(b"_fsm"))
}

/// A relation's file as it may be in a database's directory.
pub(crate) fn relation_name(file: &[u8]) -> Option<RelationName> {
    RelationName::parse(std::str::from_utf8(file).ok()?)
}

/// Whether this is what a process left that died while it made or removed a container, or exchanged one.
pub(crate) fn is_leftover(file: &[u8]) -> bool {
    find_mark(file, MAKING).is_some() || find_mark(file, REMOVING).is_some()
}

/// The relation's file that a leftover was to be, or that was to be this one; `None` of any other.
pub(crate) fn leftover_of(file: &[u8]) -> Option<&[u8]> {
    let made = &file[..find_mark(file, MAKING)?];
    relation_name(made).map(|_| made)
}

fn find_mark(file: &[u8], mark: &str) -> Option<usize> {
    file.windows(mark.len()).position(|window| window == mark.as_bytes())
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
    /// The data directory.
    fn new() -> PathBuffer {
        let mut path = PathBuffer { bytes: [0; PATH_BYTES], length: 0 };
        path.push(root());
        path
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

    /// A file or directory of the data directory.
    pub(crate) fn in_data(name: &str) -> PathBuffer {
        let mut path = PathBuffer::new();
        path.push(name.as_bytes());
        path
    }

    /// `pg_tblspc/OID`: the link to the tablespace's location, or the directory itself. [`DEFAULT_TABLESPACE`] has
    /// none.
    pub(crate) fn link(tablespace: u32) -> PathBuffer {
        let mut path = PathBuffer::new();
        path.push(b"pg_tblspc/").push_number(tablespace);
        path
    }

    /// A tablespace's directory of this version, in which its databases have theirs; [`BASE`] is that of
    /// [`DEFAULT_TABLESPACE`].
    pub(crate) fn version(tablespace: u32, version: &[u8]) -> PathBuffer {
        if tablespace == DEFAULT_TABLESPACE {
            let mut path = PathBuffer::new();
            path.push(BASE.as_bytes());
            return path;
        }
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
        fn data_directory(&self) -> &[u8] {
            b"/data/here"
        }

        fn is_noted(&self, tablespace: u32, database: u32) -> bool {
            [(DEFAULT_TABLESPACE, 5), (16500, 5)].contains(&(tablespace, database))
        }

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
    fn files_in_noted_directories_are_recognised_in_base_and_in_other_tablespaces() {
        let key = |tablespace| SegmentKey { tablespace, database: 5, relation: 16401, fork: 0, segment: 2 };
        let expected = Some(Named::Relation(key(DEFAULT_TABLESPACE)));
        for path in ["base/5/16401.2", "./base/5/16401.2", "/data/here/base/5/16401.2"] {
            assert_eq!(parsed(path), expected, "{path}");
        }
        let path = PathBuffer::segment(&key(DEFAULT_TABLESPACE), VERSION);
        assert_eq!(path.as_c_str(), c"base/5/16401.2");
        assert_eq!(PathBuffer::version(DEFAULT_TABLESPACE, VERSION).as_c_str(), c"base");
        let directory = Some(Named::Database { tablespace: DEFAULT_TABLESPACE, database: 5 });
        assert_eq!(parsed("base/5"), directory);
        assert_eq!(parsed("./base/5/"), directory);
        let other = "pg_tblspc/16500/PG_15_202209061/5/16401.2";
        assert_eq!(parsed(other), Some(Named::Relation(key(16500))));
        assert_eq!(PathBuffer::segment(&key(16500), VERSION).as_c_str().to_str(), Ok(other));
        assert_eq!(parsed(&format!("/data/here/{other}")), parsed(other));
        for (path, is_database) in [
            ("base/7", true),
            ("./base/7", true),
            ("/data/here/base/7", true),
            ("pg_tblspc/1/PG_15_202209061/7", true),
            ("/anywhere/PG_15_202209061/7", true),
            ("/data/here/location/PG_15_202209061/7", true),
            ("/data/here/basement/PG_15_202209061/7", true),
            ("/anywhere/7", false),
            ("global", false),
            ("pg_wal", false),
        ] {
            let found = parse_form(path.as_bytes(), VERSION, b"/data/here");
            assert_eq!(matches!(found, Some(Named::Database { .. })), is_database, "{path}");
        }
    }

    #[test]
    fn what_cannot_be_a_relations_file_is_told_by_its_ends() {
        for path in ["base/5/16401", "./base/5/16401.1", "pg_tblspc/1/x/5/16401_fsm", "/data/x/5/7"] {
            assert!(may_be_relation(path.as_bytes()), "{path}");
        }
        for path in ["", "base", "base/5/PG_VERSION", "global/1262", "pg_wal/00000001", "pg_xact/0000"] {
            assert!(!may_be_relation(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn leftovers_say_which_file_they_are_beside() {
        for (name, beside) in [
            ("16401.pgshrink-new.7", Some("16401")),
            ("16401_fsm.2.pgshrink-new.7", Some("16401_fsm.2")),
            ("16401.pgshrink-old.7", None),
            ("x.pgshrink-new.7", None),
        ] {
            assert!(is_leftover(name.as_bytes()));
            assert_eq!(leftover_of(name.as_bytes()), beside.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn directories_are_recognised_and_nothing_else_is() {
        let (tablespace, database) = (16400, 5);
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061"), Some(Named::Version { tablespace }));
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061/"), Some(Named::Version { tablespace }));
        assert_eq!(parsed("pg_tblspc/16500/PG_15_202209061"), Some(Named::Version { tablespace: 16500 }));
        for path in ["base", "base/", "./base", "/data/here/base"] {
            assert_eq!(parsed(path), Some(Named::Version { tablespace: DEFAULT_TABLESPACE }), "{path}");
        }
        let directory = Some(Named::Database { tablespace, database });
        assert_eq!(parsed("pg_tblspc/16400/PG_15_202209061/5"), directory);
        assert_eq!(parsed("/data/fast/PG_15_202209061/5/"), directory);
        for other in [
            "base/6/16401",
            "base/6",
            "basement",
            "base/pgsql_tmp/pgsql_tmp1.0",
            "base/5/PG_VERSION",
            "base/5/16401_vm",
            "global/1262",
            "/data/here/global/1262",
            "/data/heretic/base/5/16401",
            "/base/5/16401",
            "pg_tblspc/16500/PG_15_202209061/6",
            "pg_tblspc/16500/PG_15_202209061/6/16401",
            "pg_tblspc/1663/PG_15_202209061/5/16401",
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
