//! The manifest, written while files are completed in any order.

use crate::backup::Failure;
use crate::backup::failure::broken_off;
use pgshrink_backup::checksum::{Checksum, Crc32c};
use pgshrink_backup::files::ListedFile;
use pgshrink_backup::manifest::{FileEntry, PathEncoding, SystemIdentifier, WalRange, Writer};
use pgshrink_backup::pack::Sha256;
use sha2::Digest;
use std::io::Write;
use std::sync::Mutex;

/// So much text is written at a time.
const TEXT_BYTES: usize = 64 << 10;

pub(super) struct Ledger<'m>(Mutex<Open<'m>>);

struct Open<'m> {
    writer: Writer,
    object: &'m mut (dyn Write + Send),
    sha256: sha2::Sha256,
    /// What the writer made, and is not written yet.
    text: Vec<u8>,
    files: u64,
    bytes: u64,
}

/// What the manifest lists.
pub(super) struct Listed {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) sha256: Sha256,
}

impl<'m> Ledger<'m> {
    /// Begins a manifest; of version 1 without a system identifier.
    pub(super) fn new(system: Option<SystemIdentifier>, object: &'m mut (dyn Write + Send)) -> Ledger<'m> {
        let mut text = Vec::new();
        let writer = Writer::new(system, PathEncoding::AsNeeded, &mut text);
        let open = Open { writer, object, sha256: sha2::Sha256::new(), text, files: 0, bytes: 0 };
        Ledger(Mutex::new(open))
    }

    /// Adds a file that is complete.
    pub(super) fn add(&self, file: &ListedFile, size: u64, checksum: Crc32c) -> Result<(), Failure> {
        let entry = FileEntry {
            path: file.path.clone(),
            size,
            last_modified: Some(file.modified),
            checksum: Checksum::from(checksum),
        };
        let mut open = self.0.lock().map_err(|_| broken_off())?;
        let Open { writer, text, .. } = &mut *open;
        writer.file(&entry, text);
        open.files += 1;
        open.bytes += size;
        if open.text.len() < TEXT_BYTES { Ok(()) } else { open.flush() }
    }

    /// Ends the manifest.
    pub(super) fn end(self, range: WalRange) -> Result<Listed, Failure> {
        let mut open = self.0.into_inner().map_err(|_| broken_off())?;
        open.flush()?;
        let mut text = Vec::new();
        open.writer.end(&[range], &mut text);
        open.sha256.update(&text);
        open.object.write_all(&text).map_err(|error| Failure::new("backup_manifest", error))?;
        Ok(Listed { files: open.files, bytes: open.bytes, sha256: Sha256(open.sha256.finalize().into()) })
    }
}

impl Open<'_> {
    fn flush(&mut self) -> Result<(), Failure> {
        self.sha256.update(&self.text);
        let written = self.object.write_all(&self.text);
        self.text.clear();
        written.map_err(|error| Failure::new("backup_manifest", error))
    }
}
