//! What must change together: both sides of foreign keys, and all partitions of a table.

use super::values::{is_changeable, is_key};
use super::{Conversion, conversion, misfit_query, substituted};
use crate::snapshot::{Column, ForeignKey, Snapshot, Table, TableKind};
use crate::sql::{qualified, quote_ident};
use std::collections::{BTreeSet, VecDeque};

/// Columns in one group, at most: more foreign keys than that are no single change.
const MEMBERS_MAX: usize = 64;

/// A table and an index in its columns.
type Member<'s> = (&'s Table, usize);

/// Columns that must have the same type.
pub(super) struct Partners<'s> {
    /// The column itself first; of a partition that of the partitioned table.
    members: Vec<Member<'s>>,
    /// Foreign keys between them, with the tables that have them.
    keys: Vec<(&'s Table, &'s ForeignKey)>,
    /// The first member stands for a partition's column.
    is_partition: bool,
}

impl<'s> Partners<'s> {
    /// None: one of them cannot be changed or is not known.
    pub(super) fn of(snapshot: &'s Snapshot, table: &'s Table, index: usize) -> Option<Partners<'s>> {
        if table.parent != 0 {
            let root = root(snapshot, table, index)?;
            return Some(Partners { members: vec![root], keys: Vec::new(), is_partition: true });
        }
        let mut members: Vec<Member<'s>> = Vec::new();
        let mut keys: Vec<(&Table, &ForeignKey)> = Vec::new();
        let mut seen: BTreeSet<(u32, usize)> = [(table.oid, index)].into();
        let mut queue: VecDeque<Member<'s>> = [(table, index)].into();
        while let Some(member) = queue.pop_front() {
            if !is_free(member) || members.len() == MEMBERS_MAX {
                return None;
            }
            members.push(member);
            let found = keys_of(snapshot, member);
            if found.iter().filter(|(_, key)| refers_to(key, member)).count() < referring(member) {
                return None;
            }
            for (of, key) in found {
                if key.definition.is_empty() || key.columns.len() != key.foreign_columns.len() {
                    return None;
                }
                let foreign = snapshot.table(key.foreign_table)?;
                for pair in pairs(of, foreign, key)? {
                    if pair.contains_member(member) {
                        queue.extend(pair.0.iter().filter(|side| seen.insert((side.0.oid, side.1))));
                    }
                }
                if !keys.iter().any(|(other, known)| other.oid == of.oid && known.name == key.name) {
                    keys.push((of, key));
                }
            }
        }
        Some(Partners { members, keys, is_partition: false })
    }

    /// Whether the column can change alone.
    pub(super) fn are_none(&self) -> bool {
        self.members.len() == 1 && !self.is_partition
    }

    /// Whether the sampled values of all of them fit.
    pub(super) fn agree(&self, snapshot: &Snapshot, with: &Conversion) -> bool {
        let has_values = |table: &Table| table.sample.as_ref().is_some_and(|sample| !sample.rows.is_empty());
        let agrees = |(table, index): &Member<'_>| match conversion(snapshot, table, *index) {
            Some(other) => other.type_name == with.type_name && other.misfit == with.misfit,
            // Without a sample the proof says it.
            None => !has_values(table),
        };
        // Each partition would choose on its own how wide a number is.
        let is_settled = !(self.is_partition && with.depends_on_range);
        is_settled && self.members.iter().skip(1).all(agrees)
    }

    /// Counts what does not fit in all of them.
    pub(super) fn proof(&self, conversion: &Conversion) -> String {
        let queries: Vec<_> = self
            .members
            .iter()
            .filter_map(|(table, index)| Some(misfit_query(table, table.columns.get(*index)?, conversion)))
            .collect();
        match queries.as_slice() {
            [one] => one.clone(),
            several => format!("SELECT ({})", several.join(") + (")),
        }
    }

    /// Statements in their order: foreign keys away, types, foreign keys back.
    pub(super) fn sql(&self, conversion: &Conversion) -> Vec<String> {
        let mut sql = conversion.prepare.clone();
        let name = |table: &Table| qualified(&table.schema, &table.name);
        sql.extend(self.keys.iter().map(|(table, key)| {
            format!("ALTER TABLE {} DROP CONSTRAINT {};", name(table), quote_ident(&key.name))
        }));
        sql.extend(self.members.iter().filter_map(|(table, index)| {
            Some(format!("ALTER TABLE {} {};", name(table), actions(table.columns.get(*index)?, conversion)))
        }));
        sql.extend(self.keys.iter().map(|(table, key)| {
            format!(
                "ALTER TABLE {} ADD CONSTRAINT {} {};",
                name(table),
                quote_ident(&key.name),
                key.definition
            )
        }));
        sql
    }

    /// What changes with the column, in words; empty if nothing does.
    pub(super) fn reason(&self) -> String {
        let of = |(table, index): &Member<'_>| {
            let column =
                table.columns.get(*index).map(|column| quote_ident(&column.name)).unwrap_or_default();
            format!("{}.{column}", qualified(&table.schema, &table.name))
        };
        match (self.is_partition, self.members.as_slice()) {
            (true, [root, ..]) => {
                format!(" All partitions change with {}; the bytes are those of this one.", of(root))
            }
            (false, [_, others @ ..]) if !others.is_empty() => {
                let names: Vec<_> = others.iter().map(of).collect();
                format!(" Foreign keys tie it to {}, which must change too.", names.join(", "))
            }
            _ => String::new(),
        }
    }

    /// Locks, space and WAL.
    pub(super) fn cost(&self) -> String {
        let tables = match (self.is_partition, self.members.len()) {
            (true, _) => "all partitions",
            (false, 1) => "the table",
            _ => "all these tables",
        };
        let keys = if self.keys.is_empty() { "" } else { " Foreign keys are checked again, row by row." };
        format!(
            "ACCESS EXCLUSIVE lock while {tables} and the indexes are rewritten. Needs the space of the \
             new copies until the old ones are gone, and as much WAL.{keys}"
        )
    }
}

/// What `ALTER TABLE` does to the column. Its default has the old type, so that it is taken away and put back as the new one.
fn actions(column: &Column, conversion: &Conversion) -> String {
    let name = quote_ident(&column.name);
    let using = substituted(&conversion.using, column, &name);
    // Without that it would get the type's own.
    let collation = match (&column.collation, conversion.type_name.as_str()) {
        (Some(collation), "text") => format!(" COLLATE {collation}"),
        _ => String::new(),
    };
    let change = format!("ALTER COLUMN {name} TYPE {}{collation} USING {using}", conversion.type_name);
    match column.default.as_deref().filter(|_| !column.identity.is_alphabetic()) {
        Some(default) => {
            let default = substituted(&conversion.using, column, &format!("({default})"));
            format!("ALTER COLUMN {name} DROP DEFAULT, {change}, ALTER COLUMN {name} SET DEFAULT {default}")
        }
        None => change,
    }
}

/// A column here and the one there that it refers to.
struct Pair<'s>([Member<'s>; 2]);

impl Pair<'_> {
    fn contains_member(&self, (table, index): Member<'_>) -> bool {
        self.0.iter().any(|side| side.0.oid == table.oid && side.1 == index)
    }
}

/// The pairs of columns of a foreign key. None: it has columns that are not there.
fn pairs<'s>(of: &'s Table, foreign: &'s Table, key: &ForeignKey) -> Option<Vec<Pair<'s>>> {
    let index = |table: &Table, number: i16| {
        usize::try_from(number).ok()?.checked_sub(1).filter(|index| *index < table.columns.len())
    };
    let pair = |(here, there): (&i16, &i16)| {
        Some(Pair([(of, index(of, *here)?), (foreign, index(foreign, *there)?)]))
    };
    key.columns.iter().zip(&key.foreign_columns).map(pair).collect()
}

fn is_number(number: i16, index: usize) -> bool {
    usize::try_from(number) == Ok(index + 1)
}

fn refers_to(key: &ForeignKey, (table, index): Member<'_>) -> bool {
    key.foreign_table == table.oid && key.foreign_columns.iter().any(|number| is_number(*number, index))
}

/// Foreign keys with the column on one of their sides.
fn keys_of<'s>(snapshot: &'s Snapshot, member: Member<'s>) -> Vec<(&'s Table, &'s ForeignKey)> {
    let (table, index) = member;
    // Most columns are no keys, and most databases have many tables.
    if !is_key(table, index) {
        return Vec::new();
    }
    let of_table = |of: &'s Table| {
        of.foreign_keys.iter().filter_map(move |key| {
            let is_here = of.oid == table.oid && key.columns.iter().any(|number| is_number(*number, index));
            (is_here || refers_to(key, member)).then_some((of, key))
        })
    };
    snapshot.tables.iter().flat_map(of_table).collect()
}

/// How many foreign keys of other tables need indexes of the column: as many must be in the snapshot.
fn referring((table, index): Member<'_>) -> usize {
    let has_column =
        |of: &&crate::snapshot::Index| of.columns.iter().any(|key| is_number(key.table_column, index));
    table.indexes.iter().filter(has_column).map(|of| of.referenced_by as usize).sum()
}

/// A column of a table that has no partitions and is none, and that can be changed.
fn is_free((table, index): Member<'_>) -> bool {
    let is_alone = table.kind == TableKind::Table && table.parent == 0 && !table.has_children;
    is_alone && is_changeable(table, index)
}

/// The column of the partitioned table above all, whose type changes in all partitions. None: the column is part of a
/// partition key or of a foreign key, or the table inherits otherwise.
fn root<'s>(snapshot: &'s Snapshot, table: &'s Table, index: usize) -> Option<Member<'s>> {
    let name = table.columns.get(index)?.name.as_str();
    let mut member = (table, index);
    // No server nests partitions as deep as this; a snapshot with a circle does.
    for _ in 0..64 {
        let (of, index) = member;
        if !is_changeable(of, index) || !keys_of(snapshot, member).is_empty() || referring(member) > 0 {
            return None;
        }
        if of.parent == 0 {
            return (of.kind == TableKind::Partitioned).then_some(member);
        }
        let parent = snapshot
            .table(of.parent)
            .filter(|parent| of.is_partition && parent.kind == TableKind::Partitioned)?;
        let index = parent.columns.iter().position(|column| !column.is_dropped && column.name == name)?;
        // A default of its own would have to be changed apart.
        if parent.columns[index].default != of.columns[member.1].default {
            return None;
        }
        let key = parent.partition_key.as_ref()?;
        if key.iter().any(|number| *number == 0 || is_number(*number, index)) {
            return None;
        }
        member = (parent, index);
    }
    None
}
