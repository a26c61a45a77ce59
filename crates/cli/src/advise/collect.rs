//! Fills a [`Snapshot`] from a live server, which it neither changes nor holds up.
//!
//! ```text
//!   session: one connection, read-only, every query with timeouts
//!   server ▶ relations, sizes ▶ choice ▶ details ▶ for each table: sampler ▶ rows ─┐
//!                                                                  pages ▶ tuple ──┴▶ places ▶ Sample
//! ```
//! Catalogs are read in a few queries for many tables at a time. What cannot be seen, because of a right, a lock or a timeout, is
//! listed with what it would take, and the rest goes on.

mod blocks;
mod catalogs;
mod choice;
pub mod definitions;
mod details;
mod guarded;
mod interrupt;
mod opening;
mod pages;
mod places;
mod relations;
mod rows;
mod sampled;
mod sampler;
mod server;
mod session;
mod tuple;
mod unseen;

pub(super) use choice::Wanted;
pub(super) use session::Session;

use super::Failure;
use crate::cfs::output::Progress;
use details::FoundIndex;
use pgshrink_advisor::snapshot::{self, FORMAT, Sampling, Snapshot, Table, TableKind, Unseen};
use relations::{Locked, Relation, locked_away};
use sampled::Sampler;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};
use unseen::Unseens;

/// Reads what advice needs of the session's database.
pub(super) fn collect(
    session: &mut Session,
    wanted: &Wanted,
    progress: &Progress,
) -> Result<Snapshot, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (server, rights) = server::server(session)?;
    let mut unseen = Unseens::new(&rights.role);
    unseen.extend(rights.unseen(wanted.has_values));
    let mut relations = relations::relations(session)?;
    check_patterns(&server.database, &relations, wanted, &mut unseen)?;
    let mut locked = Locked::look(session)?;
    let index_sizes = relations::measure(session, &mut relations, &mut locked)?;
    let totals = totals(&relations, &index_sizes);
    let foreign_keys = details::foreign_keys(session)?;
    let all: Vec<(&Table, u64)> =
        relations.iter().map(|found| &found.table).zip(totals.iter().copied()).collect();
    let described = choice::described(&all, &foreign_keys, wanted);
    let mut sampling = Sampling {
        table_bytes_max: wanted.table_bytes_max,
        total_bytes_max: wanted.total_bytes_max,
        table_bytes_min: wanted.table_bytes_min,
        has_values: wanted.has_values,
        ..Sampling::default()
    };
    for (table, bytes) in &all {
        if !described.contains(&table.oid) && wanted.names(table) && *bytes > 0 {
            sampling.small_tables += 1;
            sampling.small_bytes = sampling.small_bytes.saturating_add(*bytes);
        }
    }
    let totals: BTreeMap<u32, u64> = all.iter().map(|(table, bytes)| (table.oid, *bytes)).collect();
    relations.retain(|relation| described.contains(&relation.table.oid));
    let mut found = Found { relations, totals, index_sizes, foreign_keys, described };
    let builtin = found.describe(session, &mut locked, &mut unseen)?;
    for relation in found.relations.iter().filter(|relation| locked.has(relation.table.oid)) {
        unseen.push(locked_away(relation));
    }
    let mut sampler = Sampler { session, server: &server, rights: &rights, wanted, builtin };
    let sampled = sampler.candidates(&found, &locked, &mut unseen);
    sampler.sample(&mut found.relations, &sampled, progress, &mut unseen)?;
    let catalogs = catalogs::catalogs(session)?;
    let mut tables: Vec<Table> = found.relations.into_iter().map(|relation| relation.table).collect();
    if wanted.has_values {
        define(session, &mut tables, &mut unseen)?;
    }
    Ok(Snapshot {
        format: FORMAT,
        taken_s: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        server,
        sampling,
        tables,
        catalogs,
        unseen: unseen.done(),
    })
}

/// Refuses to look at nothing because of a typing error.
fn check_patterns(
    database: &str,
    relations: &[Relation],
    wanted: &Wanted,
    unseen: &mut Unseens,
) -> Result<(), Failure> {
    let tables: Vec<&Table> = relations.iter().map(|relation| &relation.table).collect();
    let idle = wanted.idle(&tables);
    if !idle.is_empty() && !tables.iter().any(|table| wanted.names(table)) {
        let reason = "no table in the database matches this name and schema; expected names as \\d shows \
            them, as in --table orders, --table 'sales.order_*' or --schema sales";
        return Err(Failure::new(format!("{} in {database}", idle.join(" ")), reason));
    }
    for pattern in idle {
        unseen.add(pattern, "no table in the database matches this name", "");
    }
    Ok(())
}

/// What a rewrite must carry over, of tables that were sampled.
fn define(session: &mut Session, tables: &mut [Table], unseen: &mut Unseens) -> Result<(), Failure> {
    let sampled = tables.iter().filter(|table| table.sample.is_some());
    let oids: Vec<u32> = sampled.map(|table| table.oid).collect();
    let mut found = match session.definitions(&oids)? {
        Ok(found) => found,
        Err(refusal) => {
            unseen.push(Unseen {
                what: "what belongs to tables".to_owned(),
                why: format!("{refusal}; therefore no scripts are generated"),
                remedy: String::new(),
            });
            return Ok(());
        }
    };
    tables.iter_mut().for_each(|table| table.definition = found.remove(&table.oid));
    Ok(())
}

/// Tables with all that is known of them.
struct Found {
    relations: Vec<Relation>,
    /// Bytes of each with indexes and TOAST.
    totals: BTreeMap<u32, u64>,
    index_sizes: BTreeMap<u32, relations::IndexSize>,
    foreign_keys: BTreeMap<u32, Vec<snapshot::ForeignKey>>,
    described: BTreeSet<u32>,
}

impl Found {
    /// Fills in columns, indexes, keys and statistics. Gives the indexes whose expressions may be evaluated.
    fn describe(
        &mut self,
        session: &mut Session,
        locked: &mut Locked,
        unseen: &mut Unseens,
    ) -> Result<BTreeSet<u32>, Failure> {
        let oids: Vec<u32> = self.described.iter().copied().collect();
        let mut columns = details::columns(session, &oids, locked)?;
        let mut indexes = details::indexes(session, &oids, locked)?;
        let mut statistics = details::statistics(session)?.unwrap_or_else(|refusal| {
            let remedy = format!("GRANT SELECT ON pg_catalog.pg_stats TO {};", unseen.role());
            unseen.add("statistics of columns".to_owned(), refusal.to_string(), remedy);
            BTreeMap::new()
        });
        let mut builtin = BTreeSet::new();
        for relation in &mut self.relations {
            let table = &mut relation.table;
            table.columns = columns.remove(&table.oid).unwrap_or_default();
            for column in &mut table.columns {
                column.statistics = statistics.remove(&(table.oid, column.name.clone()));
            }
            for FoundIndex { mut index, is_builtin } in indexes.remove(&table.oid).unwrap_or_default() {
                index.bytes = self.index_sizes.get(&index.oid).map_or(0, |size| size.bytes);
                let scans = index.scans.unwrap_or(0);
                table.activity.scans = table.activity.scans.saturating_add(scans);
                if is_builtin {
                    builtin.insert(index.oid);
                }
                table.indexes.push(index);
            }
            table.foreign_keys = self.foreign_keys.remove(&table.oid).unwrap_or_default();
        }
        Ok(builtin)
    }

    /// Whether a table is large enough for a sample of its own.
    fn is_large(&self, table: &Table, wanted: &Wanted) -> bool {
        wanted.names(table)
            && self.totals.get(&table.oid).is_some_and(|bytes| *bytes >= wanted.table_bytes_min)
    }
}

fn totals(relations: &[Relation], indexes: &BTreeMap<u32, relations::IndexSize>) -> Vec<u64> {
    let mut of_indexes: BTreeMap<u32, u64> = BTreeMap::new();
    for index in indexes.values() {
        let sum = of_indexes.entry(index.table).or_default();
        *sum = sum.saturating_add(index.bytes);
    }
    let total = |relation: &Relation| {
        let indexes = of_indexes.get(&relation.table.oid).copied().unwrap_or(0);
        relation.table.total_bytes().saturating_add(indexes)
    };
    relations.iter().map(total).collect()
}

/// Whether a table can have rows of its own in files of this server.
fn has_rows(table: &Table) -> bool {
    matches!(table.kind, TableKind::Table | TableKind::MaterializedView) && table.bytes.main > 0
}
