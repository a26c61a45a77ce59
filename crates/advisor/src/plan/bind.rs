//! Texts of views, rules and functions that are bound to a table whose columns have another order.
//!
//! The server writes columns by name, so such a text means the same for the new table, with one exception: an alias with a list
//! of columns (`t x(a, b, c)`), which it writes wherever a view renamed a column of a FROM item, or where columns of a join
//! would be ambiguous. That list counts columns as they stand in the table.

use super::sql::{Word, words};

/// What a text was made into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// The text for the new table.
    pub(super) sql: String,
    /// It has whole rows (`t.*`) in it: the order of their fields changes.
    pub(super) has_whole_rows: bool,
}

/// The table in such a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    pub(super) schema: &'a str,
    pub(super) name: &'a str,
    /// Which column of the old table each one of the new table is, counted without dropped ones. None: a new column.
    pub(super) order: &'a [Option<usize>],
    /// Columns of the old table, without dropped ones.
    pub(super) count: usize,
}

/// Words that may follow a table and precede a parenthesis. As an alias, the server puts all but `set` and `values` in quotes.
const CLAUSES: [&str; 22] = [
    "join",
    "left",
    "right",
    "full",
    "inner",
    "cross",
    "natural",
    "on",
    "using",
    "where",
    "group",
    "order",
    "having",
    "union",
    "intersect",
    "except",
    "limit",
    "offset",
    "returning",
    "set",
    "values",
    "tablesample",
];

/// Binds a text to the new table. None: it has a list of columns that cannot be put into the new order.
pub(super) fn bind(text: &str, table: Table<'_>) -> Option<Bound> {
    let words = words(text);
    let sign = |at: usize, sign| matches!(words.get(at), Some((Word::Sign(found), _)) if *found == sign);
    let name = |at: usize| match words.get(at) {
        Some((Word::Name(name), _)) => Some(name.as_str()),
        _ => None,
    };
    let has_whole_rows = (0..words.len()).any(|at| sign(at, '.') && sign(at + 1, '*'));
    let mut sql = String::new();
    let mut done = 0;
    for at in 0..words.len() {
        let is_table =
            name(at) == Some(table.schema) && sign(at + 1, '.') && name(at + 2) == Some(table.name);
        if !is_table || (at > 0 && (sign(at - 1, '.') || matches!(name(at - 1), Some("into")))) {
            continue;
        }
        // The server never writes a list without an alias: `s.t(…)` is a function's call.
        let Some(alias) = name(at + 3).filter(|_| sign(at + 4, '(')) else { continue };
        let is_quoted = text[words[at + 3].1.clone()].starts_with('"');
        if !is_quoted && CLAUSES.contains(&alias) {
            continue;
        }
        let close = (at + 5..words.len()).find(|at| sign(*at, ')'))?;
        let list: Vec<&str> = (at + 5..close)
            .step_by(2)
            .filter(|at| name(*at).is_some())
            .map(|at| &text[words[at].1.clone()])
            .collect();
        let commas = (at + 6..close).step_by(2).all(|at| sign(at, ','));
        if !commas || list.len() != table.count || list.len() * 2 != close - (at + 5) + 1 {
            return None;
        }
        let fresh = |place: usize| format!("pgshrink_{place}");
        let moved = table.order.iter().enumerate().map(|(place, from)| match from {
            Some(from) => list.get(*from).map(|name| (*name).to_owned()),
            None => Some(fresh(place)),
        });
        let moved = moved.collect::<Option<Vec<_>>>()?;
        let (start, end) = (words.get(at + 5)?.1.start, words.get(close)?.1.start);
        sql.push_str(text.get(done..start)?);
        sql.push_str(&moved.join(", "));
        done = end;
    }
    sql.push_str(text.get(done..)?);
    Some(Bound { sql, has_whole_rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_columns_are_put_into_the_new_order() {
        let order = [Some(2), Some(0), None, Some(1)];
        let table = Table { schema: "s", name: "t", order: &order, count: 3 };
        let sql = |text| bind(text, table).map(|bound| bound.sql);
        let plain = " SELECT a, b FROM s.t x WHERE a IN (SELECT t.a FROM s.t)";
        assert_eq!(sql(plain).as_deref(), Some(plain));
        assert_eq!(
            sql("SELECT x.a FROM (s.t x(a, \"B c\", d) JOIN s.u x(a, b, c) USING (a))").as_deref(),
            Some("SELECT x.a FROM (s.t x(d, a, pgshrink_2, \"B c\") JOIN s.u x(a, b, c) USING (a))")
        );
        let joined = "SELECT 1 FROM (s.t JOIN (SELECT 1) x USING (id)) WHERE (1 = 1)";
        assert_eq!(sql(joined).as_deref(), Some(joined));
        assert_eq!(sql("SELECT 1 FROM s.t \"join\"(a, b)"), None, "an alias in quotes");
        assert_eq!(sql("SELECT 1 FROM s.t x(a, b)"), None, "another number of columns");
        assert_eq!(
            sql("INSERT INTO s.t (a, b) VALUES (1, 2)").as_deref(),
            Some("INSERT INTO s.t (a, b) VALUES (1, 2)")
        );
        assert!(bind("SELECT row_to_json(t.*) FROM s.t", table).unwrap().has_whole_rows);
        assert!(!bind("SELECT count(*) FROM s.t", table).unwrap().has_whole_rows);
    }
}
