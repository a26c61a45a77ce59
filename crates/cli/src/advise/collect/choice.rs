//! Which tables are looked at, and how many bytes each may give. Pure.

use pgshrink_advisor::snapshot::{ForeignKey, Table};
use std::collections::{BTreeMap, BTreeSet};

/// What was asked for on the command line.
#[derive(Clone, Debug, Default)]
pub(in crate::advise) struct Wanted {
    /// Patterns of `--table`; none: all.
    pub(in crate::advise) tables: Vec<String>,
    /// Names of `--schema`; none: all.
    pub(in crate::advise) schemas: Vec<String>,
    /// Smaller tables are counted only.
    pub(in crate::advise) table_bytes_min: u64,
    /// Bytes that one table may give.
    pub(in crate::advise) table_bytes_max: u64,
    /// Bytes that all may give.
    pub(in crate::advise) total_bytes_max: u64,
    /// Values and pages are read.
    pub(in crate::advise) has_values: bool,
}

impl Wanted {
    /// Whether the patterns name it.
    pub(super) fn names(&self, table: &Table) -> bool {
        let full = format!("{}.{}", table.schema, table.name);
        let fits = |pattern: &String| match pattern.contains('.') {
            true => matches(pattern, &full),
            false => matches(pattern, &table.name),
        };
        (self.tables.is_empty() || self.tables.iter().any(fits))
            && (self.schemas.is_empty() || self.schemas.contains(&table.schema))
    }

    /// Each `--table` and `--schema` that no table fits; all of them if none fits all.
    pub(super) fn idle(&self, tables: &[&Table]) -> Vec<String> {
        let alone = |tables: &[String], schemas: &[String]| Wanted {
            tables: tables.to_vec(),
            schemas: schemas.to_vec(),
            ..Wanted::default()
        };
        let is_idle = |wanted: &Wanted| !tables.iter().any(|table| wanted.names(table));
        let is_all = is_idle(self);
        let of_tables = self.tables.chunks(1).map(|one| ("--table", one, alone(one, &[])));
        let of_schemas = self.schemas.chunks(1).map(|one| ("--schema", one, alone(&[], one)));
        let idle = of_tables.chain(of_schemas).filter(|(_, _, wanted)| is_all || is_idle(wanted));
        idle.map(|(flag, one, _)| format!("{flag} {}", one.concat())).collect()
    }
}

/// A pattern of `*`, `?` and characters that stand for themselves.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut in_text) = (0, 0);
    // Where to go on when what follows the last `*` does not fit: one character of the text later.
    let mut again: Option<(usize, usize)> = None;
    while in_text < text.len() {
        match pattern.get(at) {
            Some('*') => {
                again = Some((at, in_text));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[in_text] => (at, in_text) = (at + 1, in_text + 1),
            _ => match again {
                Some((star, from)) => {
                    again = Some((star, from + 1));
                    (at, in_text) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// Tables that are described: those that are large enough, alone or with all partitions and children, and those that are bound to
/// one of them by a foreign key or inheritance, whatever their size: a change of the one is a change of the other.
pub(super) fn described(
    tables: &[(&Table, u64)],
    foreign_keys: &BTreeMap<u32, Vec<ForeignKey>>,
    wanted: &Wanted,
) -> BTreeSet<u32> {
    let parents: BTreeMap<u32, u32> = tables.iter().map(|(table, _)| (table.oid, table.parent)).collect();
    let root = |oid: u32| {
        // Parents form no circle in a server. In an answer they might.
        let mut at = oid;
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if parents.contains_key(parent) => at = *parent,
                _ => break,
            }
        }
        at
    };
    let mut trees: BTreeMap<u32, u64> = BTreeMap::new();
    let named = || tables.iter().filter(|(table, _)| wanted.names(table));
    for (table, bytes) in named() {
        let sum = trees.entry(root(table.oid)).or_default();
        *sum = sum.saturating_add(*bytes);
    }
    let is_large = |oid: u32| trees.get(&root(oid)).is_some_and(|bytes| *bytes >= wanted.table_bytes_min);
    let large: BTreeSet<u32> = named().map(|(table, _)| table.oid).filter(|oid| is_large(*oid)).collect();
    let mut described = large.clone();
    for (table, keys) in foreign_keys {
        for key in keys {
            if large.contains(table) || large.contains(&key.foreign_table) {
                described.extend([*table, key.foreign_table]);
            }
        }
    }
    for oid in large {
        let mut at = oid;
        while let Some(parent) = parents.get(&at).filter(|parent| **parent != 0) {
            if !described.insert(*parent) {
                break;
            }
            at = *parent;
        }
    }
    described.retain(|oid| parents.contains_key(oid));
    described
}

/// Shares out a number of bytes: everybody gets what it needs up to a limit that is the same for all, and so high that the sum is not
/// above the total.
pub(super) fn shares(needs: &[u64], total: u64) -> Vec<u64> {
    let mut sorted = needs.to_vec();
    sorted.sort_unstable();
    let (mut left, mut limit) = (total, u64::MAX);
    for (served, need) in sorted.iter().enumerate() {
        let each = left / (sorted.len() - served) as u64;
        if *need > each {
            limit = each;
            break;
        }
        left -= need;
    }
    needs.iter().map(|need| *need.min(&limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_for_names_or_for_schemas_and_names() {
        let table = Table { schema: "sales".to_owned(), name: "order_lines".to_owned(), ..Table::default() };
        let names = |tables: &[&str], schemas: &[&str]| {
            let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            Wanted { tables: own(tables), schemas: own(schemas), ..Wanted::default() }.names(&table)
        };
        assert!(names(&[], &[]) && names(&["order_lines"], &[]) && names(&["sales.order_*"], &["sales"]));
        assert!(names(&["x", "*_l?nes"], &[]) && names(&["s*s.*l*s"], &[]) && names(&["**"], &[]));
        assert!(!names(&["order"], &[]) && !names(&["sales.lines"], &[]) && !names(&["*"], &["public"]));
        assert!(!names(&["sales.*?_"], &[]) && !names(&["order_lines?"], &[]));
    }

    #[test]
    fn patterns_that_no_table_fits_are_told() {
        let named = |schema: &str, name: &str| Table {
            schema: schema.to_owned(),
            name: name.to_owned(),
            ..Table::default()
        };
        let tables = [named("sales", "orders"), named("public", "users")];
        let idle = |names: &[&str], schemas: &[&str]| {
            let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let wanted = Wanted { tables: own(names), schemas: own(schemas), ..Wanted::default() };
            wanted.idle(&tables.each_ref())
        };
        assert_eq!(idle(&[], &[]), [""; 0]);
        assert_eq!(idle(&["orders", "odrers"], &["sales", "slaes"]), ["--table odrers", "--schema slaes"]);
        assert_eq!(idle(&["orders"], &["public"]), ["--table orders", "--schema public"], "none is both");
        assert_eq!(Wanted::default().idle(&[]), [""; 0], "a database without tables");
    }

    #[test]
    fn shares_are_equal_where_there_is_not_enough_and_never_more_than_there_is() {
        assert_eq!(shares(&[10, 20, 30], 100), [10, 20, 30]);
        assert_eq!(shares(&[10, 200, 300], 110), [10, 50, 50]);
        assert_eq!(shares(&[7, 7, 7], 20), [6, 6, 6]);
        assert_eq!(shares(&[5, 1], 0), [0, 0]);
        assert!(shares(&[], 9).is_empty());
    }

    #[test]
    fn small_partitions_of_a_large_table_and_partners_of_large_tables_are_described() {
        let table = |oid, parent| Table { oid, parent, name: format!("t{oid}"), ..Table::default() };
        // A tree 1 > 2, 3; a large table 4 that refers to 5; 6 is small; 7 refers to 4; 8 refers to 6.
        let all: Vec<Table> = (1..=8).map(|oid| table(oid, u32::from(oid == 2 || oid == 3))).collect();
        let bytes = [0, 60, 50, 200, 1, 1, 1, 1];
        let tables: Vec<(&Table, u64)> = all.iter().zip(bytes).collect();
        let key = |foreign_table| vec![ForeignKey { foreign_table, ..ForeignKey::default() }];
        let keys = BTreeMap::from([(4, key(5)), (7, key(4)), (8, key(6))]);
        let wanted = Wanted { table_bytes_min: 100, ..Wanted::default() };
        assert_eq!(described(&tables, &keys, &wanted), BTreeSet::from([1, 2, 3, 4, 5, 7]));
        let wanted = Wanted { tables: vec!["t2".to_owned()], table_bytes_min: 10, ..Wanted::default() };
        assert_eq!(described(&tables, &keys, &wanted), BTreeSet::from([1, 2]));
    }
}
