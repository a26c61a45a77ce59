//! A live relation's file changes its form: what a process connected to its database begins, and what workers do.
//!
//! Stub: nothing is converted yet.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use pgshrink_cfs::relation::RelationName;
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_codec::Choice;

use crate::error::Problem;

use crate::names::{GUARD_NAME, relation_name};
use crate::server::{Shared, shared};

/// Files of so many pages or fewer stay plain.
pub const SMALL_PAGES: u64 = 4;
/// `pg_default`, whose files are in `base/`.
const DEFAULT_TABLESPACE: u32 = 1663;

/// What came of an exchange of names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchanged {
    /// The conversion has begun.
    Done,
    /// It is a container by now.
    IsContainer,
    /// [`SMALL_PAGES`] or fewer.
    TooSmall,
    /// There is no such file.
    Missing,
    /// Not now, and why.
    Busy(&'static str),
}

/// What a conversion waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// For nothing.
    Nothing,
    /// A process has writable descriptors of before the exchange.
    Descriptors {
        /// The process.
        pid: u32,
        /// How many, of all processes.
        count: u32,
    },
    /// Descriptors of a process cannot be looked at.
    Unreadable {
        /// The process.
        pid: u32,
    },
    /// The filesystem has no room for another segment.
    FreeSpace,
    /// `cfs.convert` is off.
    Paused,
    /// Another process has the file in hand.
    Lock,
}

/// What a step has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing: it has to wait.
    Waits(Waits),
    /// Pages were moved.
    Copied {
        /// How many.
        pages: u32,
        /// Bytes written for them.
        bytes: u64,
    },
    /// The file has its new form.
    Done,
    /// It was dropped.
    Gone,
}

/// Where a conversion leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To a container.
    Compress,
    /// To a plain file.
    Decompress,
}

/// The form of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormNow {
    /// A file of the server.
    Plain,
    /// On its way to a container.
    Compressing,
    /// A container.
    Compressed,
    /// On its way back.
    Decompressing,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileForm {
    /// Its form.
    pub form: FormNow,
    /// A container's own algorithm and level; `None`: its tablespace's.
    pub choice: Option<Choice>,
    /// Pages that a reader finds.
    pub pages: u64,
    /// Whether it is encrypted: it does not become plain then.
    pub is_encrypted: bool,
}

/// A conversion under way.
#[derive(Clone, PartialEq, Debug)]
pub struct FileProgress {
    /// The file.
    pub key: SegmentKey,
    /// Where it leads.
    pub direction: Direction,
    /// Which part of it: a word or two for a view.
    pub state: &'static str,
    /// Pages of the file.
    pub pages: u64,
    /// Pages that have their new form.
    pub pages_done: u64,
    /// Bytes written for them.
    pub bytes_written: u64,
    /// When it began, or was taken up after a restart.
    pub started: SystemTime,
    /// What it waits for.
    pub waits: Waits,
    /// The worker that has it in hand; 0: none.
    pub pid: u32,
}

/// A plain file becomes a container's directory whose base has all pages. The caller is connected to the database
/// and holds AccessShareLock on the relation whose file this is.
///
/// # Errors
/// [`Problem::NotStarted`].
pub fn exchange(key: &SegmentKey, choice: Option<Choice>) -> Result<Exchanged, Problem> {
    let _ = choice;
    Ok(match form(key)? {
        None => Exchanged::Missing,
        Some(FileForm { form: FormNow::Plain, pages, .. }) if pages <= SMALL_PAGES => Exchanged::TooSmall,
        Some(FileForm { form: FormNow::Plain, .. }) => Exchanged::Busy("conversion is not there yet"),
        Some(_) => Exchanged::IsContainer,
    })
}

/// A container is to become a plain file again, or a conversion is turned round; false: it is plain already.
///
/// # Errors
/// [`Problem::NotStarted`].
pub fn begin_return(key: &SegmentKey) -> Result<bool, Problem> {
    Ok(form(key)?.is_some_and(|found| found.form != FormNow::Plain))
}

/// Gives a container an algorithm and a level of its own, or its tablespace's; false: it is no container.
///
/// # Errors
/// [`Problem::NotStarted`].
pub fn set_choice(key: &SegmentKey, choice: Option<Choice>) -> Result<bool, Problem> {
    let _ = choice;
    Ok(form(key)?.is_some_and(|found| found.form != FormNow::Plain))
}

/// A worker that converts.
pub struct Converter;

impl Converter {
    /// This process.
    ///
    /// # Errors
    /// [`Problem::NotStarted`].
    pub fn new() -> Result<Converter, Problem> {
        shared().map(|_| Converter).ok_or(Problem::NotStarted)
    }

    /// Files that are being converted, those first that were begun.
    pub fn due(&self) -> Vec<SegmentKey> {
        Vec::new()
    }

    /// Does a part of a file's conversion.
    ///
    /// # Errors
    /// As of the file.
    pub fn step(&mut self, key: &SegmentKey, pages_max: u32, now: Duration) -> Result<Step, Problem> {
        let _ = (key, pages_max, now);
        Ok(Step::Gone)
    }
}

/// All conversions under way.
pub fn progress() -> Vec<FileProgress> {
    Vec::new()
}

/// How many they are.
pub fn in_flight() -> usize {
    progress().len()
}

/// What a file is; `None`: there is no such file.
///
/// # Errors
/// [`Problem::NotStarted`].
pub fn form(key: &SegmentKey) -> Result<Option<FileForm>, Problem> {
    let shared = shared().ok_or(Problem::NotStarted)?;
    let Ok(found) = path(key, shared).symlink_metadata() else { return Ok(None) };
    let is_plain = found.is_file();
    let info = if is_plain { None } else { crate::work::info(key)? };
    let bytes = if is_plain { found.len() } else { info.map_or(0, |info| info.virtual_bytes) };
    Ok(Some(FileForm {
        form: if is_plain { FormNow::Plain } else { FormNow::Compressed },
        choice: None,
        pages: bytes / 8192,
        is_encrypted: info.is_some_and(|info| info.key_id.is_some()),
    }))
}

/// Whether the worker is to emit `PROCSIGNAL_BARRIER_SMGRRELEASE` now; asked once.
pub fn wants_barrier() -> bool {
    false
}

/// Where a segment is, relative to the data directory.
pub fn path_of(key: &SegmentKey) -> String {
    shared().map(|shared| path(key, shared).display().to_string()).unwrap_or_default()
}

fn directory(tablespace: u32, database: u32, shared: &Shared) -> PathBuf {
    if tablespace == DEFAULT_TABLESPACE {
        return PathBuf::from(format!("base/{database}"));
    }
    PathBuf::from(format!("pg_tblspc/{tablespace}/{}/{database}", shared.version_text()))
}

fn path(key: &SegmentKey, shared: &Shared) -> PathBuf {
    let SegmentKey { tablespace, database, relation, fork, segment } = *key;
    let fork = ["", "_fsm", "_vm", "_init"][usize::from(fork).min(3)];
    let segment = if segment > 0 { format!(".{segment}") } else { String::new() };
    directory(tablespace, database, shared).join(format!("{relation}{fork}{segment}"))
}

/// Relations of a database that have a container in a tablespace, by the number of their file: those of which no
/// catalog says so. Cheap where there is none.
pub fn container_files(tablespace: u32, database: u32) -> Vec<u32> {
    let Some(shared) = shared() else { return Vec::new() };
    let directory = directory(tablespace, database, shared);
    if directory.join(GUARD_NAME).symlink_metadata().is_err() {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir(&directory) else { return Vec::new() };
    let containers = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<u32> = containers
        .filter_map(|entry| {
            let RelationName { number, .. } = relation_name(entry.file_name().as_encoded_bytes())?;
            Some(number)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
