//! Archives of a running BASE_BACKUP to chunks and a manifest.

use super::Failure;
use super::chunks::{Jobs, Source, cut};
use super::decompress::plain;
use super::incoming::{ArchiveBytes, Incoming, Part};
use super::transfer::Fetched;
use pgshrink_backup::base_backup::{CompressionAlgorithm, Position, Tablespace};
use pgshrink_backup::checksum::{Checksum, Crc32c};
use pgshrink_backup::label::BackupLabel;
use pgshrink_backup::manifest::{FileEntry, Item, Reader};
use pgshrink_backup::pack::{Area, Permissions, Sha256};
use pgshrink_backup::{BackupPath, ChecksumAlgorithm};
use pgshrink_codec::counted;
use sha2::Digest;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tar::{Archive, EntryType};

/// Most bytes of `backup_label`.
const LABEL_BYTES_MAX: u64 = 64 << 10;

/// What the archives held.
pub(super) struct Held {
    /// Directories of the data directory, parents first.
    directories: Vec<BackupPath>,
    files: u64,
    raw_bytes: u64,
    label: BackupLabel,
    manifest: Sha256,
}

impl Held {
    /// With what the server says in the end.
    pub(super) fn fetched(self, stop: Position) -> Fetched {
        let Held { directories, files, raw_bytes, label, manifest } = self;
        Fetched { stop, directories, files, raw_bytes, label, manifest }
    }
}

/// Reads archives.
pub(super) struct Archives<'a> {
    tablespaces: &'a [Tablespace],
    compression: CompressionAlgorithm,
    jobs: &'a Jobs<'a>,
    directories: Vec<BackupPath>,
    /// Size and CRC-32C of each file, by a hash of its path: the manifest is compared with them.
    sums: HashMap<u64, (u64, Crc32c)>,
    raw_bytes: u64,
    label: Option<BackupLabel>,
}

impl<'a> Archives<'a> {
    pub(super) fn new(
        tablespaces: &'a [Tablespace],
        compression: CompressionAlgorithm,
        jobs: &'a Jobs<'a>,
    ) -> Archives<'a> {
        Archives {
            tablespaces,
            compression,
            jobs,
            directories: Vec::new(),
            sums: HashMap::new(),
            raw_bytes: 0,
            label: None,
        }
    }

    /// Reads all archives and the manifest, which it writes to `object`.
    pub(super) fn run(
        mut self,
        mut incoming: Incoming<'_>,
        object: &mut (dyn Write + Send),
    ) -> Result<Held, Failure> {
        let mut manifest = None;
        loop {
            match incoming.next()? {
                Part::Archive(index) => {
                    let space = self.tablespaces.get(index).and_then(|found| found.space.as_ref());
                    let below = space.map(|(oid, _)| format!("pg_tblspc/{oid}/"));
                    self.archive(below.as_deref().unwrap_or(""), incoming.bytes())?;
                }
                Part::Manifest => {
                    manifest = Some(self.manifest(&mut incoming.bytes(), object)?);
                }
                Part::End => break,
            }
        }
        let manifest = manifest.ok_or_else(|| Failure::new("BASE_BACKUP", "the server sent no manifest"))?;
        let label = self.label.take();
        Ok(Held {
            directories: self.directories,
            files: self.sums.len() as u64,
            raw_bytes: self.raw_bytes,
            label: label.ok_or_else(|| Failure::new("BASE_BACKUP", "the server sent no backup_label"))?,
            manifest,
        })
    }

    fn archive(&mut self, below: &str, bytes: ArchiveBytes<'_, '_>) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::inside("an archive from the server", error);
        let plain = plain(self.compression, bytes).map_err(failed)?;
        let mut archive = Archive::new(plain);
        for entry in archive.entries().map_err(failed)? {
            let mut entry = entry.map_err(failed)?;
            let name = entry.path_bytes();
            let name = name.strip_suffix(b"/").unwrap_or(&name);
            // The server sends directories below pg_wal as `./pg_wal/…`.
            let name = name.strip_prefix(b"./").unwrap_or(name);
            if name == b"." || name.is_empty() {
                continue;
            }
            let path = BackupPath::new(&[below.as_bytes(), name].concat())?;
            let kind = entry.header().entry_type();
            match kind {
                EntryType::Directory => self.directories.push(path),
                // Of a tablespace: the list has its place.
                EntryType::Symlink => {}
                EntryType::Regular => {
                    let (size, mode) = (entry.size(), entry.header().mode().map_err(failed)?);
                    let source = Source::new(Area::Data, path).permitted(Permissions::of_mode(mode));
                    self.file(source, size, &mut entry)?;
                }
                other => {
                    let found = format!("an entry of type {other:?}, which PostgreSQL 15 to 18 never sends");
                    return Err(Failure::new(path, found));
                }
            }
        }
        // What pads the archive's end; and what proves that nothing was cut off.
        let mut plain = archive.into_inner();
        io::copy(&mut plain, &mut io::sink()).map(|_| ()).map_err(failed)
    }

    fn file(&mut self, source: Source, size: u64, from: &mut impl Read) -> Result<(), Failure> {
        let path = source.path();
        let (key, is_label) = (key(path), path.as_bytes() == b"backup_label");
        let source = Arc::new(source);
        let checksum = if is_label && size <= LABEL_BYTES_MAX {
            let mut label = Vec::new();
            from.read_to_end(&mut label).map_err(|error| Failure::inside("backup_label", error))?;
            self.label = Some(BackupLabel::parse(&label)?);
            cut(&source, size, &mut &label[..], self.jobs)?
        } else {
            cut(&source, size, from, self.jobs)?
        };
        self.raw_bytes += size;
        if self.sums.insert(key, (size, checksum)).is_some() {
            return Err(Failure::new("BASE_BACKUP", "the server sent a file twice"));
        }
        Ok(())
    }

    /// Writes the manifest to its object, and compares it with what came.
    fn manifest(&mut self, from: &mut impl Read, object: &mut (dyn Write + Send)) -> Result<Sha256, Failure> {
        let failed = |error: io::Error| Failure::inside("backup_manifest", error);
        let (mut reader, mut sha256) = (Reader::new(), sha2::Sha256::new());
        let mut listed = 0;
        let mut bytes = vec![0; 64 << 10];
        loop {
            let read = from.read(&mut bytes).map_err(failed)?;
            if read == 0 {
                break;
            }
            let mut piece = &bytes[..read];
            sha256.update(piece);
            object.write_all(piece).map_err(failed)?;
            while let Some(item) = reader.next(&mut piece)? {
                if let Item::File(entry) = item {
                    self.compare(&entry)?;
                    listed += 1;
                }
            }
        }
        reader.finish()?;
        if listed != self.sums.len() {
            let found = format!(
                "it lists {}, but {} were received",
                counted(listed as u64, "file", "files"),
                self.sums.len()
            );
            return Err(Failure::new("backup_manifest", found));
        }
        Ok(Sha256(sha256.finalize().into()))
    }

    fn compare(&self, entry: &FileEntry) -> Result<(), Failure> {
        let Some(&(size, checksum)) = self.sums.get(&key(&entry.path)) else {
            return Err(Failure::new(&entry.path, "the manifest lists it, but the server did not send it"));
        };
        let crc32c = Checksum::from(checksum);
        let is_same = entry.checksum.algorithm() != ChecksumAlgorithm::Crc32c || entry.checksum == crc32c;
        if size == entry.size && is_same {
            return Ok(());
        }
        let what = "its content does not match the manifest; the network or memory changed it: run it again";
        Err(Failure::new(&entry.path, what))
    }
}

fn key(path: &BackupPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_backup::manifest::{PathEncoding, Writer};
    use std::sync::mpsc::sync_channel;

    fn entry(path: &str, size: u64, content: &[u8]) -> FileEntry {
        let checksum = Checksum::from(Crc32c::of(content));
        FileEntry { path: path.parse().unwrap(), size, last_modified: None, checksum }
    }

    /// A manifest that lists these, where `a` came with the bytes `one`, and `b` with `three`.
    fn compared(listed: &[FileEntry]) -> Result<Sha256, Failure> {
        let (queue, _waiting) = sync_channel(1);
        let jobs = Jobs::Queue(queue);
        let mut archives = Archives::new(&[], CompressionAlgorithm::None, &jobs);
        for (path, content) in [("a", &b"one"[..]), ("b", b"three")] {
            let size = content.len() as u64;
            archives.sums.insert(key(&path.parse().unwrap()), (size, Crc32c::of(content)));
        }
        let mut manifest = Vec::new();
        let mut writer = Writer::new(None, PathEncoding::AsNeeded, &mut manifest);
        listed.iter().for_each(|entry| writer.file(entry, &mut manifest));
        writer.end(&[], &mut manifest);
        let mut object = Vec::new();
        let sha256 = archives.manifest(&mut &manifest[..], &mut object)?;
        assert!(object == manifest && sha256 == Sha256(sha2::Sha256::digest(&manifest).into()));
        Ok(sha256)
    }

    #[test]
    fn what_came_with_other_bytes_than_the_manifest_says_is_no_backup() {
        let [a, b] = [entry("a", 3, b"one"), entry("b", 5, b"three")];
        compared(&[a.clone(), b.clone()]).unwrap();
        for (listed, what) in [
            (vec![a.clone(), entry("b", 5, b"thr\0e")], "b: its content does not match"),
            (vec![a.clone(), entry("b", 6, b"three")], "b: its content does not match"),
            (vec![a.clone()], "it lists 1 file, but 2 were received"),
            (vec![a, b, entry("c", 0, b"")], "c: the manifest lists it, but the server did not send it"),
        ] {
            let Err(error) = compared(&listed) else { panic!("{what}") };
            assert!(error.to_string().contains(what), "{error}");
        }
    }
}
