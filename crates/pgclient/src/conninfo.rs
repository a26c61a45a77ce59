//! Connection strings, `keyword = 'value'` lists and URIs, read as libpq reads them and edited in place.
//!
//! Owns the two syntaxes and their quirks. Does not know defaults, services or what a value means.
//!
//! Invariants:
//! 1. The text of a string that was not edited is the text that was parsed, byte for byte.
//! 2. After an edit, every setting that was not named by the edit reads the same as before it.
//! 3. Values are bytes without NUL; nothing is assumed about their encoding.
//!
//! One difference from libpq 15 to 17: blanks around a URI's values are dropped, as libpq 18 does; 15 takes
//! them for a part of the value, and no host, port or mode survives that.

mod keyvalue;
mod uri;

use crate::{Error, keyword};
use keyvalue::KeyValue;
use std::fmt;
use uri::Uri;

/// A parsed connection string.
#[derive(Clone, PartialEq, Eq)]
pub struct Conninfo {
    form: Form,
}

#[derive(Clone, PartialEq, Eq)]
enum Form {
    KeyValue(KeyValue),
    Uri(Uri),
}

/// One keyword with its value. `requiressl` and the URI's `ssl=true` read as the `sslmode` they stand for.
#[derive(Clone, PartialEq, Eq)]
pub struct Setting {
    /// As written, but for the two that stand for another.
    pub keyword: Vec<u8>,
    /// Unquoted and decoded.
    pub value: Vec<u8>,
}

/// Whether libpq would take a database name for a connection string: a URI prefix, or a `=` anywhere.
pub fn is_recognized(text: &[u8]) -> bool {
    is_uri(text) || text.contains(&b'=')
}

/// Whether the text begins with `postgresql://` or `postgres://`, in lower case as libpq wants it.
pub fn is_uri(text: &[u8]) -> bool {
    uri::prefix_len(text) > 0
}

impl Conninfo {
    /// Parses either syntax. Unknown keywords are kept, for the client's own libpq to judge.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        Self::parse_with(text, Unknown::Keep)
    }

    /// Parses either syntax and refuses keywords that no libpq knows.
    pub fn parse_strict(text: &[u8]) -> Result<Self, Error> {
        Self::parse_with(text, Unknown::Refuse)
    }

    fn parse_with(text: &[u8], unknown: Unknown) -> Result<Self, Error> {
        let form = match is_uri(text) {
            true => Form::Uri(Uri::parse(text, unknown)?),
            false => Form::KeyValue(KeyValue::parse(text, unknown)?),
        };
        Ok(Self { form })
    }

    /// Whether this is a URI.
    pub fn is_uri(&self) -> bool {
        matches!(self.form, Form::Uri(_))
    }

    /// Every setting in the order libpq stores them; a later one replaces an earlier one.
    pub fn settings(&self) -> Vec<Setting> {
        match &self.form {
            Form::KeyValue(list) => list.settings(),
            Form::Uri(uri) => uri.settings(),
        }
    }

    /// The value libpq would use, or `None` when the string does not mention the keyword.
    pub fn get(&self, keyword: &str) -> Option<Vec<u8>> {
        let found = self.settings().into_iter().rfind(|setting| setting.keyword == keyword.as_bytes());
        found.map(|setting| setting.value)
    }

    /// Takes every mention of the keyword out. Returns whether there was one.
    pub fn remove(&mut self, keyword: &str) -> bool {
        match &mut self.form {
            Form::KeyValue(list) => list.remove(keyword.as_bytes()),
            Form::Uri(uri) => uri.remove(keyword.as_bytes()),
        }
    }

    /// Makes the string say this value, and only this, for the keyword. An empty value hides what service
    /// and environment say.
    pub fn set(&mut self, keyword: &str, value: &[u8]) {
        debug_assert!(!value.contains(&0), "libpq's strings end at NUL");
        match &mut self.form {
            Form::KeyValue(list) => list.set(keyword.as_bytes(), value),
            Form::Uri(uri) => uri.set(keyword.as_bytes(), value),
        }
    }

    /// The connection string, as given or as edited. It may hold a password.
    pub fn text(&self) -> Vec<u8> {
        match &self.form {
            Form::KeyValue(list) => list.text(),
            Form::Uri(uri) => uri.text(),
        }
    }
}

impl fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.settings()).finish()
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if keyword::is_secret(&self.keyword) { b"***" } else { &self.value[..] };
        write!(f, "{}={:?}", shown_text(&self.keyword), shown_text(shown))
    }
}

/// Quotes a value for a keyword/value string, only where it needs quotes.
pub fn quoted(value: &[u8]) -> Vec<u8> {
    let plain = |&byte: &u8| !is_space(byte) && byte != b'\'' && byte != b'\\';
    if !value.is_empty() && value.iter().all(plain) {
        return value.to_vec();
    }
    let mut out = vec![b'\''];
    for &byte in value {
        if matches!(byte, b'\'' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'\'');
    out
}

/// What to do about a keyword no libpq knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Keep,
    Refuse,
}

/// libpq's translation of the keywords of old: `requiressl` in any syntax.
fn canonical(keyword: Vec<u8>, value: Vec<u8>) -> Setting {
    if keyword != b"requiressl" {
        return Setting { keyword, value };
    }
    let mode: &[u8] = if value.first() == Some(&b'1') { b"require" } else { b"prefer" };
    Setting { keyword: b"sslmode".to_vec(), value: mode.to_vec() }
}

/// C's `isspace` in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

fn shown_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
