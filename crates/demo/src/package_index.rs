//! The machine's own package index, read from `apt-cache dumpavail`.
//!
//! Stanzas of `Name: value` lines, continued by lines that begin with white space, ended by an empty line
//! (deb-control(5)).

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::failure::Failure;

/// Machines with many sources have several hundred thousand: the demo should not take longer there.
const PACKAGE_COUNT_MAX: usize = 80_000;
/// A line of the real index has at most some ten thousand bytes; this one ends the reading.
const STANZA_SIZE_MAX: usize = 4 << 20;
const ADVICE: &str =
    "get the lists with: apt-get update (as root; tools/setup demo does it); no package is installed";

/// The fields of one package, in the order of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stanza {
    fields: Vec<(String, String)>,
}

impl Stanza {
    /// The value of a field, its continuation lines joined by newlines.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// All fields.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// A list field, split at its commas.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        split_list(self.get(name).unwrap_or_default())
    }
}

/// The items of a comma-separated value.
pub(crate) fn split_list(value: &str) -> Vec<&str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
}

/// Stanzas as they are read.
pub(crate) struct Stanzas<R> {
    lines: R,
    line: Vec<u8>,
    left: usize,
}

impl<R: BufRead> Stanzas<R> {
    /// Reads from `lines`.
    pub(crate) fn new(lines: R) -> Stanzas<R> {
        Stanzas { lines, line: Vec::new(), left: PACKAGE_COUNT_MAX }
    }

    /// The next one, or `None` at the end.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<Stanza>> {
        let mut stanza = Stanza::default();
        let mut size = 0;
        while self.left > 0 {
            self.line.clear();
            let length = self.lines.read_until(b'\n', &mut self.line)?;
            size += length;
            if size > STANZA_SIZE_MAX {
                return Err(std::io::Error::other(format!("a record of more than {STANZA_SIZE_MAX} bytes")));
            }
            // PostgreSQL's text cannot hold the zero byte.
            let line = String::from_utf8_lossy(&self.line).replace('\0', "");
            let line = line.trim_end();
            if !line.is_empty() {
                add_line(&mut stanza, line);
            } else if !stanza.fields.is_empty() {
                self.left -= 1;
                return Ok(Some(stanza));
            }
            if length == 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

fn add_line(stanza: &mut Stanza, line: &str) {
    if line.starts_with([' ', '\t']) {
        if let Some((_, value)) = stanza.fields.last_mut() {
            value.push('\n');
            value.push_str(line.trim_start());
        }
    } else if let Some((name, value)) = line.split_once(':') {
        stanza.fields.push((name.to_owned(), value.trim_start().to_owned()));
    }
}

/// The running `apt-cache`, ended when dropped.
pub(crate) struct Dump {
    child: Child,
}

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts reading the index of this machine; an error when it has none.
pub(crate) fn open() -> Result<(Dump, Stanzas<BufReader<ChildStdout>>), Failure> {
    let spawned = Command::new("apt-cache")
        .arg("dumpavail")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let what =
                format!("apt-cache dumpavail: {error}; the demo's table is made from Debian's package index");
            return Err(Failure::with_advice(
                what,
                "run the demo on Debian 12, or a container or chroot of it",
            ));
        }
    };
    let stdout = child.stdout.take();
    let dump = Dump { child };
    let stdout = stdout.ok_or_else(|| Failure::with_advice("apt-cache has no output", ADVICE))?;
    let mut lines = BufReader::with_capacity(1 << 16, stdout);
    match lines.fill_buf() {
        Ok([]) => Err(Failure::with_advice(
            "apt-cache dumpavail says nothing: this machine has no package lists",
            ADVICE,
        )),
        Ok(_) => Ok((dump, Stanzas::new(lines))),
        Err(error) => Err(Failure::io("reading from apt-cache", &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> Vec<Stanza> {
        let mut stanzas = Stanzas::new(text);
        std::iter::from_fn(|| stanzas.next().unwrap()).collect()
    }

    #[test]
    fn stanzas_are_separated_by_empty_lines_and_continued_by_indented_ones() {
        let found = all(b"Package: a\nTag: x::y,\n z::w\nEmpty:\n\n\nPackage: b\nHomepage: http://b/\n");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].get("Tag"), Some("x::y,\nz::w"));
        assert_eq!(found[0].list("tag"), ["x::y", "z::w"]);
        assert_eq!(found[0].get("Empty"), Some(""));
        assert_eq!(found[1].get("Homepage"), Some("http://b/"));
        assert_eq!(found[1].get("Tag"), None);
    }

    #[test]
    fn bytes_that_are_not_text_and_lines_that_are_not_fields_do_no_harm() {
        let found = all(b" stray\nnonsense\nPackage: \xff\0\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].get("Package"), Some("\u{fffd}"));
        assert!(all(b"").is_empty() && all(b"\n\n\n").is_empty());
    }

    #[test]
    fn a_record_without_end_is_an_error() {
        let endless = [b"Package: ".to_vec(), vec![b'a'; STANZA_SIZE_MAX]].concat();
        assert!(Stanzas::new(&endless[..]).next().is_err());
    }
}
