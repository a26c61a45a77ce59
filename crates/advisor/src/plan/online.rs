//! A new table that is filled while the old one is used.
//!
//! A trigger logs the primary keys of rows that change. Rows are copied in batches; then, in one snapshot, the rows whose keys are in
//! the log are taken out of the new table and copied again from the old one. After that the new table is what the old one was
//! in that snapshot, whatever happened in between: so unique indexes can be built, both tables can be compared without a
//! lock, and what is left to do under the lock of the swap is the log of the last moments.
//!
//! A row is copied as it is when it is copied, not as it was when its key was logged. So it does not matter in which order keys were
//! logged, nor how often.

mod log;

use super::exchange::{Exchange, Pace};
use super::parts::{Part, PartName, Rewrite};
use super::sql::{dollar, ident, list, literal, qualified};
use super::users::Users;
use super::{Plan, PlanError, Subject, guard, offline, table};
use crate::finding::Step;
use crate::snapshot::definition::{Column, Index};

/// Rows of a batch.
const BATCH_ROWS: u32 = 10_000;
/// Catching up ends when a round had fewer changes than this.
const FEW_CHANGES: u32 = 1_000;
/// Or after so many rounds, if more changes come than can be copied.
const ROUNDS_MAX: u32 = 100;

/// More changes are not copied under the lock of the swap.
const LOCKED_CHANGES_MAX: u32 = 20_000;

/// Names of what exists only while a table is rewritten.
struct Tools<'s, 'a> {
    subject: &'s Subject<'a>,
    new_name: String,
    new: String,
    log: String,
    state: String,
    note: String,
    apply: String,
    index_prefix: String,
    /// Columns of the primary key.
    key: Vec<&'a Column>,
    /// `search_path` in which operators of the key's types are found.
    path: String,
    /// True for rows of the old table whose values do not fit their new types.
    misfits: Vec<String>,
}

pub(super) fn plan(subject: &Subject<'_>) -> Result<Plan, PlanError> {
    let users = Users::new(subject, true)?;
    offline::check_new(subject)?;
    let tools = Tools::new(subject)?;
    let mut warnings = offline::warnings(subject, &users);
    warnings.push(format!(
        "{}: if a step that swaps tables does not get its locks in time, it changes nothing: run it again \
         at a quieter time",
        subject.shown()
    ));
    if users.recreated.iter().any(|view| view.kind == 'm') {
        warnings.push(
            "materialized views are empty from the swap until the step after it has filled them".to_owned(),
        );
    }
    if subject.relation.referenced.iter().any(|key| key.is_partitioned) {
        warnings.push("foreign keys of partitioned tables are checked under the lock of the swap".to_owned());
    }
    let exchange = Exchange::new(subject, &users, Pace::Short);
    let swap = tools.swap(&users, &exchange)?;
    let parts = vec![
        Part { name: PartName::Prepare, steps: vec![tools.begin()] },
        Part { name: PartName::Copy, steps: vec![tools.copy()] },
        Part {
            name: PartName::CatchUp,
            steps: vec![
                tools.catch_up("Rows that changed meanwhile, so that unique indexes can be built"),
                tools.indexes(),
                tools.catch_up("Rows that changed meanwhile"),
                tools.verify(),
            ],
        },
        Part {
            name: PartName::Exchange,
            steps: vec![tools.catch_up("Rows that changed meanwhile: right before the swap"), swap],
        },
        Part { name: PartName::Finish, steps: later(&exchange).into_iter().collect() },
        Part { name: PartName::Drop, steps: vec![exchange.drop_old()] },
    ];
    let steps = parts.iter().flat_map(|part| part.steps.clone()).collect();
    let undo = vec![tools.undo()];
    let rewrite = Rewrite {
        oid: subject.relation.oid,
        state: tools.state.clone(),
        old_name: exchange.old_name.clone(),
        parts: parts.into_iter().chain([Part { name: PartName::Undo, steps: undo.clone() }]).collect(),
        warnings: warnings.clone(),
    };
    Ok(Plan { steps, warnings, undo, rewrite: Some(rewrite) })
}

/// What was left out of the swap.
fn later(exchange: &Exchange<'_, '_>) -> Option<Step> {
    let statements = exchange.later();
    (!statements.is_empty()).then(|| Step {
        title: "What was left out of the swap: foreign keys are checked, views are filled".to_owned(),
        statements,
        lock: "SHARE UPDATE EXCLUSIVE: reads and writes continue, except for reads of views that are being filled"
            .to_owned(),
    })
}

/// For each column with another type that needs it, a condition that is true for values of the old table that do not fit.
///
/// # Errors
/// When a proof is not one that can be asked of some rows alone.
fn misfits(subject: &Subject<'_>) -> Result<Vec<String>, PlanError> {
    let all = format!(
        "SELECT count(*) FROM {} WHERE ",
        crate::sql::qualified(&subject.relation.schema, &subject.relation.name)
    );
    let mut conditions = Vec::new();
    for (column, retype) in subject.changes.retyped() {
        let proof = retype.proof.trim().trim_end_matches(';');
        match proof.strip_prefix(&*all) {
            Some(condition) => conditions.push(format!("({condition})")),
            None if proof.is_empty() => {}
            None => {
                let reason = format!(
                    "the query that verifies the new type of column {} works on whole tables only, not on \
                     rows that change in the meantime",
                    column.name
                );
                return Err(PlanError::refused(subject.table, [reason]));
            }
        }
    }
    Ok(conditions)
}

impl<'s, 'a> Tools<'s, 'a> {
    fn new(subject: &'s Subject<'a>) -> Result<Tools<'s, 'a>, PlanError> {
        let relation = subject.relation;
        let is_key = |index: &&Index| index.constraint_type == Some('p') && index.is_valid;
        let Some(index) = relation.indexes.iter().find(is_key).filter(|index| !index.is_period) else {
            let reason = "it has no primary key, which is needed to log changes of rows".to_owned();
            return Err(PlanError::refused(subject.table, [reason]));
        };
        if offline::is_published_anyway(subject) {
            let reason = "a publication of all tables would publish the rows of the copy as well".to_owned();
            return Err(PlanError::refused(subject.table, [reason]));
        }
        let column = |name: &String| relation.columns.iter().find(|column| column.name == *name);
        let key: Vec<&Column> = index.columns.iter().filter_map(column).collect();
        let mut schemas = vec!["pg_catalog"];
        schemas.extend(key.iter().map(|column| column.type_schema.as_str()));
        schemas.push("pg_temp");
        schemas.dedup();
        let name = |part: &str| format!("pgshrink_{}_{part}", relation.oid);
        let own = |part: &str| qualified(&relation.schema, &name(part));
        Ok(Tools {
            subject,
            new_name: name("new"),
            new: own("new"),
            log: own("log"),
            state: own("state"),
            note: own("note"),
            apply: own("apply"),
            index_prefix: name("i"),
            key,
            path: list(schemas.into_iter().map(ident)),
            misfits: misfits(subject)?,
        })
    }

    /// The key's columns behind a prefix.
    fn keys(&self, prefix: &str) -> String {
        list(self.key.iter().map(|column| format!("{prefix}{}", ident(&column.name))))
    }

    fn begin(&self) -> Step {
        let subject = self.subject;
        let columns = |column: &&Column| {
            let collation =
                column.collation.as_ref().map(|name| format!(" COLLATE {name}")).unwrap_or_default();
            format!("{} {}{collation}", ident(&column.name), column.type_name)
        };
        let columns = list(self.key.iter().map(columns));
        let mut statements = guard::begin();
        statements.extend(guard::proofs(subject));
        statements.extend(offline::prepare(subject));
        statements.extend(table::create(subject, &self.new, false));
        if let Some(check) = &subject.relation.bound_check {
            // With it, the partition need not be read when it is attached.
            statements
                .push(format!("ALTER TABLE {} ADD CONSTRAINT pgshrink_bound CHECK ({check});", self.new));
        }
        let key = subject.relation.indexes.iter().position(|index| index.constraint_type == Some('p'));
        if let Some(place) = key {
            let name = format!("{}{place}", self.index_prefix);
            statements.extend(table::index_statements(&subject.relation.indexes[place], &self.new, &name));
        }
        statements.push(format!(
            "CREATE TABLE {} (pgshrink_truncated boolean NOT NULL DEFAULT false, {columns});",
            self.log
        ));
        statements.push(format!(
            "CREATE TABLE {} (pgshrink_begun boolean NOT NULL DEFAULT false, pgshrink_copied boolean NOT NULL DEFAULT false,
  pgshrink_verified boolean NOT NULL DEFAULT false, {columns});",
            self.state
        ));
        statements.push(format!("INSERT INTO {} DEFAULT VALUES;", self.state));
        statements.push(self.note_function());
        statements.push(self.apply_function());
        statements.push(format!("REVOKE ALL ON FUNCTION {}() FROM PUBLIC;", self.apply));
        let name = &subject.name;
        let lock = format!("LOCK TABLE ONLY {name} IN SHARE ROW EXCLUSIVE MODE;");
        statements.push(guard::locks_for_moments(subject, &[lock], &[]));
        statements.push(guard::unchanged(subject));
        for (trigger, event, each) in
            [("note", "INSERT OR UPDATE OR DELETE", "ROW"), ("truncate", "TRUNCATE", "STATEMENT")]
        {
            statements.push(format!(
                "CREATE TRIGGER pgshrink_{trigger} AFTER {event} ON {name} FOR EACH {each} EXECUTE FUNCTION {}();",
                self.note
            ));
            // Also what replication and loading tools write.
            statements.push(format!("ALTER TABLE {name} ENABLE ALWAYS TRIGGER pgshrink_{trigger};"));
        }
        statements.push("COMMIT;".to_owned());
        Step {
            title: format!(
                "An empty new table, and a trigger that logs which rows of {} change",
                subject.shown()
            ),
            statements,
            lock: format!(
                "SHARE ROW EXCLUSIVE on {}, for a moment: it waits for open writes, for a second at a time",
                subject.shown()
            ),
        }
    }

    /// Settings of a transaction inside of a block, which end with it.
    fn settings(&self) -> String {
        format!(
            "PERFORM pg_catalog.set_config('search_path', {}, true), pg_catalog.set_config('row_security', 'off', true);",
            literal(&self.path)
        )
    }

    fn copy(&self) -> Step {
        let (key, old, state) = (self.keys(""), &self.subject.name, &self.state);
        let order = list(self.key.iter().map(|column| format!("{} DESC", ident(&column.name))));
        let above = format!("({key}) > ({})", self.keys("pgshrink_state."));
        let upto = format!("({key}) <= ({})", self.keys("pgshrink_last."));
        let set = list(self.key.iter().map(|column| format!("{0} = pgshrink_last.{0}", ident(&column.name))));
        let into = self.keys("pgshrink_last.");
        let find = |condition: &str| {
            format!(
                "SELECT {key} INTO {into} FROM (SELECT {key} FROM ONLY {old} {condition} ORDER BY {key} LIMIT {BATCH_ROWS}) batch
        ORDER BY {order} LIMIT 1;"
            )
        };
        let insert = table::copy(self.subject, old, &self.new);
        let body = format!(
            "#variable_conflict use_column
DECLARE
  pgshrink_state {state}%ROWTYPE;
  pgshrink_last {state}%ROWTYPE;
  pgshrink_found boolean;
BEGIN
  LOOP
    {settings}
    SELECT * INTO pgshrink_state FROM {state} FOR UPDATE;
    EXIT WHEN pgshrink_state.pgshrink_copied;
    IF pgshrink_state.pgshrink_begun THEN
      {next}
      pgshrink_found := FOUND;
      IF pgshrink_found THEN
        {insert} WHERE {above} AND {upto} ORDER BY {key};
      END IF;
    ELSE
      {first}
      pgshrink_found := FOUND;
      IF pgshrink_found THEN
        {insert} WHERE {upto} ORDER BY {key};
      END IF;
    END IF;
    IF pgshrink_found THEN
      UPDATE {state} SET pgshrink_begun = true, {set};
    ELSE
      UPDATE {state} SET pgshrink_copied = true;
    END IF;
    COMMIT;
  END LOOP;
END",
            settings = self.settings(),
            next = find(&format!("WHERE {above}")),
            first = find(""),
        );
        Step {
            title: format!("Rows copied, {BATCH_ROWS} at a time; it continues where it stopped"),
            statements: vec!["SET statement_timeout = 0;".to_owned(), format!("DO {};", dollar(&body))],
            lock: String::new(),
        }
    }

    fn catch_up(&self, title: &str) -> Step {
        let body = format!(
            "#variable_conflict use_column
DECLARE
  pgshrink_changes bigint;
BEGIN
  FOR pgshrink_round IN 1..{ROUNDS_MAX} LOOP
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
    IF NOT (SELECT pgshrink_copied FROM {state}) THEN
      RAISE EXCEPTION 'pgshrink: not all rows are copied' USING HINT = 'Run the step copy until it is complete.';
    END IF;
    pgshrink_changes := {apply}();
    COMMIT;
    EXIT WHEN pgshrink_changes < {FEW_CHANGES};
  END LOOP;
END",
            state = self.state,
            apply = self.apply,
        );
        Step {
            title: title.to_owned(),
            statements: vec![
                "SET statement_timeout = 0;".to_owned(),
                // Pages of rows that are done with would be read again each time.
                format!("VACUUM (ANALYZE) {};", self.log),
                format!("DO {};", dollar(&body)),
            ],
            lock: String::new(),
        }
    }

    /// Each in a transaction of its own, and not again if it is there.
    fn indexes(&self) -> Step {
        let relation = self.subject.relation;
        let mut statements = Vec::new();
        // Primary keys exist already.
        let is_left = |index: &Index| index.is_valid && index.constraint_type != Some('p');
        for (place, index) in relation.indexes.iter().enumerate().filter(|(_, index)| is_left(index)) {
            let name = format!("{}{place}", self.index_prefix);
            let made = table::index_statements(index, &self.new, &name);
            let made: String = made
                .iter()
                .map(|statement| format!("    EXECUTE {};\n", literal(statement.trim_end_matches(';'))))
                .collect();
            let body = format!(
                "BEGIN\n  IF pg_catalog.to_regclass({}) IS NULL THEN\n{made}  END IF;\nEND",
                literal(&qualified(&relation.schema, &name))
            );
            statements.extend(guard::begin());
            statements.push(format!("DO {};", dollar(&body)));
            statements.push("COMMIT;".to_owned());
        }
        statements.push(format!("VACUUM (ANALYZE) {};", self.new));
        Step { title: "Indexes, and statistics".to_owned(), statements, lock: String::new() }
    }

    fn verify(&self) -> Step {
        let mut statements = guard::begin();
        statements[0] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE;".to_owned();
        statements.push(format!("DO {};", dollar(&format!("BEGIN\n  PERFORM {}();\nEND", self.apply))));
        statements.extend(guard::proofs(self.subject));
        statements.push(table::check(self.subject, &self.subject.name, &self.new));
        statements.push(format!("UPDATE {} SET pgshrink_verified = pgshrink_copied;", self.state));
        statements.push("COMMIT;".to_owned());
        Step {
            title: "Both tables compared, by count and by hash, in one snapshot".to_owned(),
            statements,
            lock: String::new(),
        }
    }

    fn swap(&self, users: &Users<'_>, exchange: &Exchange<'_, '_>) -> Result<Step, PlanError> {
        let (subject, schema) = (self.subject, &self.subject.relation.schema);
        let mut statements = guard::begin();
        // Who loses the connection now must not leave everybody waiting.
        statements.push("SET LOCAL idle_in_transaction_session_timeout = '10s';".to_owned());
        let locks = guard::locks(std::slice::from_ref(subject), std::slice::from_ref(users));
        statements.push(guard::locks_for_moments(subject, &locks, &guard::sequence_locks(subject)));
        statements.push(guard::unchanged(subject));
        statements.push(guard::raise_if(
            &format!("NOT (SELECT pgshrink_verified FROM {})", self.state),
            &format!("pgshrink: the copy of {} was not compared with it", subject.shown()),
            "Run the steps before this one, in their order.",
        ));
        statements.push(guard::raise_if(
            &format!(
                "(SELECT count(*) FROM (SELECT FROM {} LIMIT {LOCKED_CHANGES_MAX} + 1) changed) > {LOCKED_CHANGES_MAX}",
                self.log
            ),
            &format!("pgshrink: too many rows of {} changed while waiting for its locks", subject.shown()),
            "Nothing was changed. Run this step again at a quieter time.",
        ));
        statements.push(format!("DO {};", dollar(&format!("BEGIN\n  PERFORM {}();\nEND", self.apply))));
        statements.extend(self.remove_log());
        statements.extend(exchange.take_out());
        statements.push(format!("ALTER TABLE {} RENAME TO {};", self.new, ident(&subject.relation.name)));
        for (place, index) in subject.relation.indexes.iter().enumerate().filter(|(_, index)| index.is_valid)
        {
            let working = qualified(schema, &format!("{}{place}", self.index_prefix));
            statements.push(format!("ALTER INDEX {working} RENAME TO {};", ident(&index.name)));
        }
        statements.extend(exchange.put_in()?);
        if subject.relation.bound_check.is_some() {
            statements.push(format!("ALTER TABLE {} DROP CONSTRAINT pgshrink_bound;", subject.name));
        }
        statements.push("COMMIT;".to_owned());
        let lock = table::lock_text(subject, "for moments; it is tried for a second at a time");
        Ok(Step { title: "The swap".to_owned(), statements, lock })
    }
}
