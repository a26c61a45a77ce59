//! Columns, statistics, indexes and foreign keys of tables: a query each, for many tables at a time.

use super::super::Failure;
use super::guarded::IS_BUILTIN;
use super::relations::{Locked, listed};
use super::session::{Session, Tried, text};
use pgshrink_advisor::snapshot::{Column, ColumnStatistics, ForeignKey, Index};
use serde::Deserialize;
use std::collections::BTreeMap;

/// An index as it is found.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct FoundIndex {
    #[serde(flatten)]
    pub(super) index: Index,
    /// Its expressions and its predicate call nothing but what comes with PostgreSQL, so that they may be evaluated: a function of
    /// somebody else would run with the rights of this role.
    pub(super) is_builtin: bool,
}

#[derive(Deserialize)]
struct FoundColumn {
    #[serde(flatten)]
    column: Column,
    number: usize,
}

/// Columns by table, in the order of `attnum`. A table whose numbers have gaps is left out: no server has such a one.
pub(super) fn columns(
    session: &mut Session,
    tables: &[u32],
    locked: &mut Locked,
) -> Result<BTreeMap<u32, Vec<Column>>, Failure> {
    let mut found = locked.in_batches(session, tables, |session, list, _| {
        session.keyed::<FoundColumn>(&COLUMNS.replace(":tables", list).replace(":default", DEFAULT))
    })?;
    // Of locked tables without what has to look into them.
    for held in held(tables, locked).chunks(super::relations::BATCH) {
        let list = listed(held.iter().copied());
        let sql = COLUMNS.replace(":tables", &list).replace(":default", "NULL::text");
        let columns = session.keyed::<FoundColumn>(&sql)?;
        found.extend(session.must(columns)?);
    }
    let mut columns: BTreeMap<u32, Vec<Column>> = BTreeMap::new();
    let mut broken = Vec::new();
    for (table, FoundColumn { column, number }) in found {
        let list = columns.entry(table).or_default();
        list.push(column);
        if list.len() != number {
            broken.push(table);
        }
    }
    broken.iter().for_each(|table| {
        columns.remove(table);
    });
    Ok(columns)
}

/// Indexes by table. Those of locked tables cannot be described.
pub(super) fn indexes(
    session: &mut Session,
    tables: &[u32],
    locked: &mut Locked,
) -> Result<BTreeMap<u32, Vec<FoundIndex>>, Failure> {
    let sql = INDEXES
        .replace(":builtin", IS_BUILTIN)
        .replace(":last_scan", if session.major() >= 16 { LAST_SCAN } else { "NULL::int8" });
    let found = locked.in_batches(session, tables, |session, list, _| {
        session.keyed::<FoundIndex>(&sql.replace(":tables", list))
    })?;
    let mut indexes: BTreeMap<u32, Vec<FoundIndex>> = BTreeMap::new();
    found.into_iter().for_each(|(table, index)| indexes.entry(table).or_default().push(index));
    Ok(indexes)
}

/// All foreign keys, by table.
pub(super) fn foreign_keys(session: &mut Session) -> Result<BTreeMap<u32, Vec<ForeignKey>>, Failure> {
    let found = session.keyed::<ForeignKey>(FOREIGN_KEYS)?;
    let mut keys: BTreeMap<u32, Vec<ForeignKey>> = BTreeMap::new();
    session.must(found)?.into_iter().for_each(|(table, key)| keys.entry(table).or_default().push(key));
    Ok(keys)
}

/// What ANALYZE found, by table and column. Values are not asked for. Of a table with children that of the table alone, where there
/// is any.
pub(super) fn statistics(session: &mut Session) -> Tried<BTreeMap<(u32, String), ColumnStatistics>> {
    let found = session.select(STATISTICS, |row| {
        let statistics: ColumnStatistics = serde_json::from_str(&text(row, 2)).ok()?;
        Some(((text(row, 0).parse().ok()?, text(row, 1)), statistics))
    })?;
    Ok(found.map(|found| found.into_iter().collect()))
}

fn held(tables: &[u32], locked: &Locked) -> Vec<u32> {
    tables.iter().copied().filter(|oid| locked.has(*oid)).collect()
}

/// A domain may be of a domain.
const COLUMNS: &str = "WITH RECURSIVE step(domain, base) AS (
        SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'
        UNION ALL SELECT s.domain, t.typbasetype FROM step s JOIN pg_type t ON t.oid = s.base WHERE t.typtype = 'd'),
    domain(oid, base) AS (
        SELECT s.domain, s.base FROM step s JOIN pg_type t ON t.oid = s.base WHERE t.typtype <> 'd')
    SELECT a.attrelid::int8, row_to_json(r)::text FROM pg_attribute a
    LEFT JOIN pg_type t ON t.oid = a.atttypid AND NOT a.attisdropped
    LEFT JOIN pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN domain d ON d.oid = t.oid LEFT JOIN pg_type b ON b.oid = coalesce(d.base, t.oid)
    CROSS JOIN LATERAL (SELECT a.attname AS name, a.attnum::int4 AS number,
        CASE WHEN a.attisdropped THEN '' ELSE format_type(a.atttypid, a.atttypmod) END AS type_name,
        coalesce(n.nspname, '') AS type_schema, coalesce(t.typname, '') AS type_id,
        coalesce(b.typname, '') AS base_type_id, coalesce(b.typtype, ' ') AS type_kind,
        a.atttypmod AS type_modifier, a.attlen AS length, a.attalign AS alignment, a.attstorage AS storage,
        CASE WHEN a.attcompression IN ('p', 'l') THEN a.attcompression ELSE ' ' END AS compression,
        a.attnotnull AS is_not_null, a.attisdropped AS is_dropped,
        CASE WHEN a.attgenerated IN ('s', 'v') THEN a.attgenerated ELSE ' ' END AS generated,
        CASE WHEN a.attidentity IN ('a', 'd') THEN a.attidentity ELSE ' ' END AS identity,
        a.atthasmissing AS has_missing,
        CASE WHEN a.atthasdef AND NOT a.attisdropped THEN :default END AS \"default\",
        CASE WHEN a.attcollation <> 0 AND a.attcollation <> t.typcollation THEN (
            SELECT format('%I.%I', cn.nspname, co.collname) FROM pg_collation co
            JOIN pg_namespace cn ON cn.oid = co.collnamespace WHERE co.oid = a.attcollation) END AS collation,
        NULL AS statistics) AS r
    WHERE a.attrelid IN (:tables) AND a.attnum > 0 ORDER BY a.attrelid, a.attnum";

const DEFAULT: &str = "(SELECT pg_get_expr(f.adbin, f.adrelid) FROM pg_attrdef f \
    WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum)";

const LAST_SCAN: &str = "extract(epoch FROM pg_stat_get_lastscan(c.oid))::int8";

const INDEXES: &str = "WITH referenced(oid, count) AS (
        SELECT conindid, count(*) FROM pg_constraint WHERE contype = 'f' GROUP BY conindid)
    SELECT i.indrelid::int8, row_to_json(r)::text FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
    LEFT JOIN pg_tablespace ts ON ts.oid = c.reltablespace LEFT JOIN referenced f ON f.oid = c.oid
    CROSS JOIN LATERAL (SELECT c.oid::int8 AS oid, c.relname AS name, am.amname AS access_method,
        pg_get_indexdef(c.oid) AS definition, 0 AS bytes, c.reltuples AS row_estimate,
        coalesce(ts.spcname, '') AS tablespace, coalesce(c.reloptions, '{}') AS options,
        i.indnkeyatts AS key_count, i.indisunique AS is_unique, i.indnullsnotdistinct AS nulls_not_distinct,
        NOT i.indimmediate AS is_deferrable, i.indisprimary AS is_primary, i.indisexclusion AS is_exclusion, i.indisvalid AS is_valid,
        i.indisreplident AS is_replica_identity, i.indisclustered AS is_clustered,
        (SELECT k.conname FROM pg_constraint k WHERE k.conrelid = i.indrelid AND k.conindid = c.oid
            AND k.contype IN ('p', 'u', 'x') LIMIT 1) AS \"constraint\",
        coalesce(f.count, 0) AS referenced_by,
        coalesce((SELECT h.inhparent FROM pg_inherits h WHERE h.inhrelid = c.oid LIMIT 1), 0)::int8 AS parent,
        pg_get_expr(i.indpred, i.indrelid) AS predicate,
        pg_stat_get_numscans(c.oid) AS scans, :last_scan AS last_scan_s,
        :builtin AS is_builtin,
        (SELECT coalesce(json_agg(json_build_object(
            'table_column', i.indkey[k - 1],
            'definition', pg_get_indexdef(c.oid, k, true),
            'operator_class', CASE WHEN on_.nspname IS NULL THEN '' WHEN on_.nspname = 'pg_catalog'
                THEN quote_ident(o.opcname) ELSE format('%I.%I', on_.nspname, o.opcname) END,
            'collation', CASE WHEN k <= i.indnkeyatts THEN i.indcollation[k - 1]::int8 ELSE 0 END,
            'order_flags', CASE WHEN k <= i.indnkeyatts THEN i.indoption[k - 1] ELSE 0 END,
            'length', a.attlen, 'alignment', a.attalign, 'storage', a.attstorage,
            'type_name', format_type(a.atttypid, a.atttypmod),
            'is_deduplicable', am.amname = 'btree' AND EXISTS (
                SELECT FROM pg_amproc p JOIN pg_proc e ON e.oid = p.amproc WHERE p.amprocfamily = o.opcfamily
                AND p.amproclefttype = o.opcintype AND p.amprocrighttype = o.opcintype AND p.amprocnum = 4
                AND (e.proname = 'btequalimage' OR e.proname = 'btvarstrequalimage' AND NOT EXISTS (
                    SELECT FROM pg_collation l WHERE l.oid = i.indcollation[k - 1] AND NOT l.collisdeterministic))),
            'expression_sizes', NULL) ORDER BY k), '[]'::json)
            FROM generate_series(1, i.indnatts) AS k
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k
            LEFT JOIN pg_opclass o ON k <= i.indnkeyatts AND o.oid = i.indclass[k - 1]
            LEFT JOIN pg_namespace on_ ON on_.oid = o.opcnamespace) AS columns) AS r
    WHERE i.indrelid IN (:tables) ORDER BY i.indrelid, i.indexrelid";

const FOREIGN_KEYS: &str = "SELECT k.conrelid::int8, row_to_json(r)::text FROM pg_constraint k
    CROSS JOIN LATERAL (SELECT k.conname AS name, k.conkey AS columns, k.confrelid::int8 AS foreign_table,
        k.confkey AS foreign_columns, pg_get_constraintdef(k.oid) AS definition) AS r
    WHERE k.contype = 'f' ORDER BY k.conrelid, k.oid";

/// The last of several rows counts.
const STATISTICS: &str = "SELECT c.oid::int8, s.attname, json_build_object(
        'null_fraction', s.null_frac, 'distinct', s.n_distinct,
        'common_frequencies', coalesce(s.most_common_freqs, '{}'), 'width', s.avg_width,
        'correlation', s.correlation)::text
    FROM pg_stats s JOIN pg_namespace n ON n.nspname = s.schemaname
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY s.inherited DESC";
