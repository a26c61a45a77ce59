//! Columns of documents that are smaller as zson.

use super::{Candidate, column_object};
use crate::codecs::Means;
use crate::codecs::documents::{self, Documents};
use crate::edit::{Edit, Retype};
use crate::finding::{Bytes, Confidence, Finding, Rule};
use crate::layout::{Alignment, Column};
use crate::snapshot::{Snapshot, Table, TableKind};
use crate::sql;

/// Tables below are not worth a dictionary.
const BYTES_MIN: u64 = 1 << 20;

/// One for each column of documents whose encoded documents are a tenth shorter than what is stored of them. The simulation
/// says what becomes of the table.
pub fn candidates(snapshot: &Snapshot, table: &Table, means: &Means<'_>) -> Vec<Candidate> {
    let is_own = table.extension.is_none() && table.kind == TableKind::Table && !table.is_partition;
    if !is_own || table.total_bytes() < BYTES_MIN {
        return Vec::new();
    }
    let columns = (0..table.columns.len()).filter(|column| documents::is_documents(table, *column));
    columns.filter_map(|column| candidate(snapshot, table, column, means)).collect()
}

fn candidate(snapshot: &Snapshot, table: &Table, column: usize, means: &Means<'_>) -> Option<Candidate> {
    let of = table.columns.get(column)?;
    let sample = table.sample.as_ref()?;
    // A generated column's expression would have to give zson.
    if of.generated != ' ' && of.generated != '\0' {
        return None;
    }
    let documents = Documents::of(table, column, means)?;
    let retype = retype(snapshot, table, column, &documents)?;
    let stored: u64 = sample.columns.get(column)?.sizes.iter().map(|size| u64::from(*size)).sum();
    let encoded: u64 = retype.images.iter().flatten().map(|image| image.len() as u64).sum();
    if encoded * 10 > stored * 9 {
        return None;
    }
    let mut sql = Vec::new();
    if !has_extension(snapshot) {
        sql.push("CREATE EXTENSION IF NOT EXISTS zson;".to_owned());
    }
    let profile = profile(table, &of.name);
    sql.push(format!("SELECT {}", learn(table, &of.name, &profile)));
    sql.push(format!(
        "ALTER TABLE {} ALTER COLUMN {} TYPE {};",
        sql::qualified(&table.schema, &table.name),
        sql::quote_ident(&of.name),
        type_name(&profile)
    ));
    let finding = finding(table, &of.name, sql, stored, encoded);
    Some(Candidate { finding, edits: vec![Edit::Retype(retype)], is_recommended: false })
}

/// A column of documents as zson. None: there is no such column, or training failed.
pub fn retype(snapshot: &Snapshot, table: &Table, column: usize, documents: &Documents) -> Option<Retype> {
    let of = table.columns.get(column)?;
    let images = documents.encoded(&table.sample.as_ref()?.rows)?;
    let profile = profile(table, &of.name);
    let schema = snapshot.server.extension_schemas.get("zson").map_or("public", String::as_str);
    let schema = sql::quote_ident(schema);
    let mut first = Vec::new();
    if !has_extension(snapshot) {
        first.push(format!("CREATE EXTENSION IF NOT EXISTS zson SCHEMA {schema};"));
    }
    first.push(format!("SELECT {schema}.{}", learn(table, &of.name, &profile)));
    Some(Retype {
        column,
        type_name: format!("{schema}.{}", type_name(&profile)),
        prepare: Vec::new(),
        first,
        using: sql::quote_ident(&of.name),
        layout: Column {
            name: of.name.clone(),
            length: None,
            alignment: Alignment::Int,
            is_packable: true,
            is_not_null: of.is_not_null,
            is_dropped: false,
        },
        images,
        proof: String::new(),
    })
}

fn has_extension(snapshot: &Snapshot) -> bool {
    snapshot.server.extensions.contains_key("zson")
}

fn type_name(profile: &str) -> String {
    format!("zson({})", sql::quote_literal(profile))
}

/// The call that trains a dictionary on a column.
fn learn(table: &Table, column: &str, profile: &str) -> String {
    format!(
        "zson_learn({}, {}, {});",
        sql::quote_literal(&sql::qualified(&table.schema, &table.name)),
        sql::quote_literal(column),
        sql::quote_literal(profile)
    )
}

/// The id of the finding of a column.
pub fn id(table: &Table, column: &str) -> String {
    format!("zson:{}.{}.{column}", table.schema, table.name)
}

fn finding(table: &Table, column: &str, sql: Vec<String>, stored: u64, encoded: u64) -> Finding {
    let percent = |part: u64, of: u64| 100 * part / of.max(1);
    Finding {
        id: id(table, column),
        rule: Rule::Zson,
        object: column_object(table, column),
        title: format!("documents that zson stores in {} % of their bytes", percent(encoded, stored)),
        reason: format!(
            "Sampled documents take {stored} bytes as they are stored, and {encoded} as zson, by zstd:3 with dictionaries that were trained on \
             other documents of the column. TOAST compresses each document alone, and only in rows of more than 2 KB."
        ),
        bytes: Bytes::default(),
        confidence: Confidence::Measured,
        cost: "ALTER TABLE rewrites the table under ACCESS EXCLUSIVE: it needs space for a second copy, \
            and writes WAL for it. COMMIT after zson_learn, and then convert: documents written in the \
            same transaction do not use the dictionary."
            .to_owned(),
        risks: vec![
            "Reading a document costs a decompression: 0.2 to 2 microseconds more than uncompressed jsonb \
             in memory, a third of that with zson_set_codec(profile, 'lz4')."
                .to_owned(),
            "Where all data is in memory, up to a third fewer updates a second.".to_owned(),
            "pg_typeof returns zson; drivers that do not know the type get text; the extension's schema \
             has to be on the search path where operators are used."
                .to_owned(),
            "Indexes with jsonb_path_ops have to be dropped first, and recreated with zson_path_ops."
                .to_owned(),
            "The extension has to be installed on the server and on all its standbys.".to_owned(),
        ],
        sql,
        proof: None,
        in_proposal: false,
    }
}

/// Documents of one kind share a profile: its name is the table's, with the column's where there are several.
fn profile(table: &Table, column: &str) -> String {
    let count = (0..table.columns.len()).filter(|column| documents::is_documents(table, *column)).count();
    if count > 1 { format!("{}_{column}", table.name) } else { table.name.clone() }
}
