//! A new table in one transaction.

use super::exchange::{Exchange, Pace};
use super::sql::shown;
use super::users::Users;
use super::{Plan, PlanError, Subject, guard, table};
use crate::finding::Step;

pub(super) fn plan(subject: &Subject<'_>) -> Result<Plan, PlanError> {
    let users = Users::new(subject, true)?;
    check_new(subject)?;
    let warnings = warnings(subject, &users);
    let exchange = Exchange::new(subject, &users, Pace::Whole);
    let name = &subject.name;
    let is_published = is_published_anyway(subject);
    let mut statements = guard::begin();
    let own = std::slice::from_ref(subject);
    statements.extend(guard::locks(own, std::slice::from_ref(&users)));
    statements.push(guard::unchanged(subject));
    statements.extend(guard::proofs(subject));
    statements.extend(prepare(subject));
    statements.extend(exchange.take_out());
    // A publication of all tables would send every copied row to subscribers, as if it were new. Unlogged tables are not published,
    // and rows of a table that becomes logged are not either.
    statements.extend(table::create(subject, name, is_published));
    statements.push(format!("{};", table::copy(subject, &exchange.old, name)));
    statements.push(table::check(subject, &exchange.old, name));
    if is_published && subject.relation.persistence != 'u' {
        statements.push(format!("ALTER TABLE {name} SET LOGGED;"));
    }
    statements.extend(exchange.indexes(name));
    statements.extend(exchange.put_in()?);
    statements.push("COMMIT;".to_owned());
    let rewrite = Step {
        title: format!("A new table {} with the rows of the old one, in one transaction", subject.shown()),
        statements,
        lock: table::lock_text(subject, "until the transaction ends"),
    };
    Ok(Plan { steps: vec![rewrite, statistics(subject), exchange.drop_old()], warnings, ..Plan::default() })
}

/// Types that columns get.
pub(super) fn prepare(subject: &Subject<'_>) -> Vec<String> {
    let prepare = subject.changes.retyped().flat_map(|(_, retype)| &retype.prepare);
    prepare.map(|statement| format!("{};", statement.trim().trim_end_matches(';'))).collect()
}

/// Statistics and the visibility map.
pub(super) fn statistics(subject: &Subject<'_>) -> Step {
    Step {
        title: "Statistics and the visibility map of the new table".to_owned(),
        // What the session has counted goes first: added later, it would pass for rows that came after the VACUUM.
        statements: vec![
            "DO $$ BEGIN PERFORM pg_catalog.pg_stat_force_next_flush(); END $$;".to_owned(),
            format!("VACUUM (ANALYZE) {};", subject.name),
        ],
        lock: String::new(),
    }
}

/// A publication of all tables, or of the schema's, publishes whatever is written to a new table.
pub(super) fn is_published_anyway(subject: &Subject<'_>) -> bool {
    subject.relation.publications.iter().any(|publication| publication.scope == "all")
}

/// What a new table cannot have.
pub(super) fn check_new(subject: &Subject<'_>) -> Result<(), PlanError> {
    let relation = subject.relation;
    let mut reasons = super::users::obstacles_of_rows(subject);
    if let Some(of_type) = &relation.of_type {
        reasons.push(format!("it is a table of type {of_type}, whose columns have the type's order"));
    }
    let is_related = !relation.parents.is_empty() || !relation.children.is_empty();
    for (column, _) in subject.changes.retyped() {
        let inherited = column.old.is_some_and(|old| old.is_inherited) || is_related;
        if inherited {
            reasons.push(format!("column {} is inherited: change its type in the parent", column.name));
        }
        reasons.extend(foreign_keys(subject, column.name));
    }
    if is_related && subject.changes.columns.iter().any(|column| column.old.is_none()) {
        reasons.push("an inherited table gets new columns only from its parent".to_owned());
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(PlanError::refused(subject.table, reasons)),
    }
}

/// Foreign keys whose other side would have another type.
pub(super) fn foreign_keys(subject: &Subject<'_>, column: &str) -> Vec<String> {
    let is_integer = |name: &str| ["smallint", "integer", "bigint", "int2", "int4", "int8"].contains(&name);
    let stays_integer = subject.changes.retyped().any(|(new, retype)| {
        new.name == column
            && is_integer(&retype.type_name)
            && new.old.is_some_and(|old| is_integer(&old.type_name))
    });
    if stays_integer {
        return Vec::new();
    }
    let has = |columns: &[String]| columns.iter().any(|name| name == column);
    let relation = subject.relation;
    let out = relation.constraints.iter().filter(|key| key.kind == 'f' && has(&key.columns));
    let out = out.map(|key| (key.name.as_str(), key.partner.as_deref().unwrap_or_default()));
    let keys = out.chain(
        relation
            .referenced
            .iter()
            .filter(|key| has(&key.columns))
            .map(|key| (key.name.as_str(), key.table.as_str())),
    );
    keys.map(|(key, other)| {
        format!("foreign key {key} connects column {column} to a column of {other}; the types of both must change together, in place")
    })
    .collect()
}

pub(super) fn warnings(subject: &Subject<'_>, users: &Users<'_>) -> Vec<String> {
    let (relation, name) = (subject.relation, subject.shown());
    let mut warnings = Vec::new();
    if !subject.changes.keeps_order() {
        warnings.push(format!(
            "{name}: SELECT *, INSERT and COPY without a list of columns get the new order; look for them \
             in applications and in functions with text bodies"
        ));
    }
    warnings.extend([
        format!("{name}: needs room for a second table with its indexes until the old one is dropped"),
        format!(
            "{name}: counters of pg_stat_all_tables are reset; prepared statements of open sessions may fail once"
        ),
    ]);
    for index in relation.indexes.iter().filter(|index| !index.is_valid) {
        warnings.push(format!("index {} is not valid, and is not recreated", shown(&index.name)));
    }
    for view in users.recreated.iter().filter(|view| view.kind == 'm') {
        warnings.push(format!("materialized view {} is dropped and recreated", shown(&view.name)));
    }
    for trigger in &subject.definition.event_triggers {
        warnings.push(format!(
            "event trigger {} is enabled, and fires for the statements of this script",
            shown(trigger)
        ));
    }
    let has_plain_parent = relation.parents.iter().any(|parent| !parent.is_partition);
    if has_plain_parent && relation.columns.iter().any(|column| column.is_inherited && !column.is_local) {
        warnings.push(format!(
            "{name}: inherited columns also become its own: if they are dropped from the parent, they stay here"
        ));
    }
    if !relation.children.is_empty() {
        warnings.push(format!("{name}: inherited columns of its children also become their own"));
    }
    if relation.parents.iter().any(|parent| parent.has_default) {
        warnings.push(format!("{name}: attaching the partition reads the default partition, under the lock"));
    }
    if subject.changes.retyped().next().is_some() {
        warnings.push(format!(
            "{name}: indexes, constraints and views that use a column with a new type are recreated from \
             their definitions; if one does not fit the new type, nothing is changed"
        ));
    }
    warnings
}
