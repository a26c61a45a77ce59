//! What was seen of a database: catalogs, sizes, counters and sampled rows.
//!
//! A snapshot is all that advice is made from: the same file gives the same advice. The shell fills it, [`Snapshot::parse`] reads
//! a file that somebody saved and may have edited, so nothing in it is believed: lists that belong together are
//! checked for their lengths, and what is missing is NULL.
//!
//! The file is JSON; `docs/operating/advisor.md` says what is in it.

mod check;
pub mod definition;
pub mod sample;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use sample::Sample;

/// Of this version of the file.
pub const FORMAT: u32 = 1;

/// A database as it was at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`FORMAT`].
    pub format: u32,
    /// When it was begun, in seconds since 1970.
    pub taken_s: i64,
    /// The server and its settings.
    pub server: Server,
    /// How rows were sampled.
    pub sampling: Sampling,
    /// Tables, materialized views, partitioned and foreign tables, by OID. No catalogs, no TOAST tables.
    pub tables: Vec<Table>,
    /// Tables of `pg_catalog` that have more than 1 MB, by OID.
    pub catalogs: Vec<CatalogTable>,
    /// What could not be seen, and what it would take.
    pub unseen: Vec<Unseen>,
}

/// A server, as far as it concerns sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// `server_version_num`: 150018 for 15.18.
    pub version: u32,
    /// `current_database()`.
    pub database: String,
    /// `pg_database_size` of it, in bytes. None: not permitted.
    pub database_bytes: Option<u64>,
    /// Of all databases whose size may be asked for, in bytes.
    pub databases_bytes: Option<u64>,
    /// `pg_is_in_recovery()`.
    pub is_standby: bool,
    /// `server_encoding`.
    pub encoding: String,
    /// `pg_settings.setting` by name, of those that matter: see the collector.
    pub settings: BTreeMap<String, String>,
    /// Installed extensions: name to version.
    pub extensions: BTreeMap<String, String>,
    /// Installed extensions: name to schema.
    #[serde(default)]
    pub extension_schemas: BTreeMap<String, String>,
    /// Since when the counters count (`pg_stat_database.stats_reset`), in seconds since 1970.
    pub counting_since_s: Option<i64>,
    /// Whether the role is a superuser.
    pub is_superuser: bool,
    /// The oldest transaction in use that keeps rows from being removed, in transactions back.
    pub oldest_xmin_age: Option<u64>,
}

/// How rows were sampled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Bytes of values that one table may give.
    pub table_bytes_max: u64,
    /// Bytes of values that all tables may give.
    pub total_bytes_max: u64,
    /// Tables with fewer bytes have no sample.
    pub table_bytes_min: u64,
    /// Whether values and pages are here, or sizes alone.
    pub has_values: bool,
    /// Tables left out because they are smaller than that, and their bytes.
    pub small_tables: u64,
    /// Their bytes with indexes and TOAST.
    pub small_bytes: u64,
}

/// Something that could not be seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unseen {
    /// What: `public.orders`, `raw pages`.
    pub what: String,
    /// Why: the server's error, or the right that is missing.
    pub why: String,
    /// What to do about it: a GRANT, an extension. May be empty.
    pub remedy: String,
}

/// What a table is: `pg_class.relkind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableKind {
    /// `r`
    #[default]
    Table,
    /// `m`
    MaterializedView,
    /// `p`: has no rows of its own.
    Partitioned,
    /// `f`: has no storage here.
    Foreign,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// `pg_class.oid`.
    pub oid: u32,
    /// Name of the schema, as it is (not quoted).
    pub schema: String,
    /// Name, as it is (not quoted).
    pub name: String,
    /// What it is.
    pub kind: TableKind,
    /// Name of the owner.
    pub owner: String,
    /// `pg_class.relpersistence` is `u`.
    pub is_unlogged: bool,
    /// The extension that it belongs to, if any: it is not to be changed.
    pub extension: Option<String>,
    /// Access method: `heap`. Empty for partitioned and foreign tables.
    pub access_method: String,
    /// Tablespace; empty for the database's.
    pub tablespace: String,
    /// `pg_class.reloptions` of the table: `fillfactor=90`.
    pub options: Vec<String>,
    /// OID of the partitioned or inherited parent; 0 for none.
    pub parent: u32,
    /// It has children by inheritance or partitioning.
    pub has_children: bool,
    /// It is a partition (`relispartition`).
    pub is_partition: bool,
    /// `pg_class.reltuples`; negative: never analyzed.
    pub row_estimate: f64,
    /// The sizes of its files, in bytes.
    pub bytes: ForkBytes,
    /// Its TOAST table.
    pub toast: Option<Toast>,
    /// By `attnum`, dropped ones included, without gaps: index 0 is attnum 1.
    pub columns: Vec<Column>,
    /// Its indexes by OID.
    pub indexes: Vec<Index>,
    /// Foreign keys from it to others.
    pub foreign_keys: Vec<ForeignKey>,
    /// Counters of `pg_stat_all_tables`.
    pub activity: Activity,
    /// Sampled rows; none for small, empty, unreadable, partitioned and foreign tables.
    pub sample: Option<Sample>,
    /// What a rewrite must carry over; of tables that have a sample.
    pub definition: Option<definition::Definition>,
    /// Of a partitioned table: `attnum`s of the partition key (`pg_partitioned_table.partattrs`), 0 for an expression. None: no
    /// partitioned table, or not known; the types of its columns are then left alone.
    #[serde(default)]
    pub partition_key: Option<Vec<i16>>,
}

/// Sizes of a relation's forks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkBytes {
    /// Pages.
    pub main: u64,
    /// Free space map.
    pub fsm: u64,
    /// Visibility map.
    pub vm: u64,
}

impl ForkBytes {
    /// All of them.
    pub fn total(self) -> u64 {
        self.main.saturating_add(self.fsm).saturating_add(self.vm)
    }
}

/// A TOAST table with its index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toast {
    /// `pg_class.oid`.
    pub oid: u32,
    /// The table's files.
    pub bytes: ForkBytes,
    /// Its index's file.
    pub index_bytes: u64,
}

/// A column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// `attname`; of a dropped column the server's placeholder.
    pub name: String,
    /// `format_type(atttypid, atttypmod)`: `character varying(40)`.
    pub type_name: String,
    /// Schema of the type.
    pub type_schema: String,
    /// `pg_type.typname`, of a domain that of the domain: `varchar`, `int8`, `_text`.
    pub type_id: String,
    /// What a domain is of in the end, else the same as `type_id`.
    pub base_type_id: String,
    /// `pg_type.typtype` of the base type: `b`, `c`, `e`, `r`, `m`.
    pub type_kind: char,
    /// `atttypmod`.
    pub type_modifier: i32,
    /// `attlen`: bytes, -1 for varlena, -2 for cstring.
    pub length: i16,
    /// `attalign`.
    pub alignment: char,
    /// `attstorage`: `p`, `m`, `e`, `x`.
    pub storage: char,
    /// `attcompression`: `p`, `l`, or a blank for the server's default.
    pub compression: char,
    /// `attnotnull`.
    pub is_not_null: bool,
    /// `attisdropped`.
    pub is_dropped: bool,
    /// `attgenerated` is `s`: a stored generated column. PostgreSQL 18's virtual ones (`v`) have no bytes.
    pub generated: char,
    /// `attidentity`: `a`, `d`, or a blank.
    pub identity: char,
    /// `atthasmissing`: added with a default that no row has stored.
    pub has_missing: bool,
    /// `pg_get_expr` of the default or the generation.
    pub default: Option<String>,
    /// Name of a collation that is not the type's default, quoted with its schema.
    pub collation: Option<String>,
    /// What ANALYZE found, where it was permitted to read it.
    pub statistics: Option<ColumnStatistics>,
}

/// `pg_stats` of a column. Without the values themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ColumnStatistics {
    /// 0 to 1.
    pub null_fraction: f64,
    /// Positive: how many there are; negative: as a fraction of rows.
    pub distinct: f64,
    /// Frequencies of the most common values.
    pub common_frequencies: Vec<f64>,
    /// Average bytes.
    pub width: u32,
    /// Physical against logical order, -1 to 1.
    pub correlation: Option<f64>,
}

/// An index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Index {
    /// `pg_class.oid`.
    pub oid: u32,
    /// Name, as it is. The schema is the table's.
    pub name: String,
    /// Access method: `btree`.
    pub access_method: String,
    /// `pg_get_indexdef`.
    pub definition: String,
    /// `pg_relation_size`.
    pub bytes: u64,
    /// `reltuples`; negative: unknown.
    pub row_estimate: f64,
    /// Tablespace; empty for the database's.
    pub tablespace: String,
    /// `reloptions`.
    pub options: Vec<String>,
    /// Key columns, then INCLUDE columns.
    pub columns: Vec<IndexColumn>,
    /// How many of those are keys.
    pub key_count: usize,
    /// `indisunique`.
    pub is_unique: bool,
    /// `indnullsnotdistinct`.
    pub nulls_not_distinct: bool,
    /// Not `indimmediate`: uniqueness is checked at the end of the statement or transaction (`DEFERRABLE`).
    #[serde(default)]
    pub is_deferrable: bool,
    /// `indisprimary`.
    pub is_primary: bool,
    /// `indisexclusion`.
    pub is_exclusion: bool,
    /// `indisvalid`.
    pub is_valid: bool,
    /// `indisreplident`.
    pub is_replica_identity: bool,
    /// `indisclustered`.
    pub is_clustered: bool,
    /// The constraint behind it.
    pub constraint: Option<String>,
    /// Foreign keys of other tables that need it, by name.
    pub referenced_by: u32,
    /// It belongs to an index of a partitioned table: OID, or 0.
    pub parent: u32,
    /// `pg_get_expr(indpred)`: a partial index.
    pub predicate: Option<String>,
    /// `pg_stat_all_indexes.idx_scan`.
    pub scans: Option<u64>,
    /// `last_idx_scan` of PostgreSQL 16 and newer, in seconds since 1970.
    pub last_scan_s: Option<i64>,
}

/// A column of an index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// `attnum` in the table; 0 for an expression.
    pub table_column: i16,
    /// `pg_get_indexdef(oid, n, true)`.
    pub definition: String,
    /// Operator class, with its schema when it is not `pg_catalog`; empty for INCLUDE columns.
    pub operator_class: String,
    /// Collation: OID, 0 for none.
    pub collation: u32,
    /// `indoption`: 1 DESC, 2 NULLS FIRST.
    pub order_flags: i16,
    /// `attlen` in the index.
    pub length: i16,
    /// `attalign` in the index.
    pub alignment: char,
    /// `attstorage` in the index.
    pub storage: char,
    /// `format_type` in the index.
    pub type_name: String,
    /// The operator class deduplicates: `equalimage` gives true.
    pub is_deduplicable: bool,
    /// Sizes of sampled rows' values where it is an expression, in the rows' order, as they are stored in a row: with a header of one
    /// byte where that is enough. Of columns of the table they are in the sample.
    pub expression_sizes: Option<Vec<Option<u32>>>,
    /// The values themselves as text, in the same order; None for NULL, and for what is too long. Without them duplicates of the expression are not known.
    #[serde(default)]
    pub expression_values: Option<Vec<Option<String>>>,
}

/// A foreign key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Name of the constraint.
    pub name: String,
    /// `attnum`s here.
    pub columns: Vec<i16>,
    /// OID of the table that it refers to.
    pub foreign_table: u32,
    /// `attnum`s there.
    pub foreign_columns: Vec<i16>,
    /// `pg_get_constraintdef`. Empty: not known; its columns are then left alone.
    #[serde(default)]
    pub definition: String,
}

/// Counters of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// `n_tup_ins`
    pub inserted: u64,
    /// `n_tup_upd`
    pub updated: u64,
    /// `n_tup_hot_upd`
    pub updated_hot: u64,
    /// `n_tup_del`
    pub deleted: u64,
    /// `n_live_tup`
    pub live_rows: u64,
    /// `n_dead_tup`
    pub dead_rows: u64,
    /// `seq_scan` and `idx_scan`.
    pub scans: u64,
    /// The later of `last_vacuum` and `last_autovacuum`, in seconds since 1970.
    pub last_vacuum_s: Option<i64>,
    /// The later of `last_analyze` and `last_autoanalyze`.
    pub last_analyze_s: Option<i64>,
    /// `n_ins_since_vacuum`
    pub inserted_since_vacuum: u64,
    /// `n_mod_since_analyze`
    pub modified_since_analyze: u64,
    /// `age(relfrozenxid)`
    pub frozen_age: u64,
}

/// A catalog of the database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatalogTable {
    /// Its name in `pg_catalog`.
    pub name: String,
    /// Pages of the table, its TOAST table and its indexes, in bytes.
    pub bytes: u64,
    /// Of the table's own pages.
    pub main_bytes: u64,
    /// `reltuples`.
    pub row_estimate: f64,
    /// `n_dead_tup`.
    pub dead_rows: u64,
    /// Bytes of a row on average, from the statistics of its columns.
    pub row_bytes: Option<u32>,
}

/// Why a file is not a snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No JSON, or not of this shape.
    #[error("not a snapshot: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Of another version.
    #[error("a snapshot of format {found}, expected {FORMAT}: take a new one with this version of pgshrink")]
    Format {
        /// What it says.
        found: u32,
    },
    /// Lists that do not fit together.
    #[error("a damaged snapshot: {table}: {what}: {found}, expected {expected}")]
    Inconsistent {
        /// `schema.name`
        table: String,
        /// Which list.
        what: String,
        /// Its length.
        found: usize,
        /// What it should be.
        expected: usize,
    },
    /// Two tables are one.
    #[error("a damaged snapshot: {table} has the OID {oid} of another table")]
    Twice {
        /// `schema.name`
        table: String,
        /// Of both.
        oid: u32,
    },
    /// More than a server can have.
    #[error("a damaged snapshot: {what}: {found} bytes, expected {most} at most")]
    TooMuch {
        /// Whose bytes.
        what: String,
        /// How many there are said to be.
        found: u64,
        /// How many there can be.
        most: u64,
    },
}

impl Snapshot {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn parse(json: &[u8]) -> Result<Snapshot, ReadError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_slice(json)?;
        if head.format != FORMAT {
            return Err(ReadError::Format { found: head.format });
        }
        let snapshot: Snapshot = serde_json::from_slice(json)?;
        check::apart(&snapshot.tables)?;
        snapshot.tables.iter().try_for_each(check::table)?;
        snapshot.catalogs.iter().try_for_each(check::catalog)?;
        Ok(snapshot)
    }

    /// As a file.
    ///
    /// # Errors
    /// None that this type can cause.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// A table by its OID.
    pub fn table(&self, oid: u32) -> Option<&Table> {
        self.tables.iter().find(|table| table.oid == oid)
    }
}

impl Table {
    /// Bytes of everything: what `pg_total_relation_size` says.
    pub fn total_bytes(&self) -> u64 {
        let indexes = self.indexes.iter().fold(0u64, |sum, index| sum.saturating_add(index.bytes));
        let toast = self.toast.map_or(0, |toast| toast.bytes.total().saturating_add(toast.index_bytes));
        self.bytes.total().saturating_add(indexes).saturating_add(toast)
    }

    /// `fillfactor` of its options; 100 by default.
    pub fn fillfactor(&self) -> u8 {
        self.option("fillfactor").and_then(|text| text.parse().ok()).unwrap_or(100).clamp(10, 100)
    }

    /// A storage parameter's text.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }
}
