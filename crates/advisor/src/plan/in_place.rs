//! Types, compression and storage parameters, changed in place.
//!
//! `ALTER TABLE` writes the table and its indexes anew, once for all columns. The server refuses to change a column that a view, a
//! trigger, a rule, a policy or the condition of a publication uses: those are dropped and made again.

use super::columns::{Change, NewColumn, generated_from};
use super::sql::{dollar, ident, list, literal, parameter, shown};
use super::users::Users;
use super::{Plan, PlanError, Subject, belongings, guard, offline, table};
use crate::finding::Step;
use crate::snapshot::definition::{Firing, Publication};

pub(super) fn plan(subjects: &[Subject<'_>]) -> Result<Plan, PlanError> {
    let mut warnings = Vec::new();
    for subject in subjects {
        check(subject, subjects)?;
        warnings.push(format!(
            "{}: needs room for a second copy of the table and its indexes until the transaction ends",
            subject.shown()
        ));
    }
    let users = subjects.iter().map(|subject| Users::new(subject, false)).collect::<Result<Vec<_>, _>>()?;
    let is_rewrite =
        |subject: &Subject<'_>| subject.changes.columns.iter().any(|column| column.change != Change::Kept);
    let mut steps = Vec::new();
    if subjects.iter().any(is_rewrite) {
        steps.push(rewrite(subjects, &users)?);
    }
    for subject in subjects.iter().filter(|subject| !is_rewrite(subject)) {
        let options = table::storage_options(subject);
        let changed: Vec<_> = options
            .iter()
            .filter(|option| !subject.relation.options.contains(option))
            .map(|option| parameter(option))
            .collect();
        let set = format!("ALTER TABLE {} SET ({});", subject.name, list(changed.clone()));
        let set = if changed.is_empty() { None } else { Some(set) };
        steps.push(Step {
            title: format!("Storage parameters of {}, and its rows rewritten", subject.shown()),
            statements: set
                .into_iter()
                .chain([format!("VACUUM (FULL, ANALYZE) {};", subject.name)])
                .collect(),
            lock: format!("ACCESS EXCLUSIVE on {}, while it is rewritten", subject.shown()),
        });
    }
    Ok(Plan { steps, warnings, ..Plan::default() })
}

fn check(subject: &Subject<'_>, all: &[Subject<'_>]) -> Result<(), PlanError> {
    let relation = subject.relation;
    let mut reasons = Vec::new();
    if subject.changes.needs_new_table {
        reasons
            .push("changing the order of columns, or removing dropped columns, needs a new table".to_owned());
    }
    let is_related = !relation.parents.is_empty() || !relation.children.is_empty();
    for column in subject.changes.columns.iter().filter(|column| column.change != Change::Kept) {
        if is_related {
            reasons.push(format!("column {} is inherited: it changes with the parent", column.name));
        }
        if let Some(generated) = generated_from(relation, column.name) {
            reasons.push(format!("column {generated} is generated from column {}", column.name));
        }
    }
    for (column, retype) in subject.changes.retyped() {
        let has = |columns: &[String]| columns.iter().any(|name| name == column.name);
        let changes_too = |other: u32, columns: &[String]| {
            let other = all.iter().find(|subject| subject.relation.oid == other);
            other.is_some_and(|other| {
                other.changes.retyped().any(|(there, to)| {
                    columns.iter().any(|name| name == there.name) && to.type_name == retype.type_name
                })
            })
        };
        let out = relation.constraints.iter().filter(|key| key.kind == 'f' && has(&key.columns));
        let out = out.filter(|key| key.partner_oid != relation.oid).all(|key| {
            let partner = all.iter().find(|subject| subject.relation.oid == key.partner_oid);
            partner.is_some_and(|partner| {
                let same = partner
                    .relation
                    .referenced
                    .iter()
                    .find(|other| other.name == key.name && other.table_oid == relation.oid);
                same.is_some_and(|same| changes_too(key.partner_oid, &same.columns))
            })
        });
        let keys = relation.referenced.iter().filter(|key| has(&key.columns));
        let keys = keys.into_iter().all(|key| changes_too(key.table_oid, &key.own_columns));
        if !out || !keys {
            reasons.extend(offline::foreign_keys(subject, column.name));
        }
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(PlanError::refused(subject.table, reasons)),
    }
}

/// One transaction for all tables.
fn rewrite(subjects: &[Subject<'_>], users: &[Users<'_>]) -> Result<Step, PlanError> {
    let mut statements = guard::begin();
    statements.extend(guard::locks(subjects, users));
    statements.extend(subjects.iter().map(guard::unchanged));
    statements.extend(subjects.iter().flat_map(guard::proofs));
    statements.extend(subjects.iter().flat_map(offline::prepare));
    for (place, subject) in subjects.iter().enumerate() {
        statements.push(remember(subject, place));
    }
    statements.extend(users.iter().flat_map(Users::drop));
    let keys = foreign_keys(subjects);
    for (table, name, _, _) in &keys {
        statements.push(format!("ALTER TABLE {table} DROP CONSTRAINT {};", ident(name)));
    }
    for subject in subjects {
        statements.extend(unhook(subject));
    }
    for subject in subjects {
        statements.extend(alter(subject));
    }
    for (place, subject) in subjects.iter().enumerate() {
        statements.push(compare(subject, place));
    }
    for subject in subjects {
        statements.extend(hook(subject));
    }
    for (table, name, definition, comment) in &keys {
        let own = ident(name);
        statements.push(format!("ALTER TABLE {table} ADD CONSTRAINT {own} {definition};"));
        statements.extend(
            comment
                .as_ref()
                .map(|comment| format!("COMMENT ON CONSTRAINT {own} ON {table} IS {};", literal(comment))),
        );
    }
    for (subject, users) in subjects.iter().zip(users) {
        statements.extend(users.bind(subject, true)?);
    }
    statements.push("COMMIT;".to_owned());
    statements.extend(subjects.iter().map(|subject| format!("ANALYZE {};", subject.name)));
    let names = list(subjects.iter().map(Subject::shown));
    Ok(Step {
        title: format!("Columns of {names} changed in place, in one transaction"),
        statements,
        lock: list(subjects.iter().map(|subject| table::lock_text(subject, "until the transaction ends"))),
    })
}

/// Foreign keys on columns whose types change: table, name, definition, comment. Each once.
fn foreign_keys(subjects: &[Subject<'_>]) -> Vec<(String, String, String, Option<String>)> {
    let mut keys: Vec<(String, String, String, Option<String>)> = Vec::new();
    for subject in subjects {
        for key in subject.relation.referenced.iter().filter(|key| subject.changes.retypes(&key.columns)) {
            keys.push((key.table.clone(), key.name.clone(), key.definition.clone(), key.comment.clone()));
        }
    }
    keys
}

fn is_stuck<'s>(subject: &'s Subject<'_>) -> impl Fn(&Firing) -> bool + 's {
    |firing| rewrites(subject, &firing.columns)
}

/// Whether one of these columns is altered: also one that is only compressed anew, as the server does not look what changes.
fn rewrites(subject: &Subject<'_>, columns: &[String]) -> bool {
    let changed = subject.changes.columns.iter().filter(|column| column.change != Change::Kept);
    changed.into_iter().any(|column| columns.iter().any(|name| name == column.name))
}

fn published<'s>(subject: &'s Subject<'_>) -> impl Iterator<Item = &'s Publication> {
    let publications = subject.relation.publications.iter();
    publications.filter(|publication| publication.scope == "table" && rewrites(subject, &publication.columns))
}

/// Drops what the server would refuse to keep.
fn unhook(subject: &Subject<'_>) -> Vec<String> {
    let (relation, name) = (subject.relation, &subject.name);
    let is_stuck = is_stuck(subject);
    let drop =
        |word: &'static str| move |firing: &Firing| format!("DROP {word} {} ON {name};", ident(&firing.name));
    let triggers = relation.triggers.iter().filter(|trigger| is_stuck(trigger)).map(drop("TRIGGER"));
    let rules = relation.rules.iter().filter(|rule| is_stuck(rule)).map(drop("RULE"));
    let policies = relation.policies.iter().filter(|policy| is_stuck(policy)).map(drop("POLICY"));
    let publications = published(subject)
        .map(|publication| format!("ALTER PUBLICATION {} DROP TABLE ONLY {name};", ident(&publication.name)));
    triggers.chain(rules).chain(policies).chain(publications).collect()
}

/// Makes it again.
fn hook(subject: &Subject<'_>) -> Vec<String> {
    let relation = subject.relation;
    let mut statements = belongings::triggers(relation, is_stuck(subject));
    statements.extend(belongings::rules(relation, is_stuck(subject)));
    statements.extend(belongings::policies(relation, is_stuck(subject)));
    for publication in published(subject) {
        let name = ident(&publication.name);
        statements.push(format!("ALTER PUBLICATION {name} ADD TABLE ONLY {};", publication.definition));
    }
    if !statements.is_empty() {
        statements.extend(relation.comments.iter().map(|note| format!("{};", note.sql)));
    }
    statements
}

/// One `ALTER TABLE` with everything, so that the table is written once.
fn alter(subject: &Subject<'_>) -> Option<String> {
    let mut actions = Vec::new();
    for column in &subject.changes.columns {
        actions.extend(actions_of(column));
    }
    let options = table::storage_options(subject);
    let changed = options.iter().filter(|option| !subject.relation.options.contains(option));
    let changed: Vec<String> = changed.map(|option| parameter(option)).collect();
    if !changed.is_empty() {
        actions.push(format!("SET ({})", changed.join(", ")));
    }
    (!actions.is_empty()).then(|| format!("ALTER TABLE ONLY {}\n  {};", subject.name, actions.join(",\n  ")))
}

fn actions_of(column: &NewColumn<'_>) -> Vec<String> {
    let (Some(old), Some(source)) = (column.old, &column.source) else { return Vec::new() };
    let alter = format!("ALTER COLUMN {}", ident(column.name));
    let mut actions = Vec::new();
    let collation = old.collation.as_ref().filter(|_| !table::is_uncollatable(column));
    let collation = collation.map(|collation| format!(" COLLATE {collation}")).unwrap_or_default();
    let set_type = format!("{alter} TYPE {}{collation} USING {source}", column.type_name);
    match column.change {
        Change::Kept | Change::Extracted(_) => {}
        Change::Retyped(_) => {
            if let Some(default) = &column.default {
                actions.push(format!("{alter} DROP DEFAULT"));
                actions.push(set_type);
                actions.push(format!("{alter} SET DEFAULT {default}"));
            } else {
                actions.push(set_type);
            }
        }
        Change::Recompressed(change) => {
            actions.push(set_type);
            // Setting a type, even the same, resets both.
            let storage =
                change.storage.as_ref().map(|storage| storage.to_uppercase()).or(old.storage.clone());
            actions.extend(storage.map(|storage| format!("{alter} SET STORAGE {storage}")));
            let compression = change.compression.clone().or(old.compression.clone());
            actions.extend(compression.map(|compression| format!("{alter} SET COMPRESSION {compression}")));
        }
    }
    actions
}

/// Remembers count and hash of the rows as they are to be.
fn remember(subject: &Subject<'_>, place: usize) -> String {
    let row = table::rows_before(subject);
    let body = format!(
        "BEGIN
  PERFORM pg_catalog.set_config('pgshrink.rows_{place}', {}, true);
END",
        summary(&row, &subject.name)
    );
    format!("DO {};", dollar(&body))
}

fn compare(subject: &Subject<'_>, place: usize) -> String {
    let row = list(subject.changes.columns.iter().map(|column| ident(column.name)));
    guard::raise_if(
        &format!(
            "pg_catalog.current_setting('pgshrink.rows_{place}') IS DISTINCT FROM {}",
            summary(&row, &subject.name)
        ),
        &format!("pgshrink: the converted rows of {} differ from the original", shown(&subject.shown())),
        "Nothing was changed.",
    )
}

fn summary(row: &str, table: &str) -> String {
    format!(
        "(SELECT count(*) || ' ' || coalesce(sum(pg_catalog.hashtextextended(ROW({row})::text COLLATE \"C\", 0)::numeric), 0)
    FROM ONLY {table})"
    )
}
