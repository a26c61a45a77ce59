//! The console's language: one statement, one [`Command`].
//!
//! Keywords are case-insensitive, `;` ends a statement, `--` and `/* */` are comments, values stand in single quotes
//! or alone.

use crate::error::{Refusal, sqlstate};

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    Help,
    Version,
    State,
    Stats,
    StatsTotals,
    Savings,
    Events,
    Clients,
    Servers,
    Config,
    Memory,
    Listeners,
}

/// Word, topic, and what HELP says of it.
pub(super) const TOPICS: &[(&str, Topic, &str)] = &[
    ("HELP", Topic::Help, "This list."),
    ("VERSION", Topic::Version, "The version of pgshrink."),
    ("STATE", Topic::State, "Role, phase (running, paused, draining), uptime, sessions."),
    (
        "STATS",
        Topic::Stats,
        "Both directions since the start: raw and wire bytes, ratio, frames, codec time.",
    ),
    ("STATS_TOTALS", Topic::StatsTotals, "The same for each server."),
    (
        "SAVINGS",
        Topic::Savings,
        "With observe: what compression would have saved, estimated, by day, client and database.",
    ),
    (
        "EVENTS",
        Topic::Events,
        "Connections, refusals, failed logins, plain sessions, hostile input, by reason.",
    ),
    ("CLIENTS", Topic::Clients, "A row for each session; read it with \\x."),
    ("SERVERS", Topic::Servers, "A row for each server: sessions, failures, bytes."),
    ("CONFIG", Topic::Config, "Every setting, its default, and whether RELOAD changes it."),
    ("MEMORY", Topic::Memory, "Codec memory and its limit, sessions, the process."),
    ("LISTENERS", Topic::Listeners, "Listening sockets and connections accepted."),
];

/// One session or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    One(u64),
    All,
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(id) => id.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// A statement understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// Nothing between two semicolons.
    Empty,
    Show(Topic),
    Reload,
    SetCompression(Which, String),
    Kill(u64),
    Pause,
    Resume,
    Shutdown {
        immediate: bool,
    },
    /// `SELECT 1`: connection pools ask it.
    SelectOne,
    /// Transaction brackets, which mean nothing here: the tag to answer with, and the transaction status after it.
    Bracket(&'static str, u8),
    /// A driver's own settings: taken, and forgotten.
    DriverSetting(&'static str),
}

impl Command {
    /// Whether a user who may only look may say it.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(
            self,
            Command::Empty
                | Command::Show(_)
                | Command::SelectOne
                | Command::Bracket(..)
                | Command::DriverSetting(_)
        )
    }
}

/// Settings that drivers make by themselves when they connect.
const DRIVER_SETTINGS: &[&str] = &[
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "names",
    "search_path",
    "session",
    "standard_conforming_strings",
    "statement_timeout",
    "time",
    "timezone",
];

/// The statements of a query text, one after the other.
pub(super) fn split(text: &str) -> Result<Vec<Vec<Word>>, Refusal> {
    let mut statements = vec![Vec::new()];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let used = if rest.starts_with("--") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").ok_or_else(|| syntax("unterminated comment"))? + 2
        } else if first == ';' {
            statements.push(Vec::new());
            1
        } else {
            let (word, used) = word(rest)?;
            if let Some(last) = statements.last_mut() {
                last.push(word);
            }
            used
        };
        rest = rest[used..].trim_start();
    }
    if statements.len() > 1 {
        statements.retain(|s| !s.is_empty());
    }
    if statements.is_empty() {
        statements.push(Vec::new());
    }
    Ok(statements)
}

/// A word of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Bare(String),
    Quoted(String),
}

impl Word {
    fn text(&self) -> &str {
        match self {
            Word::Bare(text) | Word::Quoted(text) => text,
        }
    }

    fn keyword(&self) -> String {
        match self {
            Word::Bare(text) => text.to_ascii_uppercase(),
            Word::Quoted(_) => String::new(),
        }
    }
}

fn word(text: &str) -> Result<(Word, usize), Refusal> {
    if let Some(quoted) = text.strip_prefix('\'') {
        let mut value = String::new();
        let mut chars = quoted.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match (c, chars.peek()) {
                ('\'', Some((_, '\''))) => {
                    value.push('\'');
                    chars.next();
                }
                ('\'', _) => return Ok((Word::Quoted(value), at + 2)),
                _ => value.push(c),
            }
        }
        return Err(syntax("unterminated quoted string"));
    }
    if text.starts_with('=') {
        return Ok((Word::Bare("=".into()), 1));
    }
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, ';' | '\'' | '=')).unwrap_or(text.len());
    Ok((Word::Bare(text[..end].to_string()), end))
}

/// Understands one statement.
pub(super) fn parse(words: &[Word]) -> Result<Command, Refusal> {
    let keywords: Vec<String> = words.iter().map(Word::keyword).collect();
    let keywords: Vec<&str> = keywords.iter().map(String::as_str).collect();
    match keywords.as_slice() {
        [] => Ok(Command::Empty),
        ["SHOW", topic] => TOPICS
            .iter()
            .find(|(name, ..)| name == topic)
            .map(|(_, topic, _)| Command::Show(*topic))
            .ok_or_else(|| syntax(&format!("nothing to show for \"{}\"", words[1].text()))),
        ["SHOW"] => Ok(Command::Show(Topic::Help)),
        ["RELOAD"] => Ok(Command::Reload),
        ["PAUSE"] => Ok(Command::Pause),
        ["RESUME"] => Ok(Command::Resume),
        ["SHUTDOWN"] => Ok(Command::Shutdown { immediate: false }),
        ["SHUTDOWN", "IMMEDIATE"] => Ok(Command::Shutdown { immediate: true }),
        ["KILL", _] => Ok(Command::Kill(session_id(words[1].text())?)),
        ["SET", "COMPRESSION", rest @ ..] => set_compression(&words[2..], rest),
        ["SET", "SESSION" | "LOCAL", name, _, ..] | ["SET", name, _, ..] if is_driver_setting(name) => {
            Ok(Command::DriverSetting("SET"))
        }
        ["RESET" | "DISCARD", "ALL"] => Ok(Command::DriverSetting("RESET")),
        ["DEALLOCATE", _, ..] => Ok(Command::DriverSetting("DEALLOCATE")),
        ["SELECT", "1"] => Ok(Command::SelectOne),
        ["BEGIN", ..] | ["START", "TRANSACTION", ..] => Ok(Command::Bracket("BEGIN", b'T')),
        ["COMMIT" | "END", ..] => Ok(Command::Bracket("COMMIT", b'I')),
        ["ROLLBACK" | "ABORT", ..] => Ok(Command::Bracket("ROLLBACK", b'I')),
        _ => Err(syntax(&format!("unknown command \"{}\"", shortened(words)))),
    }
}

fn is_driver_setting(name: &str) -> bool {
    DRIVER_SETTINGS.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// `<id|ALL> [=|TO] <value>`.
fn set_compression(words: &[Word], keywords: &[&str]) -> Result<Command, Refusal> {
    let usage = || syntax("SET COMPRESSION needs a session and a value: SET COMPRESSION 7 'zstd:3,lz4'");
    let (which, value) = match (words, keywords) {
        ([which, _, value], [_, "=" | "TO", _]) | ([which, value], _) => (which, value),
        _ => return Err(usage()),
    };
    let which = match which.keyword().as_str() {
        "ALL" => Which::All,
        _ => Which::One(session_id(which.text())?),
    };
    match value.text() {
        "" | "=" => Err(usage()),
        text => Ok(Command::SetCompression(which, text.to_string())),
    }
}

fn session_id(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| {
        Refusal::new(sqlstate::SYNTAX_ERROR, format!("\"{}\" is not a session id", clip(text)))
            .hint("SHOW CLIENTS lists sessions with their ids.")
    })
}

fn syntax(message: &str) -> Refusal {
    Refusal::new(sqlstate::SYNTAX_ERROR, message).hint("SHOW HELP lists the commands of this console.")
}

fn shortened(words: &[Word]) -> String {
    let text = words.iter().map(Word::text).collect::<Vec<_>>().join(" ");
    clip(&text)
}

/// Enough of a text to recognise it.
fn clip(text: &str) -> String {
    const LENGTH_MAX: usize = 60;
    match text.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Command, Refusal> {
        let statements = split(text)?;
        assert_eq!(statements.len(), 1, "{text}");
        parse(&statements[0])
    }

    #[test]
    fn keywords_are_understood_in_any_case_with_comments_and_semicolons() {
        for text in ["SHOW STATS", "show stats;", " -- why\n Show /* the */ Stats ; ;"] {
            assert_eq!(one(text), Ok(Command::Show(Topic::Stats)), "{text}");
        }
        assert_eq!(one(" ; "), Ok(Command::Empty));
        assert_eq!(one("shutdown immediate"), Ok(Command::Shutdown { immediate: true }));
        assert_eq!(one("kill 7"), Ok(Command::Kill(7)));
    }

    #[test]
    fn every_topic_of_help_can_be_shown() {
        for (name, topic, _) in TOPICS {
            assert_eq!(one(&format!("show {name}")), Ok(Command::Show(*topic)));
        }
    }

    #[test]
    fn several_statements_come_one_after_the_other() {
        let statements = split("show stats; set compression all ';off'';'; reload").unwrap();
        let commands: Result<Vec<_>, _> = statements.iter().map(|s| parse(s)).collect();
        assert_eq!(
            commands.unwrap(),
            [
                Command::Show(Topic::Stats),
                Command::SetCompression(Which::All, ";off';".into()),
                Command::Reload
            ]
        );
    }

    #[test]
    fn compression_is_set_for_one_session_or_all() {
        let set = |which, text: &str| Ok(Command::SetCompression(which, text.into()));
        assert_eq!(one("set compression 3 'zstd:3,lz4'"), set(Which::One(3), "zstd:3,lz4"));
        assert_eq!(one("SET COMPRESSION ALL = off"), set(Which::All, "off"));
        assert_eq!(one("set compression 3 to lz4:2"), set(Which::One(3), "lz4:2"));
        for text in
            ["set compression", "set compression 3", "set compression x off", "set compression 3 = '' 4"]
        {
            assert!(one(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_commands_are_syntax_errors_that_point_to_help() {
        for text in [
            "select * from t",
            "show tables",
            "set work_mem = 1",
            "kill",
            "kill x",
            "'show stats'",
            "show 'x",
        ] {
            let refusal = one(text).unwrap_err();
            assert_eq!(refusal.sqlstate, "42601", "{text}");
            assert!(refusal.hint.unwrap().contains("SHOW "), "{text}");
        }
    }

    #[test]
    fn what_drivers_say_by_themselves_is_taken() {
        assert_eq!(one("SET extra_float_digits = 3"), Ok(Command::DriverSetting("SET")));
        assert_eq!(one("SET application_name = 'PostgreSQL JDBC Driver'"), Ok(Command::DriverSetting("SET")));
        assert_eq!(one("BEGIN"), Ok(Command::Bracket("BEGIN", b'T')));
        assert!(one("SET application_name = 'x'").unwrap().is_read_only());
        assert!(!one("reload").unwrap().is_read_only());
    }
}
