//! Configuration files of a server, and which other files they include.
//!
//! A cluster's `postgresql.conf`, `pg_hba.conf` and `pg_ident.conf` may lie anywhere, as those of Debian lie below
//! `/etc/postgresql`, and each may include others. This module reads directives as the server does, and follows paths by
//! their text alone. It opens no file, and does not know which of them are there.
//!
//! * [`includes`]: what a file includes.
//! * [`absolute`]: a path as the server resolves it.
//!
//! Sources: `src/backend/utils/misc/guc-file.l` and `src/backend/libpq/hba.c` of PostgreSQL.

mod rules;
mod settings;

use crate::error::Error;
use crate::path::PATH_BYTES_MAX;
use std::ops::Range;

/// Most configuration files of a backup.
pub const FILES_MAX: usize = 256;
/// Most directories of a backup's configuration files.
pub const DIRECTORIES_MAX: usize = 256;
/// Most bytes of a configuration file.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Most bytes of all configuration files of a backup.
pub const BYTES_MAX: u64 = 16 << 20;
/// How deep files may include each other: the server's limit (`CONF_FILE_MAX_DEPTH`).
pub const DEPTH_MAX: usize = 10;
/// Most directives of a file.
const INCLUDES_MAX: usize = 4096;

/// How a configuration file is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Syntax {
    /// `postgresql.conf`, and what it includes.
    Settings,
    /// `pg_hba.conf`, `pg_ident.conf`, and what they include.
    Rules,
    /// A list of names that `@FILE` in rules stands for.
    Names,
}

/// What a directive names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IncludeKind {
    /// A file that has to be there, in the same syntax.
    File,
    /// A file that may be missing, in the same syntax.
    FileIfExists,
    /// A directory: its files that [`is_included`] takes, in the same syntax.
    Directory,
    /// A list of names.
    Names,
}

/// A directive that includes other files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Include {
    /// What it names.
    pub kind: IncludeKind,
    /// The path as it is written, without quotes.
    pub target: Vec<u8>,
    /// Its line in the file, newline included. Lines that a backslash joins are one.
    pub line: Range<usize>,
}

/// What a file includes, in the order of the file.
///
/// # Errors
/// [`Error::Limit`] for more than 4,096 directives.
///
/// ```
/// use pgshrink_backup::configuration::{IncludeKind, Syntax, includes};
/// let found = includes(Syntax::Settings, b"port = 1\ninclude_dir 'conf.d' # more\n").unwrap();
/// assert_eq!((found[0].kind, &found[0].target[..]), (IncludeKind::Directory, &b"conf.d"[..]));
/// ```
pub fn includes(syntax: Syntax, text: &[u8]) -> Result<Vec<Include>, Error> {
    let mut found = Vec::new();
    match syntax {
        Syntax::Settings => settings::includes(text, &mut found),
        Syntax::Rules | Syntax::Names => rules::includes(text, syntax, &mut found),
    }
    if found.len() > INCLUDES_MAX {
        let (found, allowed) = (found.len() as u64, INCLUDES_MAX as u64);
        return Err(Error::Limit { what: "the number of includes of a configuration file", found, allowed });
    }
    Ok(found)
}

/// A setting of `postgresql.conf` that includes another file or directory, with its path quoted, as a line.
pub fn include_setting(kind: IncludeKind, target: &[u8]) -> Vec<u8> {
    let name: &[u8] = match kind {
        IncludeKind::Directory => b"include_dir",
        IncludeKind::FileIfExists => b"include_if_exists",
        IncludeKind::File | IncludeKind::Names => b"include",
    };
    let mut line = [name, b" = '"].concat();
    for byte in target {
        // Both begin an escape.
        if matches!(byte, b'\'' | b'\\') {
            line.push(*byte);
        }
        line.push(*byte);
    }
    line.extend_from_slice(b"'\n");
    line
}

/// Whether the server reads a file with this name in a directory that is included.
pub fn is_included(name: &[u8]) -> bool {
    name.len() > b".conf".len() && name.ends_with(b".conf") && !name.starts_with(b".")
}

/// The absolute path of what the file `from` names, without `.`, `..` and superfluous slashes. `None`: `from` is not
/// absolute, the path is empty, is the root, holds a NUL, or is longer than a path may be.
pub fn absolute(target: &[u8], from: &[u8]) -> Option<Vec<u8>> {
    if target.is_empty() || target.contains(&0) || !from.starts_with(b"/") {
        return None;
    }
    let whole = match target.starts_with(b"/") {
        true => target.to_vec(),
        false => [from, b"/../", target].concat(),
    };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in whole.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = parts.iter().flat_map(|part| [b"/", *part].concat()).collect::<Vec<u8>>();
    (1..=PATH_BYTES_MAX + 1).contains(&path.len()).then_some(path)
}

/// The part of an absolute path below a directory; `None`: it is not below it.
pub fn below<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(directory)?;
    rest.strip_prefix(b"/").filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_followed_by_their_text() {
        let from = b"/etc/postgresql/15/main/postgresql.conf";
        let found = |target: &str| {
            absolute(target.as_bytes(), from).map(|path| String::from_utf8(path).unwrap_or_default())
        };
        assert_eq!(found("conf.d").as_deref(), Some("/etc/postgresql/15/main/conf.d"));
        assert_eq!(found("../x/./y//z/").as_deref(), Some("/etc/postgresql/15/x/y/z"));
        assert_eq!(found("/srv/../etc/a").as_deref(), Some("/etc/a"));
        assert_eq!(found("../../../../../../../a").as_deref(), Some("/a"));
        for none in ["", "/", "/..", "a\0b", "../../../.."] {
            assert_eq!(found(none), None, "{none:?}");
        }
        assert_eq!(absolute(b"a", b"b/c"), None);
        let longest = [&b"/"[..], &[b'a'; PATH_BYTES_MAX]].concat();
        assert!(absolute(&longest, from).is_some());
        assert!(absolute(&[&longest[..], b"a"].concat(), from).is_none());
    }

    #[test]
    fn what_lies_below_a_directory_is_told_from_what_begins_with_its_name() {
        assert_eq!(below(b"/a/b/c", b"/a/b"), Some(&b"c"[..]));
        for other in ["/a/bc", "/a/b", "/a/b/", "/a"] {
            assert_eq!(below(other.as_bytes(), b"/a/b"), None, "{other}");
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for target in [&b"/etc/x y"[..], b"it's", b"a\\b", b"\xfc'\\'"] {
            for kind in [IncludeKind::File, IncludeKind::FileIfExists, IncludeKind::Directory] {
                let line = include_setting(kind, target);
                let expected = Include { kind, target: target.to_vec(), line: 0..line.len() };
                assert_eq!(includes(Syntax::Settings, &line), Ok(vec![expected]));
            }
        }
    }

    #[test]
    fn more_directives_than_a_file_may_have_are_refused() {
        let text = b"include x\n".repeat(INCLUDES_MAX);
        assert_eq!(includes(Syntax::Settings, &text).map(|found| found.len()), Ok(INCLUDES_MAX));
        let text = b"@x ".repeat(INCLUDES_MAX + 1);
        assert!(matches!(includes(Syntax::Rules, &text), Err(Error::Limit { .. })));
    }

    #[test]
    fn files_of_a_directory_are_chosen_by_their_names() {
        let taken = ["a.conf", "10 x.conf", "x.conf.conf"];
        let left = ["a.conf.dpkg-old", ".conf", ".a.conf", "conf", "a.CONF", ""];
        assert!(taken.iter().all(|name| is_included(name.as_bytes())));
        assert!(!left.iter().any(|name| is_included(name.as_bytes())));
    }
}
