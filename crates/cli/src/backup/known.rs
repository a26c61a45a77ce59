//! Chunks that earlier attempts at a backup have stored.
//!
//! A chunk that comes again with the same bytes, at the same place of the same file, is not stored again. Files may have
//! changed between two attempts, so the server sends everything again, and only BLAKE3 decides.

use super::Failure;
use super::claim::{Claim, OBJECTS_MAX};
use super::whole;
use pgshrink_backup::BackupPath;
use pgshrink_backup::pack::{Area, Blake3, Footer, PackNumber, Sha256};
use pgshrink_backup::record::PackRecord;
use pgshrink_repository::{ObjectName, Repository};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

/// Chunks that are remembered, at most: 1 TiB of them. What earlier attempts have beyond that is stored again.
const CHUNKS_MAX: usize = 2 << 20;
const _: () = assert!(CHUNKS_MAX * size_of::<Entry>() <= 96 << 20);

/// What earlier attempts have stored.
#[derive(Default)]
pub(super) struct Known {
    packs: Vec<KnownPack>,
    /// By their keys.
    entries: Vec<Entry>,
}

struct KnownPack {
    object: ObjectName,
    number: PackNumber,
    bytes: u64,
    footer_sha256: Sha256,
}

struct Entry {
    /// Of the chunk's place.
    key: u64,
    /// As much of the BLAKE3 as nobody can find a second chunk for.
    blake3: [u8; 16],
    pack: u32,
    chunk: u32,
    is_used: AtomicBool,
}

impl Known {
    /// Reads the footers of all packs that are there.
    pub(super) fn read(repository: &dyn Repository, claim: &Claim) -> Result<Known, Failure> {
        let mut known = Known::default();
        for found in repository.list(Some(&claim.object("packs")?), OBJECTS_MAX)? {
            let name = found.name.as_str().strip_prefix(&claim.name).and_then(|name| name.strip_prefix('/'));
            let Some(number) = name.and_then(PackNumber::of_object_name) else { continue };
            match whole::read_footer(repository, (&found.name, found.bytes), number, claim.id) {
                Ok(footer) => known.add(found.name, number, (found.bytes, &footer)),
                // It is not taken into the backup.
                Err(Failure::Damage { what, reason, .. }) => {
                    eprintln!("pgshrink: {what}: {reason}; its content is stored again");
                }
                Err(error) => return Err(error),
            }
        }
        known.entries.sort_unstable_by_key(|entry| entry.key);
        Ok(known)
    }

    fn add(&mut self, object: ObjectName, number: PackNumber, (bytes, footer): (u64, &Footer)) {
        if self.entries.len() + footer.chunks.len() > CHUNKS_MAX {
            return;
        }
        let pack = self.packs.len() as u32;
        for (chunk, found) in footer.chunks.iter().enumerate() {
            let file = &footer.files[found.file];
            self.entries.push(Entry {
                key: key(file.area, &file.path, found.facts.offset),
                blake3: beginning(&found.facts.blake3),
                pack,
                chunk: chunk as u32,
                is_used: AtomicBool::new(false),
            });
        }
        self.packs.push(KnownPack { object, number, bytes, footer_sha256: footer.sha256 });
    }

    /// How many packs there are.
    pub(super) fn packs(&self) -> usize {
        self.packs.len()
    }

    /// Whether these bytes are stored already. If so, they belong to the backup from now on.
    pub(super) fn has(&self, area: Area, path: &BackupPath, offset: u64, blake3: &Blake3) -> bool {
        let (key, blake3) = (key(area, path, offset), beginning(blake3));
        let from = self.entries.partition_point(|entry| entry.key < key);
        let same = self.entries[from..].iter().take_while(|entry| entry.key == key);
        let found = { same }.find(|entry| entry.blake3 == blake3);
        found.inspect(|entry| entry.is_used.store(true, Ordering::Relaxed)).is_some()
    }

    /// What of them belongs to the backup, and which objects do not.
    pub(super) fn finish(self) -> (Vec<PackRecord>, Vec<ObjectName>) {
        let mut is_used = vec![false; self.packs.len()];
        let mut unused = vec![Vec::new(); self.packs.len()];
        for entry in &self.entries {
            match entry.is_used.load(Ordering::Relaxed) {
                true => is_used[entry.pack as usize] = true,
                false => unused[entry.pack as usize].push(entry.chunk),
            }
        }
        let (mut records, mut objects) = (Vec::new(), Vec::new());
        for ((pack, is_used), mut unused) in self.packs.into_iter().zip(is_used).zip(unused) {
            if !is_used {
                objects.push(pack.object);
                continue;
            }
            unused.sort_unstable();
            let KnownPack { number, bytes, footer_sha256, .. } = pack;
            records.push(PackRecord { number, bytes, footer_sha256, unused });
        }
        records.sort_unstable_by_key(|record| record.number);
        (records, objects)
    }
}

fn key(area: Area, path: &BackupPath, offset: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (area, path, offset).hash(&mut hasher);
    hasher.finish()
}

fn beginning(blake3: &Blake3) -> [u8; 16] {
    blake3.0.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::watched::Watched;
    use super::*;
    use pgshrink_backup::manifest::SystemIdentifier;
    use pgshrink_backup::pack::{ChunkFacts, PackWriter, PackedFile};

    const FILE: &str = "base/5/16384";

    /// A pack with a chunk of each content, at multiples of ten.
    fn store(watched: &Watched, claim: &Claim, index: usize, contents: &[&[u8]]) {
        let number = PackNumber::new(0, index).unwrap();
        let mut writer = PackWriter::new(claim.id, number);
        let mut bytes = writer.header().to_vec();
        for (at, raw) in contents.iter().enumerate() {
            let facts = ChunkFacts {
                offset: 10 * at as u64,
                raw_bytes: raw.len() as u32,
                blake3: Blake3::of(raw),
                raw_checksum: 0,
                codec: 1,
            };
            writer.add(&PackedFile::new(Area::Data, FILE.parse().unwrap()), &facts, raw).unwrap();
            bytes.extend_from_slice(raw);
        }
        bytes.extend_from_slice(&writer.finish().bytes);
        watched.create(&claim.object(&number.object_name()).unwrap(), &bytes).unwrap();
    }

    #[test]
    fn a_chunk_is_known_at_its_own_place_only_and_the_rest_is_unused() {
        let watched = Watched::quiet();
        let claim = Claim::take(&watched, SystemIdentifier(7)).unwrap();
        store(&watched, &claim, 0, &[b"zeros", b"other", b"stale"]);
        store(&watched, &claim, 1, &[b"gone"]);
        let known = Known::read(&watched, &claim).unwrap();
        assert_eq!(known.packs(), 2);
        let has = |area, path: &str, offset, raw: &[u8]| {
            known.has(area, &path.parse().unwrap(), offset, &Blake3::of(raw))
        };
        assert!(has(Area::Data, FILE, 0, b"zeros") && has(Area::Data, FILE, 10, b"other"));
        assert!(!has(Area::Data, FILE, 10, b"zeros"), "the same bytes elsewhere in the file");
        assert!(!has(Area::Data, "base/5/16385", 0, b"zeros"), "of another file");
        assert!(!has(Area::Configuration, FILE, 0, b"zeros"), "of a file outside of the data directory");
        assert!(!has(Area::Data, FILE, 20, b"fresh"), "the file has changed");
        let (records, objects) = known.finish();
        let found: Vec<_> = records.iter().map(|record| (record.number, &record.unused[..])).collect();
        assert_eq!(found, [(PackNumber(1), &[2][..])]);
        assert_eq!(objects, [claim.object("packs/00000002.pack").unwrap()]);
    }
}
