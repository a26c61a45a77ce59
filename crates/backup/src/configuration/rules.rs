//! Directives of `pg_hba.conf` and `pg_ident.conf`: a line's first word `include`, `include_if_exists` or `include_dir`, from
//! 16 on, and `@FILE` as a word of any line.

use super::{INCLUDES_MAX, Include, IncludeKind, Syntax};
use std::ops::Range;

/// Adds the directives of a file; at most one more than a file may have.
pub(super) fn includes(text: &[u8], syntax: Syntax, found: &mut Vec<Include>) {
    let mut rest = text;
    while !rest.is_empty() {
        let begin = text.len() - rest.len();
        let (line, behind) = logical_line(rest);
        rest = behind;
        directives(&line, syntax, begin..text.len() - rest.len(), found);
        if found.len() > INCLUDES_MAX {
            return;
        }
    }
}

/// A line without its end, and what follows it. A backslash at its end joins the next one.
fn logical_line(mut text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut joined = Vec::new();
    loop {
        let end = text.iter().position(|byte| *byte == b'\n');
        let (line, behind) = match end {
            Some(end) => (&text[..end], &text[end + 1..]),
            None => (text, &text[text.len()..]),
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        text = behind;
        match line.strip_suffix(b"\\") {
            Some(line) if !text.is_empty() => joined.extend_from_slice(line),
            _ => {
                joined.extend_from_slice(line);
                return (joined, text);
            }
        }
    }
}

fn directives(line: &[u8], syntax: Syntax, place: Range<usize>, found: &mut Vec<Include>) {
    let mut words = Words { line };
    let Some(first) = words.next() else { return };
    let kind = match &first.text[..] {
        b"include" => Some(IncludeKind::File),
        b"include_if_exists" => Some(IncludeKind::FileIfExists),
        b"include_dir" => Some(IncludeKind::Directory),
        _ => None,
    };
    if let Some(kind) = kind.filter(|_| syntax == Syntax::Rules) {
        let target = words.next().map(|word| word.text).filter(|target| !target.is_empty());
        found.extend(target.map(|target| Include { kind, target, line: place }));
        return;
    }
    for word in std::iter::once(first).chain(words) {
        if let Some(target) = word.text.strip_prefix(b"@").filter(|target| !target.is_empty())
            && !word.is_quoted
        {
            let target = target.to_vec();
            found.push(Include { kind: IncludeKind::Names, target, line: place.clone() });
            if found.len() > INCLUDES_MAX {
                return;
            }
        }
    }
}

/// Words between blanks and commas, up to a comment.
struct Words<'l> {
    line: &'l [u8],
}

struct Word {
    text: Vec<u8>,
    /// Whether it begins with a quote: then `@` stands for itself.
    is_quoted: bool,
}

impl Iterator for Words<'_> {
    type Item = Word;

    fn next(&mut self) -> Option<Word> {
        let is_blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r');
        let begin = self.line.iter().position(|byte| !is_blank(*byte) && *byte != b',')?;
        self.line = &self.line[begin..];
        let (mut text, mut is_quoted, mut has_quote) = (Vec::new(), false, false);
        let (mut in_quote, mut was_quote, mut at) = (false, false, 0);
        while let Some(&byte) = self.line.get(at).filter(|byte| in_quote || !is_blank(**byte)) {
            if byte == b'#' && !in_quote {
                at = self.line.len();
                break;
            }
            if byte == b',' && !in_quote {
                break;
            }
            if byte != b'"' || was_quote {
                text.push(byte);
            }
            // Two quotes inside of quotes are one.
            was_quote = in_quote && byte == b'"' && !was_quote;
            if byte == b'"' {
                in_quote = !in_quote;
                has_quote = true;
                is_quoted |= text.is_empty();
            }
            at += 1;
        }
        self.line = &self.line[at..];
        (has_quote || !text.is_empty()).then_some(Word { text, is_quoted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, syntax: Syntax) -> Vec<(IncludeKind, String)> {
        let mut found = Vec::new();
        includes(text.as_bytes(), syntax, &mut found);
        found
            .into_iter()
            .map(|include| (include.kind, String::from_utf8_lossy(&include.target).into_owned()))
            .collect()
    }

    #[test]
    fn files_with_names_are_found_in_any_column() {
        let names = |found: &[&str]| -> Vec<_> {
            found.iter().map(|name| (IncludeKind::Names, (*name).to_owned())).collect()
        };
        for (text, expected) in [
            ("local @databases @admins,ann,@/etc/x trust\n", &["databases", "admins", "/etc/x"][..]),
            ("local all \"@ann\",@\"a b\" trust # @c", &["a b"]),
            ("# local @a @b trust\n\tlocal @c,, @d\r\n", &["c", "d"]),
            ("local all \\\n @a trust\\", &["a"]),
            ("local all x@y @ trust", &[]),
            ("local all \"a\"\"@b\" trust", &[]),
            ("", &[]),
        ] {
            assert_eq!(read(text, Syntax::Rules), names(expected), "{text}");
            assert_eq!(read(text, Syntax::Names), names(expected), "{text}");
        }
    }

    #[test]
    fn directives_begin_a_line() {
        let text = "include a.conf\ninclude_dir \"hba.d x\" # y\n include_if_exists /b\nlocal include c trust\ninclude\n";
        let expected = [
            (IncludeKind::File, "a.conf"),
            (IncludeKind::Directory, "hba.d x"),
            (IncludeKind::FileIfExists, "/b"),
        ];
        let expected = expected.map(|(kind, target)| (kind, target.to_owned()));
        assert_eq!(read(text, Syntax::Rules), expected);
        assert_eq!(read(text, Syntax::Names), [], "a list of names has none");
    }

    #[test]
    fn joined_lines_are_one() {
        let text = b"x\ninclude \\\r\na\nlocal";
        let mut found = Vec::new();
        includes(text, Syntax::Rules, &mut found);
        assert_eq!(found.len(), 1);
        assert_eq!((&found[0].target[..], found[0].line.clone()), (&b"a"[..], 2..15));
    }
}
