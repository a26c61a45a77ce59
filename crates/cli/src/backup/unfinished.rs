//! A restore that was interrupted: a file in the data directory says which backup it was of, as long as it is not complete.

use super::Failure;
use super::whole::Whole;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "pgshrink_restore.json";
const FORMAT: &str = "pgshrink restore, not complete";
/// Most bytes of the file.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Content {
    format: String,
    version: u32,
    backup: String,
    /// Of `backup.json`.
    record_sha256: String,
}

/// The file.
pub(super) struct Unfinished(PathBuf);

impl Unfinished {
    /// Finds it in a data directory. `None`: no restore was interrupted there.
    pub(super) fn find(into: &Path, whole: &Whole<'_>) -> Result<Option<Unfinished>, Failure> {
        let path = into.join(NAME);
        match fs::metadata(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(Failure::at(&path)(error)),
            Ok(metadata) if metadata.len() > BYTES_MAX => {
                return Err(Failure::new(path.display(), "it is larger than what pgshrink writes"));
            }
            Ok(_) => {}
        }
        let found = fs::read(&path).map_err(Failure::at(&path))?;
        let found: Content =
            serde_json::from_slice(&found).map_err(|error| Failure::new(path.display(), error))?;
        if found.format != FORMAT || found.version != 1 || found.record_sha256 != sha256(whole)? {
            let reason = format!(
                "the interrupted restore in this directory is of backup {}, not {}; empty the directory, or name that backup",
                found.backup, whole.name
            );
            return Err(Failure::new(path.display(), reason));
        }
        if into.join("global/pg_control").exists() {
            let reason = "the restore was already complete, and a server may have run here; remove this file";
            return Err(Failure::new(path.display(), reason));
        }
        Ok(Some(Unfinished(path)))
    }

    /// Refuses a data directory that has one, where nobody asked to go on.
    pub(super) fn check_absent(into: &Path) -> Result<(), Failure> {
        match into.join(NAME).exists() {
            false => Ok(()),
            true => {
                let what = "it is not empty: a restore was interrupted there; run it again with --resume, or empty the \
                            directory";
                Err(Failure::new(into.display(), what))
            }
        }
    }

    /// Writes it to a new data directory.
    pub(super) fn begin(into: &Path, whole: &Whole<'_>) -> Result<Unfinished, Failure> {
        let path = into.join(NAME);
        let content = Content {
            format: FORMAT.to_owned(),
            version: 1,
            backup: whole.name.clone(),
            record_sha256: sha256(whole)?,
        };
        let content = serde_json::to_vec(&content).map_err(|error| Failure::new(NAME, error))?;
        let write = |path: &Path| -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(&content)?;
            file.sync_all()?;
            File::open(into)?.sync_all()
        };
        write(&path).map_err(Failure::at(&path))?;
        Ok(Unfinished(path))
    }

    /// Removes it: the restore is complete.
    pub(super) fn end(self) -> Result<(), Failure> {
        fs::remove_file(&self.0).map_err(Failure::at(&self.0))
    }
}

fn sha256(whole: &Whole<'_>) -> Result<String, Failure> {
    Ok(whole.record.sha256()?.to_string())
}
