//! A walk through a data directory that another process lists: which directories to list next, and which files to read.

use std::collections::{HashMap, VecDeque};

use super::kind::Location;
use super::{Choice, Directory, FileKind, Rules};
use crate::error::Error;
use crate::label::TABLESPACES_MAX;
use crate::path::BackupPath;
use crate::time::ServerTime;

/// Directories of a backup, at most.
pub const DIRECTORIES_MAX: usize = 1 << 20;
/// Components of a directory's path, at most: a link that leads to a directory above it makes paths without end.
const DEPTH_MAX: usize = 32;

/// An entry of a directory, links followed.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'e> {
    /// Its name.
    pub name: &'e [u8],
    /// In bytes.
    pub size: u64,
    /// When its content was last changed, by the clock of the server's host.
    pub modified: ServerTime,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    /// Where it lies.
    pub path: BackupPath,
    /// In bytes, when it was listed.
    pub size: u64,
    /// When it was last changed.
    pub modified: ServerTime,
}

impl ListedFile {
    /// Number of the first block, if the file has pages of a relation.
    pub fn first_block(&self) -> Option<u32> {
        match FileKind::of(&self.path) {
            FileKind::Relation(file) => Some(file.first_block()),
            _ => None,
        }
    }
}

/// A walk: [`Walk::enter`] a directory, [`Walk::take`] each of its entries, and so on until there is none.
#[derive(Debug)]
pub struct Walk<'r> {
    rules: &'r Rules,
    /// Tablespaces, and whether they lie in `pg_tblspc` itself.
    tablespaces: HashMap<u32, bool>,
    waiting: VecDeque<Option<BackupPath>>,
    current: Directory<'r>,
    directories: Vec<BackupPath>,
    control: Option<ListedFile>,
}

impl<'r> Walk<'r> {
    /// Of a data directory and its tablespaces: their OIDs, and whether they lie in `pg_tblspc` themselves
    /// (`allow_in_place_tablespaces`) and not behind a link.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than [`TABLESPACES_MAX`] tablespaces.
    pub fn new(rules: &'r Rules, tablespaces: &[(u32, bool)]) -> Result<Walk<'r>, Error> {
        limit("number of tablespaces", tablespaces.len(), TABLESPACES_MAX)?;
        let mut waiting = VecDeque::from([None]);
        for (oid, _) in tablespaces.iter().filter(|(_, is_in_place)| !is_in_place) {
            waiting.push_back(Some(format!("pg_tblspc/{oid}").parse()?));
        }
        Ok(Walk {
            rules,
            tablespaces: tablespaces.iter().copied().collect(),
            waiting,
            current: rules.directory(None, &[]),
            directories: Vec::new(),
            control: None,
        })
    }

    /// The next directory to list: `Some(None)` is the data directory itself, `None` the end.
    #[allow(clippy::option_option, reason = "the data directory has no path in itself")]
    pub fn enter(&mut self) -> Option<Option<BackupPath>> {
        let next = self.waiting.pop_front()?;
        self.current = self.rules.directory(next.clone(), &[]);
        Some(next)
    }

    /// Takes an entry of the directory, and gives the file that is to be read, if it is one. No name may come twice, and the
    /// init forks of relations have to come before all other names.
    ///
    /// # Errors
    /// [`Error::UnsafePath`] for a name that makes no path, [`Error::Limit`].
    pub fn take(&mut self, entry: Entry<'_>) -> Result<Option<ListedFile>, Error> {
        self.current.see(entry.name);
        let choice = self.current.choice(entry.name);
        if matches!(choice, Choice::Exclude(_)) || is_socket(&entry) {
            return Ok(None);
        }
        let path = self.current.entry_path(entry.name)?;
        if !entry.is_directory {
            let file = ListedFile { path, size: entry.size, modified: entry.modified };
            return match choice {
                Choice::Include => Ok(Some(file)),
                Choice::Last => {
                    self.control = Some(file);
                    Ok(None)
                }
                // Where a directory should be; a server makes it anew.
                Choice::EmptyDirectory | Choice::Exclude(_) => Ok(None),
            };
        }
        if let Location::Tablespace(oid) = Location::of_directory(&path)
            && self.tablespaces.get(&oid) != Some(&true)
        {
            // Behind its link it is entered as a tablespace; or it was made after the backup's start.
            return Ok(None);
        }
        self.directory(path, choice)?;
        Ok(None)
    }

    fn directory(&mut self, path: BackupPath, choice: Choice) -> Result<(), Error> {
        limit("depth of a directory", path.components().count(), DEPTH_MAX)?;
        limit("number of directories", self.directories.len() + 2, DIRECTORIES_MAX)?;
        let is_wal = path.as_bytes() == b"pg_wal";
        self.directories.push(path.clone());
        if is_wal {
            for name in self.rules.wal_directories() {
                self.directories.push(format!("pg_wal/{name}").parse()?);
            }
        }
        if choice != Choice::EmptyDirectory {
            self.waiting.push_back(Some(path));
        }
        Ok(())
    }

    /// The directories of the backup, parents first, and the control file, which is read after all others.
    ///
    /// # Errors
    /// [`Error::Malformed`] when there was no control file: this is no data directory.
    pub fn finish(self) -> Result<(Vec<BackupPath>, ListedFile), Error> {
        let missing = || Error::malformed("data directory", "a file global/pg_control", b"none");
        Ok((self.directories, self.control.ok_or_else(missing)?))
    }
}

/// A server whose `unix_socket_directories` names its data directory has a socket there, which looks like an empty file.
fn is_socket(entry: &Entry<'_>) -> bool {
    let port = entry.name.strip_prefix(b".s.PGSQL.");
    port.is_some_and(|port| port.iter().all(u8::is_ascii_digit)) && entry.size == 0 && !entry.is_directory
}

impl Directory<'_> {
    fn entry_path(&self, name: &[u8]) -> Result<BackupPath, Error> {
        match &self.path {
            None => BackupPath::new(name),
            Some(path) => BackupPath::new(&[path.as_bytes(), b"/", name].concat()),
        }
    }
}

fn limit(what: &'static str, found: usize, allowed: usize) -> Result<(), Error> {
    if found > allowed {
        return Err(Error::Limit { what, found: found as u64, allowed: allowed as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base_backup::ServerMajor;

    const VERSION: &str = "PG_18_202506291";

    /// A tree: paths of files, and of directories with a slash behind them.
    fn walked(tree: &[&str], tablespaces: &[(u32, bool)]) -> (Vec<String>, Vec<String>, String) {
        let rules = Rules::new(ServerMajor::new(18).unwrap(), 202_506_291, Vec::new());
        let mut walk = Walk::new(&rules, tablespaces).unwrap();
        let mut files = Vec::new();
        while let Some(directory) = walk.enter() {
            let below = directory.map_or(String::new(), |path| format!("{path}/"));
            let inside = tree.iter().filter_map(|path| path.strip_prefix(&below));
            let mut names: Vec<_> =
                inside.filter(|rest| !rest.is_empty() && !rest.trim_end_matches('/').contains('/')).collect();
            names.sort_by_key(|name| !name.ends_with("_init"));
            for name in names {
                let entry = Entry {
                    name: name.trim_end_matches('/').as_bytes(),
                    size: u64::from(!name.starts_with(".s")),
                    modified: ServerTime::MIN,
                    is_directory: name.ends_with('/'),
                };
                files.extend(walk.take(entry).unwrap().map(|file| file.path.to_string()));
            }
        }
        let (directories, control) = walk.finish().unwrap();
        (files, directories.iter().map(ToString::to_string).collect(), control.path.to_string())
    }

    #[test]
    fn a_walk_reads_what_a_base_backup_has() {
        let behind = format!("pg_tblspc/7/{VERSION}/");
        let database = format!("{behind}5/");
        let far = format!("{database}20_vm");
        let tree = [
            "PG_VERSION",
            "postmaster.pid",
            ".s.PGSQL.5432",
            ".s.PGSQL.5432.lock",
            "base/",
            "base/5/",
            "base/5/16",
            "base/5/16_init",
            "base/5/17",
            "base/5/t3_18",
            "global/",
            "global/pg_control",
            "global/1262",
            "pg_wal/",
            "pg_wal/000000010000000000000001",
            "pg_notify/",
            "pg_notify/0000",
            "pg_tblspc/",
            "pg_tblspc/7/",
            "pg_tblspc/8/",
            "pg_tblspc/9/",
            &behind,
            &database,
            &far,
            "pg_tblspc/8/PG_15_202209061/",
        ];
        let (files, directories, control) = walked(&tree, &[(7, false), (8, true)]);
        assert_eq!(
            files,
            ["PG_VERSION", ".s.PGSQL.5432.lock", "global/1262", "base/5/16_init", "base/5/17", &far]
        );
        assert_eq!(
            directories,
            [
                "base",
                "global",
                "pg_wal",
                "pg_wal/archive_status",
                "pg_wal/summaries",
                "pg_notify",
                "pg_tblspc",
                behind.trim_end_matches('/'),
                "base/5",
                "pg_tblspc/8",
                database.trim_end_matches('/'),
            ]
        );
        assert_eq!(control, "global/pg_control");
    }

    #[test]
    fn a_loop_of_links_ends_the_walk() {
        let rules = Rules::new(ServerMajor::new(15).unwrap(), 202_209_061, Vec::new());
        let mut walk = Walk::new(&rules, &[]).unwrap();
        let entry = Entry { name: b"x", size: 0, modified: ServerTime::MIN, is_directory: true };
        let mut entered = 0;
        while walk.enter().is_some() {
            entered += 1;
            if walk.take(entry).is_err() {
                break;
            }
        }
        assert_eq!(entered, DEPTH_MAX + 1);
        assert!(walk.finish().is_err());
    }
}
