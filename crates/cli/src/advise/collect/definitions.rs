//! What belongs to tables: [`Definition`]s, by a fixed number of queries for many tables.

use pgshrink_advisor::plan::queries;
use pgshrink_advisor::snapshot::definition::Definition;
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// Tables that one round of queries is for: what it returns stays far below the connection's limit.
const TABLES_MAX: usize = 250;

/// Definitions of these tables, by OID. It needs no rights on them. A table that was dropped or changed while its parts were read
/// has none, so that no script is made for it.
///
/// # Errors
/// When the server or the network fails. The session's settings are as before, unless it was lost.
pub fn definitions(connection: &mut Connection, oids: &[u32]) -> Result<BTreeMap<u32, Definition>, Error> {
    let before = connection.query_params(queries::SETTINGS, &[])?;
    connection.simple_query(queries::SETUP)?;
    let found = oids.chunks(TABLES_MAX).map(|oids| read(connection, oids)).collect::<Result<Vec<_>, _>>();
    let before: Vec<Option<&str>> = (0..before.columns.len()).map(|column| before.text(0, column)).collect();
    connection.query_params(queries::RESTORE, &before)?;
    Ok(found?.into_iter().flatten().collect())
}

fn read(connection: &mut Connection, oids: &[u32]) -> Result<BTreeMap<u32, Definition>, Error> {
    let mut all = BTreeMap::new();
    let mut changed = BTreeSet::new();
    for query in queries::all(oids) {
        for table in connection.simple_query(&query)? {
            for row in 0..table.row_count() {
                let oid = |column| table.text(row, column).and_then(|text| text.parse().ok());
                let (Some(root), Some(oid)) = (oid(0), oid(1)) else { continue };
                let (Some(part), Some(json)) = (table.text(row, 2), table.text(row, 3)) else {
                    changed.insert(root);
                    continue;
                };
                if Definition::take(&mut all, (root, oid, part, json)).is_err() {
                    changed.insert(root);
                }
            }
        }
    }
    all.retain(|oid, definition| !changed.contains(oid) && definition.table().is_some());
    Ok(all)
}
