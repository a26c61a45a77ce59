//! Configuration files of a restored cluster, which name each other by where they were.
//!
//! Directives that include a file are made to name its copy in scratch space. So the server reads what the backup has, whatever
//! this machine has at the same place.

use super::super::{Failure, configuration};
use super::scratch::Scratch;
use pgshrink_backup::configuration::{
    Include, IncludeKind, Syntax, absolute, below, include_setting, includes, is_included,
};
use pgshrink_backup::record::Configuration;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Configuration files that are looked at.
const FILES_MAX: usize = 1000;

/// Where files were on the server, and are now.
pub(super) struct Layout<'l> {
    data: PathBuf,
    outside: PathBuf,
    /// None: the backup does not say where its server had its configuration.
    known: Option<&'l Configuration>,
}

/// A file: where it was, and where it is.
type Moved = (Vec<u8>, PathBuf);

impl<'l> Layout<'l> {
    pub(super) fn new(scratch: &Scratch, known: Option<&'l Configuration>) -> Layout<'l> {
        Layout { data: scratch.data(), outside: scratch.configuration(), known }
    }

    /// `postgresql.conf`, which may not be there.
    pub(super) fn config_file(&self) -> Result<Moved, Failure> {
        match self.known {
            Some(known) => {
                let from = known.config_file.as_bytes().to_vec();
                Ok((from.clone(), self.place(&from)?))
            }
            None => {
                let path = self.data.join("postgresql.conf");
                Ok((path.as_os_str().as_bytes().to_vec(), path))
            }
        }
    }

    /// Where something is that was there on the server.
    fn place(&self, from: &[u8]) -> Result<PathBuf, Failure> {
        let Some(known) = self.known else { return Ok(PathBuf::from(OsStr::from_bytes(from))) };
        match below(from, known.data_directory.as_bytes()) {
            Some(rest) => Ok(self.data.join(OsStr::from_bytes(rest))),
            None => configuration::place(&self.outside, &String::from_utf8_lossy(from)),
        }
    }

    /// Makes a file, and those that it includes, name each other where they are. Directives that name what is not there become
    /// comments.
    pub(super) fn adapt(&self, from: Vec<u8>, path: PathBuf, notes: &mut Vec<String>) -> Result<(), Failure> {
        let mut files = vec![(from, path)];
        let mut at = 0;
        while let Some((from, path)) = files.get(at).cloned() {
            at += 1;
            // A setting may be in any encoding, and stays as it is.
            let bytes = fs::read(&path).map_err(Failure::at(&path))?;
            let (mut changed, mut kept) = (Vec::with_capacity(bytes.len()), 0);
            for include in includes(Syntax::Settings, &bytes)? {
                let line = &bytes[include.line.clone()];
                changed.extend_from_slice(&bytes[kept..include.line.start]);
                kept = include.line.end;
                match self.included(&include, (&from, &path))? {
                    Some((target, place)) => {
                        changed.extend(self.directive(&include, line, &place));
                        self.follow(&include, (target, place), &mut files);
                    }
                    None if self.known.is_none() && include.kind == IncludeKind::FileIfExists => {
                        changed.extend_from_slice(line);
                    }
                    None => {
                        changed.push(b'#');
                        changed.extend_from_slice(line);
                        if include.kind != IncludeKind::FileIfExists {
                            notes.push(self.left_out(line, &path));
                        }
                    }
                }
            }
            changed.extend_from_slice(&bytes[kept..]);
            if changed != bytes {
                fs::write(&path, changed).map_err(Failure::at(&path))?;
            }
        }
        Ok(())
    }

    /// What a directive names, if it is there.
    fn included(&self, include: &Include, (from, path): (&[u8], &Path)) -> Result<Option<Moved>, Failure> {
        // Without a record, what is outside of the data directory may be on this machine, as it was on the server.
        let origin = if self.known.is_some() { from } else { path.as_os_str().as_bytes() };
        let Some(target) = absolute(&include.target, origin) else { return Ok(None) };
        let place = self.place(&target)?;
        Ok(place.exists().then_some((target, place)))
    }

    fn directive(&self, include: &Include, line: &[u8], place: &Path) -> Vec<u8> {
        match self.known {
            Some(_) => include_setting(include.kind, place.as_os_str().as_bytes()),
            None => line.to_vec(),
        }
    }

    /// Adds the files that a directive names, where they are copies.
    fn follow(&self, include: &Include, (from, place): Moved, files: &mut Vec<Moved>) {
        if !place.starts_with(&self.data) && !place.starts_with(&self.outside) {
            return;
        }
        let found = match include.kind {
            IncludeKind::Directory => files_of(&place)
                .into_iter()
                .map(|name| ([&from, &b"/"[..], &name].concat(), place.join(OsStr::from_bytes(&name))))
                .collect(),
            _ => vec![(from, place)],
        };
        for file in found {
            if files.len() < FILES_MAX && !files.iter().any(|(_, known)| *known == file.1) {
                files.push(file);
            }
        }
    }

    fn left_out(&self, line: &[u8], path: &Path) -> String {
        let shown = [&self.data, &self.outside].into_iter().find_map(|folder| path.strip_prefix(folder).ok());
        let line = String::from_utf8_lossy(line);
        let (line, shown) = (line.trim(), shown.unwrap_or(path).display());
        let why = match self.known {
            Some(_) => "the backup does not have it",
            None => "this machine does not have it",
        };
        format!("`{line}` of {shown} was left out: {why}")
    }
}

/// Names of the files of a directory that the server would read.
fn files_of(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name().into_vec());
    let mut names: Vec<_> = files.filter(|name| is_included(name)).take(FILES_MAX).collect();
    names.sort();
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot set up its case fails")]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn files_name_each_other_where_they_are_now_and_what_is_not_there_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let (data, outside) = (root.path().join("data"), root.path().join("configuration"));
        let known = Configuration {
            data_directory: "/srv/pg/data".to_owned(),
            config_file: "/srv/pg/data/postgresql.conf".to_owned(),
            files: Vec::new(),
            directories: Vec::new(),
            absent: Vec::new(),
        };
        // /etc/passwd is on this machine and not in the backup.
        write(
            &data.join("postgresql.conf"),
            "port = 1\ninclude '../it''s.conf'\ninclude '/etc/passwd'\ninclude_if_exists '/etc/passwd'\nport = 2",
        );
        write(&outside.join("srv/pg/it's.conf"), "include_dir '/srv/pg/data/conf.d'\n");
        write(&data.join("conf.d/a.conf"), "include 'b'\n");
        write(&data.join("conf.d/c.txt"), "include 'b'\n");
        let layout = Layout { data: data.clone(), outside: outside.clone(), known: Some(&known) };
        let (from, path) = layout.config_file().unwrap();
        assert_eq!(path, data.join("postgresql.conf"));
        let mut notes = Vec::new();
        layout.adapt(from, path.clone(), &mut notes).unwrap();
        let quoted = outside.join("srv/pg/it''s.conf");
        let expected = format!(
            "port = 1\ninclude = '{}'\n#include '/etc/passwd'\n#include_if_exists '/etc/passwd'\nport = 2",
            quoted.display()
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        let expected = format!("include_dir = '{}'\n", data.join("conf.d").display());
        assert_eq!(fs::read_to_string(outside.join("srv/pg/it's.conf")).unwrap(), expected);
        assert_eq!(fs::read_to_string(data.join("conf.d/a.conf")).unwrap(), "#include 'b'\n");
        assert_eq!(fs::read_to_string(data.join("conf.d/c.txt")).unwrap(), "include 'b'\n");
        assert_eq!(
            notes,
            [
                "`include '/etc/passwd'` of postgresql.conf was left out: the backup does not have it",
                "`include 'b'` of conf.d/a.conf was left out: the backup does not have it"
            ]
        );
    }
}
