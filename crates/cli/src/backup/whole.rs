//! A backup in a repository, as a reader finds it.

use super::Failure;
use super::claim::OBJECTS_MAX;
use super::seen::{Seen, Stage, manifest_object, record_object};
use pgshrink_backup::Error as BackupError;
use pgshrink_backup::manifest::{Finished, Item, Reader};
use pgshrink_backup::pack::Error as PackError;
use pgshrink_backup::pack::{
    BackupId, Footer, HEADER_BYTES, PackNumber, Sha256, TRAILER_BYTES, Trailer, check_header,
};
use pgshrink_backup::record::{RECORD_BYTES_MAX, Record};
use pgshrink_backup::retention::{Backup, State, newest};
use pgshrink_repository::{Error as RepositoryError, ObjectName, Repository};
use sha2::Digest;
use std::collections::HashMap;

/// Bytes of a manifest that are read at a time.
const PIECE_BYTES: usize = 4 << 20;
/// Backups that a repository may have.
pub(super) const BACKUPS_MAX: usize = 100_000;

/// A backup that is whole, as far as its manifest and `backup.json` say.
pub(super) struct Whole<'r> {
    pub(super) repository: &'r dyn Repository,
    pub(super) name: String,
    /// Which attempt has completed it.
    pub(super) attempt: u32,
    pub(super) record: Record,
}

/// Names of backups, the newest last.
#[derive(Default)]
pub(super) struct Names {
    /// Those that have a manifest, and which attempt has completed them.
    pub(super) whole: Vec<(String, u32)>,
    /// Those that have none.
    pub(super) begun: Vec<String>,
    /// Those that somebody has begun to remove.
    pub(super) removing: Vec<String>,
}

/// Looks which backups there are. What has another name than a backup is not ours.
pub(super) fn names(repository: &dyn Repository) -> Result<Names, Failure> {
    let mut names = Names::default();
    for name in repository.top(BACKUPS_MAX)?.into_iter().filter(|name| is_name(name)) {
        match Seen::of(repository, &name)?.stage() {
            Stage::Complete(attempt) => names.whole.push((name, attempt)),
            Stage::Removing => names.removing.push(name),
            Stage::Begun => names.begun.push(name),
            Stage::Nothing => {}
        }
    }
    Ok(names)
}

/// The last one by the clocks of those who took them, whole or not.
pub(super) fn newest_name(repository: &dyn Repository) -> Result<Option<String>, Failure> {
    Ok(repository.top(BACKUPS_MAX)?.into_iter().rfind(|name| is_name(name)))
}

/// `20261125T143000Z-5f0c12ab`.
fn is_name(name: &str) -> bool {
    const FORM: &[u8] = b"ddddddddTddddddZ-xxxxxxxx";
    let fits = |(byte, form): (u8, &u8)| match form {
        b'd' => byte.is_ascii_digit(),
        b'x' => byte.is_ascii_hexdigit(),
        form => byte == *form,
    };
    name.len() == FORM.len() && name.bytes().zip(FORM).all(fits)
}

/// What a backup needs and is not there was removed or lost.
fn there<T>(found: Result<T, RepositoryError>) -> Result<T, Failure> {
    found.map_err(|error| match error {
        RepositoryError::NotFound { ref name, .. } => Failure::damage(name, "it is missing"),
        other => other.into(),
    })
}

impl<'r> Whole<'r> {
    /// Opens a backup by its name; `latest` is the one that ended last, as `expire` sees it: a clock that was ahead makes no
    /// older one of the same timeline the latest.
    pub(super) fn open(repository: &'r dyn Repository, name: &str) -> Result<Whole<'r>, Failure> {
        if name != "latest" {
            let stage = if is_name(name) { Seen::of(repository, name)?.stage() } else { Stage::Nothing };
            let found = match stage {
                Stage::Complete(attempt) => return Whole::read(repository, name, attempt),
                Stage::Removing => "this backup is being removed; run `pgshrink expire` to finish",
                Stage::Begun => "this backup is incomplete; `pgshrink list` shows the complete ones",
                Stage::Nothing => "there is no such backup; `pgshrink list` shows all backups",
            };
            return Err(Failure::new(name, found));
        }
        let names = names(repository)?.whole;
        // Records of many backups would need much memory.
        let read = |(name, attempt): &(String, u32)| Whole::read(repository, name, *attempt)?.for_retention();
        let backups = names.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        if backups.windows(2).any(|two| two[0].system != two[1].system) {
            let what = "the repository has backups of several clusters; name the backup";
            return Err(Failure::new("latest", what));
        }
        match newest(&backups)?.map(|index| &names[index]) {
            Some((name, attempt)) => Whole::read(repository, name, *attempt),
            None => Err(Failure::new("latest", "the repository has no complete backup")),
        }
    }

    /// What rules of retention have to know.
    pub(super) fn for_retention(&self) -> Result<Backup, Failure> {
        let record = &self.record;
        let parent = record.parent.as_deref().map(str::parse).transpose()?;
        let state = State::Complete {
            timeline: record.stop_timeline,
            stop: record.stop_lsn,
            stop_time: record.stop_time,
        };
        Ok(Backup { name: self.name.parse()?, system: record.system_identifier, parent, state })
    }

    /// Reads the record of the attempt that has completed it.
    pub(super) fn read(
        repository: &'r dyn Repository,
        name: &str,
        attempt: u32,
    ) -> Result<Whole<'r>, Failure> {
        let object = record_object(name, attempt)?;
        let size = there(repository.size(&object))?;
        if size > RECORD_BYTES_MAX as u64 {
            return Err(Failure::damage(
                object,
                format!("it has {size} bytes, the limit is {RECORD_BYTES_MAX}"),
            ));
        }
        let bytes = repository.read(&object, 0, size as usize)?;
        let record = Record::read(&bytes).map_err(|error| match error {
            // Of a newer pgshrink: nobody knows whether it is damaged.
            BackupError::Unsupported { .. } => Failure::new(&object, error),
            // The object is backup.json itself.
            BackupError::Malformed { expected, found, .. } => {
                Failure::damage(&object, format!("expected {expected}, found {found}"))
            }
            _ => Failure::damage(&object, error),
        })?;
        Ok(Whole { repository, name: name.to_owned(), attempt, record })
    }

    fn object(&self, name: &str) -> Result<ObjectName, Failure> {
        Ok(ObjectName::new(&format!("{}/{name}", self.name))?)
    }

    /// PostgreSQL's manifest.
    pub(super) fn manifest_object(&self) -> Result<ObjectName, Failure> {
        manifest_object(&self.name, self.attempt)
    }

    /// Reads the manifest, proves that it is the one that was written, and hands on what it lists. Damage is reported as such,
    /// whatever the damaged text means to `take`.
    pub(super) fn manifest(
        &self,
        mut take: impl FnMut(Item) -> Result<(), Failure>,
    ) -> Result<Finished, Failure> {
        let object = self.manifest_object()?;
        let (size, mut at) = (there(self.repository.size(&object))?, 0);
        let (mut reader, mut sha256, mut done) = (Reader::new(), sha2::Sha256::new(), Ok(()));
        while at < size {
            let bytes = self.repository.read(&object, at, (size - at).min(PIECE_BYTES as u64) as usize)?;
            sha256.update(&bytes);
            let mut piece = &bytes[..];
            while done.is_ok() {
                match reader.next(&mut piece) {
                    Ok(Some(item)) => done = take(item),
                    Ok(None) => break,
                    Err(error) => done = Err(Failure::damage(&object, error)),
                }
            }
            at += bytes.len() as u64;
        }
        let found = Sha256(sha256.finalize().into());
        if found != self.record.manifest_sha256 {
            let what =
                format!("its SHA-256 is {found}, but backup.json says {}", self.record.manifest_sha256);
            return Err(Failure::damage(object, what));
        }
        done?;
        reader.finish().map_err(|error| Failure::damage(&object, error))
    }

    /// Compares the sizes of its packs with those of the record. What is in them is not read.
    pub(super) fn check_sizes(&self) -> Result<(), Failure> {
        let found = self.repository.list(Some(&self.object("packs")?), OBJECTS_MAX)?;
        let sizes: HashMap<_, _> = found.iter().map(|found| (&found.name, found.bytes)).collect();
        for pack in &self.record.packs {
            let object = self.object(&pack.number.object_name())?;
            match sizes.get(&object) {
                Some(bytes) if *bytes == pack.bytes => {}
                Some(bytes) => return Err(Failure::of_size(object, pack.bytes, *bytes)),
                None => return Err(Failure::damage(object, "it is missing")),
            }
        }
        Ok(())
    }

    /// What is in the pack at this index.
    pub(super) fn footer(&self, index: usize) -> Result<(ObjectName, Footer), Failure> {
        let known = &self.record.packs[index];
        let object = self.object(&known.number.object_name())?;
        let bytes = there(self.repository.size(&object))?;
        if bytes != known.bytes {
            return Err(Failure::of_size(object, known.bytes, bytes));
        }
        let footer = read_footer(self.repository, (&object, bytes), known.number, self.record.id)?;
        if footer.sha256 != known.footer_sha256 {
            let what = format!(
                "its footer's SHA-256 is {}, but backup.json says {}",
                footer.sha256, known.footer_sha256
            );
            return Err(Failure::damage(object, what));
        }
        let has_chunk = |chunk: &u32| (*chunk as usize) < footer.chunks.len();
        if !known.unused.iter().all(has_chunk) {
            return Err(Failure::damage(object, "backup.json refers to chunks that it does not have"));
        }
        Ok((object, footer))
    }
}

/// Reads the footer of a pack, which is an object of so many bytes.
pub(super) fn read_footer(
    repository: &dyn Repository,
    (object, size): (&ObjectName, u64),
    number: PackNumber,
    id: BackupId,
) -> Result<Footer, Failure> {
    if size < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        return Err(Failure::damage(object, format!("it has {size} bytes, too few for a pack")));
    }
    let part = |at: u64, bytes: usize| repository.read(object, at, bytes);
    let header = part(0, HEADER_BYTES)?;
    let trailer = part(size - TRAILER_BYTES as u64, TRAILER_BYTES)?;
    let failed = |error: PackError| match error {
        PackError::Unsupported { .. } => Failure::new(object, error),
        _ => Failure::damage(object, error),
    };
    let cut = || Failure::damage(object, "it is too short");
    check_header(header.first_chunk().ok_or_else(cut)?, id, number).map_err(failed)?;
    let trailer = Trailer::read(trailer.first_chunk().ok_or_else(cut)?, size, id, number).map_err(failed)?;
    let footer = part(trailer.footer_at, trailer.footer_bytes as usize)?;
    Footer::read(&footer, &trailer).map_err(failed)
}
