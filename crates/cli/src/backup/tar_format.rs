//! The tar format: the files that `pg_basebackup -Ft` writes.
//!
//! ```text
//!   BASE_BACKUP --> base.tar[.gz|.lz4|.zst], OID.tar[…]     as they come, not decompressed
//!   WAL ----------> pg_wal.tar                              segments, and archive_status
//! ```
//! A file is called `….partial` until everything came and is durable. The manifest gets its name last.

use super::Failure;
use super::chunks::Job;
use super::formats::{Asked, Member, Written};
use super::interrupt;
use super::on_server::name;
use super::places::{Access, Place, is_archived, sync, sync_names};
use super::room::{check_empty, check_space};
use super::source::Server;
use super::stream::Stream;
use super::tar_wal::WalTar;
use super::transfer::{Beside, Progress, Route, Sink, Step, total};
use pgshrink_backup::base_backup::{ArchiveEnd, CompressionAlgorithm, Event, Tablespace};
use pgshrink_backup::manifest::{Item, Reader};
use pgshrink_backup::pack::Sha256;
use sha2::Digest;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

const PARTIAL: &str = ".partial";
const MANIFEST: &str = "backup_manifest";
const WAL: &str = "pg_wal.tar";

/// Takes a backup. If it fails, what it has written is removed.
pub(super) fn take(
    server: &mut Server,
    asked: &Asked<'_>,
    folder: &Path,
    progress: Progress<'_>,
) -> Result<Written, Failure> {
    check_empty(folder)?;
    let access = Access::of_mode(&server.setting("data_directory_mode")?);
    let mut written = Written::new(asked, server);
    let segment_size = server.wal_segment_size();
    let major = server.major;
    let (connection, wal) = server.stream()?;
    let route = Stream::begin((connection, wal.silence), major, &asked.options)?;
    let (start, tablespaces) = (route.start(), route.tablespaces().to_vec());
    let compression = asked.options.compression.algorithm;
    if compression == CompressionAlgorithm::None {
        check_space(std::iter::once((folder, total(&tablespaces))))?;
    }
    progress(Step::Total(total(&tablespaces)));
    let place = Place::make(folder, access)?;
    let taken = (|| {
        let mut files = Files::new(&place, access, tablespaces, compression);
        let beside = Beside { start, wal, breaker: route.breaker() };
        let sink = WalSink { path: partial(folder, WAL), access };
        let (stop, wal, mut tar) = beside.run(&sink, |_| {
            let stop = route.pass(&mut |event| files.take(event), progress)?;
            Ok((stop, stop))
        })?;
        let (mut members, listed) = files.finish()?;
        let names = wal.files.iter().map(|file| file.path.name());
        names.filter(|name| is_archived(name, segment_size, stop.lsn)).try_for_each(|name| tar.mark(name))?;
        members.push(Member { name: WAL.to_owned(), bytes: Some(tar.finish()?) });
        interrupt::check()?;
        commit(folder, &mut members, listed.size)?;
        written.add_positions(start, stop);
        written.add_files(listed.files, listed.raw_bytes, listed.sha256);
        written.add_wal(&wal);
        written.add_members(members);
        Ok(written)
    })();
    if taken.is_err() {
        place.remove();
    }
    taken
}

fn partial(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{PARTIAL}"))
}

/// Makes everything durable, and gives the files their names, the manifest last.
fn commit(folder: &Path, members: &mut Vec<Member>, manifest: u64) -> Result<(), Failure> {
    sync(folder)?;
    let rename = |name: &str| {
        let path = folder.join(name);
        fs::rename(partial(folder, name), &path).map_err(Failure::at(&path))
    };
    members.iter().try_for_each(|member| rename(&member.name))?;
    sync_names(folder)?;
    rename(MANIFEST)?;
    members.push(Member { name: MANIFEST.to_owned(), bytes: Some(manifest) });
    sync_names(folder)
}

/// WAL into `pg_wal.tar`.
struct WalSink {
    path: PathBuf,
    access: Access,
}

impl Sink for WalSink {
    type Kept = WalTar;

    fn keep(&self, chunks: Receiver<Job>) -> Result<WalTar, Failure> {
        let file = self.access.create(&self.path).map_err(Failure::at(&self.path))?;
        let mut tar = WalTar::new(file, &self.path);
        chunks.iter().try_for_each(|job| tar.take(&job))?;
        Ok(tar)
    }
}

/// Archives and the manifest, written as they come.
struct Files<'f> {
    folder: &'f Place,
    access: Access,
    tablespaces: Vec<Tablespace>,
    compression: CompressionAlgorithm,
    open: Option<Open>,
    done: Vec<Member>,
    manifest: Option<Manifest>,
}

/// An archive that is being written.
struct Open {
    name: String,
    path: PathBuf,
    file: File,
    bytes: u64,
    end: ArchiveEnd,
}

/// The manifest, read while it is written.
struct Manifest {
    path: PathBuf,
    file: File,
    reader: Reader,
    sha256: sha2::Sha256,
    listed: Listed,
}

/// What the manifest says.
struct Listed {
    size: u64,
    files: u64,
    raw_bytes: u64,
    sha256: Sha256,
}

impl Files<'_> {
    fn new(
        folder: &Place,
        access: Access,
        tablespaces: Vec<Tablespace>,
        compression: CompressionAlgorithm,
    ) -> Files<'_> {
        Files { folder, access, tablespaces, compression, open: None, done: Vec::new(), manifest: None }
    }

    fn take(&mut self, event: Event<'_>) -> Result<(), Failure> {
        match event {
            Event::ArchiveBegins(index) => {
                self.close()?;
                let space = self.tablespaces.get(index).and_then(|found| found.space.as_ref());
                let name = name(space.map(|(oid, _)| *oid), self.compression);
                let path = partial(self.folder.path(), &name);
                let file = self.access.create(&path).map_err(Failure::at(&path))?;
                let end = ArchiveEnd::new(self.compression);
                self.open = Some(Open { name, path, file, bytes: 0, end });
            }
            Event::ArchiveData(bytes) => {
                if let Some(open) = &mut self.open {
                    open.end.take(bytes)?;
                    open.bytes += bytes.len() as u64;
                    open.file.write_all(bytes).map_err(Failure::at(&open.path))?;
                }
            }
            Event::ManifestBegins => {
                self.close()?;
                let path = partial(self.folder.path(), MANIFEST);
                let file = self.access.create(&path).map_err(Failure::at(&path))?;
                let listed = Listed { size: 0, files: 0, raw_bytes: 0, sha256: Sha256([0; 32]) };
                self.manifest =
                    Some(Manifest { path, file, reader: Reader::new(), sha256: sha2::Sha256::new(), listed });
            }
            Event::ManifestData(bytes) => {
                if let Some(manifest) = &mut self.manifest {
                    manifest.take(bytes)?;
                }
            }
            Event::Progress(_) => {}
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Failure> {
        if let Some(open) = self.open.take() {
            open.end.finish().map_err(|error| Failure::new(&open.name, error))?;
            self.done.push(Member { name: open.name, bytes: Some(open.bytes) });
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Vec<Member>, Listed), Failure> {
        self.close()?;
        let manifest =
            self.manifest.ok_or_else(|| Failure::new("BASE_BACKUP", "the server sent no manifest"))?;
        manifest.reader.finish()?;
        let sha256 = Sha256(manifest.sha256.finalize().into());
        Ok((self.done, Listed { sha256, ..manifest.listed }))
    }
}

impl Manifest {
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(Failure::at(&self.path))?;
        self.sha256.update(bytes);
        self.listed.size += bytes.len() as u64;
        while let Some(item) = self.reader.next(&mut bytes)? {
            if let Item::File(entry) = item {
                self.listed.files += 1;
                self.listed.raw_bytes = self.listed.raw_bytes.saturating_add(entry.size);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgshrink_backup::manifest::{PathEncoding, Writer};
    use pgshrink_testkit::TempDir;

    /// What comes of an archive and a manifest that have these bytes.
    fn taken(archive: &[u8], manifest: &[u8]) -> Result<(Vec<Member>, Listed), Failure> {
        let keep = TempDir::new().unwrap();
        let place = Place::make(keep.path(), Access::Owner)?;
        let spaces = vec![Tablespace { space: None, size_bytes: None }];
        let mut files = Files::new(&place, Access::Owner, spaces, CompressionAlgorithm::None);
        files.take(Event::ArchiveBegins(0))?;
        archive.chunks(500).try_for_each(|piece| files.take(Event::ArchiveData(piece)))?;
        files.take(Event::ManifestBegins)?;
        manifest.chunks(50).try_for_each(|piece| files.take(Event::ManifestData(piece)))?;
        files.finish()
    }

    #[test]
    fn an_archive_or_a_manifest_that_came_in_part_is_no_backup() {
        let archive = [&[7; 512][..], &[0; 1024]].concat();
        let mut manifest = Vec::new();
        Writer::new(None, PathEncoding::AsNeeded, &mut manifest).end(&[], &mut manifest);
        let (members, listed) = taken(&archive, &manifest).unwrap();
        assert_eq!((members[0].bytes, listed.size), (Some(1536), manifest.len() as u64));
        for length in [0, 512, 1024, 1535] {
            assert!(taken(&archive[..length], &manifest).is_err(), "{length} bytes of the archive");
        }
        for length in [0, 100, manifest.len() - 1] {
            assert!(taken(&archive, &manifest[..length]).is_err(), "{length} bytes of the manifest");
        }
        let flipped = String::from_utf8(manifest).unwrap().replace("Version\": 1", "Version\": 2");
        assert!(taken(&archive, flipped.as_bytes()).is_err(), "its own checksum is of other bytes");
    }
}
