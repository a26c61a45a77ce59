//! The configuration file: TOML, unknown names are errors, errors tell file, line and what is allowed.
//!
//! A file is that of a gateway or of a connector as [`pgshrink_gateway::config`] defines them, with a table `[log]`
//! for this program.

use crate::args::{LogFormat, LogLevel};
use crate::error::Error;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file that was read, with what is needed to tell where something in it stands.
#[derive(Debug, Clone)]
pub struct ConfigFile<T> {
    /// As given.
    pub path: PathBuf,
    /// The settings of the service.
    pub config: T,
    /// The table `[log]`.
    pub log: LogTable,
    text: String,
}

/// `[log]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogTable {
    /// Minimum severity of log messages.
    pub level: Option<LogLevel>,
    /// Shape of a message.
    pub format: Option<LogFormat>,
}

/// Reads a file.
pub fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<ConfigFile<T>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::ConfigUnreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Parses the text of a file.
pub fn parse<T: for<'de> Deserialize<'de>>(path: &Path, text: &str) -> Result<ConfigFile<T>, Error> {
    let mut log = LogTable::default();
    let mut key = None;
    let wrong = |error: toml::de::Error, key: Option<Range<usize>>| {
        let at = key.or(error.span()).map_or(0, |span| span.start);
        let message = in_plain_words(error.message().trim());
        let reason = match key_at(text, at) {
            Some((path, name)) if !message.contains(&format!("`{name}`")) => format!("{path}: {message}"),
            _ => message,
        };
        Error::ConfigFile { path: path.to_owned(), line: line_of(text, at), reason }
    };
    let document = toml::Deserializer::parse(text).map_err(|error| wrong(error, None))?;
    let config = document
        .deserialize_map(WithLog { log: &mut log, key: &mut key, config: PhantomData })
        .map_err(|error| wrong(error, key.take()))?;
    Ok(ConfigFile { path: path.to_owned(), config, log, text: text.to_owned() })
}

/// Types of numbers by their range.
fn in_plain_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let expected = match expected {
        "u8" => "a number from 0 to 255",
        "u16" => "a number from 0 to 65535",
        "u32" => "a number from 0 to 4294967295",
        "u64" | "usize" => "a number, 0 or more",
        "i32" | "i64" | "isize" => "a number",
        other => other,
    };
    format!("{found}, expected {expected}")
}

impl<T> ConfigFile<T> {
    /// The line of a setting such as `policy.context`, `listen` or, of several tables, `server[2].port`, if the file
    /// has it.
    pub fn line(&self, item: &str) -> Option<usize> {
        let mut table = DeTable::parse(&self.text).ok()?.into_inner();
        let mut names = item.split('.').peekable();
        loop {
            let (name, number) = numbered(names.next()?);
            let (key, value) = table.into_iter().find(|(key, _)| key.get_ref() == name)?;
            let mut at = key.span().start;
            let inner = match value.into_inner() {
                DeValue::Table(inner) => Some(inner),
                DeValue::Array(list) => list.into_iter().nth(number - 1).and_then(|one| {
                    let start = one.span().start;
                    let DeValue::Table(inner) = one.into_inner() else { return None };
                    at = start;
                    Some(inner)
                }),
                _ => None,
            };
            if names.peek().is_none() {
                return Some(line_of(&self.text, at));
            }
            table = inner?;
        }
    }
}

/// `server[2]` is the second of several tables.
fn numbered(name: &str) -> (&str, usize) {
    let number = name.strip_suffix(']').and_then(|name| name.split_once('['));
    let parsed = number.and_then(|(name, number)| Some((name, number.parse().ok().filter(|n| *n > 0)?)));
    parsed.unwrap_or((name, 1))
}

/// The setting that stands at a byte of the file: its whole path, and its own name.
fn key_at(text: &str, at: usize) -> Option<(String, String)> {
    let path = path_at(DeTable::parse(text).ok()?.get_ref(), at)?;
    Some((path.join("."), path.last()?.clone()))
}

/// Settings first: the span of a table may hold those of other tables.
fn path_at(table: &DeTable<'_>, at: usize) -> Option<Vec<String>> {
    let inside = table.iter().find_map(|(key, value)| {
        let inner = match value.get_ref() {
            DeValue::Table(table) => path_at(table, at),
            DeValue::Array(list) => list.iter().find_map(|one| match one.get_ref() {
                DeValue::Table(table) => {
                    path_at(table, at).or_else(|| one.span().contains(&at).then(Vec::new))
                }
                _ => one.span().contains(&at).then(Vec::new),
            }),
            _ => value.span().contains(&at).then(Vec::new),
        };
        inner.map(|inner| [vec![key.get_ref().to_string()], inner].concat())
    });
    let is_here = |key: &Spanned<_>, value: &Spanned<DeValue<'_>>| {
        [key.span(), value.span()].iter().any(|s| s.contains(&at))
    };
    inside.or_else(|| {
        let (key, _) = table.iter().find(|(key, value)| is_here(key, value))?;
        Some(vec![key.get_ref().to_string()])
    })
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// Takes `[log]` out and gives the rest to the service's own type, which would refuse it.
struct WithLog<'a, T> {
    log: &'a mut LogTable,
    /// Where the last key stands as long as it was not accepted.
    key: &'a mut Option<Range<usize>>,
    config: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for WithLog<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Rest { map, log: self.log, key: self.key }))
    }
}

struct Rest<'a, A> {
    map: A,
    log: &'a mut LogTable,
    key: &'a mut Option<Range<usize>>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<Spanned<String>>()? {
            if key.get_ref() == "log" {
                *self.log = self.map.next_value()?;
                continue;
            }
            *self.key = Some(key.span());
            let accepted = seed.deserialize(key.into_inner().into_deserializer())?;
            *self.key = None;
            return Ok(Some(accepted));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
