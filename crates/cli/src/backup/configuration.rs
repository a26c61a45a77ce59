//! Configuration files that lie outside of the data directory, as those of Debian below `/etc/postgresql`.
//!
//! ```text
//!   an ordinary session ▶ find: settings, files and what they include ▶ Found ──▶ beside: chunks of an archive, the record
//!                                                                             └─▶ written: a directory
//!   packs ▶ collected ▶ written, or the server of verify --boot
//! ```
//! They are read by SQL before the backup begins, and never from this machine's own disk: a file with the same path here may be
//! another server's.
//!
//! Invariants:
//! 1. What the backup does not have and could not look at is said, by name where it is known; with `--configuration require` it
//!    is an error before the server makes its checkpoint.
//! 2. Files are written below a directory that the user names, never where they were.

mod beside;
mod collected;
mod find;
mod rights;
mod written;

use super::Failure;
use super::source::Server;
use crate::args::{BackupArgs, ConfigurationMode};
use find::Finder;
use pgshrink_backup::record::{Configuration, ConfigurationFile};
use rights::Lacks;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) use beside::Accompanied;
pub(super) use collected::Collected;
pub(super) use written::{beside, check_apart, counted, hints, place, write};

/// What was found on a server.
#[derive(Default)]
pub(super) struct Found {
    /// None: it could not be seen where the configuration is, or nobody was to look.
    pub(super) record: Option<Configuration>,
    /// The bytes of its files, in the same order.
    pub(super) contents: Vec<Vec<u8>>,
}

impl Found {
    /// Files with their bytes.
    pub(super) fn files(&self) -> impl Iterator<Item = (&ConfigurationFile, &[u8])> {
        let files = self.record.iter().flat_map(|record| &record.files);
        files.zip(self.contents.iter().map(Vec::as_slice))
    }
}

/// What is not in the backup, and why.
#[derive(Default)]
struct Missing {
    /// Files and directories, by why they are missing.
    paths: BTreeMap<String, Vec<String>>,
    /// Rights that the role would need.
    lacks: Lacks,
    /// What could not be seen, where there may be more.
    unknown: Option<&'static str>,
    /// What is not there, and so cannot be in a backup.
    gone: Vec<String>,
}

impl Missing {
    fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.lacks.is_empty() && self.unknown.is_none()
    }

    fn add(&mut self, why: &str, path: &[u8]) {
        let path = String::from_utf8_lossy(path).escape_debug().to_string();
        self.paths.entry(why.to_owned()).or_default().push(path);
    }

    /// For people.
    fn text(&self) -> String {
        let mut text = String::new();
        for (why, paths) in &self.paths {
            let _ = write!(text, "{}{}: {why}", if text.is_empty() { "" } else { "; " }, paths.join(", "));
        }
        if let Some(unknown) = self.unknown {
            let _ = write!(text, "{}{unknown} is not known", if text.is_empty() { "" } else { "; " });
        }
        text
    }
}

/// Looks for configuration files, as `--configuration` says.
pub(super) fn find(args: &BackupArgs, server: &mut Server) -> Result<Found, Failure> {
    let mode = args.configuration;
    if mode == ConfigurationMode::Off {
        return Ok(Found::default());
    }
    let looked =
        server.session(&args.conninfo).and_then(|mut session| Finder::look(session.connection(), mode));
    let (found, missing) = match looked {
        Ok(looked) => looked,
        // What cuts connections would cut the next one too; and a cut says nothing of rights.
        Err(error) if error.is_of_network() => return Err(error),
        Err(error) if mode == ConfigurationMode::Require => {
            return Err(Failure::new("--configuration require", error));
        }
        Err(error) => {
            eprintln!(
                "pgshrink: configuration files outside of the data directory, if there are any, are not in \
                 this backup: {error}. To include them, let the role connect to that database; to silence \
                 this message, use --configuration off"
            );
            return Ok(Found::default());
        }
    };
    missing.gone.iter().for_each(|path| {
        eprintln!("pgshrink: {path}: the configuration refers to it, but it does not exist")
    });
    if missing.is_empty() {
        return Ok(found);
    }
    let orders = missing.lacks.orders();
    if mode == ConfigurationMode::Require {
        let mut what = format!("not all configuration files can be backed up: {}", missing.text());
        if !orders.is_empty() {
            let _ = write!(what, "; {}\n  {}", missing.lacks.who(), orders.join("\n  "));
        }
        return Err(Failure::new("--configuration require", what));
    }
    let mut what = match found.record {
        Some(_) => format!("not in this backup: {}", missing.text()),
        None => format!(
            "configuration files outside of the data directory, if there are any, are not in this backup: {}",
            missing.text()
        ),
    };
    if !orders.is_empty() {
        let _ = write!(what, "; {} {}", missing.lacks.who(), orders.join(" "));
    }
    eprintln!("pgshrink: {what} (--configuration off silences this message)");
    Ok(found)
}
