//! What a path says about its file.

use super::relation::{RelationFile, TemporaryRelationFile, number, parse};
use crate::path::BackupPath;

/// OID of `pg_default`, where databases lie in `base`.
const DEFAULT_TABLESPACE: u32 = 1663;
/// OID of `pg_global`, in `global`.
const GLOBAL_TABLESPACE: u32 = 1664;

/// What a file of a data directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Pages of a relation.
    Relation(RelationFile),
    /// Pages of a temporary relation.
    TemporaryRelation(TemporaryRelationFile),
    /// In `pg_wal`.
    Wal,
    /// `global/pg_control`.
    Control,
    /// Settings and rules of access in the data directory, or the label and map of a backup, which are a
    /// server's orders too.
    Config,
    /// Commit logs, maps of catalogs, logs, what extensions put there.
    Other,
}

impl FileKind {
    /// Of the file at this path.
    pub fn of(path: &BackupPath) -> FileKind {
        let name = path.name();
        let parent = path.as_bytes()[..path.as_bytes().len() - name.len()].strip_suffix(b"/");
        match parent {
            None if CONFIG_FILES.contains(&name) => return FileKind::Config,
            None => return FileKind::Other,
            Some(parent) if parent == b"pg_wal" || parent.starts_with(b"pg_wal/") => return FileKind::Wal,
            Some(b"global") if name == b"pg_control" => return FileKind::Control,
            Some(_) => {}
        }
        let (tablespace, database) = match parent.map(Location::of) {
            Some(Location::Global) => (GLOBAL_TABLESPACE, 0),
            Some(Location::Database { tablespace, database }) => (tablespace, database),
            _ => return FileKind::Other,
        };
        if let Some((number, fork, segment)) = parse(name) {
            return FileKind::Relation(RelationFile { tablespace, database, number, fork, segment });
        }
        TemporaryRelationFile::parse(name).map_or(FileKind::Other, FileKind::TemporaryRelation)
    }
}

/// What a directory holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// `global`.
    Global,
    /// Relations of one database: `base/5`, `pg_tblspc/16400/PG_18_202506291/5`.
    Database {
        /// OID of the tablespace.
        tablespace: u32,
        /// OID of the database.
        database: u32,
    },
    /// A tablespace, of which only the directory of its version is the server's: `pg_tblspc/16400`.
    Tablespace(u32),
    /// Anything else.
    Other,
}

impl Location {
    /// Of the directory at this path.
    pub fn of_directory(path: &BackupPath) -> Location {
        Location::of(path.as_bytes())
    }

    fn of(path: &[u8]) -> Location {
        let mut parts = path.split(|byte| *byte == b'/');
        let mut parts = [(); 5].map(|()| parts.next());
        let location = match &mut parts {
            [Some(b"global"), None, ..] => Some(Location::Global),
            [Some(b"base"), Some(database), None, ..] => number(database)
                .map(|database| Location::Database { tablespace: DEFAULT_TABLESPACE, database }),
            [Some(b"pg_tblspc"), Some(tablespace), None, ..] => number(tablespace).map(Location::Tablespace),
            [Some(b"pg_tblspc"), Some(tablespace), Some(version), Some(database), None]
                if version.starts_with(b"PG_") =>
            {
                let oids = (number(tablespace), number(database));
                match oids {
                    (Some(tablespace), Some(database)) => Some(Location::Database { tablespace, database }),
                    _ => None,
                }
            }
            _ => None,
        };
        location.unwrap_or(Location::Other)
    }

    pub(super) fn holds_relations(self) -> bool {
        matches!(self, Location::Global | Location::Database { .. })
    }
}

const CONFIG_FILES: [&[u8]; 8] = [
    b"postgresql.conf",
    b"postgresql.auto.conf",
    b"pg_hba.conf",
    b"pg_ident.conf",
    b"backup_label",
    b"tablespace_map",
    b"standby.signal",
    b"recovery.signal",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Fork;

    fn kind(path: &str) -> FileKind {
        FileKind::of(&BackupPath::new(path.as_bytes()).unwrap())
    }

    #[test]
    fn paths_say_what_files_are() {
        let relation = |tablespace, database, number, fork, segment| {
            FileKind::Relation(RelationFile { tablespace, database, number, fork, segment })
        };
        assert_eq!(kind("base/5/16384.3"), relation(1663, 5, 16384, Fork::Main, 3));
        assert_eq!(kind("global/1262_fsm"), relation(1664, 0, 1262, Fork::FreeSpaceMap, 0));
        assert_eq!(
            kind("pg_tblspc/16400/PG_18_202506291/5/16401_init"),
            relation(16400, 5, 16401, Fork::Init, 0)
        );
        assert_eq!(
            kind("base/5/t3_16384"),
            FileKind::TemporaryRelation(TemporaryRelationFile { session: 3, number: 16384 })
        );
        for path in ["pg_wal/000000010000000000000001", "pg_wal/archive_status/x.done"] {
            assert_eq!(kind(path), FileKind::Wal);
        }
        assert_eq!(kind("global/pg_control"), FileKind::Control);
        assert_eq!(kind("postgresql.auto.conf"), FileKind::Config);
        for path in [
            "PG_VERSION",
            "base/5/PG_VERSION",
            "base/5/pg_filenode.map",
            "16384",
            "base/16384",
            "base/x/16384",
            "base/5/6/16384",
            "pg_xact/0000",
            "pg_control",
            "conf.d/postgresql.conf",
            "pg_tblspc/16400/16384",
            "pg_tblspc/16400/PG_18_1/16384",
            "pg_tblspc/16400/other/5/16384",
            "pg_wal",
            "log/5/1",
            "base/05/1",
        ] {
            assert_eq!(kind(path), FileKind::Other, "{path}");
        }
    }
}
