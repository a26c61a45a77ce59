//! Other indexes out of what `pg_get_indexdef` says of one.

use crate::snapshot::Index;
use crate::sql::quote_ident;

const NULLS: &str = "NULLS NOT DISTINCT";

/// `CREATE INDEX name ON table USING method (columns) …`, in pieces.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition<'d> {
    is_unique: bool,
    /// From the table's name to the last key column: `s.t USING btree (a, b)`.
    keys: &'d str,
    /// `a, b` of INCLUDE.
    included: Option<&'d str>,
    /// What is behind that: `NULLS NOT DISTINCT WITH (…)`, without blanks around it.
    options: &'d str,
    /// `WHERE (…)`; a tablespace, which the server does not say, comes before it.
    predicate: &'d str,
}

impl<'d> Definition<'d> {
    /// None: it does not look like one, or is that of a partitioned table.
    pub fn of(text: &'d str) -> Option<Definition<'d>> {
        let (is_unique, text) = match text.strip_prefix("CREATE UNIQUE INDEX ") {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix("CREATE INDEX ")?),
        };
        let text = text[end_of_name(text)?..].strip_prefix(" ON ")?;
        if text.starts_with("ONLY ") {
            return None;
        }
        let (_, end) = brackets(text)?;
        let (keys, rest) = text.split_at(end);
        let rest = rest.trim_start();
        let (included, rest) = match rest.strip_prefix("INCLUDE ") {
            Some(list) => {
                let (start, end) = brackets(list)?;
                (Some(list.get(start + 1..end - 1)?), list[end..].trim_start())
            }
            None => (None, rest),
        };
        let nulls = if rest.starts_with(NULLS) { NULLS.len() } else { 0 };
        let with = rest[nulls..].trim_start();
        let options = match with.starts_with("WITH ") {
            true => rest.len() - with.len() + brackets(with)?.1,
            false => nulls,
        };
        let (options, predicate) = (&rest[..options], rest[options..].trim_start());
        let is_known = predicate.is_empty() || predicate.starts_with("WHERE ");
        is_known.then_some(Definition { is_unique, keys, included, options, predicate })
    }

    /// The statement that builds such an index beside it. `included` and `predicate` take the place of its own, if given.
    pub fn sql(&self, index: &Index, included: Option<&str>, predicate: Option<&str>) -> String {
        let unique = if self.is_unique { "UNIQUE " } else { "" };
        let name = quote_ident(&new_name(&index.name));
        let mut sql = format!("CREATE {unique}INDEX CONCURRENTLY {name} ON {}", self.keys);
        if let Some(included) = included.or(self.included) {
            sql += &format!(" INCLUDE ({included})");
        }
        if !self.options.is_empty() {
            sql += &format!(" {}", self.options);
        }
        if !index.tablespace.is_empty() {
            sql += &format!(" TABLESPACE {}", quote_ident(&index.tablespace));
        }
        match predicate {
            Some(predicate) => sql += &format!(" WHERE {predicate}"),
            None if self.predicate.is_empty() => {}
            None => sql += &format!(" {}", self.predicate),
        }
        sql + ";"
    }
}

/// A name for an index that takes the place of another, in 63 bytes.
pub fn new_name(name: &str) -> String {
    let mut end = name.len().min(63 - "_new".len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}_new", &name[..end])
}

/// Where a name ends that begins here.
fn end_of_name(text: &str) -> Option<usize> {
    if !text.starts_with('"') {
        return text.find(' ');
    }
    let mut at = 1;
    loop {
        at += text.get(at..)?.find('"')? + 1;
        if !text[at..].starts_with('"') {
            return Some(at);
        }
        at += 1;
    }
}

/// The first pair of brackets outside of quotes: where it begins, and where what is behind it begins.
fn brackets(text: &str) -> Option<(usize, usize)> {
    let (mut depth, mut start, mut quote) = (0usize, None, None);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'(') => {
                start = start.or(Some(at));
                depth += 1;
            }
            (None, b')') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((start?, at + 1));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, tablespace: &str) -> Index {
        Index { name: name.to_owned(), tablespace: tablespace.to_owned(), ..Index::default() }
    }

    #[test]
    fn another_index_is_made_of_the_same_pieces() {
        let text = "CREATE UNIQUE INDEX \"a \"\"b\"\" ON\" ON s.\"T (1)\" USING btree (lower(x), ((y || ')'::text)) DESC) \
                    INCLUDE (b, \"C)\") NULLS NOT DISTINCT WITH (fillfactor='80') WHERE (z > 0)";
        let definition = Definition::of(text).unwrap();
        assert_eq!(definition.included, Some("b, \"C)\""));
        assert_eq!(
            definition.sql(&named("n", "Fast"), Some("b"), None),
            "CREATE UNIQUE INDEX CONCURRENTLY n_new ON s.\"T (1)\" USING btree (lower(x), ((y || ')'::text)) DESC) \
             INCLUDE (b) NULLS NOT DISTINCT WITH (fillfactor='80') TABLESPACE \"Fast\" WHERE (z > 0);"
        );
        let plain =
            Definition::of("CREATE INDEX i ON public.t USING btree (a) WITH (fillfactor='80')").unwrap();
        assert_eq!(
            plain.sql(&named("i", ""), None, Some("a IS NOT NULL")),
            "CREATE INDEX CONCURRENTLY i_new ON public.t USING btree (a) WITH (fillfactor='80') WHERE a IS NOT NULL;"
        );
    }

    #[test]
    fn what_is_no_definition_gives_nothing() {
        let whole = "CREATE INDEX \"i\" ON public.t USING btree (a) INCLUDE (b) WHERE (c = ')')";
        let most = whole.find(" WHERE").unwrap();
        // Each truncation: some are definitions of smaller indexes, none panics.
        for end in 0..whole.len() {
            let found = Definition::of(&whole[..end]);
            let is_whole = [whole.find(" INCLUDE").unwrap(), most];
            assert!(
                found.is_none()
                    || is_whole.iter().any(|start| (*start..=start + 7).contains(&end))
                    || end > most,
                "{end}"
            );
        }
        assert_eq!(Definition::of("CREATE INDEX i ON ONLY public.t USING btree (a)"), None);
        assert_eq!(Definition::of("DROP INDEX i"), None);
    }

    #[test]
    fn a_name_is_cut_where_a_letter_ends() {
        assert_eq!(new_name("i"), "i_new");
        let long = "ä".repeat(31) + "x";
        assert_eq!(new_name(&long).len(), 62);
    }
}
