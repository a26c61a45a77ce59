//! Directives of `postgresql.conf`.

use super::{INCLUDES_MAX, Include, IncludeKind};

/// Adds the directives of a file; at most one more than a file may have.
pub(super) fn includes(text: &[u8], found: &mut Vec<Include>) {
    let mut begin = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let range = begin..begin + line.len();
        begin = range.end;
        if let Some((kind, target)) = include(line) {
            found.push(Include { kind, target, line: range });
            if found.len() > INCLUDES_MAX {
                return;
            }
        }
    }
}

fn include(line: &[u8]) -> Option<(IncludeKind, Vec<u8>)> {
    let line = blanks(line);
    let end = line.iter().position(|byte| !is_name(*byte)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let kind = match &name.to_ascii_lowercase()[..] {
        b"include" => IncludeKind::File,
        b"include_if_exists" => IncludeKind::FileIfExists,
        b"include_dir" => IncludeKind::Directory,
        _ => return None,
    };
    let rest = blanks(rest);
    let rest = blanks(rest.strip_prefix(b"=").unwrap_or(rest));
    let target = match rest.strip_prefix(b"'") {
        Some(rest) => quoted(rest)?,
        None => {
            let end = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
            rest[..end].to_vec()
        }
    };
    (!target.is_empty()).then_some((kind, target))
}

/// What stands behind blanks.
fn blanks(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r')).unwrap_or(line.len());
    &line[end..]
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Of a text without quotes.
fn is_word(byte: u8) -> bool {
    is_name(byte) || matches!(byte, b'-' | b'.' | b':' | b'/')
}

/// A text up to its closing quote, as `DeescapeQuotedString` reads it. `None`: it has none on this line.
fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = 0;
    loop {
        match (*line.get(at)?, line.get(at + 1)) {
            (b'\'', Some(b'\'')) => {
                text.push(b'\'');
                at += 2;
            }
            (b'\'', _) => return Some(text),
            (b'\\', Some(b'0'..=b'7')) => {
                let digits = line[at + 1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
                let count = digits.clone().count();
                // As in C, what is over eight bits is cut off.
                text.push(digits.fold(0_u32, |value, digit| value << 3 | u32::from(digit - b'0')) as u8);
                at += 1 + count;
            }
            (b'\\', Some(escaped)) => {
                text.push(match escaped {
                    b'b' => 0x08,
                    b'f' => 0x0c,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                at += 2;
            }
            (b'\n', _) => return None,
            (byte, _) => {
                text.push(byte);
                at += 1;
            }
        }
    }
}

#[test]
fn directives_are_read_as_the_server_reads_them() {
    let read = |line: &str| {
        include(line.as_bytes()).map(|(kind, target)| (kind, String::from_utf8_lossy(&target).into_owned()))
    };
    let (file, directory) = (IncludeKind::File, IncludeKind::Directory);
    let taken = [
        ("include_dir 'conf.d'\t# more\n", directory, "conf.d"),
        ("  INCLUDE = '/etc/x y.conf'\r\n", file, "/etc/x y.conf"),
        ("include_if_exists='x'", IncludeKind::FileIfExists, "x"),
        ("include sub/a-b.conf # more", file, "sub/a-b.conf"),
        ("include 'it''s'", file, "it's"),
        (r"include 'a\'b\\c\tx\101\7'", file, "a'b\\c\txA\u{7}"),
        ("include 'x' 'y'", file, "x"),
    ];
    for (line, kind, target) in taken {
        assert_eq!(read(line), Some((kind, target.to_owned())), "{line}");
    }
    for line in [
        "#include 'x'",
        "included = 'x'",
        "include",
        "include =\n",
        "include ''",
        "include 'x\n",
        "a = include",
        "",
    ] {
        assert_eq!(read(line), None, "{line}");
    }
}

#[test]
fn lines_are_where_they_are_in_the_file() {
    let text = b"port = 1\ninclude 'a'\n\ninclude 'b'";
    let mut found = Vec::new();
    includes(text, &mut found);
    let lines: Vec<_> = found.iter().map(|include| &text[include.line.clone()]).collect();
    assert_eq!(lines, [&b"include 'a'\n"[..], b"include 'b'"]);
}
