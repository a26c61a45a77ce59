//! What a subcommand makes has another name until it is whole.
//!
//! It is made inside `DEST.incomplete`, a directory beside DEST, and renamed at the end, never over anything.
//! So what has the name DEST is whole, whatever interrupted the run. The directory is locked while its maker
//! lives.

use super::Failure;
use super::copy::{parent, refuse_existing};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Dropped before [`Making::finish`], it removes what was made.
pub(crate) struct Making {
    dest: PathBuf,
    folder: PathBuf,
    is_finished: bool,
    _lock: File,
}

impl Making {
    /// For something new that is to be called `dest`.
    pub(crate) fn begin(dest: &Path) -> Result<Making, Failure> {
        // Without the slash that a shell puts behind a directory's name.
        let dest = dest.components().as_path();
        refuse_existing(dest)?;
        let mut name: OsString = dest.as_os_str().to_owned();
        name.push(".incomplete");
        let folder = PathBuf::from(name);
        if let Err(error) = DirBuilder::new().mode(0o700).create(&folder) {
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(Failure::reading(&folder)(error));
            }
            let is_alive = File::open(&folder).is_ok_and(|old| locked(&old).is_err());
            return Err(Failure::new(
                &folder,
                if is_alive {
                    "another pgshrink process is writing there; wait until it has ended, or name another destination"
                } else {
                    "already exists, left by an interrupted run; remove it, then run this again"
                },
            ));
        }
        let lock = File::open(&folder).map_err(Failure::reading(&folder))?;
        locked(&lock).map_err(|error| Failure::new(&folder, error))?;
        Ok(Making { dest: dest.to_owned(), folder, is_finished: false, _lock: lock })
    }

    /// Where to make it.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("made")
    }

    /// Leaves it where it was made, because something of it is missing, and returns that place. Nothing gets the name.
    pub(crate) fn leave(mut self) -> PathBuf {
        self.is_finished = true;
        self.path()
    }

    /// Gives it its name, durably. Its content is durable already.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let failed = |error: Errno| Failure::new(&self.dest, std::io::Error::from(error));
        match renameat_with(CWD, self.path(), CWD, &self.dest, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // The filesystem cannot do both at once.
            Err(Errno::INVAL | Errno::NOSYS) => {
                refuse_existing(&self.dest)?;
                fs::rename(self.path(), &self.dest).map_err(Failure::reading(&self.dest))?;
            }
            Err(error) => return Err(failed(error)),
        }
        self.is_finished = true;
        fs::remove_dir(&self.folder).map_err(Failure::reading(&self.folder))?;
        let above = parent(&self.dest);
        File::open(above).and_then(|above| above.sync_all()).map_err(Failure::reading(above))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.is_finished && fs::remove_dir_all(&self.folder).is_err() {
            eprintln!("pgshrink: {}: incomplete, but cannot be removed", self.folder.display());
        }
    }
}

fn locked(folder: &File) -> Result<(), Errno> {
    flock(folder, FlockOperation::NonBlockingLockExclusive)
}
