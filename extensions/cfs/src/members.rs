//! Relations that may be compressed, each with the table whose setting it follows, and what that setting is.
//!
//! They have a file and an OID of their own that is none of the server's: so no catalog is among them, nor anything
//! that belongs to one, whatever number its file has.
#![allow(unsafe_code)]

use pgrx::datum::DatumWithOid;
use pgrx::iter::TableIterator;
use pgrx::pg_sys::{self, Oid};
use pgrx::spi::{SpiError, SpiHeapTupleData};
use pgrx::{PgSqlErrorCode as Code, Spi, name, pg_extern};
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::convert::{self, FileForm};
use pgshrink_cfs_server::policy::Settings;
use pgshrink_cfs_server::setting::Setting;
use pgshrink_cfs_server::{Problem, server};

use crate::targets::{self, FIRST_OID};
use crate::{functions, report, settings};

/// Forks that are converted: main and free-space map.
const FORKS: [u8; 2] = [0, 1];

/// A relation.
pub struct Member {
    /// Itself.
    pub relation: Oid,
    /// The table that it is, or belongs to.
    pub table: Oid,
    /// The number of its file.
    pub file: Oid,
    /// Where that is.
    pub tablespace: Oid,
    /// What its setting may come from.
    pub settings: Settings,
}

/// Which of a database's relations.
#[derive(Clone, Copy)]
pub enum Which<'a> {
    /// Those behind this one.
    After(Oid),
    /// These.
    These(&'a [Oid]),
    /// Those of a table, or of all partitions of one.
    Of(Oid),
}

/// $1: relations or null; $2: a table or null; $3: only those behind; $4: the first OID that is none of the server's.
const QUERY: &str = "
WITH labels AS MATERIALIZED (
    SELECT l.objoid, l.label FROM pg_catalog.pg_seclabel l
    WHERE l.provider = 'cfs' AND l.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND l.objsubid = 0),
tables AS MATERIALIZED (
    SELECT c.oid, c.reltoastrelid, c.relispartition FROM pg_catalog.pg_class c
    WHERE c.oid >= $4 AND c.relkind IN ('r', 'm') AND c.relpersistence IN ('p', 'u')
        AND ($2 IS NULL OR c.oid = $2 OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree($2) t))),
heaps AS (
    SELECT t.oid, t.oid AS owner, t.relispartition FROM tables t
    UNION ALL SELECT t.reltoastrelid, t.oid, t.relispartition FROM tables t WHERE t.reltoastrelid <> 0),
files AS (
    SELECT h.oid, h.owner, h.relispartition FROM heaps h
    UNION ALL SELECT i.indexrelid, h.owner, h.relispartition
    FROM pg_catalog.pg_index i JOIN heaps h ON h.oid = i.indrelid)
SELECT f.oid, f.owner, c.relfilenode, c.reltablespace, own.label,
    CASE WHEN f.relispartition AND own.label IS NULL AND EXISTS (SELECT FROM labels) THEN (
        SELECT l.label FROM pg_catalog.pg_partition_ancestors(f.owner) WITH ORDINALITY a (relid, n)
        JOIN labels l ON l.objoid = a.relid WHERE a.relid <> f.owner ORDER BY a.n LIMIT 1) END
FROM files f JOIN pg_catalog.pg_class c ON c.oid = f.oid LEFT JOIN labels own ON own.objoid = f.owner
WHERE f.oid >= $4 AND f.oid > coalesce($3, 0) AND ($1 IS NULL OR f.oid = ANY ($1))
    AND c.relfilenode <> 0 AND NOT c.relisshared AND c.relkind IN ('r', 'm', 't', 'i')
ORDER BY f.oid";

/// The tablespace of the session's database.
fn default_tablespace() -> Oid {
    // SAFETY: reads a variable of the session.
    unsafe { pg_sys::MyDatabaseTableSpace }
}

/// Where a relation's files are, of which a catalog says so.
pub fn tablespace_of(in_catalog: Oid) -> Oid {
    if in_catalog == Oid::INVALID { default_tablespace() } else { in_catalog }
}

fn fail(error: &SpiError) -> ! {
    report::error(
        Code::ERRCODE_INTERNAL_ERROR,
        format!("cfs cannot read the catalogs: {error}"),
        "See the server's log for details.",
    )
}

/// Runs a query's part with a snapshot of its own: what was committed meanwhile is seen, also on a standby, where a
/// query that may write is refused.
fn with_snapshot<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: in a transaction; after an ERROR its end takes the snapshot away.
    unsafe { pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot()) };
    let done = run();
    // SAFETY: the one that was pushed here.
    unsafe { pg_sys::PopActiveSnapshot() };
    done
}

/// Relations, in the order of their OIDs.
pub fn find(which: Which<'_>) -> Vec<Member> {
    // SAFETY: reads a variable of the session.
    let database = targets::database_label(unsafe { pg_sys::MyDatabaseId });
    let settings = Settings { node: settings::node_compression(), database, ..Settings::default() };
    let (these, of, after) = match which {
        Which::After(relation) => (None, None, relation),
        Which::These(relations) => (Some(relations.to_vec()), None, Oid::INVALID),
        Which::Of(table) => (None, Some(table), Oid::INVALID),
    };
    let types = (pg_sys::OIDARRAYOID, pg_sys::REGCLASSOID, pg_sys::OIDOID);
    // SAFETY: values of the types that are named.
    let arguments = unsafe {
        [
            these.map_or(DatumWithOid::null_oid(types.0), |these| DatumWithOid::new(these, types.0)),
            of.map_or(DatumWithOid::null_oid(types.1), |of| DatumWithOid::new(of, types.1)),
            DatumWithOid::new(after, types.2),
            DatumWithOid::new(Oid::from(FIRST_OID), types.2),
        ]
    };
    let found: Result<Vec<Member>, SpiError> = with_snapshot(|| {
        Spi::connect(|client| {
            client.select(QUERY, None, &arguments)?.map(|row| member(&row, settings)).collect()
        })
    });
    found.unwrap_or_else(|error| fail(&error))
}

fn member(row: &SpiHeapTupleData<'_>, settings: Settings) -> Result<Member, SpiError> {
    let oid = |at| Ok::<_, SpiError>(row.get::<Oid>(at)?.unwrap_or(Oid::INVALID));
    let label = |at| {
        let label = row.get::<String>(at)?;
        Ok::<_, SpiError>(label.map(|label| targets::understood(&label)))
    };
    let tablespace = tablespace_of(oid(4)?);
    let settings = Settings {
        relation: label(5)?,
        parent: label(6)?,
        tablespace: server::setting(tablespace.to_u32()),
        ..settings
    };
    Ok(Member { relation: oid(1)?, table: oid(2)?, file: oid(3)?, tablespace, settings })
}

/// Whether a relation of the session's database has a label.
pub fn has_labels() -> bool {
    let query = "SELECT EXISTS (SELECT FROM pg_catalog.pg_seclabel l WHERE l.provider = 'cfs'
        AND l.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass)";
    let found = with_snapshot(|| {
        Spi::connect(|client| client.select(query, Some(1), &[])?.first().get_one::<bool>())
    });
    found.unwrap_or_else(|error| fail(&error)).unwrap_or(false)
}

/// How many tables of the session's database have a setting of their own that says plain, or one that says compressed.
pub fn labels_that_say(is_plain: bool) -> i64 {
    let query = "SELECT count(*) FROM pg_catalog.pg_seclabel l WHERE l.provider = 'cfs'
        AND l.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass AND (l.label = 'compression=none') = $1";
    let found = with_snapshot(|| {
        Spi::connect(|client| client.select(query, Some(1), &[is_plain.into()])?.first().get_one::<i64>())
    });
    found.unwrap_or_else(|error| fail(&error)).unwrap_or(0)
}

/// The tablespaces that the session's database may have relations in.
pub fn tablespaces() -> Vec<u32> {
    let query = "SELECT t.oid FROM pg_catalog.pg_tablespace t WHERE t.spcname <> 'pg_global'";
    let found: Result<Vec<u32>, SpiError> = with_snapshot(|| {
        Spi::connect(|client| {
            let rows = client.select(query, None, &[])?;
            rows.map(|row| Ok(row.get::<Oid>(1)?.map_or(0, Oid::to_u32))).collect()
        })
    });
    found.unwrap_or_else(|error| fail(&error))
}

/// Files of a relation that may be converted, with their forms.
pub fn files(tablespace: Oid, file: Oid) -> Result<Vec<(SegmentKey, FileForm)>, Problem> {
    let mut found = Vec::new();
    for fork in FORKS {
        for key in functions::keys(tablespace, file, fork) {
            match convert::form(&key)? {
                Some(form) => found.push((key, form)),
                None => break,
            }
        }
    }
    Ok(found)
}

/// What is in force for relations, and what says so.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cfs_members(
    relations: Vec<Oid>,
) -> TableIterator<
    'static,
    (
        name!(relation, Oid),
        name!(table_oid, Oid),
        name!(setting, Option<String>),
        name!(source, &'static str),
    ),
> {
    let rows = find(Which::These(&relations)).into_iter().map(|member| {
        let (setting, source) = member.settings.in_force();
        let setting = setting.as_ref().map(Setting::compression);
        (member.relation, member.table, setting, source.name())
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}

/// The numbers of files of this database's relations that are compressed, by their tablespace.
#[pg_extern]
fn cfs_container_files() -> TableIterator<'static, (name!(tablespace, Oid), name!(file, Oid))> {
    // SAFETY: reads a variable of the session.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let rows = tablespaces().into_iter().flat_map(|tablespace| {
        let files = convert::container_files(tablespace, database).into_iter();
        files.map(move |file| (Oid::from(tablespace), Oid::from(file)))
    });
    TableIterator::new(rows.collect::<Vec<_>>())
}
