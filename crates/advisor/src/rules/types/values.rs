//! The sampled values of a column whose type may change.

use crate::snapshot::sample::Place;
use crate::snapshot::{Column, Snapshot, Table, TableKind};
use std::collections::BTreeSet;

/// Values that are not NULL, at least, unless the whole table was read.
const VALUES_MIN: usize = 100;

/// A column's sampled values.
pub(super) struct Values<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) table: &'s Table,
    pub(super) column: &'s Column,
    /// In the rows' order, without the blanks of `character(n)` at the end. None: NULL.
    pub(super) texts: Vec<Option<&'s str>>,
    /// The column's default, if it is a constant: it must fit too.
    pub(super) default: Option<String>,
    /// `pg_column_size` of each.
    sizes: &'s [u32],
    /// See [`is_key`].
    pub(super) is_key: bool,
}

impl<'s> Values<'s> {
    /// None: there are too few of them, some were too large to be read, or the column's type cannot be changed.
    pub(super) fn of(snapshot: &'s Snapshot, table: &'s Table, index: usize) -> Option<Values<'s>> {
        let column = table.columns.get(index)?;
        if !is_changeable(table, index) {
            return None;
        }
        let sample = table.sample.as_ref()?;
        let sampled = sample.columns.get(index)?;
        let values = sampled.values.as_ref()?;
        if values.len() != sampled.places.len() || values.len() != sampled.sizes.len() {
            return None;
        }
        let is_padded = column.base_type_id == "bpchar";
        let text = |(value, place): (&'s Option<String>, &Place)| match value {
            Some(text) if is_padded => Ok(Some(text.trim_end_matches(' '))),
            Some(text) => Ok(Some(text.as_str())),
            None if *place == Place::Null => Ok(None),
            None => Err(()),
        };
        let texts: Vec<_> = values.iter().zip(&sampled.places).map(text).collect::<Result<_, ()>>().ok()?;
        let count = texts.iter().flatten().count();
        if count < if sample.is_whole { 1 } else { VALUES_MIN } {
            return None;
        }
        let default = column.default.as_deref().and_then(constant);
        let default =
            default.map(|text| if is_padded { text.trim_end_matches(' ').to_owned() } else { text });
        let sizes = &sampled.sizes;
        let is_key = is_key(table, index);
        Some(Values { snapshot, table, column, texts, default, sizes, is_key })
    }

    /// Those that are not NULL, and the default.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.sampled().chain(self.default.as_deref())
    }

    /// Those of rows that are not NULL.
    pub(super) fn sampled(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().flatten().copied()
    }

    /// How many rows have one.
    pub(super) fn count(&self) -> usize {
        self.sampled().count()
    }

    /// Different ones, of the default too.
    pub(super) fn distinct(&self) -> BTreeSet<&str> {
        self.all().collect()
    }

    /// Their images. None: one of them has none, or the default has none.
    pub(super) fn images(&self, image: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<Option<Vec<u8>>>> {
        if let Some(default) = &self.default {
            image(default)?;
        }
        self.texts.iter().map(|text| text.map_or(Some(None), |text| image(text).map(Some))).collect()
    }

    /// Whether the values as they are take more bytes than these.
    pub(super) fn are_larger_than(&self, images: &[Option<Vec<u8>>]) -> bool {
        let now: u64 = self.sizes.iter().map(|size| u64::from(*size)).sum();
        let after: u64 = images.iter().flatten().map(|image| image.len() as u64).sum();
        after < now
    }

    /// The average bytes of a value, with its header: for texts that people read.
    pub(super) fn average(&self) -> String {
        let sum: u64 = self.sizes.iter().map(|size| u64::from(*size)).sum();
        average(sum, self.count())
    }
}

/// One digit behind the point where it is not zero.
pub(super) fn average(sum: u64, count: usize) -> String {
    let tenths = sum.saturating_mul(10) / (count.max(1) as u64);
    if tenths.is_multiple_of(10) {
        format!("{}", tenths / 10)
    } else {
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

/// Whether `ALTER COLUMN … TYPE` can work, apart from foreign keys and partitions.
pub(in crate::rules) fn is_changeable(table: &Table, index: usize) -> bool {
    let Some(column) = table.columns.get(index) else { return false };
    let is_table =
        matches!(table.kind, TableKind::Table | TableKind::Partitioned) && table.extension.is_none();
    let is_known = column.type_id != column.base_type_id || column.type_schema == "pg_catalog";
    let is_plain = !column.is_dropped && !column.generated.is_alphabetic() && column.type_kind == 'b';
    let is_source = table.columns.iter().any(|other| {
        other.generated.is_alphabetic()
            && other.default.as_deref().is_some_and(|text| mentions(text, &column.name))
    });
    is_table && is_known && is_plain && !is_source && are_indexes_changeable(table, index)
}

/// Whether all indexes with the column exist for other types too, by the same definition.
fn are_indexes_changeable(table: &Table, index: usize) -> bool {
    let name = table.columns[index].name.as_str();
    let is_this = |number: i16| usize::try_from(number) == Ok(index + 1);
    table.indexes.iter().all(|of| {
        let in_expression = |text: &str| mentions(text, name);
        let has_expression =
            of.columns.iter().any(|key| key.table_column == 0 && in_expression(&key.definition))
                || of.predicate.as_deref().is_some_and(in_expression);
        let mut keys =
            of.columns.iter().take(of.key_count).filter(|key| is_this(key.table_column)).peekable();
        let is_key = keys.peek().is_some();
        let are_default = keys.all(|key| {
            let class = key.operator_class.as_str();
            !class.contains('.') && !class.contains("pattern") && class.ends_with("_ops")
        });
        let is_known = matches!(of.access_method.as_str(), "btree" | "hash")
            && are_default
            && !of.is_exclusion
            && !of.definition.contains(" COLLATE ");
        !has_expression && (!is_key || is_known)
    })
}

/// Whether the column is part of a key: of a unique one, which foreign keys of other tables need too, or of a foreign one.
pub(super) fn is_key(table: &Table, index: usize) -> bool {
    let is_this = |number: &i16| usize::try_from(*number) == Ok(index + 1);
    let is_unique = table.indexes.iter().any(|of| {
        (of.is_unique || of.is_primary || of.is_replica_identity)
            && of.columns.iter().take(of.key_count).any(|key| is_this(&key.table_column))
    });
    is_unique || table.foreign_keys.iter().any(|key| key.columns.iter().any(is_this))
}

/// Whether an expression has the name in it, quoted or not, as a word of its own.
fn mentions(expression: &str, name: &str) -> bool {
    let quoted = name.replace('"', "\"\"");
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    expression.match_indices(&quoted).any(|(at, _)| {
        let before = expression[..at].chars().next_back();
        let after = expression[at + quoted.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The value of a default that is a constant: `'new'::text`, `0`, `'-1'::integer`, `(-1)`. None: an expression, or NULL.
fn constant(default: &str) -> Option<String> {
    let number = default.trim_start_matches('(').trim_end_matches(')');
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
    if !number.is_empty() && number.chars().all(is_number) {
        return Some(number.to_owned());
    }
    let (text, rest) = literal(default)?;
    let is_cast = rest.is_empty()
        || rest.strip_prefix("::").is_some_and(|name| !name.contains(['(', '|', '+']) || name.ends_with(')'));
    is_cast.then_some(text)
}

/// A literal at the beginning of SQL, and what is behind it.
fn literal(sql: &str) -> Option<(String, &str)> {
    let (body, has_escapes) = match sql.strip_prefix("E'") {
        Some(body) => (body, true),
        None => (sql.strip_prefix('\'')?, false),
    };
    let mut text = String::new();
    let mut characters = body.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\'' if body[at + 1..].starts_with('\'') => text.extend(characters.next().map(|(_, c)| c)),
            '\'' => return Some((text, &body[at + 1..])),
            '\\' if has_escapes => text.extend(characters.next().map(|(_, c)| c)),
            c => text.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_told_from_expressions() {
        let found = |text| constant(text);
        assert_eq!(found("'it''s'::text").as_deref(), Some("it's"));
        assert_eq!(found("E'a\\\\b'::character varying(3)").as_deref(), Some("a\\b"));
        assert_eq!((found("0").as_deref(), found("(-1)").as_deref()), (Some("0"), Some("-1")));
        assert_eq!(found("'-1'::integer").as_deref(), Some("-1"));
        for text in [
            "now()",
            "nextval('s'::regclass)",
            "('a'::text || 'b'::text)",
            "'a'::text || f('b')::text",
            "NULL::text",
            "'a",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_is_found_as_a_word_only() {
        assert!(mentions("lower(name)", "name") && mentions("lower((\"na\"\"me\")::text)", "na\"me"));
        assert!(!mentions("lower(surname)", "name") && !mentions("name_2 > 1", "name"));
    }
}
