//! Tables, and the sizes of everything that belongs to them.
//!
//! Functions that look into a relation (`pg_relation_size`, `pg_get_expr`) wait for who holds it in ACCESS EXCLUSIVE mode. So
//! [`Locked`] has those that are held, queries for many leave them out, and a query that waited in spite of it is made
//! smaller until the one that it waits for is known.

use super::super::Failure;
use super::session::{RefusalKind, Session, Tried};
use pgshrink_advisor::snapshot::{ForkBytes, Table, Unseen};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Tables in one query.
pub(super) const BATCH: usize = 1_000;

/// A table as it is found, without what costs a query of its own.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Relation {
    #[serde(flatten)]
    pub(super) table: Table,
    /// Quoted, with its schema.
    pub(super) sql_name: String,
    pub(super) can_select: Option<bool>,
    pub(super) can_use_schema: Option<bool>,
    /// Policies hide rows from this role.
    pub(super) hides_rows: Option<bool>,
    /// Of a materialized view.
    pub(super) is_populated: bool,
}

/// Relations that somebody holds, or wants, in ACCESS EXCLUSIVE mode: tables and indexes.
#[derive(Debug, Default)]
pub(super) struct Locked {
    oids: BTreeSet<u32>,
}

/// All tables, by OID.
pub(super) fn relations(session: &mut Session) -> Result<Vec<Relation>, Failure> {
    let found = session.documents(RELATIONS)?;
    session.must(found)
}

impl Locked {
    /// Those of now.
    pub(super) fn look(session: &mut Session) -> Result<Locked, Failure> {
        let found = session.select(LOCKED, |row| std::str::from_utf8(row.get(0)?).ok()?.parse().ok())?;
        Ok(Locked { oids: session.must(found)?.into_iter().collect() })
    }

    pub(super) fn has(&self, oid: u32) -> bool {
        self.oids.contains(&oid)
    }

    /// For SQL, never empty.
    fn list(&self) -> String {
        listed(self.oids.iter().copied())
    }

    /// Runs a query for many tables, some at a time. `sql` gets a list of OIDs. Tables that turn out to be locked are added
    /// to those that are.
    pub(super) fn in_batches<T>(
        &mut self,
        session: &mut Session,
        oids: &[u32],
        run: impl Fn(&mut Session, &str, &Locked) -> Tried<Vec<T>>,
    ) -> Result<Vec<T>, Failure> {
        let mut found = Vec::new();
        let mut left: Vec<Vec<u32>> = oids.chunks(BATCH).rev().map(<[u32]>::to_vec).collect();
        while let Some(batch) = left.pop() {
            let free: Vec<u32> = batch.into_iter().filter(|oid| !self.has(*oid)).collect();
            if free.is_empty() {
                continue;
            }
            match run(session, &listed(free.iter().copied()), self)? {
                Ok(rows) => found.extend(rows),
                // Whoever locked one of them in the meantime can be seen. Who is gone again cannot: the halves are tried.
                Err(refusal) if refusal.kind == RefusalKind::Locked => {
                    let known = self.oids.len();
                    self.oids.append(&mut Locked::look(session)?.oids);
                    match free.split_at_checked(free.len() / 2) {
                        _ if self.oids.len() > known => left.push(free),
                        Some((first, second)) if !first.is_empty() => {
                            left.extend([second.to_vec(), first.to_vec()]);
                        }
                        _ => self.oids.extend(free),
                    }
                }
                Err(refusal) => match free.split_at_checked(free.len() / 2) {
                    Some((first, second)) if !first.is_empty() && refusal.kind == RefusalKind::TimedOut => {
                        left.extend([second.to_vec(), first.to_vec()]);
                    }
                    _ => return Err(Failure::new(session.place(), refusal)),
                },
            }
        }
        Ok(found)
    }
}

/// Fills in the sizes of tables and their TOAST tables. Gives those of indexes, by OID.
pub(super) fn measure(
    session: &mut Session,
    relations: &mut [Relation],
    locked: &mut Locked,
) -> Result<BTreeMap<u32, IndexSize>, Failure> {
    let oids: Vec<u32> = relations.iter().map(|relation| relation.table.oid).collect();
    let seen = locked.in_batches(session, &oids, |session, list, locked| {
        session.documents::<Size>(&SIZES.replace(":tables", list).replace(":locked", &locked.list()))
    })?;
    // Sizes of locked tables are those of the last VACUUM or ANALYZE: nothing has to be asked of the relation.
    let held: Vec<u32> = oids.iter().copied().filter(|oid| locked.has(*oid)).collect();
    let mut sizes = seen;
    for held in held.chunks(BATCH) {
        let list = listed(held.iter().copied());
        let found = session.documents::<Size>(&SIZES_THEN.replace(":tables", &list))?;
        sizes.extend(session.must(found)?);
    }
    let place: BTreeMap<u32, usize> = oids.iter().enumerate().map(|(at, oid)| (*oid, at)).collect();
    let mut indexes = BTreeMap::new();
    for size in sizes {
        let Some(relation) = place.get(&size.table).and_then(|at| relations.get_mut(*at)) else { continue };
        let bytes =
            ForkBytes { main: size.main.unwrap_or(0), fsm: size.fsm.unwrap_or(0), vm: size.vm.unwrap_or(0) };
        match (size.part.as_str(), &mut relation.table.toast) {
            ("table", _) => relation.table.bytes = bytes,
            ("toast", Some(toast)) => toast.bytes = bytes,
            // There is one that counts; while it is made anew, two.
            ("toast index", Some(toast)) => toast.index_bytes += bytes.total(),
            ("index", _) => {
                indexes.insert(size.oid, IndexSize { table: size.table, bytes: bytes.main });
            }
            _ => {}
        }
    }
    Ok(indexes)
}

/// How large an index is, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexSize {
    pub(super) table: u32,
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
struct Size {
    table: u32,
    oid: u32,
    part: String,
    /// NULL of a relation that was dropped meanwhile.
    main: Option<u64>,
    fsm: Option<u64>,
    vm: Option<u64>,
}

/// What somebody is told of a table that was locked.
pub(super) fn locked_away(relation: &Relation) -> Unseen {
    Unseen {
        what: shown(&relation.table),
        why: "another session holds or waits for an ACCESS EXCLUSIVE lock on it; its sizes are from its \
            last VACUUM or ANALYZE"
            .to_owned(),
        remedy: "run it again after that transaction has ended".to_owned(),
    }
}

/// `schema.name`, for people.
pub(super) fn shown(table: &Table) -> String {
    format!("{}.{}", table.schema, table.name)
}

/// For `IN`. Never empty: no relation has the OID 0.
pub(super) fn listed(oids: impl Iterator<Item = u32>) -> String {
    let mut list = String::from("0");
    for oid in oids {
        list.push_str(", ");
        list.push_str(&oid.to_string());
    }
    list
}

/// Tables in `:tables` with all that belongs to them.
macro_rules! parts {
    () => {
        "WITH part(\"table\", oid, part) AS (
            SELECT c.oid, c.oid, 'table' FROM pg_class c WHERE c.oid IN (:tables) AND c.relkind IN ('r', 'm')
            UNION ALL SELECT c.oid, c.reltoastrelid, 'toast' FROM pg_class c
                WHERE c.oid IN (:tables) AND c.reltoastrelid <> 0
            UNION ALL SELECT c.oid, i.indexrelid, 'toast index' FROM pg_class c
                JOIN pg_index i ON i.indrelid = c.reltoastrelid
                WHERE c.oid IN (:tables) AND c.reltoastrelid <> 0
            UNION ALL SELECT i.indrelid, i.indexrelid, 'index' FROM pg_index i WHERE i.indrelid IN (:tables)) "
    };
}

const LOCKED: &str = "SELECT DISTINCT relation::int8 FROM pg_locks \
    WHERE locktype = 'relation' AND mode = 'AccessExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid() \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Nothing in it looks into a relation, so it waits for nobody. Temporary tables belong to their sessions.
const RELATIONS: &str = "SELECT row_to_json(r)::text FROM (SELECT
    c.oid::int8 AS oid, n.nspname AS schema, c.relname AS name,
    CASE c.relkind WHEN 'r' THEN 'table' WHEN 'm' THEN 'materialized_view' WHEN 'p' THEN 'partitioned'
        ELSE 'foreign' END AS kind,
    pg_get_userbyid(c.relowner) AS owner, c.relpersistence = 'u' AS is_unlogged,
    (SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
        AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' LIMIT 1) AS extension,
    coalesce(am.amname, '') AS access_method, coalesce(ts.spcname, '') AS tablespace,
    coalesce(c.reloptions, '{}') AS options,
    coalesce((SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = c.oid ORDER BY i.inhseqno LIMIT 1), 0)::int8
        AS parent,
    c.relhassubclass AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) AS has_children,
    c.relispartition AS is_partition, c.reltuples AS row_estimate,
    (SELECT string_to_array(k.partattrs::text, ' ')::int2[] FROM pg_partitioned_table k WHERE k.partrelid = c.oid)
        AS partition_key,
    json_build_object('main', 0, 'fsm', 0, 'vm', 0) AS bytes,
    CASE WHEN c.reltoastrelid <> 0 THEN json_build_object('oid', c.reltoastrelid::int8, 'index_bytes', 0,
        'bytes', json_build_object('main', 0, 'fsm', 0, 'vm', 0)) END AS toast,
    '[]'::json AS columns, '[]'::json AS indexes, '[]'::json AS foreign_keys,
    json_build_object(
        'inserted', pg_stat_get_tuples_inserted(c.oid), 'updated', pg_stat_get_tuples_updated(c.oid),
        'updated_hot', pg_stat_get_tuples_hot_updated(c.oid), 'deleted', pg_stat_get_tuples_deleted(c.oid),
        'live_rows', greatest(pg_stat_get_live_tuples(c.oid), 0),
        'dead_rows', greatest(pg_stat_get_dead_tuples(c.oid), 0),
        'scans', pg_stat_get_numscans(c.oid),
        'last_vacuum_s', extract(epoch FROM greatest(pg_stat_get_last_vacuum_time(c.oid),
            pg_stat_get_last_autovacuum_time(c.oid)))::int8,
        'last_analyze_s', extract(epoch FROM greatest(pg_stat_get_last_analyze_time(c.oid),
            pg_stat_get_last_autoanalyze_time(c.oid)))::int8,
        'inserted_since_vacuum', greatest(pg_stat_get_ins_since_vacuum(c.oid), 0),
        'modified_since_analyze', greatest(pg_stat_get_mod_since_analyze(c.oid), 0),
        'frozen_age', CASE WHEN c.relfrozenxid <> '0' THEN greatest(age(c.relfrozenxid), 0) ELSE 0 END) AS activity,
    format('%I.%I', n.nspname, c.relname) AS sql_name,
    has_table_privilege(c.oid, 'SELECT') AS can_select,
    has_schema_privilege(n.oid, 'USAGE') AS can_use_schema,
    CASE WHEN c.relrowsecurity THEN row_security_active(c.oid) ELSE false END AS hides_rows,
    c.relispopulated AS is_populated
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_am am ON am.oid = c.relam LEFT JOIN pg_tablespace ts ON ts.oid = c.reltablespace
    WHERE c.relkind IN ('r', 'm', 'p', 'f') AND c.relpersistence <> 't'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname !~ '^pg_(toast_)?temp_'
    ORDER BY c.oid) AS r";

/// Sizes of the tables in `:tables` and of what belongs to them; of what is in `:locked`, as of then.
const SIZES: &str = concat!(parts!(), "SELECT row_to_json(r)::text FROM (SELECT p.\"table\"::int8, p.oid::int8, p.part,
    CASE WHEN p.oid IN (:locked) THEN c.relpages::int8 * 8192 ELSE pg_relation_size(p.oid, 'main') END AS main,
    CASE WHEN p.part IN ('index') OR p.oid IN (:locked) THEN 0 ELSE pg_relation_size(p.oid, 'fsm') END AS fsm,
    CASE WHEN p.part NOT IN ('table', 'toast') OR p.oid IN (:locked) THEN 0
        ELSE pg_relation_size(p.oid, 'vm') END AS vm
    FROM part p JOIN pg_class c ON c.oid = p.oid) AS r");

/// The same as of the last VACUUM or ANALYZE.
const SIZES_THEN: &str = concat!(
    parts!(),
    "SELECT row_to_json(r)::text FROM (SELECT p.\"table\"::int8, p.oid::int8, p.part,
    c.relpages::int8 * 8192 AS main, 0 AS fsm, 0 AS vm FROM part p JOIN pg_class c ON c.oid = p.oid) AS r"
);
