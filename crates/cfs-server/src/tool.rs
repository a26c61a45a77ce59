//! A program that is no server, beside a stopped server's files: `pgshrink cfs exec`.
//!
//! The program sees containers as plain files. Its process has a region of its own, made when it first touches a path
//! that may have containers, and all that it wrote is committed when it exits.
//!
//! ```text
//!  pgshrink cfs exec --(environment: Request)--> PROGRAM with libpgshrink_cfs_exec.so
//!       hooks (pgshrink_interpose) -- ToolFront: path of the program -> path from the data directory -- ServerFront
//! ```
//!
//! 1. **Late.** Nothing is locked, swept or marked before the first path in `base/` or `pg_tblspc/`. pg_rewind looks at
//!    the control file first, and runs `postgres --single` if the target was not shut down: that server loads cfs itself,
//!    and has the directories for itself until it ends.
//! 2. **Programs that a program starts** inherit the library. `postgres` is left alone. Each other one has a region of
//!    its own, and is refused what a living process has open. A fork without exec shares its parent's.
//! 3. **Paths** of programs are relative to any working directory, lead through links, or begin with a tablespace's
//!    location. The directory above the file is resolved, and what that is, is compared with where the data directory
//!    and its tablespaces are.
//! 4. **New files are plain**, except in encrypted tablespaces, where they would show what is secret.
//! 5. A program that is killed leaves what the last commit of each file made, and guards that say "running": as a server.
// Handlers of exit.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString, c_int, c_void};
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use pgshrink_interpose::{
    Advice, Attributes, Errno, Front, Listed, Moment, Outcome, PagesToRead, PagesToWrite,
};

use crate::databases;
use crate::error::Problem;
use crate::front::ServerFront;
use crate::keys::{self, Sources};
use crate::names::{BASE, LINKS, parse_form};
use crate::region::Room;
use crate::saved;
use crate::server::{self, Config, Tool};
use crate::setting::Setting;

/// What `pgshrink cfs exec` asks of the library, by way of the environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The program's own file, links resolved.
    pub program: PathBuf,
    /// The data directory, links resolved.
    pub data_directory: PathBuf,
    /// Whether nothing may be written: a server may run.
    pub is_read_only: bool,
    /// Files with master keys, two at most.
    pub key_files: Vec<PathBuf>,
    /// Commands that print master keys, two at most.
    pub key_commands: Vec<String>,
}

const VERSION: &str = "PGSHRINK_CFS_EXEC_VERSION";
const PROGRAM: &str = "PGSHRINK_CFS_EXEC_PROGRAM";
const DATA: &str = "PGSHRINK_CFS_EXEC_DATA";
const READ_ONLY: &str = "PGSHRINK_CFS_EXEC_READ_ONLY";
const KEY_FILES: [&str; 2] = ["PGSHRINK_CFS_EXEC_KEY_FILE", "PGSHRINK_CFS_EXEC_OLD_KEY_FILE"];
const KEY_COMMANDS: [&str; 2] = ["PGSHRINK_CFS_EXEC_KEY_COMMAND", "PGSHRINK_CFS_EXEC_OLD_KEY_COMMAND"];
/// Keys of each kind at most.
pub const KEYS_OF_A_KIND_MAX: usize = KEY_FILES.len();

/// Segments that a program's process has in memory at most.
const SEGMENTS_MAX: u32 = 256;
/// Processes that share them: forks of the program.
const PROCESSES_MAX: u32 = 64;
const MEMORY_BYTES: usize = 32 << 20;
/// A program writes page by page, and its writes may fail: this much is kept free for commits.
const DIRTY_PAGES_MAX: u64 = 1024;
const RESERVE_BYTES_MAX: u64 = 64 << 20;
const FILES_MAX: u32 = 256;

impl Request {
    /// What the environment is to have; `None`: not to have.
    pub fn to_environment(&self) -> Vec<(&'static str, Option<OsString>)> {
        let mut all = vec![
            (VERSION, Some(env!("CARGO_PKG_VERSION").into())),
            (PROGRAM, Some(self.program.clone().into_os_string())),
            (DATA, Some(self.data_directory.clone().into_os_string())),
            (READ_ONLY, self.is_read_only.then(|| "1".into())),
        ];
        let files = KEY_FILES.into_iter().enumerate();
        all.extend(
            files.map(|(at, name)| (name, self.key_files.get(at).map(|path| path.clone().into_os_string()))),
        );
        let commands = KEY_COMMANDS.into_iter().enumerate();
        all.extend(commands.map(|(at, name)| (name, self.key_commands.get(at).map(OsString::from))));
        all
    }

    /// What this process's environment has; `None`: nobody asks.
    ///
    /// # Errors
    /// The other side is of another version, or something is missing; in words.
    pub fn of_environment() -> Result<Option<Request>, String> {
        let Some(version) = std::env::var_os(VERSION) else { return Ok(None) };
        if version != env!("CARGO_PKG_VERSION") {
            return Err(format!(
                "library and program have different versions: expected {}, found pgshrink {}; next step: install \
                 both from one build, or name the library with --library",
                env!("CARGO_PKG_VERSION"),
                version.display()
            ));
        }
        let path = |name: &'static str| {
            std::env::var_os(name).map(PathBuf::from).ok_or_else(|| format!("{name} is not set"))
        };
        let all = |names: [&str; 2]| names.into_iter().filter_map(std::env::var_os).collect::<Vec<_>>();
        let text = |value: OsString| value.into_string().map_err(|_| "a key command is not UTF-8".to_owned());
        Ok(Some(Request {
            program: path(PROGRAM)?,
            data_directory: path(DATA)?,
            is_read_only: std::env::var_os(READ_ONLY).is_some(),
            key_files: all(KEY_FILES).into_iter().map(PathBuf::from).collect(),
            key_commands: all(KEY_COMMANDS).into_iter().map(text).collect::<Result<_, _>>()?,
        }))
    }

    fn sources(&self) -> Sources {
        Sources {
            command: self.key_commands.first().cloned(),
            file: self.key_files.first().cloned(),
            old_command: self.key_commands.get(1).cloned(),
            old_file: self.key_files.get(1).cloned(),
        }
    }
}

/// The front of a program that is no server.
#[derive(Debug)]
pub struct ToolFront {
    request: Request,
    /// When something of the data directory was touched first.
    begun: OnceLock<Begun>,
    last: Mutex<Option<Resolved>>,
}

#[derive(Debug)]
struct Begun {
    version: String,
    /// Where tablespaces are, links resolved, and what they are called from the data directory.
    locations: Vec<(PathBuf, String)>,
    process: u32,
}

/// A directory that was resolved last, by the absolute name that the program has for it.
#[derive(Debug)]
struct Resolved {
    name: Vec<u8>,
    real: PathBuf,
}

impl ToolFront {
    /// For the program's life.
    pub fn new(request: Request) -> ToolFront {
        ToolFront { request, begun: OnceLock::new(), last: Mutex::new(None) }
    }

    /// What this was made with.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The path from the data directory on, of one that may have containers; `None`: none of ours. The first of them
    /// begins the process's part.
    fn inside(&self, path: &CStr) -> Option<CString> {
        let path = without_slashes(path.to_bytes());
        if !path.last().is_some_and(u8::is_ascii_digit) && !path.ends_with(b"_fsm") {
            return None;
        }
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at.max(1)], &path[at + 1..]),
            None => (b".".as_slice(), path),
        };
        let above = self.real(above)?;
        let data = &self.request.data_directory;
        if let Ok(inside) = above.strip_prefix(data)
            && (inside.starts_with(BASE) || inside.starts_with(LINKS))
        {
            let begun = self.begun();
            return of_form(&inside.join(OsStr::from_bytes(name)), begun);
        }
        // A tablespace may be anywhere: its version directory is in the path, or is its last part.
        let is_in_version = |part: &OsStr| part.as_bytes().starts_with(b"PG_");
        if !name.starts_with(b"PG_") && !above.iter().any(is_in_version) {
            return None;
        }
        let known;
        let locations = match self.begun.get() {
            Some(begun) => &begun.locations,
            // Another program's directories begin nothing.
            None => {
                known = locations(data).unwrap_or_default();
                &known
            }
        };
        let (location, called) = locations.iter().find(|(location, _)| above.starts_with(location))?;
        let inside = Path::new(called).join(above.strip_prefix(location).ok()?).join(OsStr::from_bytes(name));
        of_form(&inside, self.begun())
    }

    /// A directory with its links resolved. Programs go from file to file in one.
    fn real(&self, directory: &[u8]) -> Option<PathBuf> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = last.as_ref().filter(|known| known.name == directory) {
            return Some(known.real.clone());
        }
        let real = fs::canonicalize(OsStr::from_bytes(directory)).ok()?;
        // What is relative changes with the working directory.
        if directory.first() == Some(&b'/') {
            *last = Some(Resolved { name: directory.to_owned(), real: real.clone() });
        }
        Some(real)
    }

    /// Makes the process's part, if it is not there. Where it cannot be made the program must not go on: it would take
    /// containers for directories.
    fn begun(&self) -> &Begun {
        self.begun.get_or_init(|| match self.begin() {
            Ok(begun) => begun,
            Err(problem) => stop(&problem, self.next_step(&problem)),
        })
    }

    fn begin(&self) -> Result<Begun, Problem> {
        let data = &self.request.data_directory;
        let at = |source| Problem::Directory { path: data.clone(), source };
        let version = version_directory(data).map_err(at)?;
        let locations = locations(data).map_err(at)?;
        server::start(Config {
            version: version.clone(),
            room: Room { segments_max: SEGMENTS_MAX, processes_max: PROCESSES_MAX },
            files_max: FILES_MAX,
            backend_memory: MEMORY_BYTES,
            dirty_pages_max: DIRTY_PAGES_MAX,
            reserve_bytes_max: RESERVE_BYTES_MAX,
            limit_percent: 100,
            is_checkpointer: || false,
            is_fsync_on: || true,
            is_last: || false,
            is_redo: || false,
            is_recovering: || false,
            is_postmaster: false,
            tool: Some(Tool { data_directory: data.clone(), is_read_only: self.request.is_read_only }),
        })?;
        // Handlers of exit run from the last to the first: before that of `server::start`, which leaves the region.
        // SAFETY: a function that may run at any exit.
        if unsafe { on_exit(ended, std::ptr::null_mut()) } != 0 {
            return Err(Problem::System { call: "on_exit", errno: libc::ENOMEM });
        }
        server::begin(true)?;
        let found = saved::read_all(data).map_err(|error| Problem::Directory {
            path: data.join(saved::DIRECTORY),
            source: io::Error::other(error),
        })?;
        let is_there =
            |tablespace: u32| data.join(format!("{LINKS}/{tablespace}")).symlink_metadata().is_ok();
        let settings = found.settings.into_iter().filter(|(tablespace, _)| is_there(*tablespace));
        let settings: Vec<(u32, Setting)> = settings.collect();
        let encrypted: Vec<u32> = settings
            .iter()
            .filter(|(_, setting)| setting.is_encrypted)
            .map(|(tablespace, _)| *tablespace)
            .collect();
        keys::fetch(data, &self.request.sources(), &encrypted)?;
        for (tablespace, setting) in settings {
            server::set(tablespace, setting)?;
        }
        Ok(Begun { version, locations, process: std::process::id() })
    }

    fn next_step(&self, problem: &Problem) -> &'static str {
        match problem {
            Problem::InUse { .. } => "stop that server or program, or run this one after it has ended",
            Problem::Copied { .. } => {
                "restore a backup that pg_basebackup made; if these were copied from an atomic snapshot, or while no \
                 server was running, confirm it with pgshrink cfs accept DIRECTORY"
            }
            Problem::Key(_) => "give the key with --key-file, --key-command or PG_CIPHER_KEY",
            _ => "nothing was written; fix this and run the program again",
        }
    }

    /// At the process's end: all that it wrote is committed.
    fn end(&self) {
        let begun = self.begun.get().filter(|begun| begun.process == std::process::id());
        if begun.is_none() || self.request.is_read_only {
            return;
        }
        if let Err(Errno(errno)) = server::close_all() {
            let error = io::Error::from_raw_os_error(errno);
            stop(
                &format_args!("what the program wrote to compressed files could not be committed: {error}"),
                "do not start a server on these files; run the program again, or restore a backup",
            );
        }
    }

    fn refuses_writing(&self) -> Option<Errno> {
        self.request.is_read_only.then_some(Errno(libc::EROFS))
    }

    /// A call that changes a file of this path.
    fn changing(&self, path: &CStr, call: impl FnOnce(&CStr) -> Outcome<()>) -> Outcome<()> {
        let inside = self.inside(path)?;
        match self.refuses_writing() {
            Some(errno) if ServerFront.attributes(&inside).is_some() => Some(Err(errno)),
            _ => call(&inside),
        }
    }
}

/// The path, if it is one that may have containers by its form.
fn of_form(inside: &Path, begun: &Begun) -> Option<CString> {
    let inside = CString::new(inside.as_os_str().as_bytes()).ok()?;
    parse_form(inside.to_bytes(), begun.version.as_bytes(), b"").map(|_| inside)
}

fn without_slashes(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [rest @ .., b'/', b'.'] | [rest @ .., b'/'] if !rest.is_empty() => rest,
            _ => return path,
        };
    }
}

/// Where tablespaces are, and what they are called.
fn locations(data: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data.join(LINKS))? {
        let name = entry?.file_name().into_vec();
        let Ok(name) = String::from_utf8(name) else { continue };
        // A link that leads nowhere has no files.
        if let Ok(real) = fs::canonicalize(data.join(LINKS).join(&name)) {
            found.push((real, format!("{LINKS}/{name}")));
        }
    }
    Ok(found)
}

/// `TABLESPACE_VERSION_DIRECTORY`: the catalog's version is in the control file, behind the system's identifier and the
/// control file's own version.
fn version_directory(data: &Path) -> io::Result<String> {
    let major = fs::read_to_string(data.join("PG_VERSION"))?;
    let control = fs::read(data.join("global/pg_control"))?;
    let catalog = control.get(12..16).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let catalog = catalog.ok_or_else(|| io::Error::other("global/pg_control is too short"))?;
    Ok(format!("PG_{}_{catalog}", major.trim()))
}

/// Says why, and ends the process.
pub fn stop(problem: &dyn Display, next_step: &str) -> ! {
    eprintln!("pgshrink: cfs exec: {problem}; next step: {next_step}");
    // SAFETY: streams of the program are written out; the process ends here, without its other handlers.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(2)
    }
}

static FRONT: OnceLock<ToolFront> = OnceLock::new();

/// The process's front.
pub fn start(request: Request) -> &'static ToolFront {
    FRONT.get_or_init(|| ToolFront::new(request))
}

unsafe extern "C" {
    /// glibc's: the function runs at exit, with the exit's status.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

extern "C" fn ended(_: c_int, _: *mut c_void) {
    // Nothing may unwind into exit.
    let _ = std::panic::catch_unwind(|| {
        if let Some(front) = FRONT.get() {
            front.end();
        }
    });
}

impl Front for ToolFront {
    // Names of a stopped server's files are exchanged by nobody.
    fn moment(&self, _: &CStr) -> Option<Moment> {
        None
    }

    fn may_manage(&self, path: &CStr) -> bool {
        self.inside(path).is_some_and(|inside| ServerFront.may_manage(&inside))
    }

    fn open(&self, path: &CStr, flags: i32, mode: libc::mode_t) -> Outcome<RawFd> {
        let inside = self.inside(path)?;
        let changes =
            flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_TRUNC | libc::O_CREAT) != 0;
        match self.refuses_writing() {
            Some(errno) if changes && ServerFront.attributes(&inside).is_some() => Some(Err(errno)),
            _ => ServerFront.open(&inside, flags, mode),
        }
    }

    fn attributes(&self, path: &CStr) -> Outcome<Attributes> {
        ServerFront.attributes(&self.inside(path)?)
    }

    fn access(&self, path: &CStr, mode: i32) -> Outcome<()> {
        ServerFront.access(&self.inside(path)?, mode)
    }

    fn truncate_path(&self, path: &CStr, size: u64) -> Outcome<()> {
        self.changing(path, |inside| ServerFront.truncate_path(inside, size))
    }

    fn unlink(&self, path: &CStr) -> Outcome<()> {
        self.changing(path, |inside| ServerFront.unlink(inside))
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        let other = |path| self.inside(path).map_or(Cow::Borrowed(c"-"), Cow::Owned);
        ServerFront.rename(&other(from), &other(to))
    }

    fn link(&self, from: &CStr, to: &CStr) -> Outcome<()> {
        self.rename(from, to)
    }

    fn remove_directory(&self, path: &CStr) -> Outcome<()> {
        self.changing(path, |inside| ServerFront.remove_directory(inside))
    }

    fn open_directory(&self, path: &CStr) -> Option<u64> {
        ServerFront.open_directory(&self.inside(path)?)
    }

    fn listed(&self, directory: u64, name: &CStr, kind: u8) -> Listed {
        ServerFront.listed(directory, name, kind)
    }

    fn close(&self, descriptor: RawFd) {
        ServerFront.close(descriptor);
    }

    fn pages(&self, descriptor: RawFd) -> Result<u32, Errno> {
        ServerFront.pages(descriptor)
    }

    fn read(&self, descriptor: RawFd, first: u32, pages: &mut PagesToRead<'_>) -> Result<u32, Errno> {
        ServerFront.read(descriptor, first, pages)
    }

    fn write(&self, descriptor: RawFd, first: u32, pages: &mut PagesToWrite<'_>) -> Result<u32, Errno> {
        ServerFront.write(descriptor, first, pages)
    }

    fn extend(&self, descriptor: RawFd, pages: u32) -> Result<(), Errno> {
        ServerFront.extend(descriptor, pages)
    }

    fn truncate(&self, descriptor: RawFd, pages: u32) -> Result<(), Errno> {
        ServerFront.truncate(descriptor, pages)
    }

    fn sync(&self, descriptor: RawFd) -> Result<(), Errno> {
        ServerFront.sync(descriptor)
    }

    fn advise(&self, descriptor: RawFd, first: u32, pages: u32, advice: Advice) {
        ServerFront.advise(descriptor, first, pages, advice);
    }

    fn descriptor_attributes(&self, descriptor: RawFd) -> Result<Attributes, Errno> {
        ServerFront.descriptor_attributes(descriptor)
    }
}

/// Whether a data directory has containers: its own ones, and those of its tablespaces.
///
/// # Errors
/// The system's.
pub fn has_containers(data: &Path) -> io::Result<bool> {
    let version = version_directory(data)?;
    let mut above = vec![data.join(BASE)];
    above.extend(locations(data)?.into_iter().map(|(location, _)| location.join(&version)));
    for databases in above.iter().filter(|path| path.is_dir()) {
        for entry in fs::read_dir(databases)? {
            let path = entry?.path();
            if path.is_dir() && databases::has_containers(&path)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_dots_at_a_paths_end_mean_nothing() {
        for (path, expected) in [
            ("base/5/", "base/5"),
            ("base/5/.", "base/5"),
            ("base/5//./", "base/5"),
            ("base/5", "base/5"),
            ("/", "/"),
            (".", "."),
        ] {
            assert_eq!(without_slashes(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
