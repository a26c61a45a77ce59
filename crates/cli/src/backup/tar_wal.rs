//! `pg_wal.tar`: WAL as pg_basebackup's `-X stream` stores it in the tar format.
//!
//! The size of a file is in the header before it. It is known when the file's last chunk came, so the header is written
//! then, at the place that was left for it.

use super::Failure;
use super::chunks::{Job, Source};
use super::clock;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tar::{EntryType, Header};

const BLOCK_BYTES: u64 = 512;
/// The name that the server gives to the owner of each member, whatever its own is.
const OWNER: &str = "postgres";

/// The file while it is written.
pub(super) struct WalTar {
    file: File,
    path: PathBuf,
    /// Where the next header goes.
    at: u64,
    /// The file of `pg_wal` whose chunks come, and its bytes so far.
    open: Option<(Arc<Source>, u64)>,
}

impl WalTar {
    /// Into an empty file.
    pub(super) fn new(file: File, path: &Path) -> WalTar {
        WalTar { file, path: path.to_owned(), at: 0, open: None }
    }

    /// Takes a chunk. Those of a file come one after the other.
    pub(super) fn take(&mut self, job: &Job) -> Result<(), Failure> {
        if self.open.as_ref().is_none_or(|(source, _)| !Arc::ptr_eq(source, &job.source)) {
            self.close()?;
            self.open = Some((Arc::clone(&job.source), 0));
        }
        if let Some((_, bytes)) = &mut self.open {
            if job.offset != *bytes {
                return Err(Failure::new(
                    job.source.path(),
                    "its chunks came out of order; please report it",
                ));
            }
            *bytes += job.raw.len() as u64;
        }
        self.write(&job.raw, self.at + BLOCK_BYTES + job.offset)
    }

    /// Marks a file as archived.
    pub(super) fn mark(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.close()?;
        self.header(&[b"archive_status/", name, b".done"].concat(), 0)
    }

    /// Ends the file, and gives its size.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        self.close()?;
        let size = self.at + 2 * BLOCK_BYTES;
        // What was never written reads as zeros.
        self.file.set_len(size).map_err(Failure::at(&self.path))?;
        Ok(size)
    }

    fn close(&mut self) -> Result<(), Failure> {
        match self.open.take() {
            Some((source, bytes)) => self.header(source.path().name(), bytes),
            None => Ok(()),
        }
    }

    fn header(&mut self, name: &[u8], bytes: u64) -> Result<(), Failure> {
        let mut header = Header::new_ustar();
        let (name, path) = (String::from_utf8_lossy(name), self.path.clone());
        header.set_path(&*name).map_err(Failure::at(&path))?;
        header.set_entry_type(EntryType::Regular);
        header.set_size(bytes);
        header.set_mode(0o600);
        // As pg_basebackup has it: root extracts these files for the owner of those in base.tar.
        header.set_uid(0);
        header.set_gid(0);
        header.set_username(OWNER).map_err(Failure::at(&path))?;
        header.set_groupname(OWNER).map_err(Failure::at(&path))?;
        header.set_device_major(0).map_err(Failure::at(&path))?;
        header.set_device_minor(0).map_err(Failure::at(&path))?;
        header.set_mtime(clock::unix_seconds());
        header.set_cksum();
        self.write(header.as_bytes(), self.at)?;
        self.at += BLOCK_BYTES + bytes.next_multiple_of(BLOCK_BYTES);
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), Failure> {
        self.file.write_all_at(bytes, at).map_err(Failure::at(&self.path))
    }
}
