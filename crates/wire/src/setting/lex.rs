//! A query text cut into statements and tokens, as PostgreSQL's scanner cuts it (`scan.l`).
//!
//! Comments and blanks are left out. The text of strings and quoted names stays as it stands between the quotes.
//! A `;` ends a statement only where the server takes it so: not between parentheses (rules with several actions), and
//! not in the body of an SQL-standard function (`BEGIN ATOMIC ... END`).

/// What matters of a query text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, a name without quotes or a number.
    Word(&'a str),
    /// `"…"`; a quote in it stands twice.
    Name(&'a str),
    /// `U&"…"`, its escapes as they stand.
    EscapedName(&'a str),
    /// A string constant in any form, and whether its value is what stands between the quotes.
    Text { inner: &'a str, is_verbatim: bool },
    /// Any other character.
    Symbol(char),
}

impl Token<'_> {
    /// A keyword, in any case.
    pub(super) fn is(&self, keyword: &str) -> bool {
        matches!(self, Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// The statements of a text, empty ones left out: those that the server answers one by one.
pub(super) fn statements(sql: &str) -> Vec<Vec<Token<'_>>> {
    let (mut found, mut statement) = (vec![], vec![]);
    let (mut parentheses, mut blocks) = (0usize, 0usize);
    let mut rest = sql;
    while !rest.is_empty() {
        let (token, size) = next(rest);
        rest = &rest[size..];
        let Some(token) = token else { continue };
        match token {
            Token::Symbol('(') => parentheses += 1,
            Token::Symbol(')') => parentheses = parentheses.saturating_sub(1),
            Token::Symbol(';') if parentheses + blocks == 0 => {
                found.push(std::mem::take(&mut statement));
                continue;
            }
            Token::Word(_) if statement.first().is_some_and(|first: &Token<'_>| first.is("create")) => {
                // A function's body may hold CASE, which ends in END as well.
                if token.is("begin") || (blocks > 0 && token.is("case")) {
                    blocks += 1;
                } else if token.is("end") {
                    blocks = blocks.saturating_sub(1);
                }
            }
            _ => {}
        }
        statement.push(token);
    }
    found.push(statement);
    found.retain(|statement| !statement.is_empty());
    found
}

/// The token at the start, `None` for blanks and comments, and the bytes it takes: at least one.
fn next(text: &str) -> (Option<Token<'_>>, usize) {
    let Some(first) = text.chars().next() else { return (None, 1) };
    match first {
        _ if first.is_whitespace() => (None, first.len_utf8()),
        '-' if text.starts_with("--") => (None, text.find('\n').unwrap_or(text.len())),
        '/' if text.starts_with("/*") => (None, comment_size(text)),
        '\'' => string(text, "", &['\'']),
        '"' => {
            let (inner, size) = quoted(text, false);
            (Some(Token::Name(inner)), size)
        }
        '$' => dollar_quoted(text),
        _ if is_word(first) => word(text),
        _ => (Some(Token::Symbol(first)), first.len_utf8()),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A word, or the string or name whose prefix it is.
fn word(text: &str) -> (Option<Token<'_>>, usize) {
    let size = text.find(|c| !is_word(c) && c != '$').unwrap_or(text.len());
    let (word, rest) = text.split_at(size);
    if rest.starts_with('\'') && word.eq_ignore_ascii_case("e") {
        return string(text, word, &['\'', '\\']);
    }
    if rest.starts_with('\'') && ["b", "x", "n"].iter().any(|prefix| word.eq_ignore_ascii_case(prefix)) {
        return string(text, word, &['\'']);
    }
    if word.eq_ignore_ascii_case("u") && rest.starts_with("&'") {
        return string(text, &text[..size + 1], &['\'', '\\']);
    }
    if word.eq_ignore_ascii_case("u") && rest.starts_with("&\"") {
        let (inner, taken) = quoted(&rest[1..], false);
        return (Some(Token::EscapedName(inner)), size + 1 + taken);
    }
    (Some(Token::Word(word)), size)
}

/// A string behind its prefix; `special` are the characters that stand for something else in it.
fn string<'a>(text: &'a str, prefix: &str, special: &[char]) -> (Option<Token<'a>>, usize) {
    let escapes = prefix.eq_ignore_ascii_case("e");
    let (inner, size) = quoted(&text[prefix.len()..], escapes);
    let is_verbatim = !inner.contains(special);
    (Some(Token::Text { inner, is_verbatim }), prefix.len() + size)
}

/// What stands between the quote at the start and the one that ends it, and the size of all. Without an end it goes on
/// to the end of the text.
fn quoted(text: &str, escapes: bool) -> (&str, usize) {
    let bytes = text.as_bytes();
    let quote = bytes[0];
    let mut at = 1;
    while at < bytes.len() {
        if bytes[at] == b'\\' && escapes {
            at += 2;
        } else if bytes[at] != quote {
            at += 1;
        } else if bytes.get(at + 1) == Some(&quote) {
            at += 2;
        } else {
            return (&text[1..at], at + 1);
        }
    }
    (&text[1..], text.len())
}

/// `$tag$ … $tag$`, or the character alone if this is no such quote.
fn dollar_quoted(text: &str) -> (Option<Token<'_>>, usize) {
    let tag = text[1..].find('$').map(|end| &text[..end + 2]);
    let tag = tag.filter(|tag| {
        let name = &tag[1..tag.len() - 1];
        name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
    });
    let Some(tag) = tag else { return (Some(Token::Symbol('$')), 1) };
    let inner = &text[tag.len()..];
    let (inner, size) = match inner.find(tag) {
        Some(end) => (&inner[..end], end + 2 * tag.len()),
        None => (inner, text.len()),
    };
    (Some(Token::Text { inner, is_verbatim: true }), size)
}

/// Comments nest. One without an end goes on to the end of the text.
fn comment_size(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_where_the_server_ends_them() {
        for (sql, count) in [
            ("", 0),
            (" ; ;; -- ;\n /* ; /* ; */ ; */ ;", 0),
            ("select ';', E'\\';', \"a;b\", U&\"a;\", $x$;$x$, $$;$$; select $1;", 2),
            (
                "create rule r as on insert to t do also (insert into a values (1); delete from b); select 1",
                2,
            ),
            (
                "create function f() returns int begin atomic select case when true then 1 end; end; select 2",
                2,
            ),
            ("begin; select 1; end", 3),
            ("select case when true then 1 end; select 2", 2),
        ] {
            assert_eq!(statements(sql).len(), count, "{sql}");
        }
    }

    #[test]
    fn tokens_are_what_the_server_reads() {
        use Token::{EscapedName, Name, Symbol, Text, Word};
        let text = |inner, is_verbatim| Text { inner, is_verbatim };
        for (sql, tokens) in [
            ("a.\"B\"\"c\"/**/.d$1", &[Word("a"), Symbol('.'), Name("B\"\"c"), Symbol('.'), Word("d$1")][..]),
            (
                "e'a\\'b' 'c''d' E'e' $q$f'$q$",
                &[text("a\\'b", false), text("c''d", false), text("e", true), text("f'", true)],
            ),
            (
                "u&\"d\\0061t\" U&'x' u & 1",
                &[EscapedName("d\\0061t"), text("x", true), Word("u"), Symbol('&'), Word("1")],
            ),
            ("'ends nowhere", &[text("ends nowhere", true)]),
            ("é\"ü", &[Word("é"), Name("ü")]),
            ("e'\\", &[text("\\", false)]),
        ] {
            assert_eq!(statements(sql), [tokens], "{sql}");
        }
    }

    #[test]
    fn no_text_takes_it_out_of_its_bounds() {
        let pieces = ["'", "\"", "$", "$a$", "\\", "e'", "U&\"", "--", "/*", "*/", "\n", ";", "(", "é", " "];
        for a in pieces {
            for b in pieces {
                for c in pieces {
                    for d in pieces {
                        statements(&[a, b, c, d].concat());
                    }
                }
            }
        }
    }
}
