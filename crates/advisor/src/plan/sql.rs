//! Names and values as SQL, and SQL as words.

pub(super) use crate::sql::quote_literal as literal;

/// A name as it must be written: always in quotes, so that no list of keywords is needed.
pub(super) fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name with its schema.
pub(super) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", ident(schema), ident(name))
}

/// A body between dollar quotes that do not occur in it.
pub(crate) fn dollar(body: &str) -> String {
    let tags = (0_u32..).map(|n| if n == 0 { "$pgshrink$".to_owned() } else { format!("$pgshrink{n}$") });
    let tag = tags.into_iter().find(|tag| !body.contains(tag.as_str())).unwrap_or_default();
    // The line break keeps an end like `$pgshrink` from becoming part of the tag.
    format!("{tag}\n{body}\n{tag}")
}

/// For a comment or a message of one line.
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A storage parameter from `pg_class.reloptions`: `name='value'`.
pub(super) fn parameter(option: &str) -> String {
    match option.split_once('=') {
        Some((name, value)) => format!("{}={}", ident(name), literal(value)),
        None => ident(option),
    }
}

/// A list between commas.
pub(super) fn list<I: IntoIterator<Item = S>, S: Into<String>>(items: I) -> String {
    items.into_iter().map(Into::into).collect::<Vec<String>>().join(", ")
}

/// A word of SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A name or a keyword: what it names, without quotes.
    Name(String),
    /// One sign outside of names and strings.
    Sign(char),
    /// Strings, numbers.
    Other,
}

/// The words of a text that the server wrote, each with where it is. Comments do not occur in such texts.
pub(super) fn words(text: &str) -> Vec<(Word, std::ops::Range<usize>)> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(first) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let rest = &text[at..];
        let next = rest[first.len_utf8()..].chars().next();
        let (word, length) = match first {
            c if c.is_whitespace() => (None, c.len_utf8()),
            '"' => {
                let length = quoted_length(rest, '"', false);
                let inner = rest.get(1..length.saturating_sub(1)).unwrap_or_default();
                (Some(Word::Name(inner.replace("\"\"", "\""))), length)
            }
            'E' | 'e' if next == Some('\'') => (Some(Word::Other), 1 + quoted_length(&rest[1..], '\'', true)),
            '\'' => (Some(Word::Other), quoted_length(rest, '\'', false)),
            '$' => (Some(Word::Other), dollar_length(rest)),
            c if c.is_alphabetic() || c == '_' || !c.is_ascii() => {
                let part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
                let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
                (Some(Word::Name(rest[..length].to_lowercase())), length)
            }
            c if c.is_ascii_digit() => {
                let length =
                    rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
                (Some(Word::Other), length)
            }
            c => (Some(Word::Sign(c)), c.len_utf8()),
        };
        words.extend(word.map(|word| (word, at..at + length)));
        at += length;
    }
    words
}

/// Bytes of a quoted text at the beginning, quotes included.
fn quoted_length(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if has_escapes && c == '\\' {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

/// Bytes of a text in dollar quotes, or of `$1`.
fn dollar_length(text: &str) -> usize {
    let tag = text[1..].find(|c: char| !c.is_alphanumeric() && c != '_').map(|end| &text[..end + 1]);
    match tag {
        Some(tag)
            if text[tag.len()..].starts_with('$') && !text[1..].starts_with(|c: char| c.is_ascii_digit()) =>
        {
            let tag = &text[..tag.len() + 1];
            text[tag.len()..].find(tag).map_or(text.len(), |end| end + 2 * tag.len())
        }
        Some(tag) => tag.len(),
        None => text.len(),
    }
}

/// The text with every use of a column's name replaced. None: it is not used.
pub(super) fn substitute(text: &str, column: &str, with: &str) -> Option<String> {
    let words = words(text);
    let mut replaced = String::new();
    let mut done = 0;
    for (place, (word, range)) in words.iter().enumerate() {
        let sign = |at: Option<usize>| match at.and_then(|at| words.get(at)) {
            Some((Word::Sign(sign), _)) => Some(*sign),
            _ => None,
        };
        let (before, after) = (sign(place.checked_sub(1)), sign(Some(place + 1)));
        let is_column = matches!(word, Word::Name(name) if name == column)
            && !matches!(before, Some('.' | ':'))
            && !matches!(after, Some('(' | '.'));
        if is_column {
            replaced.push_str(&text[done..range.start]);
            replaced.push_str(with);
            done = range.end;
        }
    }
    (done > 0).then(|| replaced + &text[done..])
}

/// Whether a text names this column (or something else of the same name).
pub(super) fn names(text: &str, column: &str) -> bool {
    words(text).iter().any(|(word, _)| matches!(word, Word::Name(name) if name == column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_strings_and_bodies_are_quoted_whatever_is_in_them() {
        assert_eq!(ident("a\"b\nc"), "\"a\"\"b\nc\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'"), "E'a\\\\'''");
        assert_eq!(dollar("a"), "$pgshrink$\na\n$pgshrink$");
        assert_eq!(dollar("$pgshrink$ $pgshrink1$"), "$pgshrink2$\n$pgshrink$ $pgshrink1$\n$pgshrink2$");
        assert_eq!(parameter("toast.x=1"), "\"toast.x\"='1'");
        assert_eq!(shown("a\nb"), "a b");
    }

    #[test]
    fn a_columns_name_is_found_among_other_words() {
        let replace = |text| substitute(text, "id", "<>");
        assert_eq!(replace("\"id\"::uuid").as_deref(), Some("<>::uuid"));
        assert_eq!(replace("decode(id, 'id')").as_deref(), Some("decode(<>, 'id')"));
        assert_eq!(replace("a.id || E'\\'id' || $x$ id $x$ || id(1) || x::id || $1"), None);
        assert_eq!(replace("\"ID\" + ID"), Some("\"ID\" + <>".to_owned()));
        assert!(names("(lower(\"a\"\"b\"))", "a\"b") && !names("'x'", "x"));
    }
}
