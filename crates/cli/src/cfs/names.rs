//! The names of relations, read from a database's own pg_class file without a server.
//!
//! A best effort for people's eyes: rows are taken by what their hint bits say, and a relation that was
//! rewritten since may be found under its old number too. What cannot be read gives no names, never an error.

use pgshrink_cfs::relation::number;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Oid of pg_class itself (`pg_class.h`).
const PG_CLASS: u32 = 1259;
/// `RELMAPPER_FILEMAGIC` of `relmapper.c`; 16 keeps it.
const MAP_MAGIC: u32 = 0x592717;
const MAPPINGS_MAX: usize = 64;
const PAGE: usize = 8192;

/// A relation's name, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub name: String,
    /// Of the database's own catalogs, their TOAST tables and their indexes: made by initdb.
    pub is_catalog: bool,
    pub is_index: bool,
}

/// Names by tablespace (0: the database's own) and relfilenode.
#[derive(Default)]
pub(crate) struct Names(HashMap<(u32, u32), Named>);

/// `FirstNormalObjectId` of `transam.h`.
const NORMAL_OID_MIN: u32 = 16384;

impl Names {
    /// Of the relations in a database's directory of its own tablespace; shared ones for `global`.
    pub(crate) fn read(database: &Path) -> Names {
        Self::try_read(database).unwrap_or_default()
    }

    fn try_read(database: &Path) -> Option<Names> {
        let map = mappings(&fs::read(database.join("pg_filenode.map")).ok()?)?;
        let is_global = database.file_name()? == "global";
        // Shared relations have their rows in every database's pg_class.
        let home = if is_global { any_database(database)? } else { database.to_owned() };
        let class_map =
            if is_global { mappings(&fs::read(home.join("pg_filenode.map")).ok()?)? } else { map.clone() };
        let mut names = Names::default();
        let file = home.join(class_map.get(&PG_CLASS)?.to_string());
        for page in fs::read(file).ok()?.chunks_exact(PAGE) {
            for row in rows(page) {
                let tablespace = if is_global { 0 } else { row.tablespace };
                let file_number =
                    if row.file_number == 0 { map.get(&row.oid).copied() } else { Some(row.file_number) };
                if let Some(file_number) = file_number {
                    names.0.insert((tablespace, file_number), row.named);
                }
            }
        }
        Some(names)
    }

    /// Of a relation in the database's own tablespace, or in another one by its oid.
    pub(crate) fn get(&self, tablespace: u32, file_number: u32) -> Option<&Named> {
        self.0.get(&(tablespace, file_number))
    }
}

fn any_database(global: &Path) -> Option<std::path::PathBuf> {
    let base = fs::read_dir(global.parent()?.join("base")).ok()?;
    let mut databases: Vec<_> = base.flatten().map(|entry| entry.path()).collect();
    databases.retain(|path| path.file_name().and_then(|name| name.to_str()).and_then(number).is_some());
    databases.sort();
    databases.into_iter().find(|path| path.join("pg_filenode.map").is_file())
}

/// `RelMapFile`: file numbers by oid.
fn mappings(bytes: &[u8]) -> Option<HashMap<u32, u32>> {
    let count = u32_at(bytes, 4)? as usize;
    if u32_at(bytes, 0)? != MAP_MAGIC || count > MAPPINGS_MAX {
        return None;
    }
    (0..count).map(|index| Some((u32_at(bytes, 8 + index * 8)?, u32_at(bytes, 12 + index * 8)?))).collect()
}

struct Row {
    oid: u32,
    named: Named,
    file_number: u32,
    tablespace: u32,
}

/// Rows of pg_class on a heap page: `oid`, `relname`, five more oids, `relfilenode`, `reltablespace`, never
/// null, alike in all majors from 12 on.
fn rows(page: &[u8]) -> impl Iterator<Item = Row> {
    let lower = usize::from(u16_at(page, 12).unwrap_or(0)).min(PAGE);
    (24..lower.saturating_sub(3)).step_by(4).filter_map(|at| {
        let pointer = u32_at(page, at)?;
        let (offset, state, length) = (pointer & 0x7fff, pointer >> 15 & 3, pointer >> 17);
        let tuple = page.get(offset as usize..)?.get(..length as usize)?;
        // LP_NORMAL, and not xmin known to have aborted (HEAP_XMIN_INVALID alone).
        if state != 1 || u16_at(tuple, 20)? & 0x0300 == 0x0200 {
            return None;
        }
        let data = tuple.get(usize::from(*tuple.get(22)?)..)?;
        let name = data.get(4..68)?.split(|byte| *byte == 0).next()?;
        let oid = u32_at(data, 0)?;
        let named = Named {
            name: String::from_utf8_lossy(name).into_owned(),
            is_catalog: oid < NORMAL_OID_MIN,
            is_index: matches!(kind(data), Some(b'i' | b'I')),
        };
        Some(Row { oid, named, file_number: u32_at(data, 88)?, tablespace: u32_at(data, 92)? })
    })
}

/// `relkind`: behind `relpersistence`, and behind `relallfrozen` from 18 on, where the upper half of an oid stands before
/// that.
fn kind(data: &[u8]) -> Option<u8> {
    [114, 118].into_iter().find_map(|at| {
        let is_persistence = matches!(data.get(at)?, b'p' | b'u' | b't');
        data.get(at + 1).copied().filter(|kind| is_persistence && b"riStvmcfpI".contains(kind))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
