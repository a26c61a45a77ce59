//! `postgresql://user:password@host:port,…/dbname?keyword=value&…`.
//!
//! libpq's quirks that matter here: an `@` anywhere before the first `/` ends the credentials, even behind a
//! `?`; host and port lists are joined with commas before they are percent-decoded; empty user, password,
//! host list, port list and dbname count as not given; query parameters come later and so win.

use super::{Setting, Unknown, canonical, shown_text};
use crate::{Error, keyword};

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Uri {
    prefix: &'static str,
    /// Everything before the `@`, still encoded.
    credentials: Option<Vec<u8>>,
    /// Everything between `@` and the first `/` or `?`, still encoded.
    netloc: Vec<u8>,
    /// Everything between `/` and `?`, still encoded.
    dbname: Option<Vec<u8>>,
    /// `None` without a `?`.
    query: Option<Vec<Parameter>>,
    hosts: Vec<u8>,
    ports: Vec<u8>,
    /// What was parsed, until an edit makes it stale.
    original: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Parameter {
    raw: Vec<u8>,
    setting: Setting,
}

const PREFIXES: [&str; 2] = ["postgresql://", "postgres://"];

pub(super) fn prefix_len(text: &[u8]) -> usize {
    prefix(text).map_or(0, str::len)
}

fn prefix(text: &[u8]) -> Option<&'static str> {
    PREFIXES.into_iter().find(|prefix| text.starts_with(prefix.as_bytes()))
}

impl Uri {
    pub(super) fn parse(text: &[u8], unknown: Unknown) -> Result<Self, Error> {
        let prefix = prefix(text).unwrap_or(PREFIXES[0]);
        let mut rest = text.get(prefix.len()..).unwrap_or_default();
        let mut credentials = None;
        let stop = rest.iter().position(|&byte| matches!(byte, b'@' | b'/'));
        if let Some(at) = stop.filter(|&at| rest[at] == b'@') {
            credentials = Some(rest[..at].to_vec());
            rest = &rest[at + 1..];
            check_credentials(&text[prefix.len()..prefix.len() + at])?;
        }
        let netloc_start = text.len() - rest.len();
        let netloc = Netloc::parse(text, netloc_start)?;
        let hosts = decoded(&netloc.hosts, b"host")?;
        let ports = decoded(&netloc.ports, b"port")?;
        rest = &text[netloc.end..];
        let netloc = text[netloc_start..netloc.end].to_vec();
        let mut dbname = None;
        if let Some(after) = rest.strip_prefix(b"/") {
            let end = after.iter().position(|&byte| byte == b'?').unwrap_or(after.len());
            decoded(&after[..end], b"dbname")?;
            dbname = Some(after[..end].to_vec());
            rest = &after[end..];
        }
        let query = match rest.strip_prefix(b"?") {
            Some(query) => Some(parse_query(query, unknown)?),
            None => None,
        };
        Ok(Self { prefix, credentials, netloc, dbname, query, hosts, ports, original: Some(text.to_vec()) })
    }

    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        let mut push = |keyword: &[u8], value: Vec<u8>| {
            if !value.is_empty() {
                settings.push(Setting { keyword: keyword.to_vec(), value });
            }
        };
        let (user, password) = split_credentials(self.credentials.as_deref().unwrap_or_default());
        push(b"user", lenient(user));
        push(b"password", lenient(password));
        push(b"host", self.hosts.clone());
        push(b"port", self.ports.clone());
        push(b"dbname", lenient(self.dbname.as_deref().unwrap_or_default()));
        settings.extend(self.query.iter().flatten().map(|parameter| parameter.setting.clone()));
        settings
    }

    pub(super) fn remove(&mut self, keyword: &[u8]) -> bool {
        if !self.settings().iter().any(|setting| setting.keyword == keyword) {
            return false;
        }
        self.original = None;
        if let Some(query) = &mut self.query {
            query.retain(|parameter| parameter.setting.keyword != keyword);
        }
        self.query.take_if(|query| query.is_empty());
        match keyword {
            b"host" => self.dissolve_netloc(Part::Hosts),
            b"port" => self.dissolve_netloc(Part::Ports),
            b"dbname" => self.dbname = None,
            b"user" | b"password" => self.drop_credential(keyword == b"user"),
            _ => {}
        }
        true
    }

    pub(super) fn set(&mut self, keyword: &[u8], value: &[u8]) {
        self.remove(keyword);
        self.original = None;
        self.push(keyword, value);
    }

    pub(super) fn text(&self) -> Vec<u8> {
        if let Some(original) = &self.original {
            return original.clone();
        }
        let mut text = self.prefix.as_bytes().to_vec();
        if let Some(credentials) = &self.credentials {
            text.extend_from_slice(credentials);
            text.push(b'@');
        }
        text.extend_from_slice(&self.netloc);
        if let Some(dbname) = &self.dbname {
            text.push(b'/');
            text.extend_from_slice(dbname);
        }
        if let Some(query) = &self.query {
            text.push(b'?');
            let raw: Vec<&[u8]> = query.iter().map(|parameter| &parameter.raw[..]).collect();
            text.extend_from_slice(&raw.join(&b'&'));
        }
        text
    }

    fn push(&mut self, keyword: &[u8], value: &[u8]) {
        // Without a slash some drivers' parsers take `?…` for a part of the host.
        if self.dbname.is_none() {
            self.dbname = Some(Vec::new());
        }
        let raw = [keyword, b"=", &encoded(value)].concat();
        let setting = Setting { keyword: keyword.to_vec(), value: value.to_vec() };
        self.query.get_or_insert_default().push(Parameter { raw, setting });
    }

    /// Empties the authority; the half that was not asked for moves into the query, unless a parameter there
    /// had the last word anyway.
    fn dissolve_netloc(&mut self, part: Part) {
        let (hosts, ports) = (std::mem::take(&mut self.hosts), std::mem::take(&mut self.ports));
        self.netloc.clear();
        let (keyword, kept): (&[u8], _) = match part {
            Part::Hosts => (b"port", ports),
            Part::Ports => (b"host", hosts),
        };
        let overridden = self.query.iter().flatten().any(|parameter| parameter.setting.keyword == keyword);
        if !kept.is_empty() && !overridden {
            self.push(keyword, &kept);
        }
    }

    fn drop_credential(&mut self, user: bool) {
        let Some(credentials) = self.credentials.take() else { return };
        let (name, password) = split_credentials(&credentials);
        let kept = match user {
            true => [&b":"[..], password].concat(),
            false => name.to_vec(),
        };
        self.credentials = Some(kept).filter(|kept| !kept.is_empty() && kept != b":");
    }
}

#[derive(Clone, Copy)]
enum Part {
    Hosts,
    Ports,
}

struct Netloc {
    hosts: Vec<u8>,
    ports: Vec<u8>,
    end: usize,
}

impl Netloc {
    fn parse(text: &[u8], start: usize) -> Result<Self, Error> {
        let ends_port = |byte: u8| matches!(byte, b'/' | b'?' | b',');
        let ends_host = |byte: u8| byte == b':' || ends_port(byte);
        let mut netloc = Self { hosts: Vec::new(), ports: Vec::new(), end: start };
        loop {
            let mut at = netloc.end;
            if text.get(at) == Some(&b'[') {
                let len = text[at + 1..].iter().position(|&byte| byte == b']');
                let Some(len) = len else { return Err(Error::UriUnclosedBracket { uri: shown_uri(text) }) };
                if len == 0 {
                    return Err(Error::UriEmptyBracket { uri: shown_uri(text) });
                }
                netloc.hosts.extend_from_slice(&text[at + 1..at + 1 + len]);
                at += len + 2;
                if let Some(&found) = text.get(at).filter(|&&byte| !ends_host(byte)) {
                    let rest = shown_text(&text[at..]);
                    let found = rest.chars().next().unwrap_or(char::from(found));
                    return Err(Error::UriUnexpectedCharacter {
                        found,
                        position: at + 1,
                        uri: shown_uri(text),
                    });
                }
            } else {
                let len = until(&text[at..], ends_host);
                netloc.hosts.extend_from_slice(&text[at..at + len]);
                at += len;
            }
            if text.get(at) == Some(&b':') {
                let len = until(&text[at + 1..], ends_port);
                netloc.ports.extend_from_slice(&text[at + 1..at + 1 + len]);
                at += 1 + len;
            }
            netloc.end = at;
            if text.get(at) != Some(&b',') {
                return Ok(netloc);
            }
            netloc.end += 1;
            netloc.hosts.push(b',');
            netloc.ports.push(b',');
        }
    }
}

fn until(text: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|&byte| ends(byte)).unwrap_or(text.len())
}

fn split_credentials(credentials: &[u8]) -> (&[u8], &[u8]) {
    match credentials.iter().position(|&byte| byte == b':') {
        Some(colon) => (&credentials[..colon], &credentials[colon + 1..]),
        None => (credentials, b""),
    }
}

fn check_credentials(credentials: &[u8]) -> Result<(), Error> {
    let (user, password) = split_credentials(credentials);
    decoded(user, b"user")?;
    decoded(password, b"password").map(drop)
}

fn parse_query(query: &[u8], unknown: Unknown) -> Result<Vec<Parameter>, Error> {
    let mut parameters = Vec::new();
    if query.is_empty() {
        return Ok(parameters);
    }
    // libpq stops at the end of the text, so a trailing `&` begins no empty parameter; a lone one does.
    let query = query.strip_suffix(b"&").unwrap_or(query);
    for raw in query.split(|&byte| byte == b'&') {
        let mut halves = raw.splitn(3, |&byte| byte == b'=');
        let keyword = halves.next().unwrap_or_default();
        let value = halves.next().ok_or_else(|| Error::UriMissingEquals { keyword: shown_text(keyword) })?;
        if halves.next().is_some() {
            return Err(Error::UriExtraEquals { keyword: shown_text(keyword) });
        }
        let keyword = decoded(keyword, b"")?;
        let value = decoded(value, &keyword)?;
        let setting = match (&keyword[..], &value[..]) {
            (b"ssl", b"true") => Setting { keyword: b"sslmode".to_vec(), value: b"require".to_vec() },
            _ => canonical(keyword, value),
        };
        if unknown == Unknown::Refuse && keyword::find(&setting.keyword).is_none() {
            return Err(Error::UriUnknownParameter { keyword: shown_text(&setting.keyword) });
        }
        parameters.push(Parameter { raw: raw.to_vec(), setting });
    }
    Ok(parameters)
}

/// Percent-decoding of text that was checked when it was parsed.
fn lenient(text: &[u8]) -> Vec<u8> {
    decoded(text, b"").unwrap_or_default()
}

fn decoded(text: &[u8], keyword: &[u8]) -> Result<Vec<u8>, Error> {
    let token = || match keyword::is_secret(keyword) {
        true => "***".to_owned(),
        false => shown_text(text),
    };
    let digit =
        |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16)).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (digit(at), digit(at + 1)) else {
            return Err(Error::UriBadPercent { token: token() });
        };
        if high == 0 && low == 0 {
            return Err(Error::UriZeroPercent { token: token() });
        }
        bytes.push(high << 4 | low);
        at += 2;
    }
    let raw_blank = |at: Option<&u8>| at == Some(&b' ');
    if raw_blank(text.first()) || raw_blank(text.last()) {
        let start = text.iter().take_while(|&&byte| byte == b' ').count();
        let end = text.iter().rev().take_while(|&&byte| byte == b' ').count();
        let kept = bytes.len().saturating_sub(start + end);
        bytes = bytes.into_iter().skip(start).take(kept).collect();
    }
    Ok(bytes)
}

fn encoded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for &byte in value {
        match byte {
            // `/`, `:` and `,` need no encoding in a query, and hosts and ports stay readable without it.
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b',' => {
                out.push(byte);
            }
            _ => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    out
}

/// The URI for a message: without a password in its credentials, and without its query.
fn shown_uri(text: &[u8]) -> String {
    let start = prefix_len(text);
    let rest = &text[start..];
    let stop = rest.iter().position(|&byte| matches!(byte, b'@' | b'/'));
    let mut shown = shown_text(&text[..start]);
    let mut tail = rest;
    if let Some(at) = stop.filter(|&at| rest[at] == b'@') {
        let (_, password) = split_credentials(&rest[..at]);
        shown += &shown_text(&rest[..at - password.len()]);
        shown += if password.is_empty() { "@" } else { "***@" };
        tail = &rest[at + 1..];
    }
    let query = until(tail, |byte| byte == b'?');
    shown += &shown_text(&tail[..query]);
    if query < tail.len() {
        shown += "?…";
    }
    shown
}
