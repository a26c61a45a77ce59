//! The columns of a table after its edits, and where their values come from.

use super::PlanError;
use super::sql::{ident, names, substitute};
use crate::edit::{Edit, Extraction, Recompression, Retype};
use crate::snapshot::Table;
use crate::snapshot::definition::{Column, Relation};

/// A column of the new table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NewColumn<'a> {
    /// Not quoted.
    pub(super) name: &'a str,
    /// The column that it comes from; None: it is extracted from a document.
    pub(super) old: Option<&'a Column>,
    /// In SQL.
    pub(super) type_name: &'a str,
    /// Its value from a row of the old table. None: it is generated.
    pub(super) source: Option<String>,
    /// Default or generation, in the new type.
    pub(super) default: Option<String>,
    /// What is done to the column that it comes from.
    pub(super) change: Change<'a>,
}

/// What is done to a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change<'a> {
    Kept,
    Retyped(&'a Retype),
    Recompressed(&'a Recompression),
    /// Keys were taken out of it, or it is one of them.
    Extracted(&'a Extraction),
}

/// A table's changes.
#[derive(Clone, Debug)]
pub(super) struct Changes<'a> {
    /// The columns, in the new order.
    pub(super) columns: Vec<NewColumn<'a>>,
    pub(super) fillfactor: Option<u8>,
    pub(super) toast_target: Option<u16>,
    /// Columns stand in another order, or dropped ones go, or there are new ones.
    pub(super) needs_new_table: bool,
}

impl<'a> Changes<'a> {
    /// Of these edits, with the columns in this order: indexes in the table's columns, and behind the last of those, one for each
    /// column that is extracted.
    ///
    /// # Errors
    /// When an edit or the order does not fit the table, or cannot be planned.
    pub(super) fn new(
        table: &Table,
        relation: &'a Relation,
        edits: &'a [Edit],
        order: Option<&[usize]>,
    ) -> Result<Changes<'a>, PlanError> {
        let (mut fillfactor, mut toast_target) = (None, None);
        let mut needs_new_table = order.is_some();
        let mut of_columns: Vec<(usize, Change<'a>)> = Vec::new();
        for edit in edits {
            match edit {
                Edit::Reorder | Edit::DropDead => needs_new_table = true,
                Edit::Retype(retype) => of_columns.push((retype.column, Change::Retyped(retype))),
                Edit::Recompress(change) => of_columns.push((change.column, Change::Recompressed(change))),
                Edit::Extract(extraction) => {
                    needs_new_table = true;
                    of_columns.push((extraction.column, Change::Extracted(extraction)));
                }
                Edit::Fillfactor(percent) => fillfactor = Some(*percent),
                Edit::ToastTarget(bytes) => toast_target = Some(*bytes),
                // No proposal has it: `advise` recommends none.
                Edit::Remove(_) => {
                    let reason = "removing a column changes the results of queries: the owner of the application \
                         has to write this";
                    return Err(PlanError::refused(table, [reason.to_owned()]));
                }
            }
        }
        check_matches(table, relation, &of_columns)?;
        let mut columns = Vec::new();
        for old in &relation.columns {
            let change = of_columns.iter().find(|(index, _)| index + 1 == old.number as usize);
            columns.push(changed(table, old, change.map_or(Change::Kept, |(_, change)| *change))?);
        }
        // Where each stands in the order: by index in the table's columns, then extracted ones.
        let mut places: Vec<usize> = relation.columns.iter().map(|old| old.number as usize - 1).collect();
        for (_, change) in &of_columns {
            let Change::Extracted(extraction) = change else { continue };
            for added in &extraction.added {
                places.push(table.columns.len() + columns.len() - relation.columns.len());
                columns.push(NewColumn {
                    name: &added.layout.name,
                    old: None,
                    type_name: &added.type_name,
                    source: Some(added.expression.clone()),
                    default: None,
                    change: *change,
                });
            }
        }
        let columns = match order {
            Some(order) => arranged(table, columns, &places, order)?,
            None => columns,
        };
        Ok(Changes { columns, fillfactor, toast_target, needs_new_table })
    }

    /// Whether the columns stand as they did, and none is new.
    pub(super) fn keeps_order(&self) -> bool {
        let numbers = self.columns.iter().map(|column| column.old.map(|old| old.number));
        numbers.is_sorted() && self.columns.iter().all(|column| column.old.is_some())
    }

    /// Columns that get another type.
    pub(super) fn retyped(&self) -> impl Iterator<Item = (&NewColumn<'a>, &'a Retype)> {
        self.columns.iter().filter_map(|column| match column.change {
            Change::Retyped(retype) => Some((column, retype)),
            _ => None,
        })
    }

    /// Whether one of these names is of a column with another type.
    pub(super) fn retypes(&self, names: &[String]) -> bool {
        self.retyped().any(|(column, _)| names.iter().any(|name| name == column.name))
    }

    /// Which of the old table's live columns each new one is.
    pub(super) fn order(&self, relation: &Relation) -> Vec<Option<usize>> {
        let place = |old: &Column| relation.columns.iter().position(|column| column.number == old.number);
        self.columns.iter().map(|column| column.old.and_then(place)).collect()
    }
}

/// Definition and snapshot speak of the same columns, and edits of columns that there are, once each.
fn check_matches(
    table: &Table,
    relation: &Relation,
    changes: &[(usize, Change<'_>)],
) -> Result<(), PlanError> {
    let live = table.columns.iter().enumerate().filter(|(_, column)| !column.is_dropped);
    let same = live.clone().count() == relation.columns.len()
        && live.zip(&relation.columns).all(|((index, column), old)| {
            i16::try_from(index + 1) == Ok(old.number) && column.name == old.name
        });
    if !same {
        return Err(PlanError::Stale { table: PlanError::name(table) });
    }
    for (place, (index, _)) in changes.iter().enumerate() {
        let exists = table.columns.get(*index).is_some_and(|column| !column.is_dropped);
        if !exists || changes[..place].iter().any(|(other, _)| other == index) {
            let what = format!("column {} of the edits does not exist, or has two edits", index + 1);
            return Err(PlanError::Order { table: PlanError::name(table), what });
        }
    }
    Ok(())
}

fn arranged<'a>(
    table: &Table,
    columns: Vec<NewColumn<'a>>,
    places: &[usize],
    order: &[usize],
) -> Result<Vec<NewColumn<'a>>, PlanError> {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    let mut all = places.to_vec();
    all.sort_unstable();
    if sorted != all {
        let what = format!("the order {order:?}, expected each of {all:?} once");
        return Err(PlanError::Order { table: PlanError::name(table), what });
    }
    let find = |index: &usize| places.iter().position(|place| place == index);
    Ok(order.iter().filter_map(find).filter_map(|place| columns.get(place).cloned()).collect())
}

fn changed<'a>(table: &Table, old: &'a Column, change: Change<'a>) -> Result<NewColumn<'a>, PlanError> {
    let own = ident(&old.name);
    let kept = NewColumn {
        name: &old.name,
        old: Some(old),
        type_name: &old.type_name,
        source: old.generated.is_empty().then(|| own.clone()),
        default: old.default.clone(),
        change,
    };
    let refuse = |reason: String| Err(PlanError::refused(table, [reason]));
    if change != Change::Kept && !old.generated.is_empty() {
        return refuse(format!("column {} is generated", old.name));
    }
    Ok(match change {
        Change::Kept => kept,
        Change::Recompressed(_) => NewColumn { source: Some(rewritten(&own, &old.type_name)), ..kept },
        Change::Extracted(extraction) => {
            NewColumn { source: Some(extraction.rest_expression.clone()), ..kept }
        }
        Change::Retyped(retype) => {
            let default = match &old.default {
                None => None,
                Some(default) => match substitute(&retype.using, &old.name, &format!("({default})")) {
                    Some(converted) => Some(converted),
                    None => {
                        return refuse(format!(
                            "the conversion of {} does not name it: {}",
                            old.name, retype.using
                        ));
                    }
                },
            };
            NewColumn { type_name: &retype.type_name, source: Some(retype.using.clone()), default, ..kept }
        }
    })
}

/// A value that is not the stored one: the server copies compressed values as they are, whatever the column's settings.
fn rewritten(column: &str, type_name: &str) -> String {
    match type_name {
        "bytea" => format!("{column} || ''::bytea"),
        _ => format!("({column}::text || '')::{type_name}"),
    }
}

/// Generated columns that use a column with another type.
pub(super) fn generated_from<'a>(relation: &'a Relation, column: &str) -> Option<&'a str> {
    let uses = |generated: &&Column| {
        !generated.generated.is_empty()
            && generated.default.as_ref().is_some_and(|expression| names(expression, column))
    };
    relation.columns.iter().find(uses).map(|generated| generated.name.as_str())
}
