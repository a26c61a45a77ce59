//! Texts of views, rules and functions that are bound to a table whose columns have another order.
//!
//! The server writes columns by name, so such a text means the same for the new table, with one exception: an alias with a list
//! of columns (`t x(a, b, c)`), which it writes wherever a view renamed a column of a FROM item, or where columns of a join
//! would be ambiguous. That list counts columns as they stand in the table. A list for a whole join counts those of all its
//! tables: it is not taken apart, and the text cannot be bound.
//!
//! Whole rows (`t.*` as a value) have their fields in the table's order, which a text, a hash or a comparison of them shows.

use super::sql::{Word, words};

/// What a text was made into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// The text for the new table.
    pub(super) sql: String,
    /// It has whole rows (`t.*`) in it, and the order of their fields shows.
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
    let words = Words::of(text, table);
    if words.have_renamed_join() {
        return None;
    }
    let mut sql = String::new();
    let mut done = 0;
    for at in 0..words.len() {
        let is_part = at > 0 && (words.sign(at - 1, '.') || words.is(at - 1, "into"));
        if !words.is_table(at) || is_part {
            continue;
        }
        // The server never writes a list without an alias: `s.t(…)` is a function's call.
        if !words.sign(at + 4, '(') || !words.is_alias(at + 3) {
            continue;
        }
        let close = (at + 5..words.len()).find(|at| words.sign(*at, ')'))?;
        let list: Vec<&str> = (at + 5..close)
            .step_by(2)
            .filter(|at| words.name(*at).is_some())
            .filter_map(|at| words.text(at))
            .collect();
        let commas = (at + 6..close).step_by(2).all(|at| words.sign(at, ','));
        if !commas || list.len() != table.count || list.len() * 2 != close - (at + 5) + 1 {
            return None;
        }
        let fresh = |place: usize| format!("pgshrink_{place}");
        let moved = table.order.iter().enumerate().map(|(place, from)| match from {
            Some(from) => list.get(*from).map(|name| (*name).to_owned()),
            None => Some(fresh(place)),
        });
        let moved = moved.collect::<Option<Vec<_>>>()?;
        let (start, end) = (words.start(at + 5)?, words.start(close)?);
        sql.push_str(text.get(done..start)?);
        sql.push_str(&moved.join(", "));
        done = end;
    }
    sql.push_str(text.get(done..)?);
    Some(Bound { sql, has_whole_rows: words.have_whole_rows() })
}

/// Whether a text uses whole rows of the table, or those that a trigger or a rule is for, so that the order of their fields
/// shows: not if they are only counted, compared with each other, or with NULL.
pub(super) fn has_whole_rows(text: &str, table: Table<'_>) -> bool {
    Words::of(text, table).have_whole_rows()
}

/// The words of a text in which a table is looked for. A place behind the last one has none.
struct Words<'t> {
    text: &'t str,
    words: Vec<(Word, std::ops::Range<usize>)>,
    table: Table<'t>,
}

impl<'t> Words<'t> {
    fn of(text: &'t str, table: Table<'t>) -> Words<'t> {
        Words { text, words: words(text), table }
    }

    fn len(&self) -> usize {
        self.words.len()
    }

    fn sign(&self, at: usize, sign: char) -> bool {
        matches!(self.words.get(at), Some((Word::Sign(found), _)) if *found == sign)
    }

    fn name(&self, at: usize) -> Option<&str> {
        match self.words.get(at) {
            Some((Word::Name(name), _)) => Some(name),
            _ => None,
        }
    }

    fn is(&self, at: usize, name: &str) -> bool {
        self.name(at) == Some(name)
    }

    /// As it is written, with quotes.
    fn text(&self, at: usize) -> Option<&'t str> {
        self.text.get(self.words.get(at)?.1.clone())
    }

    fn start(&self, at: usize) -> Option<usize> {
        self.words.get(at).map(|(_, range)| range.start)
    }

    /// Whether the table's name begins here.
    fn is_table(&self, at: usize) -> bool {
        self.is(at, self.table.schema) && self.sign(at + 1, '.') && self.is(at + 2, self.table.name)
    }

    /// Whether a name is an alias where one may stand.
    fn is_alias(&self, at: usize) -> bool {
        let is_quoted = self.text(at).is_some_and(|text| text.starts_with('"'));
        self.name(at).is_some_and(|name| is_quoted || !CLAUSES.contains(&name))
    }

    fn have_whole_rows(&self) -> bool {
        let mut names = vec![self.table.name, "old", "new"];
        for at in 0..self.len() {
            // What follows a table, or the parentheses of a join, may be an alias. One too many does no harm.
            let alias = if self.is_table(at) {
                self.name(at + 3)
            } else {
                self.name(at + 1).filter(|_| self.sign(at, ')'))
            };
            names.extend(alias);
        }
        let is_whole = |at: usize| {
            self.name(at).is_some_and(|name| names.contains(&name))
                && self.sign(at + 1, '.')
                && self.sign(at + 2, '*')
        };
        let is = |at: usize, name: &str| self.is(at, name);
        (0..self.len()).filter(|at| is_whole(*at)).any(|at| {
            let behind = at + 3;
            let is_counted =
                at >= 2 && self.sign(at - 1, '(') && is(at - 2, "count") && self.sign(behind, ')');
            let test = if is(behind + 1, "not") { behind + 2 } else { behind + 1 };
            let is_tested = is(behind, "is") && is(test, "null");
            let is_left =
                is(behind, "is") && is(test, "distinct") && is(test + 1, "from") && is_whole(test + 2);
            let is_right = at >= 6 && is(at - 1, "from") && is(at - 2, "distinct") && {
                let before = if is(at - 3, "not") { at - 4 } else { at - 3 };
                is(before, "is") && before >= 3 && is_whole(before - 3)
            };
            !(is_counted || is_tested || is_left || is_right)
        })
    }

    /// Whether a join with the table in it has an alias with a list of columns.
    fn have_renamed_join(&self) -> bool {
        let mut open = Vec::new();
        for at in 0..self.len() {
            if self.sign(at, '(') {
                open.push(at);
            }
            if !self.sign(at, ')') {
                continue;
            }
            let Some(from) = open.pop() else { continue };
            // A query in parentheses names its own columns, and so does a function.
            let is_query = matches!(self.name(from + 1), Some("select" | "values" | "with"));
            let has_list = self.is_alias(at + 1) && self.sign(at + 2, '(');
            let is_join = (from..at).any(|at| self.is(at, "join"));
            if has_list && !is_query && is_join && (from..at).any(|at| self.is_table(at)) {
                return true;
            }
        }
        false
    }
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

    #[test]
    fn a_list_of_columns_for_a_join_is_refused() {
        let order = [Some(1), Some(0)];
        let table = Table { schema: "s", name: "t", order: &order, count: 2 };
        for text in [
            "SELECT j.y2 FROM (s.t JOIN s.o ON ((o.k = t.id))) j(y1, y2, y3)",
            "SELECT j.y2 FROM (s.o LEFT JOIN (SELECT t.a FROM s.t) z ON (true)) \"left\"(y1, y2)",
            "SELECT x.y1 FROM ((s.o CROSS JOIN s.t) x(y1, y2, y3) JOIN s.u USING (k))",
        ] {
            assert_eq!(bind(text, table), None, "{text}");
        }
        for text in [
            "SELECT j.k FROM (s.o JOIN s.u ON ((o.k = u.k))) j(y1, y2, y3), s.t",
            "SELECT x.n FROM ( SELECT t.a FROM (s.t JOIN s.o USING (a))) x(n)",
            "SELECT j.k FROM (s.t JOIN s.o ON ((o.k = t.id))) j WHERE (j.k IN (1, 2))",
            "SELECT 1 FROM ((s.t JOIN s.o USING (k)) JOIN s.u USING (k))",
        ] {
            assert_eq!(bind(text, table).map(|bound| bound.sql).as_deref(), Some(text));
        }
    }

    #[test]
    fn whole_rows_are_those_whose_fields_show() {
        let table = Table { schema: "s", name: "t", order: &[], count: 0 };
        for text in [
            "CHECK (((t.*)::text !~~ '(f,0,%'::text))",
            "CREATE TRIGGER g BEFORE UPDATE ON s.t FOR EACH ROW WHEN ((old.*)::text ~~ '(t'::text) EXECUTE FUNCTION f()",
            "SELECT md5((x.*)::text) FROM s.t x",
            "SELECT (j.*)::text FROM (s.t JOIN s.o USING (a)) j",
            "SELECT 1 FROM s.t WHERE (t.* < ROW(false, 10))",
            "SELECT 1 FROM s.t, s.o WHERE (t.* IS DISTINCT FROM o.*)",
            "SELECT count(t.*), (t.*)::text FROM s.t",
        ] {
            assert!(has_whole_rows(text, table), "{text}");
        }
        for text in [
            "CREATE TRIGGER g AFTER UPDATE ON s.t FOR EACH ROW WHEN (old.* IS DISTINCT FROM new.*) EXECUTE FUNCTION f()",
            "CREATE TRIGGER g AFTER UPDATE ON s.t FOR EACH ROW WHEN (old.* IS NOT DISTINCT FROM new.*) EXECUTE FUNCTION f()",
            "SELECT count(t.*) FROM s.t WHERE (t.* IS NOT NULL)",
            "SELECT row_to_json(o.*) FROM (s.o JOIN s.t USING (k))",
            "SELECT t.a, (t.a * 2) FROM s.t",
        ] {
            assert!(!has_whole_rows(text, table), "{text}");
        }
    }
}
