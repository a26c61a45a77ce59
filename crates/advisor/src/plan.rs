//! The SQL that rewrites a table, with all that belongs to it.
//!
//! Three ways, each a list of steps whose statements psql runs one by one with `ON_ERROR_STOP`:
//!
//! | way | what it does | who waits |
//! |---|---|---|
//! | [`Method::InPlace`] | `ALTER TABLE`: types, compression, storage parameters | everybody, while the table is rewritten |
//! | [`Method::Offline`] | a new table in one transaction | everybody, while rows are copied and indexes built |
//! | [`Method::Online`] | a new table beside the old one, changes logged by a trigger, and a swap | everybody, for moments; needs a primary key |
//!
//! It refuses what it cannot carry over, by name ([`PlanError::Refused`]). Nothing here runs SQL.
//!
//! Invariants:
//! 1. A script changes nothing unless it gets every lock within `lock_timeout`, finds the catalogs as they were when the snapshot
//!    was taken (a fingerprint), and has compared the rows it wrote with those it read, by count and by hash.
//! 2. Whatever belongs to the table has its name, its owner and its settings afterwards. Views, functions and policies that use it
//!    are bound to the new table.
//! 3. The old table stays until a last step of its own, without CASCADE: it fails if anything still needs it.

mod belongings;
mod bind;
mod columns;
mod exchange;
mod guard;
mod in_place;
mod offline;
mod online;
pub mod parts;
pub mod queries;
mod sql;
mod table;
mod users;

use crate::edit::Edit;
use crate::finding::Step;
use crate::snapshot::definition::{Definition, Relation};
use crate::snapshot::{Table, TableKind};
use columns::Changes;
pub(crate) use exchange::with_suffix;
use parts::Rewrite;
pub(crate) use sql::dollar;

/// How a table is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `ALTER TABLE`, or `VACUUM FULL` where that is enough. Not for another order of columns, nor for dropped ones.
    InPlace,
    /// A new table, in one transaction.
    Offline,
    /// A new table that is filled while the old one is used.
    Online,
}

/// What is to be done to one table.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The table, with its definition.
    pub table: &'a Table,
    /// All that is changed about it.
    pub edits: &'a [Edit],
    /// The order of columns: indexes in [`Table::columns`] of those that are not dropped, each once; `columns.len() + n` is the n-th
    /// column that an [`Edit::Extract`] adds. None: as they are.
    pub order: Option<&'a [usize]>,
    /// `server_version_num`
    pub server_version: u32,
}

/// A script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In order. The last one that drops the old table is to be run when the new one has proved itself.
    pub steps: Vec<Step>,
    /// What to know before.
    pub warnings: Vec<String>,
    /// What takes a plan back that was not finished. Empty: a transaction that fails leaves nothing behind.
    pub undo: Vec<Step>,
    /// Of [`Method::Online`]: the same steps under names, with what a script needs that can be run again.
    pub rewrite: Option<Rewrite>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The snapshot has no definition of the table.
    #[error("{table}: the snapshot has no definition of it; take a new one with this version of pgshrink")]
    NoDefinition {
        /// The table.
        table: String,
    },
    /// Table and definition differ: it changed while the snapshot was taken.
    #[error("{table}: its columns changed while the snapshot was taken; take a new one")]
    Stale {
        /// The table.
        table: String,
    },
    /// The order, or an edit, does not fit the table.
    #[error("{table}: {what}")]
    Order {
        /// The table.
        table: String,
        /// What was found.
        what: String,
    },
    /// Something would be lost, or cannot be done this way.
    #[error("{table}: cannot be rewritten: {}", reasons.join("; "))]
    Refused {
        /// The table.
        table: String,
        /// Each reason, in words.
        reasons: Vec<String>,
    },
}

impl PlanError {
    fn name(table: &Table) -> String {
        sql::shown(&format!("{}.{}", table.schema, table.name))
    }

    fn refused(table: &Table, reasons: impl IntoIterator<Item = String>) -> PlanError {
        let reasons = reasons.into_iter().map(|reason| sql::shown(&reason)).collect();
        PlanError::Refused { table: PlanError::name(table), reasons }
    }
}

/// The script for one table.
///
/// # Errors
/// See [`PlanError`].
pub fn plan(request: &Request<'_>, method: Method) -> Result<Plan, PlanError> {
    let subject = Subject::new(request)?;
    let mut plan = match method {
        Method::InPlace => return in_place(&[*request]),
        Method::Offline => offline::plan(&subject)?,
        Method::Online => online::plan(&subject)?,
    };
    if let Some(step) = first(&[subject]) {
        if let Some(prepare) = plan.rewrite.as_mut().and_then(|rewrite| rewrite.parts.first_mut()) {
            prepare.steps.insert(0, step.clone());
        }
        plan.steps.insert(0, step);
    }
    Ok(plan)
}

/// What new types need before any row is converted. Each statement commits by itself.
fn first(subjects: &[Subject<'_>]) -> Option<Step> {
    let retyped = subjects.iter().flat_map(|subject| subject.changes.retyped());
    let statements: Vec<String> = retyped.flat_map(|(_, retype)| retype.first.iter().cloned()).collect();
    (!statements.is_empty()).then(|| Step {
        title: "What new types need: not in a transaction, because it has to be committed before rows are converted"
            .to_owned(),
        statements,
        lock: String::new(),
    })
}

/// The script for tables whose columns change together, as foreign keys connect them: all in one transaction, in place.
///
/// # Errors
/// See [`PlanError`].
pub fn in_place(requests: &[Request<'_>]) -> Result<Plan, PlanError> {
    let subjects = requests.iter().map(Subject::new).collect::<Result<Vec<_>, _>>()?;
    let mut plan = in_place::plan(&subjects)?;
    plan.steps.splice(0..0, first(&subjects));
    Ok(plan)
}

/// A statement that stops a script if the table, or what depends on it, is not as the snapshot has it: for scripts that need no plan.
/// None: the snapshot does not say enough.
pub fn unchanged(table: &Table) -> Option<String> {
    guard::unchanged_alone(table)
}

/// A request whose parts fit together.
struct Subject<'a> {
    table: &'a Table,
    definition: &'a Definition,
    /// The table in it.
    relation: &'a Relation,
    changes: Changes<'a>,
    /// `schema.table`, quoted.
    name: String,
}

/// The oldest server that plans are for.
const VERSION_MIN: u32 = 150_000;

impl<'a> Subject<'a> {
    fn new(request: &Request<'a>) -> Result<Subject<'a>, PlanError> {
        let table = request.table;
        let missing = || PlanError::NoDefinition { table: PlanError::name(table) };
        let definition = table.definition.as_ref().ok_or_else(missing)?;
        let relation = definition.table().filter(|relation| relation.oid == table.oid).ok_or_else(missing)?;
        if definition.fingerprint.is_empty() {
            return Err(missing());
        }
        let mut reasons = Vec::new();
        if table.kind != TableKind::Table || relation.kind != 'r' {
            reasons.push("only plain tables and partitions can be rewritten".to_owned());
        }
        if let Some(extension) = relation.extension.as_ref().or(table.extension.as_ref()) {
            reasons.push(format!("it is part of extension {extension}"));
        }
        if relation.persistence == 't' {
            reasons.push("it is temporary".to_owned());
        }
        if relation.access_method != "heap" {
            reasons.push(format!("its access method is {}, not heap", relation.access_method));
        }
        if request.server_version < VERSION_MIN {
            reasons.push("this needs PostgreSQL 15 or newer".to_owned());
        }
        if !reasons.is_empty() {
            return Err(PlanError::refused(table, reasons));
        }
        let changes = Changes::new(table, relation, request.edits, request.order)?;
        let name = sql::qualified(&relation.schema, &relation.name);
        Ok(Subject { table, definition, relation, changes, name })
    }

    /// For messages.
    fn shown(&self) -> String {
        PlanError::name(self.table)
    }
}
