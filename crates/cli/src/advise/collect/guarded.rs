//! Questions about rows that are answered only while the table is what its description says.
//!
//! Functions of whoever owns a table could run with the rights of the role that asks: a view may be put in the table's place, or a
//! column may get a type with a cast of the owner's own, which `octet_length` or an index's expression then calls. So each question is
//! a transaction that locks the table in ACCESS SHARE mode, which excludes both, checks it, and only then asks.

use super::rows::{Question, tells_its_length};
use super::session::{Session, Tried};
use pgshrink_advisor::snapshot::{Table, TableKind};
use pgshrink_pgclient::Error as ClientError;
use pgshrink_pgclient::connection::{Execution, Pipeline, Statement};

/// No rows, or an error. `$1` is the quoted name, `$2` the OID, `$3` has numbers of columns whose lengths are asked for, and `$4` the
/// OIDs of indexes whose expressions are.
///
/// The error is that of a name that no relation has. Objects that come with the server have OIDs below 16,384.
const CHECK: &str = "SELECT '\"a relation as it was when it was listed\"'::text::regclass WHERE NOT (
        to_regclass($1::text) IS NOT DISTINCT FROM $2::oid::regclass
        AND NOT EXISTS (WITH RECURSIVE type(oid) AS (
                SELECT a.atttypid FROM pg_attribute a WHERE a.attrelid = $2::oid AND a.attnum = ANY ($3::int2[])
                UNION SELECT d.typbasetype FROM type s JOIN pg_type d ON d.oid = s.oid WHERE d.typtype = 'd')
            SELECT FROM type s JOIN pg_type t ON t.oid = s.oid WHERE t.typtype <> 'd' AND t.oid >= 16384)
        AND NOT EXISTS (SELECT FROM unnest($4::oid[]) AS wanted(oid) LEFT JOIN pg_index i ON i.indexrelid = wanted.oid
            LEFT JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid IS DISTINCT FROM $2::oid OR NOT (:builtin)))";

/// Whether an index `c` has functions, operators and types of the server only. Those are pinned: an index depends on those of others alone,
/// and on columns, whose types may have casts of others.
pub(super) const IS_BUILTIN: &str = "NOT EXISTS (SELECT FROM pg_depend d
    LEFT JOIN pg_attribute da ON d.refclassid = 'pg_class'::regclass AND d.refobjsubid <> 0
        AND da.attrelid = d.refobjid AND da.attnum = d.refobjsubid
    LEFT JOIN pg_type dt ON dt.oid = da.atttypid
    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND (
        d.refclassid NOT IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_collation'::regclass,
            'pg_opclass'::regclass, 'pg_extension'::regclass)
        OR dt.oid >= 16384 AND NOT (dt.typtype = 'd' AND dt.typbasetype < 16384)))";

/// A question that is ready to be asked, by numbers of blocks.
pub(super) struct Guarded {
    begin: Statement,
    /// None: a materialized view cannot be locked.
    lock: Option<Statement>,
    check: Statement,
    ask: Statement,
    commit: Statement,
    /// Parameters of the check.
    name: String,
    oid: String,
    columns: String,
    indexes: String,
}

impl Guarded {
    /// Prepares a statement about a table.
    pub(super) fn prepare(
        session: &mut Session,
        table: &Table,
        question: &Question,
        sql: &str,
    ) -> Tried<Guarded> {
        session.make_room(2)?;
        let can_be_locked = table.kind != TableKind::MaterializedView;
        let lock = format!("LOCK TABLE ONLY {} IN ACCESS SHARE MODE", question.sql_name);
        let mut prepare = |sql: &str| session.prepare(sql);
        macro_rules! ready {
            ($tried:expr) => {
                match $tried? {
                    Ok(statement) => statement,
                    Err(refusal) => return Ok(Err(refusal)),
                }
            };
        }
        let ask = ready!(prepare(sql));
        let lock = if can_be_locked { Some(ready!(prepare(&lock))) } else { None };
        let begin = ready!(session.prepare_once("BEGIN"));
        let check = ready!(session.prepare_once(&CHECK.replace(":builtin", IS_BUILTIN)));
        let commit = ready!(session.prepare_once("COMMIT"));
        let columns =
            question.stored.iter().filter(|at| table.columns.get(**at).is_some_and(tells_its_length));
        let columns = columns.map(|at| (at + 1).to_string());
        let indexes =
            question.expressions.iter().filter_map(|expression| table.indexes.get(expression.index));
        Ok(Ok(Guarded {
            begin,
            lock,
            check,
            ask,
            commit,
            name: question.sql_name.clone(),
            oid: table.oid.to_string(),
            columns: format!("{{{}}}", columns.collect::<Vec<_>>().join(",")),
            indexes: format!(
                "{{{}}}",
                indexes.map(|index| index.oid.to_string()).collect::<Vec<_>>().join(",")
            ),
        }))
    }

    /// Whether one more can be asked now: behind other requests that may be too much.
    pub(super) fn has_room(&self, pipeline: &Pipeline<'_>) -> bool {
        const REST: [u8; 1024] = [0; 1024];
        let [name, oid, columns, indexes] = self.check_parameters();
        pipeline.has_room(&[name, oid, columns, indexes, Some(&REST)])
    }

    fn check_parameters(&self) -> [Option<&[u8]>; 4] {
        [&self.name, &self.oid, &self.columns, &self.indexes].map(|text| Some(text.as_bytes()))
    }

    /// Asks about blocks from one up to another, each [in SQL](super::rows::before). That is two requests: an answer, and the end of the
    /// transaction, which is as good after an error.
    pub(super) fn request(
        &self,
        pipeline: &mut Pipeline<'_>,
        first: &str,
        end: &str,
    ) -> Result<(), ClientError> {
        let check = self.check_parameters();
        let blocks = [Some(first.as_bytes()), Some(end.as_bytes())];
        let mut executions: Vec<Execution<'_>> = vec![(&self.begin, &[])];
        executions.extend(self.lock.iter().map(|lock| -> Execution<'_> { (lock, &[]) }));
        executions.extend([(&self.check, check.as_slice()), (&self.ask, blocks.as_slice())]);
        pipeline.request_all(&executions)?;
        pipeline.request(&self.commit, &[])
    }
}
