//! `SET pgshrink.compression = '…'` and `SHOW pgshrink.compression`, seen in passing.
//!
//! A stock server accepts the name as a placeholder setting, so the statement succeeds there; both ends of the
//! link read it as it passes and change what they send from the next group on. The change is immediate and not
//! undone by ROLLBACK, because neither end knows the server's transaction semantics for placeholders. What the server would
//! show is therefore not what is in effect, and the gateway puts its own answer in place of a SHOW.

use crate::startup::StartupPacket;

/// The setting's name.
pub const SETTING_NAME: &str = "pgshrink.compression";
/// Longest query text looked at, in bytes; the statements of a longer one are not followed.
pub const STATEMENT_SIZE_MAX: usize = 8 << 10;

/// What a statement asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Back to what was negotiated: `DEFAULT`, `RESET`, `'on'`.
    Default,
    /// The text between the quotes.
    Value(String),
}

/// What a query text has to do with the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A statement of it changes the setting; the last one counts.
    Change(Change),
    /// It is nothing but SHOW.
    Show,
    /// It names the setting in a way that is not followed: SET LOCAL, `set_config`, SHOW among other statements.
    Other,
}

/// Reads a query text of one or several statements. `None` if it has nothing to do with the setting.
pub fn read(sql: &[u8]) -> Option<Seen> {
    let sql = sql.strip_suffix(b"\0").unwrap_or(sql);
    if sql.len() > STATEMENT_SIZE_MAX {
        return None;
    }
    let named = names_setting(sql);
    // Nearly every statement is another one.
    if !named && !may_reset(sql) {
        return None;
    }
    let statements = statements(&String::from_utf8_lossy(sql));
    if let Some(change) = statements.iter().rev().find_map(|statement| parse(statement)) {
        return Some(Seen::Change(change));
    }
    match statements.as_slice() {
        [one] if is_show(one) => Some(Seen::Show),
        _ => named.then_some(Seen::Other),
    }
}

fn names_setting(sql: &[u8]) -> bool {
    sql.windows(SETTING_NAME.len()).any(|w| w.eq_ignore_ascii_case(SETTING_NAME.as_bytes()))
}

/// RESET ALL and DISCARD ALL do not name it.
fn may_reset(sql: &[u8]) -> bool {
    let first = sql.trim_ascii_start().first_chunk::<3>();
    first.is_some_and(|first| [*b"res", *b"dis"].contains(&first.map(|byte| byte.to_ascii_lowercase())))
}

/// The statements of a text, without comments, blanks around them and empty ones.
fn statements(sql: &str) -> Vec<String> {
    let mut found = vec![];
    let mut statement = String::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let (taken, is_comment) = match first {
            '-' if rest.starts_with("--") => (rest.find('\n').unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => (comment_size(rest), true),
            '\'' => (quoted_size(rest, ends_in_escape_prefix(&statement)), false),
            '"' => (quoted_size(rest, false), false),
            '$' => (dollar_quoted_size(rest), false),
            other => (other.len_utf8(), false),
        };
        match (first, is_comment) {
            (_, true) => statement.push(' '),
            (';', _) => found.push(std::mem::take(&mut statement)),
            _ => statement.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    found.push(statement);
    found.iter().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).collect()
}

/// True behind the `E` of an escape string: in it a backslash takes a quote's meaning away.
fn ends_in_escape_prefix(text: &str) -> bool {
    let mut last = text.chars().rev();
    let is_e = last.next().is_some_and(|c| c.eq_ignore_ascii_case(&'e'));
    is_e && !last.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
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

/// A string or quoted name. A doubled quote ends one and begins the next, which comes to the same.
fn quoted_size(text: &str, escapes: bool) -> usize {
    let quote = text.as_bytes()[0];
    let mut hidden = true;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if hidden => hidden = false,
            b'\\' if escapes => hidden = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// `$tag$ … $tag$`, or one character if this is no such quote.
fn dollar_quoted_size(text: &str) -> usize {
    let tag = text[1..].find('$').map(|end| &text[..end + 2]);
    let tag = tag.filter(|tag| tag[1..tag.len() - 1].chars().all(|c| c.is_alphanumeric() || c == '_'));
    let Some(tag) = tag else { return 1 };
    text[tag.len()..].find(tag).map_or(text.len(), |end| end + 2 * tag.len())
}

fn is_show(statement: &str) -> bool {
    keyword(statement, "show").is_some_and(|name| name.eq_ignore_ascii_case(SETTING_NAME))
}

/// Reads one statement. `None` for anything that is not exactly a SET or RESET of the setting.
fn parse(text: &str) -> Option<Change> {
    if let Some(rest) = keyword(text, "reset") {
        return (rest.eq_ignore_ascii_case(SETTING_NAME) || rest.eq_ignore_ascii_case("all"))
            .then_some(Change::Default);
    }
    if keyword(text, "discard").is_some_and(|rest| rest.eq_ignore_ascii_case("all")) {
        return Some(Change::Default);
    }
    let rest = keyword(text, "set")?;
    let rest = keyword(rest, "session").unwrap_or(rest);
    let name = rest.get(..SETTING_NAME.len())?;
    if !name.eq_ignore_ascii_case(SETTING_NAME) {
        return None;
    }
    let rest = &rest[SETTING_NAME.len()..];
    let value = match rest.trim_start().strip_prefix('=') {
        Some(value) => value.trim_start(),
        None => keyword(rest.trim_start(), "to").filter(|_| rest.starts_with(char::is_whitespace))?,
    };
    read_value(value)
}

/// What follows the keyword and at least one blank.
fn keyword<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    (head.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
}

fn read_value(value: &str) -> Option<Change> {
    if let Some(quoted) = value.strip_prefix('\'') {
        let inner = quoted.strip_suffix('\'')?;
        return (!inner.contains('\'')).then(|| Change::Value(inner.to_string()));
    }
    let bare = !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    match bare {
        true if value.eq_ignore_ascii_case("default") => Some(Change::Default),
        true => Some(Change::Value(value.to_string())),
        false => None,
    }
}

/// Takes the setting out of a startup packet, where it stands as a parameter or as `-c pgshrink.compression=…` in `options`
/// (PGOPTIONS), and returns the value that counts.
pub fn take_from_startup(packet: &mut StartupPacket) -> Option<String> {
    let mut value = None;
    if let Some(options) = packet.get("options").map(|text| String::from_utf8_lossy(text).into_owned())
        && names_setting(options.as_bytes())
    {
        let (kept, found) = without_setting(&options);
        value = found;
        match kept.is_empty() {
            true => drop(packet.remove("options")),
            false => packet.set("options", kept.as_bytes()),
        }
    }
    // The server, too, takes parameters after options.
    let given = packet.parameters.iter().rev().find(|(name, _)| is_setting(name));
    value = given.map(|(_, text)| String::from_utf8_lossy(text).into_owned()).or(value);
    packet.parameters.retain(|(name, _)| !is_setting(name));
    value
}

fn is_setting(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(SETTING_NAME.as_bytes())
}

/// Options without those that set it, and the last value.
fn without_setting(options: &str) -> (String, Option<String>) {
    let (mut kept, mut value) = (Vec::new(), None);
    let own = |text: &str| {
        let (name, text) = text.split_once('=')?;
        is_setting(name.as_bytes()).then(|| unescape(text))
    };
    let mut words = option_words(options).into_iter().peekable();
    while let Some(word) = words.next() {
        let (found, in_next) = match words.peek().filter(|_| word == "-c") {
            Some(next) => (own(next), true),
            None => (word.strip_prefix("-c").or(word.strip_prefix("--")).and_then(own), false),
        };
        match found {
            Some(found) => {
                value = Some(found);
                if in_next {
                    words.next();
                }
            }
            None => kept.push(word),
        }
    }
    (kept.join(" "), value)
}

/// Words as the server splits them: a backslash takes a blank's meaning away. They are left escaped.
fn option_words(options: &str) -> Vec<&str> {
    let mut escaped = false;
    let ends_word = |c: char| {
        let ends = c.is_ascii_whitespace() && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    };
    options.split(ends_word).filter(|word| !word.is_empty()).collect()
}

fn unescape(text: &str) -> String {
    let mut escaped = false;
    let keep = |c: &char| {
        escaped = *c == '\\' && !escaped;
        !escaped
    };
    text.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(sql: &str) -> Option<Change> {
        match read(sql.as_bytes()) {
            Some(Seen::Change(change)) => Some(change),
            _ => None,
        }
    }

    #[test]
    fn the_forms_psql_users_type_are_understood() {
        for (sql, value) in [
            ("SET pgshrink.compression = 'zstd:3'", "zstd:3"),
            ("set PGSHRINK.Compression to 'off' ;\0", "off"),
            ("  SET SESSION pgshrink.compression='lz4:2,zlib'", "lz4:2,zlib"),
            ("SET pgshrink.compression TO off;", "off"),
            ("-- why\nSET pgshrink.compression = 'off'", "off"),
            ("/* a /* nested */ one */ SET /* here */ pgshrink.compression = 'off' -- end", "off"),
            ("BEGIN; SET pgshrink.compression = 'off'; SELECT ';'", "off"),
            ("SET pgshrink.compression = 'a'; SET pgshrink.compression = 'b'", "b"),
            ("SELECT $x$ '; $x$, E'\\'', \"a;b\"; SET pgshrink.compression = 'off'", "off"),
        ] {
            assert_eq!(change(sql), Some(Change::Value(value.into())), "{sql}");
        }
        for sql in [
            "RESET pgshrink.compression",
            "reset all;",
            "DISCARD  ALL",
            "SET pgshrink.compression TO DEFAULT",
            "set pgshrink.compression = 'off'; reset pgshrink.compression",
        ] {
            assert_eq!(change(sql), Some(Change::Default), "{sql}");
        }
    }

    #[test]
    fn show_is_known_and_other_uses_of_the_name_are_noticed() {
        for sql in ["show PGSHRINK.compression;", "/* x */ SHOW pgshrink.compression -- y"] {
            assert_eq!(read(sql.as_bytes()), Some(Seen::Show), "{sql}");
        }
        for sql in [
            "SELECT 'SET pgshrink.compression = ''off'''",
            "SET LOCAL pgshrink.compression = 'off'",
            "SELECT set_config('pgshrink.compression', 'off', false)",
            "SET pgshrink.compression",
            "SET pgshrink.compression = ",
            "SET pgshrink.compressionx = 'off'",
            "SELECT 1; SHOW pgshrink.compression",
            "SELECT ';SET pgshrink.compression = 1'",
            "SELECT $$;SET pgshrink.compression = 1$$",
        ] {
            assert_eq!(read(sql.as_bytes()), Some(Seen::Other), "{sql}");
        }
    }

    #[test]
    fn everything_else_is_left_alone() {
        for sql in
            ["SELECT 1", "RESET other", "", ";", "sét pgshrink", "SET search_path = x", "$", "E'", "/*"]
        {
            assert_eq!(read(sql.as_bytes()), None, "{sql}");
        }
        let long = format!("SET pgshrink.compression = '{}'", "x".repeat(STATEMENT_SIZE_MAX));
        assert_eq!(read(long.as_bytes()), None);
    }

    #[test]
    fn the_startup_packet_sets_it_as_the_server_would_read_it() {
        let take = |options: &str, parameter: Option<&str>| {
            let mut packet = StartupPacket { protocol: 3 << 16, parameters: Vec::new() };
            packet.set("options", options.as_bytes());
            parameter.into_iter().for_each(|value| packet.set("pgshrink.compression", value.as_bytes()));
            let value = take_from_startup(&mut packet);
            assert!(packet.get("pgshrink.compression").is_none());
            let rest = packet.get("options").map(|text| String::from_utf8_lossy(text).into_owned());
            (value.unwrap_or_default(), rest.unwrap_or_default())
        };
        let both = |value: &str, rest: &str| (value.to_owned(), rest.to_owned());
        assert_eq!(take("-c pgshrink.compression=off", None), both("off", ""));
        let several = "-c geqo=off --pgshrink.compression=lz4 -cjit=off";
        assert_eq!(take(several, None), both("lz4", "-c geqo=off -cjit=off"));
        let escaped = "-cpgshrink.compression=zstd:1,\\ lz4 -c a=b\\ c";
        assert_eq!(take(escaped, None), both("zstd:1, lz4", "-c a=b\\ c"));
        assert_eq!(take("-c pgshrink.compression=lz4", Some("off")), both("off", ""));
        assert_eq!(take("-c a=pgshrink.compression", None), both("", "-c a=pgshrink.compression"));
    }
}
