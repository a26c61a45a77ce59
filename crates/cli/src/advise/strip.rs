//! Takes the data out of a snapshot, for `--no-values`: values, pages, definitions, and literals in expressions.
//!
//! A literal becomes `$1`, another one `$2`, the same one the same everywhere. So two predicates that differ still do, and SQL that
//! somebody makes from them is an error instead of another index.

use pgshrink_advisor::Snapshot;
use std::collections::HashMap;

/// Leaves names, types, sizes, places and counters.
pub(super) fn strip(snapshot: &mut Snapshot) {
    let mut literals = Literals::default();
    snapshot.sampling.has_values = false;
    for table in &mut snapshot.tables {
        table.definition = None;
        for column in &mut table.columns {
            literals.replace_in(&mut column.default);
        }
        for index in &mut table.indexes {
            index.definition = literals.replaced(&index.definition);
            literals.replace_in(&mut index.predicate);
            for column in &mut index.columns {
                column.definition = literals.replaced(&column.definition);
                column.expression_values = None;
            }
        }
        if let Some(sample) = &mut table.sample {
            sample.pages.clear();
            sample.training_pages.clear();
            sample.other_pages.clear();
            sample.columns.iter_mut().for_each(|column| column.values = None);
        }
    }
}

/// Literals by what they stand for.
#[derive(Default)]
struct Literals {
    numbers: HashMap<String, usize>,
}

impl Literals {
    fn replace_in(&mut self, text: &mut Option<String>) {
        if let Some(text) = text {
            *text = self.replaced(text);
        }
    }

    /// An expression as the server writes it, without what is between single quotes, and without numbers. Names of relations
    /// (`'a'::regclass`) stay.
    fn replaced(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let is_in_name = out.ends_with(|c: char| c.is_alphanumeric() || "_$\"".contains(c));
            let taken = match c {
                '"' => {
                    let end = end_of_quoted(rest, '"', false);
                    out.push_str(&rest[..end]);
                    end
                }
                '\'' => {
                    let is_escape =
                        out.ends_with('E') && !out[..out.len() - 1].ends_with(char::is_alphanumeric);
                    let end = end_of_quoted(rest, '\'', is_escape);
                    if is_escape {
                        out.pop();
                    }
                    match rest[end..].starts_with("::regclass") {
                        true => out.push_str(&rest[..end]),
                        false => out.push_str(&self.number(&rest[..end])),
                    }
                    end
                }
                '0'..='9' if !is_in_name => {
                    let is_number = |c: char| !c.is_ascii_alphanumeric() && c != '.';
                    let end = rest.find(is_number).unwrap_or(rest.len());
                    // `varchar(40)`, `[1]` and the like say nothing of rows, but cannot be told from `f(40)`.
                    out.push_str(&self.number(&rest[..end]));
                    end
                }
                c => {
                    out.push(c);
                    c.len_utf8()
                }
            };
            rest = &rest[taken..];
        }
        out
    }

    fn number(&mut self, literal: &str) -> String {
        let next = self.numbers.len() + 1;
        format!("${}", self.numbers.entry(literal.to_owned()).or_insert(next))
    }
}

/// Where something in quotes ends that begins here; a doubled quote is a part of it.
fn end_of_quoted(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && has_escapes {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + quote.len_utf8();
        }
    }
    text.len()
}

#[test]
fn literals_are_replaced_and_nothing_else_is() {
    let mut literals = Literals::default();
    for (text, expected) in [
        ("(status = 'paid'::text)", "(status = $1::text)"),
        ("(a1 = 'o''brien'::text) AND b = 'paid'::text", "(a1 = $2::text) AND b = $1::text"),
        ("\"it's 5\" > 17.5", "\"it's 5\" > $3"),
        ("nextval('public.orders_id_seq'::regclass)", "nextval('public.orders_id_seq'::regclass)"),
        ("(x ~ E'\\\\d''\\'+'::text)", "(x ~ $4::text)"),
        ("tableE'x'", "tableE$5"),
        ("'ends", "$6"),
        ("x = ANY (ARRAY[1, 2, 1])", "x = ANY (ARRAY[$7, $8, $7])"),
        ("größe2 < '2026-01-01'::date", "größe2 < $9::date"),
        ("", ""),
    ] {
        assert_eq!(literals.replaced(text), expected, "{text}");
    }
}
