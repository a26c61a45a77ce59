//! What uses a table and does not belong to it: views, functions, and policies and rules of other tables.
//!
//! A view is bound to a table's OID. `CREATE OR REPLACE VIEW` binds it to another table and keeps everything else about it, as long as its
//! columns stay as they are. Where that cannot be, for materialized views and for columns with another type, the view and all views
//! on it are dropped and made again, with all that belongs to them.

use super::belongings;
use super::bind::{self, bind};
use super::sql::{ident, literal, parameter, qualified};
use super::{PlanError, Subject};
use crate::snapshot::definition::{Elsewhere, Relation};

/// What has to be done about them.
pub(super) struct Users<'a> {
    /// Views that are bound again in their places.
    pub(super) replaced: Vec<&'a Relation>,
    /// Views that are dropped and made again, each behind those that it uses.
    pub(super) recreated: Vec<&'a Relation>,
    /// Functions, policies, rules.
    pub(super) elsewhere: Vec<&'a Elsewhere>,
}

/// `VIEW`, `MATERIALIZED VIEW`, `TABLE`.
pub(super) fn word(relation: &Relation) -> &'static str {
    match relation.kind {
        'v' => "VIEW",
        'm' => "MATERIALIZED VIEW",
        _ => "TABLE",
    }
}

impl<'a> Users<'a> {
    /// Of the table. `is_new`: it is made anew; else columns change in place.
    ///
    /// # Errors
    /// When something cannot be bound or made again.
    pub(super) fn new(subject: &Subject<'a>, is_new: bool) -> Result<Users<'a>, PlanError> {
        let root = subject.relation;
        let mut views: Vec<&Relation> =
            subject.definition.relations.iter().filter(|relation| relation.depth > 0).collect();
        views.sort_by_key(|view| (view.depth, view.oid));
        let mut users = Users { replaced: Vec::new(), recreated: Vec::new(), elsewhere: Vec::new() };
        for view in views {
            let of_table = view.uses.iter().find(|uses| uses.table == root.oid);
            let has_new_type = of_table.is_some_and(|uses| subject.changes.retypes(&uses.columns));
            let on_recreated = view.uses.iter().any(|uses| users.is_recreated(uses.table));
            let is_copy = is_new && of_table.is_some() && view.kind == 'm';
            if has_new_type || on_recreated || is_copy {
                users.recreated.push(view);
            } else if is_new && of_table.is_some() {
                users.replaced.push(view);
            }
        }
        let mut reasons = users.obstacles(subject, is_new);
        let is_for_new = |other: &&Elsewhere| !users.is_recreated(other.relation);
        let elsewhere: Vec<&Elsewhere> = root.elsewhere.iter().filter(is_for_new).collect();
        if is_new {
            users.elsewhere = elsewhere;
        } else {
            let stuck = elsewhere.iter().filter(|other| subject.changes.retypes(&other.columns));
            reasons.extend(
                stuck.map(|other| format!("{} {} uses a column whose type changes", other.kind, other.name)),
            );
        }
        match reasons.is_empty() {
            true => Ok(users),
            false => Err(PlanError::refused(subject.table, reasons)),
        }
    }

    fn is_recreated(&self, oid: u32) -> bool {
        self.recreated.iter().any(|view| view.oid == oid)
    }

    fn obstacles(&self, subject: &Subject<'_>, is_new: bool) -> Vec<String> {
        let changes_columns = subject.changes.retyped().next().is_some();
        let own = subject.relation.obstacles.iter();
        let own = own.filter(|obstacle| is_new || changes_columns && obstacle.is_for_columns);
        let mut reasons: Vec<String> = own.map(|obstacle| obstacle.what.clone()).collect();
        for view in &self.recreated {
            let name = qualified(&view.schema, &view.name);
            let has = |what: &str| format!("view {name} has to be recreated, and {what}");
            reasons.extend(view.obstacles.iter().map(|obstacle| has(&obstacle.what)));
            let bound = view.elsewhere.iter().filter(|other| !self.is_recreated(other.relation));
            reasons.extend(bound.map(|other| has(&format!("{} {} uses it", other.kind, other.name))));
            reasons.extend(
                view.extension.iter().map(|extension| has(&format!("is part of extension {extension}"))),
            );
            let is_published = view.publications.iter().any(|publication| publication.scope == "table");
            reasons.extend(is_published.then(|| has("it is published")));
        }
        reasons
    }

    /// Drops what is made again.
    pub(super) fn drop(&self) -> Vec<String> {
        let drop = |view: &&Relation| format!("DROP {} {};", word(view), qualified(&view.schema, &view.name));
        self.recreated.iter().rev().map(drop).collect()
    }

    /// Binds everything to the new table, which has the old one's name. `is_filled`: materialized views get their rows at once.
    ///
    /// # Errors
    /// When a text counts the table's columns in a way that is not understood, or shows whole rows.
    pub(super) fn bind(&self, subject: &Subject<'_>, is_filled: bool) -> Result<Vec<String>, PlanError> {
        let mut statements = Vec::new();
        for view in &self.replaced {
            let query = bound(subject, view.query.as_deref().unwrap_or_default(), &view.name)?;
            statements.push(create_view(view, &query, "CREATE OR REPLACE"));
        }
        for view in &self.recreated {
            let query = bound(subject, view.query.as_deref().unwrap_or_default(), &view.name)?;
            match view.kind {
                'm' => statements.push(create_copy(view, &query, is_filled)),
                _ => statements.push(create_view(view, &query, "CREATE")),
            }
            statements.extend(belongings::of_view(view));
        }
        for other in &self.elsewhere {
            statements.push(bound(subject, &other.sql, &other.name)?.trim_end().to_owned() + ";");
        }
        Ok(statements)
    }

    /// Fills materialized views that were made without rows.
    pub(super) fn refresh(&self) -> Vec<String> {
        let copies = self.recreated.iter().filter(|view| view.kind == 'm' && view.is_populated);
        copies
            .map(|view| format!("REFRESH MATERIALIZED VIEW {};", qualified(&view.schema, &view.name)))
            .collect()
    }
}

/// A text that means the same for the new table.
///
/// # Errors
/// It would not: it counts columns, or shows whole rows.
pub(super) fn bound(subject: &Subject<'_>, text: &str, what: &str) -> Result<String, PlanError> {
    if !subject.changes.needs_new_table {
        return Ok(text.to_owned());
    }
    let order = subject.changes.order(subject.relation);
    let Some(bound) = bind(text, bound_table(subject, &order)) else {
        let reason = format!("{what} renames the table's columns by position");
        return Err(PlanError::refused(subject.table, [reason]));
    };
    if bound.has_whole_rows && changes_rows(subject) {
        return Err(PlanError::refused(subject.table, [whole_rows(what)]));
    }
    Ok(bound.sql)
}

fn bound_table<'t>(subject: &Subject<'t>, order: &'t [Option<usize>]) -> bind::Table<'t> {
    let relation = subject.relation;
    bind::Table { schema: &relation.schema, name: &relation.name, order, count: relation.columns.len() }
}

/// Whether a row of the new table has other fields than one of the old table, or in another order.
fn changes_rows(subject: &Subject<'_>) -> bool {
    !subject.changes.keeps_order() || subject.changes.retyped().next().is_some()
}

fn whole_rows(what: &str) -> String {
    format!("{what} uses whole rows, and the change would alter their columns or the order of their columns")
}

/// Why what belongs to the table would not mean the same for the new one.
pub(super) fn obstacles_of_rows(subject: &Subject<'_>) -> Vec<String> {
    if !changes_rows(subject) {
        return Vec::new();
    }
    let (relation, order) = (subject.relation, subject.changes.order(subject.relation));
    let table = bound_table(subject, &order);
    let constraints = relation.constraints.iter();
    let constraints = constraints.map(|key| (format!("constraint {}", key.name), &key.definition));
    let triggers = relation.triggers.iter();
    let triggers = triggers.map(|trigger| (format!("trigger {}", trigger.name), &trigger.definition));
    let indexes = relation.indexes.iter().map(|index| (format!("index {}", index.name), &index.tail));
    let statistics = relation.statistics.iter();
    let statistics = statistics.map(|object| (format!("statistics {}", object.name), &object.definition));
    let texts = constraints.chain(triggers).chain(indexes).chain(statistics);
    texts.filter(|(_, text)| bind::has_whole_rows(text, table)).map(|(what, _)| whole_rows(&what)).collect()
}

fn create_view(view: &Relation, query: &str, create: &str) -> String {
    let name = qualified(&view.schema, &view.name);
    let options = options(&view.options, &[]);
    format!("{create} VIEW {name}{options} AS\n{};", query.trim().trim_end_matches(';'))
}

fn create_copy(view: &Relation, query: &str, is_filled: bool) -> String {
    let name = qualified(&view.schema, &view.name);
    let options = options(&view.options, &view.toast_options);
    let method = ident(&view.access_method);
    let space = match view.tablespace.is_empty() {
        true => String::new(),
        false => format!(" TABLESPACE {}", ident(&view.tablespace)),
    };
    let data = if is_filled && view.is_populated { "WITH DATA" } else { "WITH NO DATA" };
    let query = query.trim().trim_end_matches(';');
    format!("CREATE MATERIALIZED VIEW {name} USING {method}{options}{space} AS\n{query}\n{data};")
}

/// ` WITH (…)`, or nothing.
pub(super) fn options(own: &[String], toast: &[String]) -> String {
    let own = own.iter().map(|option| parameter(option));
    let toast = toast.iter().map(|option| match option.split_once('=') {
        Some((name, value)) => format!("toast.{}={}", ident(name), literal(value)),
        None => format!("toast.{}", ident(option)),
    });
    let all: Vec<String> = own.chain(toast).collect();
    if all.is_empty() { String::new() } else { format!(" WITH ({})", all.join(", ")) }
}
