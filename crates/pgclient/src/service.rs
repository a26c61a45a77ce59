//! Connection service files.
//!
//! libpq's rules: the file of `servicefile`, `PGSERVICEFILE` or `~/.pg_service.conf` (the last only if it
//! exists) is read first; if it lacks the section, `pg_service.conf` of the system directory. A line is blanks,
//! `keyword=value`, blanks, with none around `=`; the first mention of a keyword wins. `#` begins a comment
//! line. `[name]` begins a section, and what follows the bracket is ignored.

use crate::conninfo::Setting;
use crate::surroundings::Surroundings;
use crate::{Error, keyword};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A section that was found, with the file it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// As asked for.
    pub name: Vec<u8>,
    /// The file that has it.
    pub path: PathBuf,
    /// First mention of each keyword.
    pub settings: Vec<Setting>,
}

/// What `edit` makes of one line's setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The line stays as it is.
    Keep,
    /// The line goes.
    Drop,
    /// The line gets another value.
    Replace(Vec<u8>),
}

/// The longest line libpq reads, newline included: one less than fits its buffer of 1,024.
const LINE_SIZE_MAX: usize = 1022;

/// Finds a service. `file` is the `servicefile` of the connection string, if it has one.
pub fn find(name: &[u8], file: Option<&[u8]>, around: &Surroundings<'_>) -> Result<Service, Error> {
    for path in user_file(file, around).into_iter().chain(system_file(around)) {
        let text = around
            .files
            .read(&path)
            .map_err(|error| Error::ServiceFileNotFound { path: path.clone(), reason: error.to_string() })?;
        if let Some(settings) = parse(&text, name, &path)? {
            return Ok(Service { name: name.to_vec(), path, settings });
        }
    }
    Err(Error::ServiceNotFound { name: String::from_utf8_lossy(name).into_owned() })
}

/// The file that is read first. One that was named must exist; the default one is skipped if it does not.
pub fn user_file(file: Option<&[u8]>, around: &Surroundings<'_>) -> Option<PathBuf> {
    if let Some(named) = file.map(OsStr::from_bytes).or_else(|| around.var("PGSERVICEFILE")) {
        return Some(PathBuf::from(named));
    }
    around.home_file(".pg_service.conf").filter(|path| around.exists(path))
}

fn system_file(around: &Surroundings<'_>) -> Option<PathBuf> {
    Some(around.system_service_file()).filter(|path| around.exists(path))
}

/// The settings of a section, or `None` if the text has no such section.
pub fn parse(text: &[u8], name: &[u8], path: &Path) -> Result<Option<Vec<Setting>>, Error> {
    let mut found = None;
    for line in lines(text) {
        if line.raw_with_end.len() > LINE_SIZE_MAX {
            return Err(Error::ServiceLineTooLong { path: path.to_owned(), line: line.number });
        }
        match line.kind(name) {
            Kind::Blank => {}
            Kind::Section { .. } if found.is_some() => break,
            Kind::Section { wanted } => found = wanted.then(Vec::new),
            Kind::Entry(entry) => {
                let Some(settings) = &mut found else { continue };
                let setting = check(entry, line.number, path)?;
                let said = |other: &Setting| other.keyword == setting.keyword;
                if !settings.iter().any(said) {
                    settings.push(setting);
                }
            }
        }
    }
    Ok(found)
}

/// The text with the settings of one section edited, and new ones at its beginning, where they have the last
/// word; every other byte as it was. The text must have parsed.
pub fn rewrite(
    text: &[u8],
    name: &[u8],
    mut edit: impl FnMut(&Setting) -> Edit,
    first: &[Setting],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut section = Some(false);
    let put = |out: &mut Vec<u8>, setting: &Setting| {
        out.extend_from_slice(&[&setting.keyword[..], b"=", &setting.value, b"\n"].concat());
    };
    for line in lines(text) {
        let mut kept = line.raw_with_end;
        match line.kind(name) {
            Kind::Section { wanted: true } if section == Some(false) => section = Some(true),
            Kind::Section { .. } if section == Some(true) => section = None,
            Kind::Entry(entry) if section == Some(true) => {
                let Some(setting) = split(entry) else { continue };
                match edit(&setting) {
                    Edit::Keep => {}
                    Edit::Drop => kept = b"",
                    Edit::Replace(value) => {
                        put(&mut out, &Setting { value, ..setting });
                        kept = b"";
                    }
                }
            }
            _ => {}
        }
        out.extend_from_slice(kept);
        if section == Some(true) && matches!(line.kind(name), Kind::Section { .. }) {
            end_line(&mut out);
            first.iter().for_each(|setting| put(&mut out, setting));
        }
    }
    out
}

/// Only the named section, its header included.
pub fn section(text: &[u8], name: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut inside = false;
    for line in lines(text) {
        if let Kind::Section { wanted } = line.kind(name) {
            if inside {
                break;
            }
            inside = wanted;
        }
        if inside {
            out.extend_from_slice(line.raw_with_end);
        }
    }
    end_line(&mut out);
    out
}

fn end_line(out: &mut Vec<u8>) {
    if out.last().is_some_and(|&last| last != b'\n') {
        out.push(b'\n');
    }
}

struct Line<'a> {
    number: usize,
    raw: &'a [u8],
    raw_with_end: &'a [u8],
}

enum Kind<'a> {
    Blank,
    Section { wanted: bool },
    Entry(&'a [u8]),
}

fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.split_inclusive(|&byte| byte == b'\n').enumerate().map(|(index, raw_with_end)| {
        let raw = raw_with_end.strip_suffix(b"\n").unwrap_or(raw_with_end);
        Line { number: index + 1, raw, raw_with_end }
    })
}

impl<'a> Line<'a> {
    fn kind(&self, name: &[u8]) -> Kind<'a> {
        let line = trim(self.raw);
        match line.first() {
            None | Some(b'#') => Kind::Blank,
            Some(b'[') => {
                let rest = line[1..].strip_prefix(name);
                Kind::Section { wanted: rest.is_some_and(|rest| rest.first() == Some(&b']')) }
            }
            Some(_) => Kind::Entry(line),
        }
    }
}

/// Blanks as C's `isspace` has them, vertical tab included.
fn trim(line: &[u8]) -> &[u8] {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = line.iter().take_while(|byte| blank(byte)).count();
    let end = line[start..].iter().rev().take_while(|byte| blank(byte)).count();
    &line[start..line.len() - end]
}

fn split(entry: &[u8]) -> Option<Setting> {
    let at = entry.iter().position(|&byte| byte == b'=')?;
    Some(Setting { keyword: entry[..at].to_vec(), value: entry[at + 1..].to_vec() })
}

fn check(entry: &[u8], line: usize, path: &Path) -> Result<Setting, Error> {
    let path = || path.to_owned();
    if entry.starts_with(b"ldap") {
        return Err(Error::ServiceLdap { path: path(), line });
    }
    let Some(setting) = split(entry) else {
        return Err(Error::ServiceSyntax { path: path(), line, reason: "no \"=\"".to_owned() });
    };
    for nested in ["service", "servicefile"] {
        if setting.keyword == nested.as_bytes() {
            return Err(Error::ServiceNested { keyword: nested, path: path(), line });
        }
    }
    if keyword::find(&setting.keyword).is_none() {
        let shown = String::from_utf8_lossy(&setting.keyword).into_owned();
        let reason = format!("unknown keyword \"{shown}\"");
        return Err(Error::ServiceSyntax { path: path(), line, reason });
    }
    Ok(setting)
}
