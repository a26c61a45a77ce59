//! `SET pgshrink.compression = '…'` seen in passing.
//!
//! A stock server accepts the name as a placeholder setting, so the statement succeeds there; both ends of the
//! link read it as it passes and change what they send from the next group on. The change is immediate and not
//! undone by ROLLBACK, because neither end knows the server's transaction semantics for placeholders.

/// The setting's name.
pub const SETTING_NAME: &str = "pgshrink.compression";
/// Longest statement looked at, in bytes; a longer one is not this.
pub const STATEMENT_SIZE_MAX: usize = 512;

/// What a statement asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Back to what was negotiated: `DEFAULT`, `RESET`, `'on'`.
    Default,
    /// The text between the quotes.
    Value(String),
}

/// Reads one statement. `None` for anything that is not exactly a SET or RESET of the setting.
pub fn parse(sql: &[u8]) -> Option<Change> {
    let sql = sql.strip_suffix(b"\0").unwrap_or(sql);
    if sql.len() > STATEMENT_SIZE_MAX {
        return None;
    }
    // Nearly every statement is another one.
    let first = sql.trim_ascii_start().first_chunk::<3>()?.map(|b| b.to_ascii_lowercase());
    if ![b"set", b"res", b"dis"].contains(&&first) {
        return None;
    }
    let text = std::str::from_utf8(sql).ok()?.trim();
    let text = text.strip_suffix(';').unwrap_or(text).trim_end();
    if let Some(rest) = keyword(text, "reset") {
        return (rest.eq_ignore_ascii_case(SETTING_NAME) || rest.eq_ignore_ascii_case("all"))
            .then_some(Change::Default);
    }
    if text.eq_ignore_ascii_case("discard all") {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_psql_users_type_are_understood() {
        for (sql, value) in [
            ("SET pgshrink.compression = 'zstd:3'", "zstd:3"),
            ("set PGSHRINK.Compression to 'off' ;\0", "off"),
            ("  SET SESSION pgshrink.compression='lz4:2,zlib'", "lz4:2,zlib"),
            ("SET pgshrink.compression TO off;", "off"),
        ] {
            assert_eq!(parse(sql.as_bytes()), Some(Change::Value(value.into())), "{sql}");
        }
        for sql in
            ["RESET pgshrink.compression", "reset all;", "DISCARD ALL", "SET pgshrink.compression TO DEFAULT"]
        {
            assert_eq!(parse(sql.as_bytes()), Some(Change::Default), "{sql}");
        }
    }

    #[test]
    fn everything_else_is_left_alone() {
        for sql in [
            "SELECT 'SET pgshrink.compression = ''off'''",
            "SET pgshrink.compressionx = 'off'",
            "SET LOCAL pgshrink.compression = 'off'",
            "SET pgshrink.compression = 'a'; SELECT 'b'",
            "SET pgshrink.compression",
            "SET pgshrink.compression = ",
            "SETpgshrink.compression = 'x'",
            "RESET other",
            "sét pgshrink",
        ] {
            assert_eq!(parse(sql.as_bytes()), None, "{sql}");
        }
        assert_eq!(
            parse(format!("SET pgshrink.compression = '{}'", "x".repeat(STATEMENT_SIZE_MAX)).as_bytes()),
            None
        );
    }
}
