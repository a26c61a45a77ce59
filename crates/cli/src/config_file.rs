//! The configuration file: TOML, unknown names are errors, errors tell file, line and what is allowed.
//!
//! A file is that of a gateway or of a connector as [`pgshrink_gateway::config`] defines them, with a table `[log]`
//! for this program.

use crate::args::{LogFormat, LogLevel};
use crate::error::Error;
use crate::toml_words;
use serde::Serialize;
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

/// The settings of a service.
pub trait Setup: for<'de> Deserialize<'de> + Serialize + Default {}

impl<T: for<'de> Deserialize<'de> + Serialize + Default> Setup for T {}

/// Reads a file.
pub fn read<T: Setup>(path: &Path) -> Result<ConfigFile<T>, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::ConfigUnreadable { path: path.to_owned(), source })?;
    parse(path, &text)
}

/// Parses the text of a file.
pub fn parse<T: Setup>(path: &Path, text: &str) -> Result<ConfigFile<T>, Error> {
    let mut log = LogTable::default();
    let mut key = None;
    let fault = |at, reason| Error::ConfigFile { path: path.to_owned(), line: line_of(text, at), reason };
    let document = toml::Deserializer::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        fault(at, toml_words::of_syntax(text, at, error.message()))
    })?;
    let config = document
        .deserialize_map(WithLog { log: &mut log, key: &mut key, config: PhantomData })
        .map_err(|error| {
            let at = key.take().or(error.span()).map_or(0, |span| span.start);
            fault(at, reason::<T>(text, at, error.message()))
        })?;
    Ok(ConfigFile { path: path.to_owned(), config, log, text: text.to_owned() })
}

/// What a deserializer reports about the setting at a byte.
fn reason<T: Serialize + Default>(text: &str, at: usize, message: &str) -> String {
    let mut words = toml_words::of_value(message);
    let Some(path) = DeTable::parse(text).ok().and_then(|table| path_at(table.get_ref(), at)) else {
        return words;
    };
    let is_top = path.len() == 1;
    match (toml_words::unknown_key(message), path.last()) {
        (Some(_), Some(key)) if is_top => {
            words.push_str(", log");
            if let Some(table) = table_of::<T>(key) {
                words = format!("not a setting of the top level; put it below a line [{table}]");
            }
        }
        (None, Some(key)) if is_top && is_list_of_tables(key) && words.ends_with("found a table") => {
            words = format!("[{key}] must be written [[{key}]]: there may be several");
        }
        _ => {}
    }
    format!("{}: {words}", path.join("."))
}

fn is_list_of_tables(key: &str) -> bool {
    ["server", "target"].contains(&key)
}

/// The table that has a key which the top level has not.
fn table_of<T: Serialize + Default>(key: &str) -> Option<String> {
    let defaults = toml::Table::try_from(T::default()).ok()?;
    let has = |value: &toml::Value| value.as_table().is_some_and(|table| table.contains_key(key));
    defaults.iter().find(|(_, value)| has(value)).map(|(name, _)| name.clone())
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

/// The path of the setting that stands at a byte of the file. Settings first: the span of a table may hold those of other tables.
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
