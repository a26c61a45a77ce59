//! Tables and indexes that are smaller as compressed pages.
//!
//! These findings are about disk in a compressed tablespace alone: the layout of rows stays, and so does memory.

use std::collections::BTreeMap;

use super::Candidate;
use crate::finding::{Bytes, Change, Confidence, Finding, Object, RelationCodecs, Rule};
use crate::report::shown::size;
use crate::snapshot::{Snapshot, Table};
use crate::sql;

/// Less is not reported.
const SAVED_BYTES_MIN: u64 = 1 << 20;
const SAVED_PERCENT_MIN: u64 = 20;
/// The product's default.
const CODEC: &str = "zstd:1";

/// One for each table with what belongs to it; where that does not pay, one for each index that pays by itself.
pub fn candidates(snapshot: &Snapshot, codecs: &[RelationCodecs]) -> Vec<Candidate> {
    let by_object: BTreeMap<&Object, &RelationCodecs> =
        codecs.iter().map(|relation| (&relation.object, relation)).collect();
    let mut found = Vec::new();
    for table in snapshot.tables.iter().filter(|table| table.extension.is_none()) {
        match of_table(table, &by_object) {
            Some(candidate) => found.push(candidate),
            None => found
                .extend(table.indexes.iter().filter_map(|index| of_index(table, &index.name, &by_object))),
        }
    }
    found
}

type ByObject<'r> = BTreeMap<&'r Object, &'r RelationCodecs>;

fn object(table: &Table, kind: &str, part: Option<&str>) -> Object {
    Object {
        kind: kind.to_owned(),
        schema: table.schema.clone(),
        name: table.name.clone(),
        part: part.map(str::to_owned),
    }
}

/// Bytes by the default codec, and whether pages were made of rows. None: it was not measured.
fn compressed(object: &Object, by_object: &ByObject<'_>) -> Option<(u64, bool)> {
    let relation = by_object.get(object)?;
    let figure = relation.pages.iter().find(|figure| figure.codec == CODEC)?;
    Some((figure.bytes, relation.is_estimate))
}

fn pays(change: Change) -> bool {
    let saved = change.now.saturating_sub(change.after);
    saved >= SAVED_BYTES_MIN && saved >= change.now / 100 * SAVED_PERCENT_MIN
}

fn of_table(table: &Table, by_object: &ByObject<'_>) -> Option<Candidate> {
    let (main, is_estimate) = compressed(&object(table, "table", None), by_object)?;
    let now = table.total_bytes();
    // What was not measured counts as it is.
    let mut after = main.saturating_add(table.bytes.fsm).saturating_add(table.bytes.vm);
    let mut unmeasured = 0;
    for index in &table.indexes {
        let found = compressed(&object(table, "index", Some(&index.name)), by_object);
        unmeasured = if found.is_none() { index.bytes.saturating_add(unmeasured) } else { unmeasured };
        after = after.saturating_add(found.map_or(index.bytes, |(bytes, _)| bytes));
    }
    if let Some(toast) = table.toast {
        let found = compressed(&object(table, "toast", None), by_object);
        unmeasured = if found.is_none() { toast.bytes.main.saturating_add(unmeasured) } else { unmeasured };
        let main = found.map_or(toast.bytes.main, |(bytes, _)| bytes);
        let beside = [toast.bytes.fsm, toast.bytes.vm, toast.index_bytes];
        after = beside.into_iter().fold(after.saturating_add(main), u64::saturating_add);
    }
    let change = Change { now, after };
    let sql = vec![
        format!(
            "SELECT cfs_compress_relation({});",
            sql::quote_literal(&sql::qualified(&table.schema, &table.name))
        ),
        format!(
            "SELECT cfs_wait({}, '1 h');",
            sql::quote_literal(&sql::qualified(&table.schema, &table.name))
        ),
    ];
    let kinds = "Its pages, those of its indexes and of its TOAST table";
    let rest = match unmeasured {
        0 => String::new(),
        bytes => format!(" {} of them could not be sampled, and count as incompressible.", size(bytes)),
    };
    let reason = format!(
        "{kinds} were sampled and compressed with zstd:1, the default of cfs, rearranged by column and with a dictionary where that helps: {} become {}.{rest}",
        size(now),
        size(after)
    );
    pays(change).then(|| candidate(object(table, "table", None), change, is_estimate, sql, reason))
}

fn of_index(table: &Table, name: &str, by_object: &ByObject<'_>) -> Option<Candidate> {
    let index = table.indexes.iter().find(|index| index.name == name)?;
    let object = object(table, "index", Some(name));
    let (after, is_estimate) = compressed(&object, by_object)?;
    let change = Change { now: index.bytes, after };
    let quoted_index = format!("{}.{}", sql::quote_ident(&table.schema), sql::quote_ident(name));
    let sql = vec![format!("ALTER INDEX {quoted_index} SET TABLESPACE compressed;")];
    let reason = format!(
        "Its pages were sampled and encoded by zstd:1, the default of cfs: {} become {}. The table itself does not gain enough. The \
         tablespace has to exist: CREATE TABLESPACE compressed LOCATION '/an/empty/directory' WITH (compression = 'zstd:1').",
        size(index.bytes),
        size(after)
    );
    pays(change).then(|| candidate(object, change, is_estimate, sql, reason))
}

fn candidate(
    object: Object,
    change: Change,
    is_estimate: bool,
    sql: Vec<String>,
    reason: String,
) -> Candidate {
    let id = match &object.part {
        Some(part) => format!("cfs:{}.{}.{part}", object.schema, object.name),
        None => format!("cfs:{}.{}", object.schema, object.name),
    };
    let same = Change { now: change.now, after: change.now };
    let saved = change.now.saturating_sub(change.after);
    let finding = Finding {
        id,
        rule: Rule::Cfs,
        object,
        title: format!("pages that zstd:1 makes {} % smaller on disk", u128::from(saved) * 100 / u128::from(change.now.max(1))),
        reason,
        bytes: Bytes { disk: same, compressed: Some(change), memory: same },
        confidence: if is_estimate { Confidence::Estimated } else { Confidence::Measured },
        cost: "Once, shared_preload_libraries = 'cfs' and a restart. Then workers convert the files while the table is used: AccessShareLock for \
               milliseconds, readers and writers of a file wait once for 20 ms at most, and no WAL is written. An index that moves to another \
               tablespace is locked while it is copied."
            .to_owned(),
        risks: vec![
            "Reading a page that is not cached costs a decompression, and writing a page costs a compression. Memory is not saved: shared \
             buffers hold plain pages."
                .to_owned(),
            "A server without the library cannot open compressed files; pg_upgrade fails with them; pg_rewind and pg_checksums need `pgshrink cfs exec`."
                .to_owned(),
            "For PostgreSQL 15 to 18 on Linux x86-64, where libraries may be installed. It is a first \
             version: start with a standby.".to_owned(),
        ],
        sql,
        proof: None,
        in_proposal: false,
    };
    Candidate { finding, edits: Vec::new(), is_recommended: false }
}
