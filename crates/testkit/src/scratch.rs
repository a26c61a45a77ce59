//! Where a test process keeps its files, and how they go away when it does.
//!
//! Owns one directory per test process below a per-user base (`/tmp/pgst-<uid>`, or `PGSHRINK_TEST_DIR`), the
//! temporary directories in it, and names that only one process may hold at a time ([`Reservation`]).
//!
//! 1. A path below the base is short enough for a Unix socket and can be traversed by the server's user.
//! 2. Whatever ends the test process, its servers are stopped and its directory is removed: a guardian shell
//!    waits on a pipe that only the test process holds open. Statics are never dropped, so this is the normal
//!    way out for shared clusters.
//! 3. If the guardian died too (a killed container), the next test process sweeps what it finds. It knows a
//!    process to be dead by being able to take its lock, never by its number.
//! 4. A server is only signalled when its working directory is the data directory whose pid file named it, another
//!    program only when it started at the recorded time.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::error::{Doing, Error};
use crate::run::Owner;

/// `sockaddr_un.sun_path` holds 108 bytes with its terminator; a directory of ours adds at most this many.
const SOCKET_PATH_MAX: usize = 107;
const BELOW_BASE_MAX: usize = "/4194304-99/9999/s/.s.PGSQL.65535.lock".len();

/// Waits until its standard input closes, then stops every server below `$1` and removes the directory.
const GUARDIAN: &str = r#"
cat >/dev/null
trap '' INT TERM HUP
running() { [ "$(readlink "/proc/$1/cwd")" = "$2" ]; }
for data in "$1"/*/data; do
  [ -f "$data/postmaster.pid" ] || continue
  { read -r pid; read -r _; read -r _; read -r _; read -r _; read -r _; read -r _ segment; } <"$data/postmaster.pid"
  running "$pid" "$data" || continue
  kill -QUIT "$pid"
  tries=0
  while running "$pid" "$data" && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
  if running "$pid" "$data"; then kill -KILL "$pid"; sleep 0.2; ipcrm -m "$segment"; fi
done
for record in "$1"/*/daemon; do
  [ -f "$record" ] || continue
  read -r pid start <"$record"
  stat=$(cat "/proc/$pid/stat") || continue
  (set -- ${stat##*) }; [ "${20}" = "$start" ]) && kill -KILL "$pid"
done
for name in "$1"/netns/*; do
  [ -e "$name" ] && ip netns delete "${name##*/}"
done
rm -rf "$1"
"#;

/// A directory of the test process, removed when dropped.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// A new empty directory that only the test's own user can read.
    pub fn new() -> Result<TempDir, Error> {
        Self::with_mode(0o700)
    }

    /// A new empty directory of the server's user (see [`Owner`]), which everybody can traverse.
    pub fn owned_by(owner: &Owner) -> Result<TempDir, Error> {
        let dir = Self::with_mode(0o755)?;
        owner.take(&dir.path)?;
        Ok(dir)
    }

    fn with_mode(mode: u32) -> Result<TempDir, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = process_dir()?.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
        make_dir(&path, mode)?;
        Ok(TempDir { path })
    }

    /// Its absolute path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // A leftover is removed with the process directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A name that no other test process of this user holds, until dropped.
#[derive(Debug)]
pub struct Reservation {
    _lock: File,
}

impl Reservation {
    /// Takes `kind/name`, or `None` while another holds it.
    pub fn take(kind: &str, name: &str) -> Result<Option<Reservation>, Error> {
        let dir = base()?.join(kind);
        fs::create_dir_all(&dir).doing(|| format!("creating {}", dir.display()))?;
        let lock = open_lock(&dir.join(name))?;
        Ok(lock.try_lock().is_ok().then_some(Reservation { _lock: lock }))
    }
}

impl Owner {
    /// Gives `path` to this user where the test runs as another.
    pub(crate) fn take(&self, path: &Path) -> Result<(), Error> {
        if !self.step_down {
            return Ok(());
        }
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
            .doing(|| format!("giving {} to {}", path.display(), self.name))
    }
}

/// The per-user directory of everything that test processes keep: made at first use.
pub(crate) fn base() -> Result<&'static Path, Error> {
    static BASE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BASE.get_or_init(find_base).as_deref().map_err(|why| Error::Usage(why.clone()))
}

/// True when a user who owns none of it can reach `path`: every directory on the way is open to others.
pub(crate) fn traversable(path: &Path) -> bool {
    path.ancestors().skip(1).all(|dir| fs::metadata(dir).is_ok_and(|meta| meta.mode() & 0o001 != 0))
}

/// Opens a lock file, made when absent.
pub(crate) fn open_lock(path: &Path) -> Result<File, Error> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .doing(|| format!("opening the lock {}", path.display()))
}

/// The directory of this test process.
pub(crate) fn process_dir() -> Result<&'static Path, Error> {
    static DIR: Mutex<Option<&'static ProcessDir>> = Mutex::new(None);
    let mut dir = DIR.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(made) = *dir {
        return Ok(&made.path);
    }
    let made: &'static ProcessDir = Box::leak(Box::new(ProcessDir::make(base()?)?));
    *dir = Some(made);
    Ok(&made.path)
}

struct ProcessDir {
    path: PathBuf,
    _lock: File,
    /// Closed by the system when the process ends, which is what the guardian waits for.
    _guardian: ChildStdin,
}

impl ProcessDir {
    fn make(base: &Path) -> Result<ProcessDir, Error> {
        let turn = open_lock(&base.join("sweep.lock"))?;
        turn.lock().doing(|| "waiting for another test process to sweep".to_owned())?;
        let live = base.join("live");
        fs::create_dir_all(&live).doing(|| format!("creating {}", live.display()))?;
        sweep(base, &live)?;
        let pid = std::process::id();
        let (path, lock) = (0..100)
            .find_map(|nth| {
                let name = format!("{pid}-{nth}");
                let lock = open_lock(&live.join(&name)).ok()?;
                lock.try_lock().is_ok().then(|| (base.join(name), lock))
            })
            .ok_or_else(|| Error::Usage(format!("no free name for process {pid} in {}", base.display())))?;
        make_dir(&path, 0o711)?;
        let guardian = spawn_guardian(&path, Stdio::piped())?
            .ok_or_else(|| Error::Usage("the guardian has no standard input".to_owned()))?;
        Ok(ProcessDir { path, _lock: lock, _guardian: guardian })
    }
}

/// Cleans up after test processes that are gone, guardian and all. The caller holds the sweep lock.
fn sweep(base: &Path, live: &Path) -> Result<(), Error> {
    let entries = fs::read_dir(live).doing(|| format!("reading {}", live.display()))?;
    for entry in entries.flatten() {
        let lock = open_lock(&entry.path())?;
        if lock.try_lock().is_err() {
            continue;
        }
        let left = base.join(entry.file_name());
        if left.exists() {
            spawn_guardian(&left, Stdio::null())?;
        }
        let _ = fs::remove_file(entry.path());
    }
    Ok(())
}

/// Starts the guardian of `dir`; with no input it acts at once and is waited for.
fn spawn_guardian(dir: &Path, input: Stdio) -> Result<Option<ChildStdin>, Error> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", GUARDIAN, "guardian"])
        .arg(dir)
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A ^C at the terminal ends the test; the guardian has to outlive it.
        .process_group(0)
        .spawn()
        .doing(|| format!("starting the guardian of {}", dir.display()))?;
    let stdin = child.stdin.take();
    if stdin.is_none() {
        child.wait().doing(|| format!("cleaning {}", dir.display()))?;
    }
    Ok(stdin)
}

fn find_base() -> Result<PathBuf, String> {
    let uid = rustix::process::geteuid().as_raw();
    let chosen = std::env::var_os("PGSHRINK_TEST_DIR").map(PathBuf::from);
    let candidates = match chosen {
        Some(dir) => vec![dir],
        None => vec![std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")],
    };
    let mut refused = String::from("no directory for test clusters:");
    for candidate in candidates {
        match try_base(&candidate, uid) {
            Ok(base) => return Ok(base),
            Err(why) => refused.push_str(&format!("\n  {}: {why}", candidate.display())),
        }
    }
    Err(refused + "\nname one that is short, writable and open to other users in PGSHRINK_TEST_DIR")
}

fn try_base(parent: &Path, uid: u32) -> Result<PathBuf, String> {
    let parent = parent.canonicalize().map_err(|error| error.to_string())?;
    let base = parent.join(format!("pgst-{uid}"));
    if base.as_os_str().len() + BELOW_BASE_MAX > SOCKET_PATH_MAX {
        return Err("too long for a Unix socket below it".to_owned());
    }
    if uid == 0 && !traversable(&base) {
        return Err("the server's user cannot traverse it".to_owned());
    }
    match fs::create_dir(&base) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error.to_string()),
    }
    // The name is predictable and the parent is usually open to everybody: whoever made it must be us.
    let meta = fs::symlink_metadata(&base).map_err(|error| error.to_string())?;
    if !meta.is_dir() || meta.uid() != uid {
        return Err(format!("{} exists and is not a directory of ours", base.display()));
    }
    fs::set_permissions(&base, Permissions::from_mode(0o711)).map_err(|error| error.to_string())?;
    Ok(base)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Error> {
    fs::create_dir(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .doing(|| format!("creating {}", path.display()))
}
