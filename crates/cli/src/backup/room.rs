//! Whether a directory is empty, and has room for what comes.

use super::Failure;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses a directory that has something in it.
pub(super) fn check_empty(folder: &Path) -> Result<(), Failure> {
    match is_empty(folder)? {
        true => Ok(()),
        false => {
            let what = "it is not empty; name an empty directory, or one that does not exist";
            Err(Failure::new(folder.display(), what))
        }
    }
}

/// Whether a directory has nothing in it, or is not there.
pub(super) fn is_empty(folder: &Path) -> Result<bool, Failure> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Failure::at(folder)(error)),
    }
}

/// Looks whether so many bytes fit below each directory. They may not be there yet.
pub(super) fn check_space<'p>(bytes: impl Iterator<Item = (&'p Path, u64)>) -> Result<(), Failure> {
    let mut needed: HashMap<u64, (u64, &Path)> = HashMap::new();
    for (folder, bytes) in bytes {
        let there = folder.ancestors().find(|above| above.is_dir()).unwrap_or(Path::new("."));
        let device = fs::metadata(there).map_err(Failure::at(there))?.dev();
        needed.entry(device).or_insert((0, there)).0 += bytes;
    }
    for (needed, there) in needed.into_values() {
        let space = rustix::fs::statvfs(there).map_err(|error| Failure::at(there)(error.into()))?;
        let found = space.f_bavail.saturating_mul(space.f_frsize);
        if found < needed {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            let what = format!(
                "not enough space on its filesystem: {} MiB needed, {} MiB free",
                mib(needed),
                mib(found)
            );
            return Err(Failure::new(there.display(), what));
        }
    }
    Ok(())
}
