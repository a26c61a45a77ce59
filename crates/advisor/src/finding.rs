//! What is reported: findings, proposals and totals. Their JSON is stable: `docs/operating/advisor.md`.

use crate::plan::parts::Rewrite;
use serde::{Deserialize, Serialize};

/// Format of the JSON report.
pub const REPORT_FORMAT: u32 = 1;

/// Everything that `pgshrink advise` says about a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_FORMAT`].
    pub format: u32,
    /// `current_database()`.
    pub database: String,
    /// The server's version as a number: 150018.
    pub server_version: u32,
    /// When the snapshot was taken, in seconds since 1970.
    pub taken_s: i64,
    /// Sums, with every proposal and finding applied that does not exclude another one.
    pub total: Total,
    /// Each finding alone, the largest saving first.
    pub findings: Vec<Finding>,
    /// For each table with findings that change it: all of them together, simulated as a whole. The largest saving first.
    pub proposals: Vec<Proposal>,
    /// What every codec makes of tables and indexes.
    pub codecs: Vec<RelationCodecs>,
    /// What the whole cluster's backup would take.
    pub backup: Option<BackupEstimate>,
    /// What the gateway saw, if a file of `pgshrink gateway --observe` was given.
    pub egress: Option<EgressSummary>,
    /// In money, if prices were given.
    pub prices: Option<Prices>,
    /// Every sampled table, the largest first, with its row layout.
    pub tables: Vec<TableReport>,
    /// What could not be seen.
    pub unseen: Vec<crate::snapshot::Unseen>,
    /// What was not looked at, in words: small tables.
    pub notes: Vec<String>,
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// Of all tables of the database with indexes and TOAST.
    pub bytes: Bytes,
}

/// Bytes before and after. The three kinds are never added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// On disk, uncompressed: files of tables, indexes and TOAST.
    pub disk: Change,
    /// On disk in a compressed tablespace (cfs, zstd:1). None: nothing was measured.
    pub compressed: Option<Change>,
    /// In memory when all of it is cached: shared buffers hold plain pages, with padding, whatever is below them.
    pub memory: Change,
}

/// A number of bytes now, and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Now.
    pub now: u64,
    /// After the change.
    pub after: u64,
}

impl Change {
    /// What is saved; negative if it costs space.
    pub fn saved(self) -> i64 {
        i64::try_from(self.now)
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(self.after).unwrap_or(i64::MAX))
    }
}

/// The rules, for filters and icons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// Order of columns and padding.
    ColumnOrder,
    /// Dropped columns and the NULL bitmap.
    DroppedColumns,
    /// A smaller type.
    ColumnType,
    /// The same value, or NULL, in nearly all rows.
    ConstantColumn,
    /// Index columns: INCLUDE that is free, partial indexes.
    IndexKeys,
    /// An index that another one replaces.
    DuplicateIndex,
    /// An index that was never used.
    UnusedIndex,
    /// Compression and storage of large values.
    Toast,
    /// Small rows packed into larger ones.
    RowPacking,
    /// Keys of documents as columns.
    DocumentKeys,
    /// Fillfactor and HOT updates.
    Fillfactor,
    /// Space of rows that were deleted or updated.
    Bloat,
    /// Index pages that are not full.
    IndexBloat,
    /// Compressed pages.
    Cfs,
    /// Documents with trained dictionaries.
    Zson,
    /// Catalogs that have grown.
    CatalogBloat,
    /// Autovacuum that does not keep up.
    AutovacuumLag,
    /// Settings: `wal_compression`, `default_toast_compression`.
    Setting,
}

/// How much is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// From catalogs, or from every row.
    Exact,
    /// Measured on sampled rows or pages.
    Measured,
    /// Estimated from statistics or from rows instead of pages.
    Estimated,
}

/// One thing that can be made smaller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable for the same object and rule: `column_order:public.orders`.
    pub id: String,
    /// The rule.
    pub rule: Rule,
    /// What it is about.
    pub object: Object,
    /// In one line, without the object: `12 bytes of padding in each row`.
    pub title: String,
    /// Why, in a few sentences, with figures.
    pub reason: String,
    /// Alone, as if nothing else were changed.
    pub bytes: Bytes,
    /// How much is known.
    pub confidence: Confidence,
    /// What the change costs while it is made: locks, space, WAL.
    pub cost: String,
    /// What may go wrong, or what becomes worse.
    pub risks: Vec<String>,
    /// Statements that make the change alone. Empty: no change is proposed that SQL can make.
    pub sql: Vec<String>,
    /// A query that a full scan answers, and that must give 0 (or the value that the text says) for the finding to hold.
    pub proof: Option<String>,
    /// Whether it is part of its table's proposal.
    pub in_proposal: bool,
}

/// A table, an index, a column, a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Object {
    /// `table`, `index`, `column`, `catalog`, `setting`.
    pub kind: String,
    /// Schema, as it is (not quoted); empty for settings.
    pub schema: String,
    /// Table, or the setting.
    pub name: String,
    /// Column or index, if it is about one.
    pub part: Option<String>,
}

/// All changes of a table together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The table.
    pub object: Object,
    /// Ids of the findings in it.
    pub findings: Vec<String>,
    /// Simulated as a whole.
    pub bytes: Bytes,
    /// Of that, what rebuilding the table as it is would give back: bloat. It is in `bytes` too.
    pub bloat_bytes: i64,
    /// The script, in order. It begins no transaction of its own unless a step says so.
    pub sql: Vec<Step>,
    /// Problems that forbid or hinder the rewrite.
    pub warnings: Vec<String>,
    /// How it is done while the table is in use, if that was asked for. Not in the JSON.
    #[serde(skip)]
    pub online: Option<Online>,
}

/// A proposal that is to keep nobody waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Online {
    /// The rewrite, if the table is to be written anew and can be.
    pub rewrite: Option<Rewrite>,
    /// What is done to the table instead where it cannot be, and everybody waits.
    pub in_place: Vec<Step>,
    /// Why it cannot be.
    pub refusal: Option<String>,
    /// Changes of indexes, each with the index's quoted name: they come last, and not again when the index is gone.
    pub indexes: Vec<(String, Step)>,
}

/// One step of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it does: a comment of one line.
    pub title: String,
    /// Statements, each with its semicolon.
    pub statements: Vec<String>,
    /// The strongest lock: `ACCESS EXCLUSIVE on public.orders, for its duration`. Empty: none that hinders anybody.
    pub lock: String,
}

/// What codecs make of one relation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelationCodecs {
    /// The table or index.
    pub object: Object,
    /// Bytes now.
    pub bytes: u64,
    /// cfs: each algorithm and mode.
    pub pages: Vec<CodecFigure>,
    /// Pages were built from rows, as they could not be read.
    pub is_estimate: bool,
    /// COPY text of the table, per algorithm of the wire.
    pub wire: Vec<CodecFigure>,
    /// Bytes of its COPY text, all rows.
    pub wire_bytes: u64,
    /// Its json and jsonb columns as zson.
    pub documents: Vec<DocumentFigure>,
}

/// One codec on one thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CodecFigure {
    /// `zstd:1`, `zstd:3, columns off`.
    pub codec: String,
    /// Bytes after it, of the whole relation.
    pub bytes: u64,
    /// MB/s of one thread, compressing; measured where the advice was made, so not part of what is the same for the same
    /// snapshot. None: not measured.
    pub compress_mb_s: Option<f64>,
    /// MB/s of one thread, decompressing.
    pub decompress_mb_s: Option<f64>,
}

/// One column of documents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DocumentFigure {
    /// The column.
    pub column: String,
    /// Documents that the dictionary had not seen.
    pub documents: usize,
    /// Bytes of the column's values now, all rows.
    pub bytes: u64,
    /// Bytes with each codec.
    pub codecs: Vec<CodecFigure>,
    /// The table now, and after the column has become zson, simulated. None: it is no heap.
    pub table: Option<Change>,
}

/// What a backup of the cluster would take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackupEstimate {
    /// Bytes of the data directory that a backup reads.
    pub bytes: u64,
    /// A tar compressed by zstd:3.
    pub tar_bytes: u64,
    /// An archive of `pgshrink backup`.
    pub archive_bytes: u64,
}

/// What crossed the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EgressSummary {
    /// Days with figures.
    pub days: u32,
    /// Bytes to clients, uncompressed.
    pub bytes: u64,
    /// What they would have been.
    pub compressed_bytes: u64,
    /// Bytes to servers, uncompressed.
    #[serde(default)]
    pub to_server_bytes: u64,
    /// What they would have been.
    #[serde(default)]
    pub to_server_compressed_bytes: u64,
    /// Bytes of both directions that were measured; the figures above extrapolate them.
    #[serde(default)]
    pub sampled_bytes: u64,
    /// Processor seconds that it would have cost.
    pub cpu_s: f64,
    /// By client, database and day, the largest first.
    pub lines: Vec<EgressLine>,
}

/// One client, database and day.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EgressLine {
    /// `2026-11-27`, UTC.
    pub day: String,
    /// Its address.
    pub client: String,
    /// Its database.
    pub database: String,
    /// Bytes to it.
    pub bytes: u64,
    /// What they would have been.
    pub compressed_bytes: u64,
    /// Bytes to the server.
    #[serde(default)]
    pub to_server_bytes: u64,
    /// What they would have been.
    #[serde(default)]
    pub to_server_compressed_bytes: u64,
    /// Bytes of both directions that were measured.
    #[serde(default)]
    pub sampled_bytes: u64,
    /// Processor seconds, of both directions.
    pub cpu_s: f64,
}

/// Prices and what they make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Per GB (10^9 bytes) and month.
    pub storage_gb_month: Option<f64>,
    /// Per GB.
    pub egress_gb: Option<f64>,
    /// Per GB and month of backups.
    pub backup_gb_month: Option<f64>,
    /// Saved each month by all proposals, on disk.
    pub storage_saved_month: Option<f64>,
    /// Saved each month by cfs on top.
    pub cfs_saved_month: Option<f64>,
    /// Saved each month on the wire, by what the gateway saw.
    pub egress_saved_month: Option<f64>,
    /// Saved each month for one backup that is kept.
    pub backup_saved_month: Option<f64>,
}

/// A table and its rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableReport {
    /// The table.
    pub object: Object,
    /// All of it.
    pub bytes: Bytes,
    /// Rows, extrapolated.
    pub rows: u64,
    /// One sampled row now: of middling length.
    pub row_now: Vec<RowPart>,
    /// The same row after the proposal.
    pub row_after: Vec<RowPart>,
    /// Bytes by what they are.
    pub anatomy: Anatomy,
}

/// What a table's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anatomy {
    /// Values in rows.
    pub data: u64,
    /// Row headers, NULL bitmaps and line pointers.
    pub row_headers: u64,
    /// Between and behind values.
    pub padding: u64,
    /// Page headers and room that the fillfactor or no row fits into.
    pub page_slack: u64,
    /// Dead rows and room that they left.
    pub bloat: u64,
    /// TOAST with its index.
    pub toast: u64,
    /// Indexes.
    pub indexes: u64,
    /// Free space and visibility maps.
    pub maps: u64,
}

/// A piece of a row, in the row's order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowPart {
    /// `header`, `bitmap`, `value`, `padding`, `pointer` (to TOAST), `null` (of no bytes), `dropped` (of no bytes).
    pub kind: String,
    /// Column, for values.
    pub column: String,
    /// Its type.
    pub type_name: String,
    /// First byte in the row.
    pub offset: u32,
    /// Bytes.
    pub bytes: u32,
}
