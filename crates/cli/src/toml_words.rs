//! What the parsers of configuration files report, in the words of these files.
//!
//! | parser | here |
//! |---|---|
//! | `invalid type: string "a", expected a sequence` | `expected a list, as in ["a"]; found "a"` |
//! | ``unknown variant `a`, expected `b` or `c` `` | `'a' is unknown; allowed are b, c` |
//! | ``unknown field `a`, expected one of `b`, `c` `` | `unknown; known are b, c` |
//! | ``missing field `a` `` | `a is missing` |
//! | a syntax error at a word without quotes | `strings must be quoted: listen = ["127.0.0.1:6432"]` |

use toml::de::DeTable;

/// The message of a deserializer.
pub(crate) fn of_value(message: &str) -> String {
    let message = message.trim();
    if let Some(field) = message.strip_prefix("missing field ") {
        return format!("{} is missing", field.trim_matches('`'));
    }
    if unknown_key(message).is_some() {
        return format!("unknown; known are {}", quoted_words(message)[1..].join(", "));
    }
    if message.starts_with("unknown variant `") {
        let words = quoted_words(message);
        return format!("'{}' is unknown; allowed are {}", words[0], words[1..].join(", "));
    }
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    let found = found_words(found);
    match expected {
        "a sequence" if found.starts_with(char::is_alphabetic) => format!("expected a list; found {found}"),
        "a sequence" => format!("expected a list, as in [{found}]; found {found}"),
        _ => format!("expected {}; found {found}", expected_words(expected)),
    }
}

/// The key of a message about one that no table has.
pub(crate) fn unknown_key(message: &str) -> Option<&str> {
    message.trim().strip_prefix("unknown field `")?.split('`').next()
}

/// The message of a parser about the text at a byte.
pub(crate) fn of_syntax(text: &str, at: usize, message: &str) -> String {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let line = line.split(" #").next().unwrap_or_default().trim();
    match quoted(line) {
        Some(right) => format!("strings must be quoted: {right}"),
        None => match line.split_once('=') {
            Some((key, _)) if is_key(key.trim()) => format!("{}: {}", key.trim(), message.trim()),
            _ => message.trim().to_owned(),
        },
    }
}

/// The line with quotes around its words, if quotes are all that it lacks.
fn quoted(line: &str) -> Option<String> {
    let (key, value) = match line.split_once('=').filter(|(key, _)| is_key(key.trim())) {
        Some((key, value)) => (Some(key.trim()), value.trim()),
        // An item of a list. A lone word may as well be a key without a value.
        None if line.ends_with(',') || line.contains(':') => (None, line.trim_end_matches(',').trim()),
        None => return None,
    };
    let list = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
    let right = match (key, list) {
        (Some(_), Some(list)) => {
            let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
            format!("[{}]", items.map(word_quoted).collect::<Option<Vec<_>>>()?.join(", "))
        }
        _ => word_quoted(value)?,
    };
    let line = format!("{} = {right}", key.unwrap_or("x"));
    (right != value && DeTable::parse(&line).is_ok()).then(|| if key.is_some() { line } else { right })
}

fn word_quoted(word: &str) -> Option<String> {
    if DeTable::parse(&format!("x = {word}")).is_ok() {
        return Some(word.to_owned());
    }
    let is_word = !word.is_empty() && !word.contains(['"', '\'', '[', ']', '{', '}', '\\', ',']);
    is_word.then(|| format!("\"{word}\""))
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// What stands between backquotes.
fn quoted_words(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

fn found_words(found: &str) -> String {
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        _ => match found.strip_prefix("string ") {
            Some(text) => text.to_owned(),
            None => quoted_words(found).first().map_or(found, |word| word).to_owned(),
        },
    }
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" | "usize" => "a number, 0 or more",
        "i32" | "i64" | "isize" | "f64" => "a number",
        "a boolean" => "true or false",
        "path string" => "a string",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_values_are_told_in_words_of_the_file() {
        for (message, words) in [
            (
                "invalid type: string \"a:1\", expected a sequence",
                "expected a list, as in [\"a:1\"]; found \"a:1\"",
            ),
            ("invalid type: integer `1`, expected a sequence", "expected a list, as in [1]; found 1"),
            ("invalid type: map, expected a sequence", "expected a list; found a table"),
            ("invalid type: integer `1`, expected a boolean", "expected true or false; found 1"),
            ("invalid type: string \"x\", expected u16", "expected a number from 0 to 65535; found \"x\""),
            ("invalid value: integer `-1`, expected usize", "expected a number, 0 or more; found -1"),
            ("invalid type: integer `5`, expected struct LimitsConfig", "expected a table; found 5"),
            ("unknown variant `on`, expected `a` or `b`", "'on' is unknown; allowed are a, b"),
            ("unknown field `x`, expected one of `a`, `b`", "unknown; known are a, b"),
            ("missing field `host`", "host is missing"),
            ("invalid IP address syntax", "invalid IP address syntax"),
        ] {
            assert_eq!(of_value(message), words);
        }
    }

    #[test]
    fn words_without_quotes_are_shown_with_them() {
        for (line, words) in [
            ("listen = [127.0.0.1:6432]", "listen = [\"127.0.0.1:6432\"]"),
            ("listen = [\"a:1\", b:2]", "listen = [\"a:1\", \"b:2\"]"),
            ("host=127.0.0.1", "host = \"127.0.0.1\""),
            ("checkpoint=fast # now", "checkpoint = \"fast\""),
            ("  db.example:1,", "\"db.example:1\""),
        ] {
            assert_eq!(of_syntax(line, line.len(), "m"), format!("strings must be quoted: {words}"));
        }
        assert_eq!(of_syntax("a = 1\nb = \"x\n", 7, "invalid basic string"), "b: invalid basic string");
        assert_eq!(of_syntax("[server\n", 7, "unclosed table"), "unclosed table");
        assert_eq!(of_syntax("é", 1, "m"), "m");
    }
}
