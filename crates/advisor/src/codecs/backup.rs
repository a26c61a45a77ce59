//! What a backup of the cluster would take, from sampled pages.

use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, ChunkEncoder, Content, Habit, Level};
use pgshrink_codec::stream::{Encoder, EncoderOptions};
use pgshrink_codec::{Algorithm, Choice};

use super::Budget;
use super::pages::PageSet;
use crate::finding::BackupEstimate;
use crate::layout::heap::PAGE_BYTES;
use crate::report::shown;
use crate::snapshot::{Snapshot, Table};

/// Bytes of a relation's pages that are compressed here at most.
const RELATION_BYTES_MAX: usize = 4 << 20;

/// The estimate, and what it assumes, in words. None: there are no pages, or the size of the database is not known.
///
/// Each relation's pages go through one stream of zstd:3, as in a compressed tar, and through the archive's chunks. What
/// was not sampled is taken to compress as what was.
pub fn estimate(snapshot: &Snapshot, budget: &mut Budget) -> Option<(BackupEstimate, String)> {
    let bytes = snapshot.server.databases_bytes.or(snapshot.server.database_bytes)?;
    let mut sampled = Sums::default();
    let mut relations: Vec<(&[crate::snapshot::sample::Page], u64)> =
        snapshot.tables.iter().flat_map(relations_of).collect();
    relations.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    for (pages, of) in relations {
        let set = PageSet::of(pages, of / PAGE_BYTES as u64, RELATION_BYTES_MAX / PAGE_BYTES);
        if set.is_empty() || !budget.take_encodings(2 * set.len()) {
            continue;
        }
        if let Some((tar, archive)) = compressed(&set) {
            let raw = (set.len() * PAGE_BYTES) as u64;
            let scaled = |bytes: u64| (u128::from(bytes) * u128::from(of) / u128::from(raw)) as u64;
            sampled.bytes = sampled.bytes.saturating_add(of);
            sampled.tar = sampled.tar.saturating_add(scaled(tar));
            sampled.archive = sampled.archive.saturating_add(scaled(archive));
        }
    }
    if sampled.bytes == 0 {
        return None;
    }
    let scaled = |part: u64| (u128::from(part) * u128::from(bytes) / u128::from(sampled.bytes)) as u64;
    let estimate =
        BackupEstimate { bytes, tar_bytes: scaled(sampled.tar), archive_bytes: scaled(sampled.archive) };
    let what =
        if snapshot.server.databases_bytes.is_some() { "all databases" } else { "this database alone" };
    let note = format!(
        "The estimate of a backup counts {} of {what}, without WAL. Pages were sampled from {} of relations; the rest is assumed to \
         compress equally well.",
        shown::size(bytes),
        shown::size(sampled.bytes.min(bytes))
    );
    Some((estimate, note))
}

#[derive(Default)]
struct Sums {
    bytes: u64,
    tar: u64,
    archive: u64,
}

fn relations_of(table: &Table) -> Vec<(&[crate::snapshot::sample::Page], u64)> {
    let Some(sample) = &table.sample else { return Vec::new() };
    let of = |oid: u32| {
        let found = sample.other_pages.iter().find(|other| other.oid == oid);
        found.map_or(&[][..], |other| &other.pages[..])
    };
    let toast = table.toast.map(|toast| (of(toast.oid), toast.bytes.main));
    let indexes = table.indexes.iter().map(|index| (of(index.oid), index.bytes));
    [(&sample.pages[..], table.bytes.main)].into_iter().chain(toast).chain(indexes).collect()
}

/// Bytes of the pages in a tar of zstd:3, and in an archive. None: a codec failed.
fn compressed(set: &PageSet<'_>) -> Option<(u64, u64)> {
    let mut raw = Vec::with_capacity(set.len() * PAGE_BYTES);
    for (_, page) in set.pages() {
        let start = raw.len();
        raw.extend_from_slice(*page);
        // Pages of a chunk are neighbours there, and chunks have no check sums of theirs. Here they are not.
        raw[start + 8..start + 10].fill(0);
    }
    Some((tar(&raw)?, archive(&raw)?))
}

fn tar(raw: &[u8]) -> Option<u64> {
    let choice = Choice::new(Algorithm::Zstd, 3).ok()?;
    let mut encoder = Encoder::new(EncoderOptions { choice, window_log: 21 }).ok()?;
    let (mut out, mut bytes) = (Vec::new(), 0);
    for piece in raw.chunks(encoder.chunk_max().max(1)) {
        out.clear();
        encoder.encode(piece, &mut out).ok()?;
        encoder.commit();
        bytes += out.len() as u64;
    }
    Some(bytes)
}

fn archive(raw: &[u8]) -> Option<u64> {
    let (mut encoder, mut habit) = (ChunkEncoder::new(Level::default()), Habit::default());
    let (mut out, mut bytes) = (Vec::new(), 0);
    for chunk in raw.chunks(CHUNK_BYTES_DEFAULT) {
        out.clear();
        encoder.encode(chunk, Content::Pages { first_block: 0 }, &mut habit, &mut out).ok()?;
        bytes += out.len() as u64;
    }
    Some(bytes)
}
