//! Which configuration files a server has outside of its data directory, and what is in them.

use super::rights::{Right, Rights};
use super::{Found, Missing};
use crate::args::ConfigurationMode;
use crate::backup::Failure;
use pgshrink_backup::configuration::{
    BYTES_MAX, DEPTH_MAX, DIRECTORIES_MAX, FILE_BYTES_MAX, FILES_MAX, IncludeKind, Syntax, absolute, below,
    includes, is_included,
};
use pgshrink_backup::hex;
use pgshrink_backup::pack::Sha256;
use pgshrink_backup::record::{Configuration, ConfigurationFile, ConfigurationRole};
use pgshrink_pgclient::Error as ClientError;
use pgshrink_pgclient::connection::Connection;
use sha2::Digest;
use std::collections::HashSet;

/// Where files are; NULL without pg_read_all_settings.
const PLACES: &str = "SELECT \
    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'data_directory'), \
    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'config_file'), \
    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'hba_file'), \
    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'ident_file')";
/// Files that give settings that are in force.
const SOURCES: &str =
    "SELECT DISTINCT sourcefile FROM pg_catalog.pg_settings WHERE sourcefile IS NOT NULL ORDER BY 1";
/// Files that TLS is set up with. They are named, and never read.
const TLS_FILES: &str = "SELECT setting FROM pg_catalog.pg_settings WHERE name IN ('ssl_ca_file', 'ssl_cert_file', \
    'ssl_crl_dir', 'ssl_crl_file', 'ssl_dh_params_file', 'ssl_key_file') AND setting LIKE '/%' \
    AND EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = 'ssl' AND setting = 'on') ORDER BY name";
/// A byte more than a file may have tells that it has too many.
const READ: &str = "SELECT pg_catalog.encode(pg_catalog.pg_read_binary_file($1, 0, $2, true), 'hex')";
const LIST: &str = "SELECT found.name FROM pg_catalog.pg_ls_dir($1, true, false) AS found(name) \
    WHERE found.name LIKE '%.conf' ORDER BY found.name COLLATE \"C\" LIMIT $2";
/// Files that are looked at, those of the data directory and missing ones among them.
const LOOKS_MAX: usize = 1024;
/// SQLSTATE of a directory that was to be read as a file.
const WRONG_OBJECT_TYPE: &str = "42809";

/// Looks for files.
pub(super) struct Finder<'c> {
    connection: &'c mut Connection,
    rights: Rights,
    data_directory: Vec<u8>,
    /// Files that are to be looked at.
    queue: Vec<Next>,
    seen: HashSet<(Vec<u8>, Syntax)>,
    files: Vec<ConfigurationFile>,
    contents: Vec<Vec<u8>>,
    directories: Vec<String>,
    missing: Missing,
}

/// A file that is to be looked at.
struct Next {
    path: Vec<u8>,
    syntax: Syntax,
    role: ConfigurationRole,
    depth: usize,
    named: Named,
}

/// How a file came to be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    /// Something says that it is there.
    There,
    /// Nobody misses it where it is not there.
    IfExists,
    /// By a list of its directory: it may be a directory itself.
    InDirectory,
}

impl<'c> Finder<'c> {
    /// What there is, and what of it cannot be in the backup.
    pub(super) fn look(
        connection: &'c mut Connection,
        mode: ConfigurationMode,
    ) -> Result<(Found, Missing), Failure> {
        let rights = Rights::of(connection)?;
        let places = connection.query_params(PLACES, &[])?;
        let path = |column| places.bytes(0, column).and_then(|path| absolute(path, b"/"));
        let mut missing = Missing::default();
        let (Some(data_directory), Some(config_file)) = (path(0), path(1)) else {
            missing.lacks.note(&rights, &[Right::Settings]);
            missing.unknown = Some("where the server has them");
            return Ok((Found::default(), missing));
        };
        let roles = [ConfigurationRole::Config, ConfigurationRole::Hba, ConfigurationRole::Ident];
        let starts = roles.into_iter().zip(1..).filter_map(|(role, column)| {
            let syntax = if role == ConfigurationRole::Config { Syntax::Settings } else { Syntax::Rules };
            Some(Next {
                path: path(column)?,
                syntax,
                role,
                depth: 0,
                named: if role == ConfigurationRole::Ident { Named::IfExists } else { Named::There },
            })
        });
        // The last one is looked at first.
        let mut queue: Vec<Next> = starts.collect();
        queue.reverse();
        let mut finder = Finder {
            connection,
            rights,
            data_directory,
            queue,
            seen: HashSet::new(),
            files: Vec::new(),
            contents: Vec::new(),
            directories: Vec::new(),
            missing,
        };
        finder.run(mode)?;
        finder.finish(config_file)
    }

    fn run(&mut self, mode: ConfigurationMode) -> Result<(), Failure> {
        let mut is_unseen = false;
        while let Some(next) = self.queue.pop() {
            if self.seen.len() == LOOKS_MAX {
                self.missing.add(&format!("more than {LOOKS_MAX} files are referred to"), &next.path);
                break;
            }
            if !self.seen.insert((next.path.clone(), next.syntax)) {
                continue;
            }
            if !self.is_inside(&next.path) {
                self.outside(next)?;
            } else if self.rights.has(Right::Read) {
                // The backup has it, but not what it includes.
                if let Some(content) = self.read(&next)? {
                    self.follow(&next, &content)?;
                }
            } else {
                is_unseen = true;
            }
        }
        if is_unseen {
            self.look_at_sources(mode)?;
        }
        Ok(())
    }

    fn is_inside(&self, path: &[u8]) -> bool {
        path == self.data_directory || below(path, &self.data_directory).is_some()
    }

    /// Files of the data directory cannot be read for what they include. The server knows which files gave it settings.
    fn look_at_sources(&mut self, mode: ConfigurationMode) -> Result<(), Failure> {
        let found = self.connection.query_params(SOURCES, &[])?;
        for row in 0..found.row_count() {
            let Some(path) = found.bytes(row, 0).and_then(|path| absolute(path, b"/")) else { continue };
            if !self.is_inside(&path) && !self.seen.contains(&(path.clone(), Syntax::Settings)) {
                self.lack(&[Right::Outside, Right::Read, Right::List], &path);
            }
        }
        if mode == ConfigurationMode::Require && self.missing.lacks.note(&self.rights, &[Right::Read]) {
            self.missing.unknown = Some("what files of the data directory include");
        }
        Ok(())
    }

    fn lack(&mut self, needed: &[Right], path: &[u8]) -> bool {
        let is_missing = self.missing.lacks.note(&self.rights, needed);
        if is_missing {
            self.missing.add("the role may not read them", path);
        }
        is_missing
    }

    fn outside(&mut self, next: Next) -> Result<(), Failure> {
        if self.lack(&[Right::Outside, Right::Read], &next.path) {
            // What it includes will be asked for in the next run otherwise.
            if next.role == ConfigurationRole::Config {
                self.missing.lacks.note(&self.rights, &[Right::List]);
            }
            return Ok(());
        }
        let Ok(path) = String::from_utf8(next.path.clone()) else {
            self.missing.add("its name is not UTF-8", &next.path);
            return Ok(());
        };
        let Some(content) = self.read(&next)? else { return Ok(()) };
        let sum: usize = self.contents.iter().map(Vec::len).sum();
        let is_known = self.files.iter().any(|file| file.path == path);
        if !is_known {
            if self.files.len() == FILES_MAX {
                self.missing.add(&format!("there are more than {FILES_MAX} configuration files"), &next.path);
                return Ok(());
            }
            if (sum + content.len()) as u64 > BYTES_MAX {
                self.missing.add("configuration files have more than 16 MiB in total", &next.path);
                return Ok(());
            }
            self.files.push(ConfigurationFile {
                path,
                role: next.role,
                bytes: content.len() as u64,
                sha256: Sha256(sha2::Sha256::digest(&content).into()),
            });
            self.contents.push(content.clone());
        }
        self.follow(&next, &content)
    }

    /// The bytes of a file. None: it has none that a backup could have, and that is noted.
    fn read(&mut self, next: &Next) -> Result<Option<Vec<u8>>, Failure> {
        let Ok(path) = std::str::from_utf8(&next.path) else {
            self.missing.add("its name is not UTF-8", &next.path);
            return Ok(None);
        };
        let bytes = (FILE_BYTES_MAX + 1).to_string();
        match self.connection.query_params(READ, &[Some(path), Some(&bytes)]) {
            Ok(found) => match found.bytes(0, 0).map(hex::decode) {
                Some(None) => {
                    let what = "the server sent something other than the expected hexadecimal digits";
                    Err(Failure::new(path.escape_debug(), what))
                }
                Some(Some(content)) if content.len() as u64 > FILE_BYTES_MAX => {
                    self.missing.add("it is larger than 4 MiB", &next.path);
                    Ok(None)
                }
                Some(Some(content)) => Ok(Some(content)),
                None => {
                    if next.named != Named::IfExists {
                        self.missing.gone.push(path.escape_debug().to_string());
                    }
                    Ok(None)
                }
            },
            Err(ClientError::Server { report, .. })
                if report.sqlstate == WRONG_OBJECT_TYPE && next.named == Named::InDirectory =>
            {
                Ok(None)
            }
            Err(ClientError::Server { report, .. }) => {
                self.missing.add(&report.to_string(), &next.path);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes note of the files that a file includes.
    fn follow(&mut self, next: &Next, content: &[u8]) -> Result<(), Failure> {
        let found = match includes(next.syntax, content) {
            Ok(found) => found,
            Err(error) => {
                self.missing.add(&error.to_string(), &next.path);
                return Ok(());
            }
        };
        if next.depth == DEPTH_MAX && !found.is_empty() {
            self.missing
                .add(&format!("its includes are nested more than {DEPTH_MAX} levels deep"), &next.path);
            return Ok(());
        }
        let mut queue = Vec::new();
        for include in found {
            let Some(path) = absolute(&include.target, &next.path) else {
                self.missing.add("it includes a file with an invalid path", &next.path);
                continue;
            };
            let (role, depth) = (ConfigurationRole::Included, next.depth + 1);
            let file = |path, named, syntax| Next { path, syntax, role, depth, named };
            match include.kind {
                IncludeKind::File => queue.push(file(path, Named::There, next.syntax)),
                IncludeKind::FileIfExists => queue.push(file(path, Named::IfExists, next.syntax)),
                IncludeKind::Names => queue.push(file(path, Named::There, Syntax::Names)),
                IncludeKind::Directory => {
                    let names = self.list(&path)?;
                    queue.extend(names.into_iter().map(|path| file(path, Named::InDirectory, next.syntax)));
                }
            }
        }
        self.queue.extend(queue.into_iter().rev());
        Ok(())
    }

    /// Files of a directory that the server reads.
    fn list(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let is_inside = self.is_inside(path);
        let needed = if is_inside { &[Right::List][..] } else { &[Right::Outside, Right::List] };
        if self.lack(needed, path) {
            return Ok(Vec::new());
        }
        let Ok(text) = std::str::from_utf8(path) else {
            self.missing.add("its name is not UTF-8", path);
            return Ok(Vec::new());
        };
        let count = (FILES_MAX + 1).to_string();
        let found = match self.connection.query_params(LIST, &[Some(text), Some(&count)]) {
            Ok(found) => found,
            Err(ClientError::Server { report, .. }) => {
                self.missing.add(&report.to_string(), path);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        };
        if !is_inside && !self.directories.iter().any(|known| known == text) {
            match self.directories.len() < DIRECTORIES_MAX {
                true => self.directories.push(text.to_owned()),
                false => {
                    self.missing.add(&format!("there are more than {DIRECTORIES_MAX} directories"), path)
                }
            }
        }
        let names =
            (0..found.row_count()).filter_map(|row| found.bytes(row, 0)).filter(|name| is_included(name));
        Ok(names.map(|name| [path, b"/", name].concat()).collect())
    }

    fn finish(self, config_file: Vec<u8>) -> Result<(Found, Missing), Failure> {
        let Finder { connection, data_directory, files, contents, mut missing, .. } = self;
        let (Ok(data_directory), Ok(config_file)) =
            (String::from_utf8(data_directory.clone()), String::from_utf8(config_file))
        else {
            missing.add("its name is not UTF-8, so nothing outside of it is backed up", &data_directory);
            return Ok((Found::default(), missing));
        };
        let tls = connection.query_params(TLS_FILES, &[])?;
        let named = (0..tls.row_count()).filter_map(|row| absolute(tls.bytes(row, 0)?, b"/"));
        let left = missing.paths.values().flatten().map(|path| path.as_bytes().to_vec());
        let mut absent: Vec<String> = Vec::new();
        for path in named.chain(left).filter_map(|path| String::from_utf8(path).ok()) {
            let is_whole = absolute(path.as_bytes(), b"/").as_deref() == Some(path.as_bytes());
            let is_outside = below(path.as_bytes(), data_directory.as_bytes()).is_none();
            if is_whole && is_outside && absent.len() < FILES_MAX && !absent.contains(&path) {
                absent.push(path);
            }
        }
        let mut directories = self.directories;
        directories.retain(|directory| !files.iter().any(|file| file.path == *directory));
        let record = Configuration { data_directory, config_file, files, directories, absent };
        Ok((Found { record: Some(record), contents }, missing))
    }
}
