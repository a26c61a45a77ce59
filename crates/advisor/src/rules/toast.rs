//! Compression of large values: by another method, where none is permitted, and where rows stay below what TOAST looks at.
//!
//! What a server really does, verified on 15, 16 and 18:
//! * `SET COMPRESSION` and `SET STORAGE` change nothing that is stored. `VACUUM FULL`, `UPDATE … SET c = c` and `INSERT … SELECT c` carry
//!   compressed values over as they are. An expression that makes a new value is compressed anew.
//! * `ALTER COLUMN … TYPE` takes a column's compression back to the default. In one statement with `SET COMPRESSION` it does not, and
//!   the table is written once.
//! * `toast_tuple_target` below 2,032 does not make the server look at shorter rows (`heap_prepare_insert` compares with a
//!   constant): rows that stay below 2 KB are never compressed, whatever it says. So it is not proposed for them.

use super::{Candidate, column_object};
use crate::codecs::rows::{self, Rows};
use crate::edit::{Edit, Recompression};
use crate::finding::{Bytes, Confidence, Finding, Rule};
use crate::heap_page::varlena::{self, Compressor, LONG_HEADER_BYTES, Method};
use crate::layout::heap::PAGE_BYTES;
use crate::report::shown::size;
use crate::snapshot::sample::Place;
use crate::snapshot::{Column, Server, Table, TableKind};
use crate::sql;

/// Values are never compressed in rows that stay below 2 KB. These are long enough to be worth it.
const UNCOMPRESSED_BYTES: std::ops::RangeInclusive<u32> = 200..=2_000;
/// Less is not reported: of the column's bytes, and in bytes of the whole table.
const SAVED_PERCENT_MIN: u64 = 3;
const SAVED_BYTES_MIN: u64 = 1 << 20;
/// Where nothing can be done in SQL, only what is large is said.
const FLAGGED_PERCENT_MIN: u64 = 20;
/// Pages of rows that are looked at.
const PAGES_MAX: usize = 384;

/// What could be done about each column's values.
pub fn candidates(server: &Server, table: &Table) -> Vec<Candidate> {
    let is_own = table.extension.is_none() && matches!(table.kind, TableKind::Table);
    let has_long = |column: &Column| column.length == -1 && matches!(column.storage, 'x' | 'm' | 'e');
    if !is_own || !table.columns.iter().any(has_long) {
        return Vec::new();
    }
    let Some(rows) = rows::of(table, PAGES_MAX) else { return Vec::new() };
    let mut found = Vec::new();
    for (index, column) in table.columns.iter().enumerate() {
        let is_plain = column.generated == ' ' || column.generated == '\0';
        // zson compresses by itself, and its type is EXTERNAL for that.
        if column.is_dropped || !has_long(column) || !is_plain || column.base_type_id == "zson" {
            continue;
        }
        let Some(measured) = Measured::of(table, index, &rows) else { continue };
        match column.storage {
            'e' => found.extend(external(server, table, index, &measured)),
            _ => found.extend(by_lz4(server, table, index, &measured)),
        }
        found.extend(flagged(table, index, &measured));
    }
    found
}

/// A column's sampled values by each method.
struct Measured {
    /// By sampled row, with headers. None: NULL, or it does not pay.
    pglz: Vec<Option<u32>>,
    lz4: Vec<Option<u32>>,
    /// By sampled row, with a header of four bytes. None: NULL.
    raw: Vec<Option<u32>>,
    /// Bytes that are stored of values that are compressed now, and of the same by lz4.
    compressed_now: u64,
    compressed_by_lz4: u64,
    /// Of values that are stored uncompressed in the TOAST table or in rows of more than 2 KB.
    external_now: u64,
    external_by_pglz: u64,
    external_by_lz4: u64,
    /// Of values of 0.2 to 2 KB that are in rows, uncompressed.
    short_now: u64,
    short_by_lz4: u64,
    /// All of the table's, for each that was looked at, times 1,024.
    share: u64,
}

impl Measured {
    /// None: the values are not here, or too few.
    fn of(table: &Table, column: usize, rows: &Rows) -> Option<Measured> {
        let sample = table.sample.as_ref()?;
        let sampled = sample.columns.get(column)?;
        let pages = (table.bytes.main / PAGE_BYTES as u64).max(rows.blocks as u64);
        let count = sample.rows.len();
        let mut found = Measured {
            pglz: vec![None; count],
            lz4: vec![None; count],
            raw: vec![None; count],
            compressed_now: 0,
            compressed_by_lz4: 0,
            external_now: 0,
            external_by_pglz: 0,
            external_by_lz4: 0,
            short_now: 0,
            short_by_lz4: 0,
            share: 1024 * pages / rows.blocks.max(1) as u64,
        };
        let mut compressor = Compressor::new();
        let (mut seen, mut lacking) = (0u64, 0u64);
        for row in &rows.rows {
            let (place, size) = (*sampled.places.get(row.index)?, *sampled.sizes.get(row.index)?);
            let Some(stored) = row.values.get(column).and_then(Option::as_deref) else { continue };
            let Some(data) = raw(table, column, row.index, stored) else {
                lacking += u64::from(size);
                found.raw[row.index] = Some(size);
                continue;
            };
            seen += u64::from(size);
            let mut by = |method| Some(compressor.compress(method, &data)?.len() as u32);
            let (pglz, lz4) = (by(Method::Pglz), by(Method::Lz4));
            let plain = (data.len() + LONG_HEADER_BYTES) as u32;
            found.count(place, size, plain, pglz, lz4);
            (found.pglz[row.index], found.lz4[row.index]) = (pglz, lz4);
            found.raw[row.index] = Some(plain);
        }
        // What is not here might be the larger part, and of another kind.
        (seen > 0 && lacking <= seen / 20).then_some(found)
    }

    fn count(&mut self, place: Place, size: u32, plain: u32, pglz: Option<u32>, lz4: Option<u32>) {
        let (by_pglz, by_lz4) = (u64::from(pglz.unwrap_or(plain)), u64::from(lz4.unwrap_or(plain)));
        let size = u64::from(size);
        match place {
            Place::Pglz | Place::Lz4 | Place::ExternalPglz | Place::ExternalLz4 => {
                self.compressed_now += size;
                self.compressed_by_lz4 += by_lz4;
            }
            Place::External => {
                self.external_now += size;
                self.external_by_pglz += by_pglz;
                self.external_by_lz4 += by_lz4;
            }
            Place::Inline if UNCOMPRESSED_BYTES.contains(&plain) => {
                self.short_now += size;
                self.short_by_lz4 += by_lz4.min(size);
            }
            Place::Inline | Place::Missing | Place::Null => {}
        }
    }

    /// For the whole table.
    fn of_all(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.share) / 1024) as u64
    }

    fn pays(&self, now: u64, after: u64, percent_min: u64) -> bool {
        let saved = now.saturating_sub(after);
        self.of_all(saved) >= SAVED_BYTES_MIN && saved * 100 >= now * percent_min
    }
}

/// A value's data: as it is stored, or else from its text.
fn raw(table: &Table, column: usize, row: usize, stored: &[u8]) -> Option<Vec<u8>> {
    let from_text = || {
        let sampled = table.sample.as_ref()?.columns.get(column)?;
        rows::datum(table.columns.get(column)?, sampled.values.as_ref()?.get(row)?.as_deref()?)
    };
    varlena::raw(stored, 1 << 20).or_else(from_text)
}

/// Values that lz4 makes shorter than they are stored now.
fn by_lz4(server: &Server, table: &Table, index: usize, measured: &Measured) -> Option<Candidate> {
    let (now, after) = (
        measured.compressed_now + measured.external_now,
        measured.compressed_by_lz4 + measured.external_by_lz4,
    );
    let column = table.columns.get(index)?;
    if server.version < 140_000 || !measured.pays(now, after, SAVED_PERCENT_MIN) {
        return None;
    }
    let recompression = Recompression {
        column: index,
        compression: Some("lz4".to_owned()),
        storage: None,
        compressed: measured.lz4.clone(),
        raw: measured.raw.clone(),
    };
    let reason = format!(
        "Sampled values that TOAST keeps compressed or out of line take {now} bytes, and {after} by lz4. It also costs a fraction of pglz's \
         processor time."
    );
    let set = format!("ALTER COLUMN {} SET COMPRESSION lz4", sql::quote_ident(&column.name));
    let title = format!("values that lz4 stores in {} % of their bytes", 100 * after / now.max(1));
    let mut finding = finding(table, column, "lz4", title, reason);
    finding.sql = vec![rewrite(table, column, &set)?];
    finding
        .risks
        .push("The server must be built with lz4 (Debian's, Red Hat's and PGDG's packages are).".to_owned());
    Some(Candidate { finding, edits: vec![Edit::Recompress(recompression)], is_recommended: true })
}

/// Values that would be compressed if their storage permitted it.
fn external(server: &Server, table: &Table, index: usize, measured: &Measured) -> Option<Candidate> {
    let column = table.columns.get(index)?;
    let default = server.settings.get("default_toast_compression").map_or("pglz", String::as_str);
    let is_lz4 = column.compression == 'l' || (column.compression != 'p' && default == "lz4");
    let (compressed, after) = match is_lz4 {
        true => (&measured.lz4, measured.external_by_lz4),
        false => (&measured.pglz, measured.external_by_pglz),
    };
    let now = measured.external_now;
    if !measured.pays(now, after, FLAGGED_PERCENT_MIN) {
        return None;
    }
    let recompression = Recompression {
        column: index,
        compression: None,
        storage: Some("extended".to_owned()),
        compressed: compressed.clone(),
        raw: measured.raw.clone(),
    };
    let reason = format!(
        "The column's storage is EXTERNAL, which forbids compression. Sampled values out of line take {}, and {} compressed.",
        size(now),
        size(after)
    );
    let set = format!("ALTER COLUMN {} SET STORAGE EXTENDED", sql::quote_ident(&column.name));
    let title = format!("uncompressed values that compress to {} %", 100 * after / now.max(1));
    let mut finding = finding(table, column, "storage", title, reason);
    finding.sql = vec![rewrite(table, column, &set)?];
    finding.risks.push(
        "substring() and similar functions read the whole compressed value, but only a part of an EXTERNAL one."
            .to_owned(),
    );
    // Somebody chose EXTERNAL, perhaps for that.
    Some(Candidate { finding, edits: vec![Edit::Recompress(recompression)], is_recommended: false })
}

/// Values that would compress, in rows that TOAST does not look at. Nothing in SQL changes that.
fn flagged(table: &Table, index: usize, measured: &Measured) -> Option<Candidate> {
    let column = table.columns.get(index)?;
    let (now, after) = (measured.short_now, measured.short_by_lz4);
    if !measured.pays(now, after, FLAGGED_PERCENT_MIN) {
        return None;
    }
    let [all, all_after] = [now, after].map(|bytes| measured.of_all(bytes));
    let reason = format!(
        "Values of 0.2 to 2 KB take {all} bytes, and would take {all_after} if each were compressed by lz4. TOAST compresses none of them, because \
         their rows stay below 2 KB; a lower toast_tuple_target does not change that. Pages compressed by cfs, zson for documents, and packing \
         small rows into larger ones do."
    );
    let title = "values of 0.2 to 2 KB, which TOAST never compresses".to_owned();
    let mut finding = finding(table, column, "short", title, reason);
    (finding.cost, finding.risks) = (String::new(), Vec::new());
    Some(Candidate { finding, edits: Vec::new(), is_recommended: false })
}

fn finding(table: &Table, column: &Column, what: &str, title: String, reason: String) -> Finding {
    Finding {
        id: format!("toast:{}.{}.{}:{what}", table.schema, table.name, column.name),
        rule: Rule::Toast,
        object: column_object(table, &column.name),
        title,
        reason,
        bytes: Bytes::default(),
        confidence: Confidence::Measured,
        cost: "Rewrites the table and its indexes under ACCESS EXCLUSIVE: needs space for a second copy, \
            and writes WAL for it."
            .to_owned(),
        risks: vec!["ALTER COLUMN … TYPE is refused if a view or a rule uses the column.".to_owned()],
        sql: Vec::new(),
        proof: None,
        in_proposal: false,
    }
}

/// The statement that changes a setting of the column and makes all its values anew. None: no expression is known that does.
fn rewrite(table: &Table, column: &Column, set: &str) -> Option<String> {
    let name = sql::quote_ident(&column.name);
    let expression = anew(column, &name)?;
    let collation =
        column.collation.as_ref().map_or(String::new(), |collation| format!(" COLLATE {collation}"));
    Some(format!(
        "ALTER TABLE {} ALTER COLUMN {name} TYPE {}{collation} USING {expression}, {set};",
        sql::qualified(&table.schema, &table.name),
        column.type_name
    ))
}

/// An expression that gives the same value as a new datum, which the server compresses anew.
pub fn anew(column: &Column, quoted_name: &str) -> Option<String> {
    let kind = &column.type_name;
    match column.base_type_id.as_str() {
        "text" | "varchar" => Some(format!("({quoted_name} || '')::{kind}")),
        "bytea" => Some(format!("({quoted_name} || ''::bytea)::{kind}")),
        "json" | "xml" => Some(format!("({quoted_name}::text || '')::{kind}")),
        // Through text all of them come back the same, as a dump and restore relies on.
        "jsonb" | "tsvector" | "numeric" => Some(format!("{quoted_name}::text::{kind}")),
        name if name.starts_with('_') => Some(format!("{quoted_name}::text::{kind}")),
        _ => None,
    }
}
