//! All that libpq would know about one connection: explicit over service over environment over default.

use crate::conninfo::Setting;
use crate::keyword::{self, COMPRESSION, KEYWORDS};
use crate::service::{self, Service};
use crate::surroundings::Surroundings;
use crate::{Conninfo, Error};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Where a value came from, the stronger first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The connection string or the program's arguments.
    Explicit,
    /// A service file.
    Service,
    /// A `PG*` variable.
    Environment,
    /// libpq itself.
    Default,
}

/// The merged parameters of one connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Parameters {
    values: BTreeMap<Vec<u8>, (Vec<u8>, Source)>,
    service: Option<Service>,
}

impl Parameters {
    /// Merges as libpq's `conninfo_add_defaults` does. Of several explicit settings the last one counts.
    pub fn merge(explicit: &[Setting], around: &Surroundings<'_>) -> Result<Self, Error> {
        let mut merged = Self { values: BTreeMap::new(), service: None };
        for setting in explicit {
            merged.values.insert(setting.keyword.clone(), (setting.value.clone(), Source::Explicit));
        }
        merged.add_service(around)?;
        for known in KEYWORDS.iter().chain([&COMPRESSION]) {
            if let Some(value) = known.env.and_then(|name| around.var_bytes(name)) {
                merged.add(known.name.as_bytes(), value, Source::Environment);
            }
        }
        merged.add_defaults(around);
        Ok(merged)
    }

    /// Merges the parameters of one connection string.
    pub fn of(conninfo: &Conninfo, around: &Surroundings<'_>) -> Result<Self, Error> {
        Self::merge(&conninfo.settings(), around)
    }

    fn add_service(&mut self, around: &Surroundings<'_>) -> Result<(), Error> {
        let named = self.get("service").map(<[u8]>::to_vec);
        let Some(name) = named.or_else(|| around.var_bytes("PGSERVICE")) else { return Ok(()) };
        let found = service::find(&name, self.get("servicefile"), around)?;
        for setting in &found.settings {
            self.add(&setting.keyword, setting.value.clone(), Source::Service);
        }
        self.service = Some(found);
        Ok(())
    }

    fn add_defaults(&mut self, around: &Surroundings<'_>) {
        let requires_tls = around.var("PGREQUIRESSL").is_some_and(|value| value.as_bytes().starts_with(b"1"));
        if requires_tls {
            self.add(b"sslmode", b"require".to_vec(), Source::Environment);
        }
        if self.get("sslrootcert") == Some(b"system") {
            self.add(b"sslmode", b"verify-full".to_vec(), Source::Default);
        }
        for known in KEYWORDS {
            if let Some(default) = known.default {
                self.add(known.name.as_bytes(), default.into(), Source::Default);
            }
        }
    }

    fn add(&mut self, keyword: &[u8], value: Vec<u8>, source: Source) {
        self.values.entry(keyword.to_vec()).or_insert((value, source));
    }

    /// The value, empty or not.
    pub fn get(&self, keyword: &str) -> Option<&[u8]> {
        self.values.get(keyword.as_bytes()).map(|(value, _)| &value[..])
    }

    /// The value, where libpq takes an empty one for none.
    pub fn get_nonempty(&self, keyword: &str) -> Option<&[u8]> {
        self.get(keyword).filter(|value| !value.is_empty())
    }

    /// A value that must be text.
    pub fn text(&self, keyword: &'static str) -> Result<Option<&str>, Error> {
        let text = |value| std::str::from_utf8(value).map_err(|_| Error::NotText { keyword });
        self.get_nonempty(keyword).map(text).transpose()
    }

    /// A value that names a file.
    pub fn path(&self, keyword: &str) -> Option<PathBuf> {
        self.get_nonempty(keyword).map(|value| PathBuf::from(OsStr::from_bytes(value)))
    }

    /// A value that must be a 32-bit integer; blanks around it are allowed.
    pub fn integer(&self, keyword: &'static str) -> Result<Option<i32>, Error> {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        let value = String::from_utf8_lossy(value);
        integer(keyword, &value).map(Some)
    }

    /// Where the value came from.
    pub fn source(&self, keyword: &str) -> Option<Source> {
        self.values.get(keyword.as_bytes()).map(|(_, source)| *source)
    }

    /// The service that took part.
    pub fn service(&self) -> Option<&Service> {
        self.service.as_ref()
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.values.iter().map(|(keyword, (value, source))| {
            let value = if keyword::is_secret(keyword) { b"***" } else { &value[..] };
            let text = String::from_utf8_lossy(value).into_owned();
            (String::from_utf8_lossy(keyword).into_owned(), (text, source))
        });
        f.debug_map().entries(shown).finish()
    }
}

/// libpq's `pqParseIntParam`.
pub(crate) fn integer(keyword: &'static str, value: &str) -> Result<i32, Error> {
    let blank = |c: char| c.is_ascii_whitespace() || c == '\x0b';
    let parsed = value.trim_matches(blank).parse();
    parsed.map_err(|_| Error::Integer { keyword, value: value.to_owned() })
}
