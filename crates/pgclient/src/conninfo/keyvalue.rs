//! `keyword = value` lists.
//!
//! libpq's rules: blanks around `=` are allowed; an unquoted value ends at a blank; a backslash takes the next
//! byte literally, in quotes or not; after a closing quote the next keyword may follow without a blank; a
//! backslash at the very end is dropped; the last mention of a keyword wins.

use super::{Setting, Unknown, canonical, is_space, quoted, shown_text};
use crate::{Error, keyword};

#[derive(Clone, PartialEq, Eq)]
pub(super) struct KeyValue {
    pieces: Vec<Piece>,
    /// What was parsed, until an edit makes it stale.
    original: Option<Vec<u8>>,
}

/// One setting and its bytes: blanks before it, keyword, `=`, value. The blank that ends an unquoted value
/// belongs to the next piece.
#[derive(Clone, PartialEq, Eq)]
struct Piece {
    raw: Vec<u8>,
    setting: Setting,
}

impl KeyValue {
    pub(super) fn parse(text: &[u8], unknown: Unknown) -> Result<Self, Error> {
        let mut scan = Scan { text, at: 0 };
        let mut pieces: Vec<Piece> = Vec::new();
        loop {
            let start = scan.at;
            scan.skip_spaces();
            if scan.peek().is_none() {
                break;
            }
            let keyword = scan.keyword(pieces.last().map(|piece| &piece.setting))?;
            let value = scan.value(&keyword)?;
            let empty = value.bytes.is_empty();
            let setting = canonical(keyword, value.bytes);
            if unknown == Unknown::Refuse && keyword::find(&setting.keyword).is_none() {
                return Err(Error::UnknownOption { keyword: shown_text(&setting.keyword) });
            }
            let mut raw = text[start..value.raw_end].to_vec();
            // Nothing follows `=` only at the end of the text, and an edit may put something there.
            if empty && raw.last() != Some(&b'\'') {
                raw.extend_from_slice(b"''");
            }
            pieces.push(Piece { raw, setting });
        }
        Ok(Self { pieces, original: Some(text.to_vec()) })
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        self.pieces.iter().map(|piece| piece.setting.clone()).collect()
    }

    pub(super) fn remove(&mut self, keyword: &[u8]) -> bool {
        let before = self.pieces.len();
        self.pieces.retain(|piece| piece.setting.keyword != keyword);
        let removed = self.pieces.len() < before;
        if removed {
            self.original = None;
        }
        removed
    }

    pub(super) fn set(&mut self, keyword: &[u8], value: &[u8]) {
        self.remove(keyword);
        let raw = [keyword, b"=", &quoted(value)].concat();
        let setting = Setting { keyword: keyword.to_vec(), value: value.to_vec() };
        self.pieces.push(Piece { raw, setting });
        self.original = None;
    }

    pub(super) fn text(&self) -> Vec<u8> {
        if let Some(original) = &self.original {
            return original.clone();
        }
        let mut text = Vec::new();
        for piece in &self.pieces {
            let raw = match text.is_empty() {
                true => piece.raw.trim_ascii_start(),
                false => &piece.raw,
            };
            // Neighbours of a removed piece may have been kept apart by its quotes alone.
            if !text.is_empty() && !raw.first().copied().is_some_and(is_space) {
                text.push(b' ');
            }
            text.extend_from_slice(raw);
        }
        text
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

struct Value {
    bytes: Vec<u8>,
    /// End of the value's bytes, without a dangling backslash: it would escape whatever an edit puts after it.
    raw_end: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    /// Keyword, `=`, and the blanks around it.
    fn keyword(&mut self, previous: Option<&Setting>) -> Result<Vec<u8>, Error> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte != b'=' && !is_space(byte)) {
            self.at += 1;
        }
        let name = self.text[start..self.at].to_vec();
        self.skip_spaces();
        if self.peek() != Some(b'=') {
            let position = start + 1;
            return Err(match previous.filter(|setting| keyword::is_secret(&setting.keyword)) {
                Some(secret) => {
                    Error::MissingEqualsAfterSecret { keyword: shown_text(&secret.keyword), position }
                }
                None => Error::MissingEquals { after: shown_text(&name), position },
            });
        }
        self.at += 1;
        self.skip_spaces();
        Ok(name)
    }

    fn value(&mut self, keyword: &[u8]) -> Result<Value, Error> {
        if self.peek() == Some(b'\'') {
            return self.quoted_value(keyword);
        }
        let mut bytes = Vec::new();
        let mut raw_end = self.at;
        while let Some(mut byte) = self.peek().filter(|&byte| !is_space(byte)) {
            if byte == b'\\' {
                self.at += 1;
                match self.peek() {
                    Some(escaped) => byte = escaped,
                    None => break,
                }
            }
            bytes.push(byte);
            self.at += 1;
            raw_end = self.at;
        }
        Ok(Value { bytes, raw_end })
    }

    fn quoted_value(&mut self, keyword: &[u8]) -> Result<Value, Error> {
        let open = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.peek() {
                None => {
                    let keyword = shown_text(keyword);
                    return Err(Error::UnterminatedQuote { keyword, position: open + 1 });
                }
                Some(b'\'') => {
                    self.at += 1;
                    return Ok(Value { bytes, raw_end: self.at });
                }
                Some(b'\\') => {
                    self.at += 1;
                    if let Some(escaped) = self.peek() {
                        bytes.push(escaped);
                        self.at += 1;
                    }
                }
                Some(byte) => {
                    bytes.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}
