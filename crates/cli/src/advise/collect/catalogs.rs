//! Tables of `pg_catalog` that have become large.

use super::super::Failure;
use super::session::Session;
use pgshrink_advisor::snapshot::CatalogTable;

/// Those with more than 1 MB. Bytes of a row are known where the role may read the statistics: `pg_stats` has those of superusers' tables
/// for superusers.
pub(super) fn catalogs(session: &mut Session) -> Result<Vec<CatalogTable>, Failure> {
    let found = session.documents(CATALOGS)?;
    // Somebody who rewrites a catalog holds it: then there is nothing to be said of catalogs.
    Ok(found.unwrap_or_default())
}

const CATALOGS: &str = "SELECT row_to_json(r)::text FROM (SELECT c.relname AS name,
        pg_total_relation_size(c.oid) AS bytes, pg_relation_size(c.oid) AS main_bytes, c.reltuples AS row_estimate,
        greatest(pg_stat_get_dead_tuples(c.oid), 0) AS dead_rows,
        (SELECT sum(s.avg_width * (1 - s.null_frac))::int8 FROM pg_stats s
            WHERE s.schemaname = 'pg_catalog' AND s.tablename = c.relname AND NOT s.inherited) AS row_bytes
    FROM pg_class c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind = 'r'
    AND c.relpages >= 1) AS r WHERE r.bytes > 1048576 ORDER BY r.name";
