//! Where backups go.
//!
//! Into memory: a shared disk that writes no faster than a gigabit carries would be all that is seen. Programs sync what
//! they write as they always do, which costs nothing there.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use pgshrink_bench_report::Result;
use pgshrink_testkit::TempDir;
use pgshrink_testkit::run::Owner;

const MEMORY: &str = "/dev/shm";
const PREFIX: &str = "pgshrink-bench-backup-";

/// A directory for many places, removed when dropped.
#[derive(Debug)]
pub struct Space {
    folder: PathBuf,
    on_disk: Option<TempDir>,
    places: Cell<u32>,
}

/// A path that is not there yet, or a directory; removed when dropped.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Space {
    /// In memory where there is a filesystem for that, else on disk.
    pub fn in_memory() -> Result<Space> {
        if !Path::new(MEMORY).is_dir() {
            return Space::on_disk();
        }
        sweep();
        let folder = Path::new(MEMORY).join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)?;
        let space = Space { folder, on_disk: None, places: Cell::new(0) };
        fs::set_permissions(&space.folder, fs::Permissions::from_mode(0o711))?;
        Ok(space)
    }

    /// Where temporary files of tests are.
    pub fn on_disk() -> Result<Space> {
        let temporary = TempDir::owned_by(&Owner::find()?)?;
        let folder = temporary.path().to_owned();
        Ok(Space { folder, on_disk: Some(temporary), places: Cell::new(0) })
    }

    /// A path where nothing is.
    pub fn place(&self) -> Place {
        let number = self.places.get();
        self.places.set(number + 1);
        Place(self.folder.join(number.to_string()))
    }

    /// An empty directory that is this user's.
    pub fn place_of(&self, owner: &Owner) -> Result<Place> {
        let place = self.place();
        fs::create_dir(place.path())?;
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700))?;
        chown(place.path(), Some(owner.uid), Some(owner.gid))?;
        Ok(place)
    }
}

impl Place {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Bytes of all files in it.
    pub fn bytes(&self) -> Result<u64> {
        bytes_below(&self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if self.on_disk.is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Removes what benches have left that were killed.
fn sweep() {
    for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
