//! Password files: which lines speak of a host, and copies that say the same about another one.
//!
//! libpq's rules: a line is `host:port:database:user:password`; a field that is `*` matches everything; a
//! backslash takes the next byte literally; `#` as the first byte makes a comment; the first line that matches
//! wins. The host looked for is `host` if given, else `hostaddr`; the default socket directory is looked for
//! as `localhost`. A file that is not plain, or that group or others can access, is ignored with a warning.
//!
//! A copy of a line has only its first field replaced. [`password`] alone looks at the last one.

use crate::surroundings::Surroundings;
use std::io;
use std::path::{Path, PathBuf};

/// What libpq would do with a password file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usable {
    /// It would be read.
    Yes,
    /// Cannot be found or opened: ignored without a word.
    Absent,
    /// Ignored with libpq's warning.
    NotPlain,
    /// Ignored with libpq's warning.
    Exposed,
}

/// A host that the client will call by another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// What libpq would look for.
    pub host: Vec<u8>,
    /// What it will look for instead.
    pub stands_for: Vec<u8>,
}

/// The file libpq reads: `passfile`, or `~/.pgpass`.
pub fn path(passfile: Option<&Path>, around: &Surroundings<'_>) -> Option<PathBuf> {
    let named = passfile.filter(|path| !path.as_os_str().is_empty());
    named.map(Path::to_owned).or_else(|| around.home_file(".pgpass"))
}

/// Whether libpq would read the file.
pub fn usable(path: &Path, around: &Surroundings<'_>) -> Usable {
    match around.files.stat(path) {
        Err(_) => Usable::Absent,
        Ok(stat) if !stat.is_file => Usable::NotPlain,
        Ok(stat) if stat.mode & 0o077 != 0 => Usable::Exposed,
        Ok(_) => Usable::Yes,
    }
}

/// The file for a client that calls hosts by their aliases, or `None` when the file needs no change.
///
/// Each line that names an aliased host is repeated for the alias right after it, so that among the lines
/// that match the alias the order is the order among those that matched the host.
pub fn for_aliases(path: &Path, aliases: &[Alias], around: &Surroundings<'_>) -> io::Result<Option<Vec<u8>>> {
    if usable(path, around) != Usable::Yes {
        return Ok(None);
    }
    Ok(with_aliases(&around.files.read(path)?, aliases))
}

/// [`for_aliases`] on the text of a file.
pub fn with_aliases(text: &[u8], aliases: &[Alias]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut changed = false;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        out.extend_from_slice(line);
        let body = line.strip_suffix(b"\n").unwrap_or(line);
        if body.starts_with(b"#") {
            continue;
        }
        let mut seen: Vec<&[u8]> = Vec::new();
        for alias in aliases {
            let Some(rest) = after_exact_field(body, &alias.host) else { continue };
            if seen.contains(&&alias.stands_for[..]) {
                continue;
            }
            seen.push(&alias.stands_for);
            if out.last() != Some(&b'\n') {
                out.push(b'\n');
            }
            out.extend_from_slice(&[&escaped(&alias.stands_for)[..], b":", rest, b"\n"].concat());
            changed = true;
        }
    }
    changed.then_some(out)
}

/// The host libpq looks for in the file.
pub fn lookup_host(host: Option<&str>, hostaddr: Option<&str>, default_socket_dir: &str) -> String {
    let host = host.filter(|host| !host.is_empty()).or(hostaddr.filter(|addr| !addr.is_empty()));
    match host {
        None => "localhost".to_owned(),
        Some(host) if host == default_socket_dir => "localhost".to_owned(),
        Some(host) => host.to_owned(),
    }
}

/// The password of the first line for this host, port, database and user. libpq's `passwordFromFile`.
pub fn password(text: &[u8], wanted: [&[u8]; 4]) -> Option<Vec<u8>> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.starts_with(b"#")).find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let rest = wanted.iter().try_fold(line, |rest, token| after_field(rest, token))?;
        Some(unescaped_field(rest))
    })
}

/// What follows a field and its colon if the field is this token or `*`.
fn after_field<'a>(line: &'a [u8], token: &[u8]) -> Option<&'a [u8]> {
    line.strip_prefix(b"*:").or_else(|| after_exact_field(line, token))
}

/// The field up to its colon, or to the end of the line, without escapes.
fn unescaped_field(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = line.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b':' => break,
            b'\\' => out.push(*bytes.next().unwrap_or(&byte)),
            _ => out.push(byte),
        }
    }
    out
}

/// What follows the first field and its colon if the field is this token, spelled out rather than as `*`.
/// libpq's `pwdfMatchesString`.
fn after_exact_field<'a>(line: &'a [u8], token: &[u8]) -> Option<&'a [u8]> {
    if line.starts_with(b"*:") {
        return None;
    }
    let (mut at, mut matched) = (0, 0);
    while let Some(&first) = line.get(at) {
        let escapes = first == b'\\';
        if escapes {
            at += 1;
        }
        let byte = *line.get(at)?;
        let wanted = token.get(matched);
        match wanted {
            None => return (byte == b':' && !escapes).then(|| &line[at + 1..]),
            Some(&wanted) if wanted == byte => (at, matched) = (at + 1, matched + 1),
            Some(_) => return None,
        }
    }
    None
}

fn escaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    for &byte in field {
        if matches!(byte, b':' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}
