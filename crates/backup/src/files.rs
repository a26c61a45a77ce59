//! Which files a physical backup has, and what they are.
//!
//! The parallel route copies a data directory over SQL, so it has to leave out itself what `BASE_BACKUP`
//! leaves out. [`Directory`] says it for the entries of one directory; [`FileKind`] says what a file is by
//! its path alone. The rules are those of `sendDir` in `src/backend/backup/basebackup.c`.
//!
//! What BASE_BACKUP puts in itself is not in the directory: `backup_label`, `tablespace_map` and
//! `backup_manifest`. Files of these names are leftovers of an earlier restore, and are left out.

mod kind;
mod relation;
mod walk;

use std::collections::HashSet;

use pgshrink_cfs::page::PAGE_SIZE;

use crate::base_backup::ServerMajor;
use crate::chunk::Content;
use crate::pack::Area;
use crate::path::BackupPath;

pub use kind::{FileKind, Location};
pub use relation::{BLOCKS_PER_SEGMENT, Fork, RelationFile, SEGMENTS_MAX, TemporaryRelationFile};
pub use walk::{DIRECTORIES_MAX, Entry, ListedFile, Walk};

/// What a chunk of this file consists of, from this offset on.
pub fn content(area: Area, path: &BackupPath, offset: u64) -> Content {
    match FileKind::of(path) {
        FileKind::Relation(file) if area == Area::Data => {
            let blocks = (offset / PAGE_SIZE as u64) as u32;
            Content::Pages { first_block: file.first_block().wrapping_add(blocks) }
        }
        _ => Content::Plain,
    }
}

/// What is true for a whole cluster.
#[derive(Clone, Debug)]
pub struct Rules {
    version_directory: String,
    tablespaces_inside: HashSet<BackupPath>,
    summaries: bool,
}

/// What is done with an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// A file is copied, a directory is made and entered.
    Include,
    /// As [`Choice::Include`], but after all other files: the control file.
    Last,
    /// A directory is made, and its content left out: a server fills it, or it is a tablespace inside the
    /// data directory, whose content is copied by its link. In `pg_wal`, the directories of
    /// [`Rules::wal_directories`] are made too.
    EmptyDirectory,
    /// It is left out.
    Exclude(Reason),
}

/// Why an entry is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// `pgsql_tmp*`: sorts and hashes of sessions.
    TemporaryFile,
    /// A relation of a session, gone when it ends.
    TemporaryRelation,
    /// A fork of an unlogged relation. A server makes it anew from the init fork after recovery.
    Unlogged,
    /// The running server's own: its process, its options, a half-written file.
    ServerState,
    /// `pg_internal.init*`: a cache that is built at the start.
    Cache,
    /// Of an earlier restore.
    EarlierBackup,
    /// In a tablespace, but not of this server; or the files of a tablespace that lies inside the data directory, which are
    /// copied by its link.
    Tablespace,
    /// Of compressed files: space in reserve, the guard, a container half made or half removed. Servers with
    /// the library hide these, and what SQL reads of compressed files is plain.
    CompressedFiles,
    /// Of a file browser.
    Foreign,
}

impl Rules {
    /// For a server of this version with this `catalog_version_no` (from `pg_control_system()`).
    ///
    /// `tablespaces_inside` are locations of tablespaces inside the data directory, relative to it, but for
    /// those in `pg_tblspc` itself.
    pub fn new(major: ServerMajor, catalog_version: u32, tablespaces_inside: Vec<BackupPath>) -> Rules {
        Rules {
            version_directory: format!("PG_{}_{catalog_version}", major.number()),
            tablespaces_inside: tablespaces_inside.into_iter().collect(),
            summaries: major.number() >= 17,
        }
    }

    /// The one directory of a tablespace that is this server's: `PG_18_202506291`.
    pub fn version_directory(&self) -> &str {
        &self.version_directory
    }

    /// The directories that an empty `pg_wal` has.
    pub fn wal_directories(&self) -> &'static [&'static str] {
        if self.summaries { &["archive_status", "summaries"] } else { &["archive_status"] }
    }

    /// The directory with these entries; `path` is none for the data directory itself.
    pub fn directory(&self, path: Option<BackupPath>, names: &[&[u8]]) -> Directory<'_> {
        let location = path.as_ref().map_or(Location::Other, Location::of_directory);
        let mut directory = Directory { rules: self, path, location, unlogged: HashSet::new() };
        names.iter().for_each(|name| directory.see(name));
        directory
    }
}

/// A directory and what must be known of its entries together.
#[derive(Clone, Debug)]
pub struct Directory<'a> {
    rules: &'a Rules,
    path: Option<BackupPath>,
    location: Location,
    /// Relations with an init fork.
    unlogged: HashSet<u32>,
}

impl Directory<'_> {
    /// Takes note of a name whose entry is still to come. The names of init forks must be known before their relations' are
    /// asked for.
    pub fn see(&mut self, name: &[u8]) {
        if self.location.holds_relations()
            && let Some((number, Fork::Init, 0)) = relation::parse(name)
        {
            self.unlogged.insert(number);
        }
    }

    /// What is done with the entry of this name. `.` and `..` are no entries.
    pub fn choice(&self, name: &[u8]) -> Choice {
        if let Some(reason) = excluded_everywhere(name) {
            return Choice::Exclude(reason);
        }
        match self.location {
            Location::Tablespace(_) if name != self.rules.version_directory.as_bytes() => {
                return Choice::Exclude(Reason::Tablespace);
            }
            Location::Tablespace(_) => {}
            // A tablespace whose place nobody named in `tablespaces_inside`.
            _ if name == self.rules.version_directory.as_bytes() => {
                return Choice::Exclude(Reason::Tablespace);
            }
            Location::Database { .. } if TemporaryRelationFile::parse(name).is_some() => {
                return Choice::Exclude(Reason::TemporaryRelation);
            }
            Location::Global if name == b"pg_control" => return Choice::Last,
            _ => {}
        }
        if let Some((number, fork, _)) = relation::parse(name)
            && fork != Fork::Init
            && self.unlogged.contains(&number)
        {
            return Choice::Exclude(Reason::Unlogged);
        }
        let is_wal = self.path.is_none() && name == b"pg_wal";
        if is_wal || EMPTY_DIRECTORIES.contains(&name) {
            return Choice::EmptyDirectory;
        }
        let is_tablespace = |path| self.rules.tablespaces_inside.contains(&path);
        // A name that makes no path is copied by nobody else either; the copy will say what is wrong with it.
        match self.path_of(name).map(is_tablespace) {
            Some(true) => Choice::EmptyDirectory,
            _ => Choice::Include,
        }
    }

    /// The path of an entry; none for a name that makes no path of a backup.
    pub fn path_of(&self, name: &[u8]) -> Option<BackupPath> {
        match &self.path {
            None => BackupPath::new(name).ok(),
            Some(path) => BackupPath::new(&[path.as_bytes(), b"/", name].concat()).ok(),
        }
    }
}

/// `excludeDirContents`: by name, at any depth.
const EMPTY_DIRECTORIES: [&[u8]; 7] = [
    b"pg_stat_tmp",
    b"pg_replslot",
    b"pg_dynshmem",
    b"pg_notify",
    b"pg_serial",
    b"pg_snapshots",
    b"pg_subtrans",
];

/// Space in reserve of compressed files, and their guard (`docs/operating/cfs.md`).
const OF_COMPRESSED_FILES: [&[u8]; 2] =
    [b"pgshrink-reserve", b"pgshrink-compressed-files-here-need-shared_preload_libraries-cfs"];

/// In the names of containers that a crash left half made or half removed; a process id follows.
const HALF_MADE: [&[u8]; 2] = [b".pgshrink-new.", b".pgshrink-old."];

/// `excludeFiles` and the prefix of temporary files: by name, at any depth.
fn excluded_everywhere(name: &[u8]) -> Option<Reason> {
    match name {
        _ if name.starts_with(b"pgsql_tmp") => Some(Reason::TemporaryFile),
        _ if name.starts_with(b"pg_internal.init") => Some(Reason::Cache),
        b"postgresql.auto.conf.tmp" | b"current_logfiles.tmp" => Some(Reason::ServerState),
        b"postmaster.pid" | b"postmaster.opts" => Some(Reason::ServerState),
        b"backup_label" | b"tablespace_map" | b"backup_manifest" => Some(Reason::EarlierBackup),
        b".DS_Store" => Some(Reason::Foreign),
        _ if OF_COMPRESSED_FILES.contains(&name) => Some(Reason::CompressedFiles),
        _ if HALF_MADE.iter().any(|mark| name.windows(mark.len()).any(|part| part == *mark)) => {
            Some(Reason::CompressedFiles)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices<'a>(path: &str, names: &[&'a str]) -> Vec<(&'a str, Choice)> {
        let inside = vec![BackupPath::new(b"spaces/near").unwrap()];
        let rules = Rules::new(ServerMajor::new(18).unwrap(), 202_506_291, inside);
        let path = (!path.is_empty()).then(|| BackupPath::new(path.as_bytes()).unwrap());
        let listed: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let directory = rules.directory(path, &listed);
        names.iter().map(|name| (*name, directory.choice(name.as_bytes()))).collect()
    }

    fn left_out<'a>(path: &str, names: &[&'a str]) -> Vec<&'a str> {
        let excluded =
            |(name, choice): (&'a str, Choice)| matches!(choice, Choice::Exclude(_)).then_some(name);
        choices(path, names).into_iter().filter_map(excluded).collect()
    }

    #[test]
    fn unlogged_relations_keep_their_init_fork_only() {
        let names = ["16384", "16384.1", "16384_fsm", "16384_vm", "16384_init", "16385", "163840", "16384_x"];
        let gone = ["16384", "16384.1", "16384_fsm", "16384_vm"];
        assert_eq!(left_out("base/5", &names), gone);
        assert_eq!(left_out("pg_tblspc/1/PG_18_202506291/5", &names), gone);
        assert_eq!(left_out("log", &names), [""; 0]);
    }

    #[test]
    fn temporary_relations_are_left_out_of_databases() {
        let names = ["t3_16384", "t3_16384_fsm", "t3_16384.1", "t3", "t_16384", "t3_", "t3_x", "text"];
        assert_eq!(left_out("base/5", &names), ["t3_16384", "t3_16384_fsm", "t3_16384.1"]);
        assert_eq!(left_out("base", &names), [""; 0]);
    }

    #[test]
    fn files_of_the_compression_are_left_out() {
        let guard = "pgshrink-compressed-files-here-need-shared_preload_libraries-cfs";
        let names =
            ["pgshrink-reserve", guard, "16401.pgshrink-new.4711", "16401_vm.1.pgshrink-old.7", "16401"];
        assert_eq!(left_out("base/5", &names), names[..4]);
    }

    #[test]
    fn directories_of_the_running_server_are_empty() {
        for name in ["pg_wal", "pg_notify", "pg_replslot", "pg_stat_tmp", "pg_subtrans"] {
            assert_eq!(choices("", &[name]), [(name, Choice::EmptyDirectory)]);
        }
        assert_eq!(
            choices("some", &["pg_wal", "pg_notify"]),
            [("pg_wal", Choice::Include), ("pg_notify", Choice::EmptyDirectory)]
        );
        assert_eq!(choices("global", &["pg_control"]), [("pg_control", Choice::Last)]);
    }

    #[test]
    fn a_tablespace_is_copied_by_its_link_and_only_this_servers_part() {
        let names = ["PG_18_202506291", "PG_15_202209061", "lost+found"];
        assert_eq!(left_out("pg_tblspc/16400", &names), ["PG_15_202209061", "lost+found"]);
        assert_eq!(left_out("spaces/far", &names), ["PG_18_202506291"]);
        let inside = choices("spaces", &["near", "far"]);
        assert_eq!(inside, [("near", Choice::EmptyDirectory), ("far", Choice::Include)]);
    }
}
