//! Which sampled rows a partial index has.
//!
//! Understood are tests for NULL and booleans, comparisons of a column with a constant (integers in any way, other types with a unique
//! text for equality), `= ANY` of a list, and AND, OR and NOT of these, as `pg_get_expr` writes them. Of any other
//! predicate nothing is said.

use crate::snapshot::sample::{Place, Sample};
use crate::snapshot::{Column, Table};
use std::cmp::Ordering;

/// Deeper predicates are not read.
const DEPTH_MAX: usize = 32;

/// A predicate that can be tested.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// The column with this index is NULL.
    Null(usize),
    /// A column compared with a constant: what the comparison must give.
    Compare(usize, Operator, Constant),
    /// Not.
    Not(Box<Predicate>),
    /// All.
    And(Vec<Predicate>),
    /// Any.
    Or(Vec<Predicate>),
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `<>`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// What it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// An integer, for columns of integers.
    Number(i64),
    /// A boolean.
    Boolean(bool),
    /// A value's text.
    Text(String),
}

impl Predicate {
    /// Reads what `pg_get_expr` gave. None: not understood.
    pub fn parse(table: &Table, text: &str) -> Option<Predicate> {
        let mut parser = Parser { table, tokens: tokens(text)?, at: 0, depth: 0 };
        let predicate = parser.any()?;
        (parser.at == parser.tokens.len()).then_some(predicate)
    }

    /// Whether it looks at the column's value, and not only whether there is one.
    pub fn compares(&self, column: usize) -> bool {
        match self {
            Predicate::Null(_) => false,
            Predicate::Compare(compared, ..) => *compared == column,
            Predicate::Not(inner) => inner.compares(column),
            Predicate::And(parts) | Predicate::Or(parts) => parts.iter().any(|part| part.compares(column)),
        }
    }

    /// For one sampled row; None is SQL's NULL. The outer None: a value is not known.
    pub fn test(&self, sample: &Sample, row: usize) -> Option<Option<bool>> {
        Some(match self {
            Predicate::Null(column) => Some(is_null(sample, *column, row)?),
            Predicate::Compare(column, operator, constant) => {
                if is_null(sample, *column, row)? {
                    return Some(None);
                }
                let text = sample.columns.get(*column)?.values.as_ref()?.get(row)?.as_deref()?;
                let order = match constant {
                    Constant::Number(number) => text.parse::<i64>().ok()?.cmp(number),
                    // As the type writes it, or as a cast to text does.
                    Constant::Boolean(constant) => text.starts_with('t').cmp(constant),
                    Constant::Text(constant) => text.cmp(constant),
                };
                Some(operator.holds(order))
            }
            Predicate::Not(inner) => inner.test(sample, row)?.map(|holds| !holds),
            Predicate::And(all) => fold(all, sample, row, false)?,
            Predicate::Or(any) => fold(any, sample, row, true)?,
        })
    }
}

/// AND and OR: the first part that decides, else NULL if a part is NULL.
fn fold(parts: &[Predicate], sample: &Sample, row: usize, decides: bool) -> Option<Option<bool>> {
    let mut found = Some(!decides);
    for part in parts {
        match part.test(sample, row)? {
            Some(holds) if holds == decides => return Some(Some(decides)),
            Some(_) => {}
            None => found = None,
        }
    }
    Some(found)
}

fn is_null(sample: &Sample, column: usize, row: usize) -> Option<bool> {
    Some(*sample.columns.get(column)?.places.get(row)? == Place::Null)
}

impl Operator {
    fn of(text: &str) -> Option<Operator> {
        Some(match text {
            "=" => Operator::Equal,
            "<>" => Operator::Unequal,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::Unequal => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::LessOrEqual => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::GreaterOrEqual => order.is_ge(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// A name, keywords included; whether it was in quotes.
    Word(String, bool),
    Text(String),
    Number(i64),
    Sign(String),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((at, first)) = rest.next() {
        match first {
            _ if first.is_whitespace() => {}
            '\'' | '"' => {
                let mut inner = String::new();
                loop {
                    let (_, next) = rest.next()?;
                    if next == first && rest.next_if(|(_, next)| *next == first).is_none() {
                        break;
                    }
                    inner.push(next);
                }
                found.push(if first == '"' { Token::Word(inner, true) } else { Token::Text(inner) });
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let mut end = at + first.len_utf8();
                while let Some((at, next)) =
                    rest.next_if(|(_, next)| next.is_alphanumeric() || matches!(next, '_' | '$'))
                {
                    end = at + next.len_utf8();
                }
                let word = &text[at..end];
                found.push(match first.is_ascii_digit() {
                    true => Token::Number(word.parse().ok()?),
                    false => Token::Word(word.to_owned(), false),
                });
            }
            '<' | '>' | '=' | ':' => {
                let mut sign = String::from(first);
                while let Some((_, next)) = rest.next_if(|(_, next)| matches!(next, '<' | '>' | '=' | ':')) {
                    sign.push(next);
                }
                found.push(Token::Sign(sign));
            }
            _ => found.push(Token::Sign(String::from(first))),
        }
    }
    Some(found)
}

struct Parser<'t> {
    table: &'t Table,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn sign(&mut self, sign: &str) -> Option<()> {
        let is_next = matches!(self.tokens.get(self.at), Some(Token::Sign(next)) if next == sign);
        self.take(is_next)
    }

    fn keyword(&mut self, keyword: &str) -> Option<()> {
        let is_next = matches!(self.tokens.get(self.at), Some(Token::Word(next, false)) if next == keyword);
        self.take(is_next)
    }

    fn take(&mut self, is_next: bool) -> Option<()> {
        self.at += usize::from(is_next);
        is_next.then_some(())
    }

    fn any(&mut self) -> Option<Predicate> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut parts = vec![self.all()?];
        while self.keyword("OR").is_some() {
            parts.push(self.all()?);
        }
        self.depth -= 1;
        if parts.len() == 1 { parts.pop() } else { Some(Predicate::Or(parts)) }
    }

    fn all(&mut self) -> Option<Predicate> {
        let mut parts = vec![self.not()?];
        while self.keyword("AND").is_some() {
            parts.push(self.not()?);
        }
        if parts.len() == 1 { parts.pop() } else { Some(Predicate::And(parts)) }
    }

    fn not(&mut self) -> Option<Predicate> {
        let mut is_not = false;
        while self.keyword("NOT").is_some() {
            is_not = !is_not;
        }
        let inner = self.test()?;
        Some(if is_not { Predicate::Not(Box::new(inner)) } else { inner })
    }

    fn test(&mut self) -> Option<Predicate> {
        let (start, depth) = (self.at, self.depth);
        if let Some(test) = self.column().and_then(|column| self.test_of(column)) {
            return Some(test);
        }
        (self.at, self.depth) = (start, depth);
        self.sign("(")?;
        let inner = self.any()?;
        self.sign(")")?;
        Some(inner)
    }

    /// A column, with a cast that does not change its text.
    fn column(&mut self) -> Option<usize> {
        if self.sign("(").is_some() {
            let column = self.column()?;
            self.sign(")")?;
            self.cast()?;
            return Some(column);
        }
        let Some(Token::Word(name, _)) = self.tokens.get(self.at) else { return None };
        let is_it = |column: &Column| !column.is_dropped && column.name == *name;
        let column = self.table.columns.iter().position(is_it)?;
        self.at += 1;
        self.cast()?;
        Some(column)
    }

    /// `::text`, `::text[]`, `::character varying(3)`, or nothing. None: a cast that may change a value's text.
    fn cast(&mut self) -> Option<()> {
        if self.sign("::").is_none() {
            return Some(());
        }
        let mut is_first = true;
        while let Some(Token::Word(word, is_quoted)) = self.tokens.get(self.at) {
            let is_keyword = matches!(&**word, "AND" | "OR" | "IS" | "NOT") && !is_quoted;
            if is_keyword && !is_first {
                break;
            }
            (self.at, is_first) = (self.at + 1, false);
            if self.sign(".").is_some() {
                is_first = true;
            }
        }
        if self.sign("(").is_some() {
            while self.sign(")").is_none() {
                self.at += 1;
                self.tokens.get(self.at)?;
            }
        }
        if self.sign("[").is_some() {
            self.sign("]")?;
        }
        (!is_first).then_some(())
    }

    fn test_of(&mut self, column: usize) -> Option<Predicate> {
        let of = self.table.columns.get(column)?;
        let is_boolean = of.base_type_id == "bool";
        let is_true = Predicate::Compare(column, Operator::Equal, Constant::Boolean(true));
        if self.keyword("IS").is_some() {
            let is_not = self.keyword("NOT").is_some();
            self.keyword("NULL")?;
            let null = Predicate::Null(column);
            return Some(if is_not { Predicate::Not(Box::new(null)) } else { null });
        }
        let Some(Token::Sign(sign)) = self.tokens.get(self.at).cloned() else {
            return is_boolean.then_some(is_true);
        };
        let Some(operator) = Operator::of(&sign) else { return is_boolean.then_some(is_true) };
        self.at += 1;
        if operator == Operator::Equal && self.keyword("ANY").is_some() {
            let constants = self.list(of)?;
            let test = |constant| Predicate::Compare(column, Operator::Equal, constant);
            return Some(Predicate::Or(constants.into_iter().map(test).collect()));
        }
        let constant = self.constant(of)?;
        let is_ordered = matches!(constant, Constant::Number(_));
        let is_known = is_ordered || matches!(operator, Operator::Equal | Operator::Unequal);
        is_known.then_some(Predicate::Compare(column, operator, constant))
    }

    /// `(ARRAY[1, 2])`, `((ARRAY['a'::text])::text[])`
    fn list(&mut self, of: &Column) -> Option<Vec<Constant>> {
        if self.sign("(").is_some() {
            let list = self.list(of)?;
            self.sign(")")?;
            self.cast()?;
            return Some(list);
        }
        self.keyword("ARRAY")?;
        self.sign("[")?;
        let mut list = vec![self.constant(of)?];
        while self.sign(",").is_some() {
            list.push(self.constant(of)?);
        }
        self.sign("]")?;
        Some(list)
    }

    /// A constant that a value of the column can be compared with by its text, or as an integer.
    fn constant(&mut self, of: &Column) -> Option<Constant> {
        if self.sign("(").is_some() {
            let constant = self.constant(of)?;
            self.sign(")")?;
            self.cast()?;
            return Some(constant);
        }
        let is_negative = self.sign("-").is_some();
        let is_integer = matches!(&*of.base_type_id, "int2" | "int4" | "int8");
        let is_text = matches!(&*of.base_type_id, "text" | "varchar" | "uuid") || of.type_kind == 'e';
        let token = self.tokens.get(self.at).cloned()?;
        self.at += 1;
        let constant = match token {
            Token::Number(number) if is_integer => {
                Constant::Number(if is_negative { number.checked_neg()? } else { number })
            }
            Token::Text(text) if is_integer => Constant::Number(text.parse().ok()?),
            Token::Text(text) if is_text => Constant::Text(text),
            Token::Word(word, false) if of.base_type_id == "bool" => match &*word {
                "true" => Constant::Boolean(true),
                "false" => Constant::Boolean(false),
                _ => return None,
            },
            _ => return None,
        };
        self.cast()?;
        Some(constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::sample::{RowPlace, SampledColumn};

    /// Columns `a` int4, `b` bool, `Odd "name"` text; rows (1, t, open), (2, f, NULL), (NULL, NULL, closed).
    fn table() -> Table {
        let column = |name: &str, type_id: &str| Column {
            name: name.to_owned(),
            base_type_id: type_id.to_owned(),
            type_kind: 'b',
            ..Column::default()
        };
        let values = |values: [Option<&str>; 3]| SampledColumn {
            sizes: vec![4; 3],
            places: values.map(|value| if value.is_some() { Place::Inline } else { Place::Null }).to_vec(),
            values: Some(values.map(|value| value.map(str::to_owned)).to_vec()),
        };
        let sample = Sample {
            rows: vec![RowPlace(0, 1); 3],
            columns: vec![
                values([Some("1"), Some("2"), None]),
                values([Some("t"), Some("f"), None]),
                values([Some("open"), None, Some("closed")]),
            ],
            ..Sample::default()
        };
        let columns = vec![column("a", "int4"), column("b", "bool"), column("Odd \"name\"", "text")];
        Table { columns, sample: Some(sample), ..Table::default() }
    }

    fn rows(text: &str) -> Option<Vec<usize>> {
        let table = table();
        let predicate = Predicate::parse(&table, text)?;
        let sample = table.sample.as_ref()?;
        Some((0..3).filter(|row| predicate.test(sample, *row) == Some(Some(true))).collect())
    }

    #[test]
    fn predicates_hold_for_the_rows_that_sql_says() {
        for (text, expected) in [
            ("(a IS NOT NULL)", vec![0, 1]),
            ("(a IS NULL)", vec![2]),
            ("b", vec![0]),
            ("(NOT b)", vec![1]),
            ("(b = false)", vec![1]),
            ("(a = 2)", vec![1]),
            ("(a <> '-1'::integer)", vec![0, 1]),
            ("((a > 1) OR (b IS NULL))", vec![1, 2]),
            ("((a >= 1) AND (NOT (a = 2)))", vec![0]),
            ("(\"Odd \"\"name\"\"\" = 'open'::text)", vec![0]),
            ("((\"Odd \"\"name\"\"\")::text <> 'open'::text)", vec![2]),
            (
                "((\"Odd \"\"name\"\"\")::text = ANY ((ARRAY['open'::character varying, 'closed'::character varying])::text[]))",
                vec![0, 2],
            ),
            ("(a = ANY (ARRAY[2, 3]))", vec![1]),
            ("(NOT (\"Odd \"\"name\"\"\" = 'x'::text))", vec![0, 2]),
        ] {
            assert_eq!(rows(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        let deep = format!("{}a IS NULL{}", "(".repeat(900), ")".repeat(900));
        for text in [
            "(length(a) > 3)",
            "(unknown IS NULL)",
            "(\"Odd \"\"name\"\"\" > 'a'::text)",
            "(a = ",
            "a",
            "",
            "(a IS DISTINCT FROM 1)",
            "(b)::integer = 1",
            "'",
            "(a + 1) = 2",
            &deep,
        ] {
            assert_eq!(rows(text), None, "{text}");
        }
    }
}
