//! Configuration files of a backup, as their chunks come out of packs.
//!
//! They are kept in memory until all of them are proved: the record limits them to 16 MiB.

use crate::backup::Failure;
use pgshrink_backup::BackupPath;
use pgshrink_backup::pack::{Area, Chunk, PackedFile, Sha256};
use pgshrink_backup::record::{ConfigurationFile, Record};
use sha2::Digest;
use std::collections::HashMap;
use std::sync::Mutex;

/// The bytes of all configuration files.
pub(in crate::backup) struct Collected<'r> {
    files: Vec<(BackupPath, &'r ConfigurationFile)>,
    contents: HashMap<BackupPath, Mutex<Vec<u8>>>,
}

impl<'r> Collected<'r> {
    /// Room for those that a record has.
    pub(in crate::backup) fn of(record: &'r Record) -> Result<Collected<'r>, Failure> {
        let files = record.configuration.iter().flat_map(|configuration| &configuration.files);
        let files: Vec<_> = files.map(|file| Ok((file.place()?, file))).collect::<Result<_, Failure>>()?;
        // Bounded by what a record may have.
        let content = |file: &ConfigurationFile| Mutex::new(vec![0; file.bytes as usize]);
        let contents = files.iter().map(|(path, file)| (path.clone(), content(file))).collect();
        Ok(Collected { files, contents })
    }

    /// Takes a chunk that is where the record has bytes. False: it is of a file of the data directory.
    pub(in crate::backup) fn take(
        &self,
        file: &PackedFile,
        chunk: &Chunk,
        raw: &[u8],
    ) -> Result<bool, Failure> {
        if file.area != Area::Configuration {
            return Ok(false);
        }
        let unexpected = || Failure::damage(&file.path, "a pack contains more of it than backup.json says");
        let content = self.contents.get(&file.path).ok_or_else(unexpected)?;
        let mut content = content.lock().map_err(|_| Failure::BrokenOff)?;
        let offset = usize::try_from(chunk.facts.offset).map_err(|_| unexpected())?;
        let place = content.get_mut(offset..).and_then(|content| content.get_mut(..raw.len()));
        place.ok_or_else(unexpected)?.copy_from_slice(raw);
        Ok(true)
    }

    /// Proves all of them, and gives them.
    pub(in crate::backup) fn finish(mut self) -> Result<Vec<(&'r ConfigurationFile, Vec<u8>)>, Failure> {
        let mut proved = Vec::with_capacity(self.files.len());
        for (path, file) in self.files {
            let content = self.contents.remove(&path).and_then(|content| content.into_inner().ok());
            let content = content.ok_or(Failure::BrokenOff)?;
            let found = Sha256(sha2::Sha256::digest(&content).into());
            if found != file.sha256 {
                let what = format!("its SHA-256 is {found}, but backup.json says {}", file.sha256);
                return Err(Failure::damage(path, what));
            }
            proved.push((file, content));
        }
        Ok(proved)
    }
}
