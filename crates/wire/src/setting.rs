//! `SET pgshrink.compression = '…'` and `SHOW pgshrink.compression`, seen in passing.
//!
//! Owns what a query text says about the setting. A stock server accepts the name as a placeholder setting, so the
//! statement succeeds there; both ends of the link read it as it passes, and change what they send when the server has
//! confirmed it (`follow.rs`). The change is not undone by ROLLBACK, because neither end knows the server's transaction
//! semantics for placeholders. What the server would show is therefore not what is in effect, and the gateway puts a
//! question of its own in place of a SHOW.
//!
//! Nearly every text has nothing to do with it, and every text is looked at: [`read`] first searches for letters that the
//! name, `RESET ALL` and `DISCARD ALL` need, and only then cuts the text into tokens.

mod lex;

use self::lex::{Token, statements};
use crate::startup::StartupPacket;

/// The setting's name.
pub const SETTING_NAME: &str = "pgshrink.compression";
/// Longest query text whose statements are read, in bytes, a few more for a statement's name aside; a longer one is only
/// searched for the setting's name.
pub const STATEMENT_SIZE_MAX: usize = 8 << 10;
/// Longest value that is followed, in bytes: several times what a list of all algorithms takes.
pub const VALUE_SIZE_MAX: usize = 256;

/// The two parts of the name.
const PREFIX: &str = "pgshrink";
const SUFFIX: &str = "compression";

/// What a statement asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Back to what the session began with: `DEFAULT`, `RESET`, `DISCARD ALL`.
    Default,
    /// The value of the constant.
    Value(String),
}

/// What a query text has to do with the setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Statements that change it, and the number of statements in front of each.
    pub changes: Vec<(u32, Change)>,
    /// The text is nothing but SHOW.
    pub is_show: bool,
    /// It names the setting in a way that is not followed: SET LOCAL, `set_config`, SHOW among other statements.
    pub has_other: bool,
}

/// Reads a query text of one or several statements. `None` if it has nothing to do with the setting. The caller bounds its
/// size, see [`STATEMENT_SIZE_MAX`].
pub fn read(sql: &[u8]) -> Option<Seen> {
    let sql = sql.strip_suffix(b"\0").unwrap_or(sql);
    if !may_concern(sql) {
        return None;
    }
    let sql = String::from_utf8_lossy(sql);
    let statements = statements(&sql);
    let mut seen = Seen::default();
    for (before, statement) in statements.iter().enumerate() {
        match change(statement) {
            Some(change) => seen.changes.push((before as u32, change)),
            None if statements.len() == 1 && is_show(statement) => seen.is_show = true,
            None => seen.has_other |= names_it(statement),
        }
    }
    (seen != Seen::default()).then_some(seen)
}

/// Cheap, and true for every text that [`read`] finds something in.
fn may_concern(sql: &[u8]) -> bool {
    prefixes(sql).next().is_some() || has_escaped_name(sql) || may_reset(sql)
}

/// Where the first part of the name ends. Of its letters `k` is the rarest one in SQL.
fn prefixes(sql: &[u8]) -> impl Iterator<Item = usize> {
    memchr::memchr2_iter(b'k', b'K', sql).map(|at| at + 1).filter(|&end| {
        let word = end.checked_sub(PREFIX.len()).map(|begin| &sql[begin..end]);
        word.is_some_and(|word| word.eq_ignore_ascii_case(PREFIX.as_bytes()))
    })
}

/// `U&"…"` can spell any name.
fn has_escaped_name(sql: &[u8]) -> bool {
    let is_one = |at: usize| at > 0 && sql[at - 1] | 0x20 == b'u' && sql.get(at + 1) == Some(&b'"');
    memchr::memchr_iter(b'&', sql).any(is_one)
}

/// RESET ALL and DISCARD ALL do not name it. They stand at the start, behind a statement or behind a comment.
fn may_reset(sql: &[u8]) -> bool {
    let begins = |at: usize| {
        let first = sql[at..].trim_ascii_start().first_chunk::<3>();
        first.is_some_and(|first| [*b"res", *b"dis"].contains(&first.map(|byte| byte.to_ascii_lowercase())))
    };
    begins(0) || memchr::memchr3_iter(b';', b'/', b'\n', sql).any(|at| begins(at + 1))
}

/// Whether a text that is too long to be read names the setting, in quotes or not. It comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// The end of what has been searched.
    carry: Vec<u8>,
    found: bool,
}

impl Search {
    /// Longest form that is found across two pieces, in bytes.
    const SPAN: usize = 64;

    pub(crate) fn feed(&mut self, piece: &[u8]) {
        if self.found {
            return;
        }
        let joint = [&self.carry, &piece[..piece.len().min(Self::SPAN)]].concat();
        self.found = names_it_somewhere(&joint) || names_it_somewhere(piece);
        let end = if piece.len() < Self::SPAN { &joint } else { piece };
        self.carry = end[end.len().saturating_sub(Self::SPAN)..].to_vec();
    }

    /// What was found since the last call; the next text begins.
    pub(crate) fn finish(&mut self) -> bool {
        std::mem::take(self).found
    }
}

fn names_it_somewhere(text: &[u8]) -> bool {
    let skip = |text: &[u8]| {
        let is_skipped = |byte: &&u8| byte.is_ascii_whitespace() || **byte == b'"';
        text.iter().take_while(is_skipped).count()
    };
    prefixes(text).any(|end| {
        let rest = &text[end..];
        let Some(rest) = rest[skip(rest)..].strip_prefix(b".") else { return false };
        let word = rest[skip(rest)..].get(..SUFFIX.len());
        word.is_some_and(|word| word.eq_ignore_ascii_case(SUFFIX.as_bytes()))
    })
}

/// True for SHOW of the setting.
fn is_show(statement: &[Token<'_>]) -> bool {
    matches!(statement, [first, rest @ ..] if first.is("show") && setting(rest) == Some(&[]))
}

/// Reads one statement. `None` for anything that is not exactly a SET or RESET of the setting.
fn change(statement: &[Token<'_>]) -> Option<Change> {
    let (first, rest) = statement.split_first()?;
    let is_all = matches!(rest, [all] if all.is("all"));
    if first.is("reset") {
        return (is_all || setting(rest) == Some(&[])).then_some(Change::Default);
    }
    if first.is("discard") {
        return is_all.then_some(Change::Default);
    }
    if !first.is("set") {
        return None;
    }
    let rest = match rest {
        [session, rest @ ..] if session.is("session") => rest,
        _ => rest,
    };
    match setting(rest)? {
        [equals, value] if *equals == Token::Symbol('=') || equals.is("to") => read_value(value),
        _ => None,
    }
}

/// What stands behind the setting's name; `None` if another name or none is at the start. The server compares names of
/// settings without regard to case, quoted or not, after it has joined their parts.
fn setting<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    match tokens {
        [one, Token::Symbol('.'), two, rest @ ..] => {
            (is_name(one, PREFIX) && is_name(two, SUFFIX)).then_some(rest)
        }
        [one, rest @ ..] => is_name(one, SETTING_NAME).then_some(rest),
        [] => None,
    }
}

fn is_name(token: &Token<'_>, name: &str) -> bool {
    matches!(token, Token::Word(text) | Token::Name(text) if text.eq_ignore_ascii_case(name))
}

fn read_value(value: &Token<'_>) -> Option<Change> {
    let value = match *value {
        Token::Word(word) if word.eq_ignore_ascii_case("default") => return Some(Change::Default),
        Token::Word(word) => word.to_lowercase(),
        Token::Name(name) if !name.contains('"') => name.to_owned(),
        Token::Text { inner, is_verbatim: true } => inner.to_owned(),
        _ => return None,
    };
    (value.len() <= VALUE_SIZE_MAX).then_some(Change::Value(value))
}

/// True for a statement that has the setting's name anywhere, in a string too, or may have it in escapes.
fn names_it(statement: &[Token<'_>]) -> bool {
    let is_about_a_setting = ["set", "reset", "show"].iter().any(|word| statement[0].is(word));
    let has_uescape = statement.iter().any(|token| token.is("uescape"));
    (0..statement.len()).any(|at| match statement[at] {
        Token::Text { inner, .. } => names_it_somewhere(inner.as_bytes()),
        Token::EscapedName(inner) => {
            let plain = [PREFIX, SUFFIX, SETTING_NAME].iter().any(|name| inner.eq_ignore_ascii_case(name));
            is_about_a_setting && (plain || has_uescape || inner.contains('\\'))
        }
        _ => setting(&statement[at..]).is_some(),
    })
}

/// Takes the setting out of a startup packet, where it stands as a parameter or as `-c pgshrink.compression=…` in `options`
/// (PGOPTIONS), and returns the value that counts.
pub fn take_from_startup(packet: &mut StartupPacket) -> Option<String> {
    let mut value = None;
    if let Some(options) = packet.get("options").map(|text| String::from_utf8_lossy(text).into_owned())
        && prefixes(options.as_bytes()).next().is_some()
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

    fn changes(sql: &str) -> Vec<(u32, Change)> {
        read(sql.as_bytes()).map(|seen| seen.changes).unwrap_or_default()
    }

    fn value(text: &str) -> Change {
        Change::Value(text.to_owned())
    }

    #[test]
    fn the_forms_psql_users_type_are_understood() {
        for (sql, before, text) in [
            ("SET pgshrink.compression = 'zstd:3'", 0, "zstd:3"),
            ("set PGSHRINK.Compression to 'off' ;\0", 0, "off"),
            ("  SET SESSION pgshrink.compression='lz4:2,zlib'", 0, "lz4:2,zlib"),
            ("SET pgshrink.compression TO OFF;", 0, "off"),
            ("-- why\nSET pgshrink.compression = 'off'", 0, "off"),
            ("/* a /* nested */ one */ SET /* here */ pgshrink.compression = 'off' -- end", 0, "off"),
            ("BEGIN; SET pgshrink.compression = 'off'; SELECT ';'", 1, "off"),
            ("SELECT $x$ '; $x$, E'\\'', \"a;b\";; SET pgshrink.compression = 'off'", 1, "off"),
            ("SET \"pgshrink\".\"compression\" = 'off'", 0, "off"),
            ("SET \"PGshrink\".compression = 'off'", 0, "off"),
            ("SET \"pgshrink.compression\" = 'off'", 0, "off"),
            ("set pgshrink . /* here */ compression=\"off\"", 0, "off"),
            ("set pgshrink.compression = E'off'", 0, "off"),
            ("set pgshrink.compression = $$off$$", 0, "off"),
        ] {
            assert_eq!(changes(sql), [(before, value(text))], "{sql}");
            assert!(!read(sql.as_bytes()).unwrap().has_other, "{sql}");
        }
        for (sql, before) in [
            ("RESET pgshrink.compression", 0),
            ("reset \"pgshrink\" . compression", 0),
            ("reset all;", 0),
            ("DISCARD  ALL", 0),
            ("/* pool */ DISCARD ALL", 0),
            ("-- pool\n reset all", 0),
            ("select 1;Reset All", 1),
            ("SET pgshrink.compression TO DEFAULT", 0),
        ] {
            assert_eq!(changes(sql), [(before, Change::Default)], "{sql}");
        }
        let both = "set pgshrink.compression = 'off'; select 1; reset pgshrink.compression";
        assert_eq!(changes(both), [(0, value("off")), (2, Change::Default)]);
    }

    #[test]
    fn show_is_known_and_other_uses_of_the_name_are_noticed() {
        let show = Seen { is_show: true, ..Seen::default() };
        for sql in ["show PGSHRINK.compression;", "/* x */ SHOW \"pgshrink\" . compression -- y"] {
            assert_eq!(read(sql.as_bytes()).as_ref(), Some(&show), "{sql}");
        }
        let other = Seen { has_other: true, ..Seen::default() };
        let long = format!("SET pgshrink.compression = '{}'", "x".repeat(VALUE_SIZE_MAX + 1));
        for sql in [
            &long[..],
            "SELECT 'SET pgshrink.compression = ''off'''",
            "SET LOCAL pgshrink.compression = 'off'",
            "SET LOCAL \"pgshrink\".compression = 'off'",
            "SET U&\"pgshrink\".compression = 'off'",
            "SET U&\"\\0070gshrink\".compression = 'off'",
            "RESET U&\"!0070gshrink\" UESCAPE '!' . compression",
            "SET pgshrink.compression = 'off''x'",
            "SET pgshrink.compression = zstd:1",
            "SELECT set_config('pgshrink.compression', 'off', false)",
            "SET pgshrink.compression",
            "SET pgshrink.compression = ",
            "SELECT 1; SHOW pgshrink.compression",
            "SELECT ';SET pgshrink.compression = 1'",
            "SELECT $$;SET pgshrink.compression = 1$$",
        ] {
            assert_eq!(read(sql.as_bytes()).as_ref(), Some(&other), "{sql}");
        }
        let both = read(b"SET pgshrink.compression = 'off'; SHOW pgshrink.compression").unwrap();
        assert!(both.has_other && both.changes.len() == 1, "{both:?}");
    }

    #[test]
    fn everything_else_is_left_alone() {
        for sql in [
            "SELECT 1",
            "RESET other",
            "DISCARD PLANS",
            "",
            ";",
            "sét pgshrink",
            "SET search_path = x",
            "SET pgshrink.compressionx = 'off'",
            "SET x.pgshrink.compressions = 'off'",
            "SET pgshrink = 1",
            "-- SET pgshrink.compression = 'off'\nSELECT 1",
            "SELECT U&\"d\\0061t\" FROM t",
            "SET U&\"other\" = 1",
            "$",
            "E'",
            "/*",
        ] {
            assert_eq!(read(sql.as_bytes()), None, "{sql}");
        }
    }

    #[test]
    fn a_text_too_long_to_be_read_is_searched_wherever_it_is_cut() {
        let blanks = " ".repeat(STATEMENT_SIZE_MAX);
        for (name, is_found) in [
            ("pgshrink.compression", true),
            ("\"PGShrink\" . \"compression\"", true),
            ("pgshrink_compression, pgshrink.comp", false),
        ] {
            let sql = format!("SET {name} = 'off'{blanks}");
            for cut in 0..60 {
                let mut search = Search::default();
                search.feed(&sql.as_bytes()[..cut]);
                sql.as_bytes()[cut..].chunks(7).for_each(|piece| search.feed(piece));
                assert_eq!((search.finish(), search.finish()), (is_found, false), "{name} cut at {cut}");
            }
        }
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
