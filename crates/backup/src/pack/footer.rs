//! Reading a pack's header, trailer and footer.

use super::layout::{
    ChunkBytes, FileBytes, HEADER_MAGIC, Header, TRAILER_MAGIC, TrailerBytes, check_frame, check_identity,
};
use super::{
    Area, BackupId, Blake3, CHUNK_BYTES_MAX, CHUNKS_MAX, Error, FOOTER_BYTES_MAX, HEADER_BYTES, PackNumber,
    Part, Sha256, TRAILER_BYTES,
};
use crate::path::BackupPath;
use sha2::Digest;
use std::collections::HashSet;
use zerocopy::FromBytes;

/// What a chunk's content is, whatever its encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkFacts {
    /// Of its first raw byte in its file.
    pub offset: u64,
    /// Raw bytes: 1 to [`CHUNK_BYTES_MAX`].
    pub raw_bytes: u32,
    /// Of the raw bytes.
    pub blake3: Blake3,
    /// CRC-32C of the raw bytes.
    pub raw_checksum: u32,
    /// How its payload is encoded: `formats/backup-chunk.md`.
    pub codec: u8,
}

/// A chunk that a footer names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Index in [`Footer::files`].
    pub file: usize,
    /// Its content.
    pub facts: ChunkFacts,
    /// Offset of its payload in the pack.
    pub at: u32,
    /// Bytes of its payload: 1 at least.
    pub stored_bytes: u32,
    /// CRC-32C of its payload.
    pub stored_checksum: u32,
}

impl Chunk {
    /// Whether this is the payload that was written.
    pub fn is_payload(&self, payload: &[u8]) -> bool {
        payload.len() == self.stored_bytes as usize && crc32c::crc32c(payload) == self.stored_checksum
    }
}

/// A file that has chunks in a pack. It may have more in others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFile {
    /// Where it belongs.
    pub area: Area,
    /// Its path there.
    pub path: BackupPath,
    /// Who may do what with it. None: it is as the server makes files.
    pub permissions: Option<Permissions>,
}

/// What may be done with a file, besides that its owner reads and writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// Its group may read it.
    pub is_for_group: bool,
    /// It is a program: a script for `archive_command`, say.
    pub is_executable: bool,
}

/// What a pack's last bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Offset of the footer in the pack.
    pub footer_at: u64,
    /// Bytes of the footer: 8 to [`FOOTER_BYTES_MAX`].
    pub footer_bytes: u32,
    footer_checksum: u32,
}

/// What is in a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// Files, each once.
    pub files: Vec<PackedFile>,
    /// Chunks in the order of their payloads.
    pub chunks: Vec<Chunk>,
    /// Of the footer's bytes.
    pub sha256: Sha256,
}

impl PackedFile {
    /// A file as the server makes files.
    pub fn new(area: Area, path: BackupPath) -> PackedFile {
        PackedFile { area, path, permissions: None }
    }
}

/// In the footer: that they are known, and then one bit for each.
const KNOWN: u8 = 1;
const FOR_GROUP: u8 = 2;
const EXECUTABLE: u8 = 4;

impl Permissions {
    /// Those of a file's mode. What others may do is left out: a server lets nobody else into its data directory.
    pub fn of_mode(mode: u32) -> Permissions {
        Permissions { is_for_group: mode & 0o040 != 0, is_executable: mode & 0o100 != 0 }
    }

    /// The file's mode.
    pub fn mode(self) -> u32 {
        let reads = if self.is_for_group { 0o040 } else { 0 };
        let executes = if self.is_executable { 0o100 | reads >> 2 } else { 0 };
        0o600 | reads | executes
    }

    pub(super) fn code(self) -> u8 {
        let for_group = if self.is_for_group { FOR_GROUP } else { 0 };
        let executable = if self.is_executable { EXECUTABLE } else { 0 };
        KNOWN | for_group | executable
    }

    fn of_code(code: u8) -> Result<Option<Permissions>, Error> {
        let found =
            Permissions { is_for_group: code & FOR_GROUP != 0, is_executable: code & EXECUTABLE != 0 };
        match code {
            0 => Ok(None),
            code if code == found.code() => Ok(Some(found)),
            _ => Err(Error::Damaged { part: Part::Footer, what: "a file has unknown permission bits" }),
        }
    }
}

impl Area {
    pub(super) fn code(self) -> u8 {
        match self {
            Area::Data => 1,
            Area::Configuration => 2,
        }
    }

    fn of_code(code: u8) -> Option<Area> {
        match code {
            1 => Some(Area::Data),
            2 => Some(Area::Configuration),
            _ => None,
        }
    }
}

/// Checks the first bytes of a pack.
///
/// # Errors
/// Damage, another pack, or a newer version.
pub fn check_header(bytes: &[u8; HEADER_BYTES], backup: BackupId, number: PackNumber) -> Result<(), Error> {
    let part = Part::Header;
    check_frame(part, bytes, HEADER_MAGIC)?;
    let header: Header = zerocopy::transmute!(*bytes);
    check_identity((backup, number), header.backup, header.number.get())?;
    if header.reserved != [0; 28] {
        return Err(Error::Damaged { part, what: "reserved bytes are not zero" });
    }
    Ok(())
}

impl Trailer {
    /// Reads the last bytes of a pack of `pack_bytes` bytes.
    ///
    /// # Errors
    /// Damage, another pack, a newer version, or a footer above the limit.
    pub fn read(
        bytes: &[u8; TRAILER_BYTES],
        pack_bytes: u64,
        backup: BackupId,
        number: PackNumber,
    ) -> Result<Trailer, Error> {
        let part = Part::Trailer;
        check_frame(part, bytes, TRAILER_MAGIC)?;
        let trailer: TrailerBytes = zerocopy::transmute!(*bytes);
        check_identity((backup, number), trailer.backup, trailer.number.get())?;
        if trailer.reserved != [0; 12] {
            return Err(Error::Damaged { part, what: "reserved bytes are not zero" });
        }
        let (footer_at, footer_bytes) = (trailer.footer_at.get(), trailer.footer_bytes.get());
        if footer_bytes > FOOTER_BYTES_MAX {
            let (found, limit) = (footer_bytes.into(), FOOTER_BYTES_MAX.into());
            return Err(Error::Limit { what: "bytes", found, limit });
        }
        let end = footer_at.checked_add(u64::from(footer_bytes) + TRAILER_BYTES as u64);
        if footer_at < HEADER_BYTES as u64 || footer_bytes < 8 || end != Some(pack_bytes) {
            return Err(Error::Damaged { part, what: "the footer is not between payloads and trailer" });
        }
        Ok(Trailer { footer_at, footer_bytes, footer_checksum: trailer.footer_checksum.get() })
    }
}

impl Footer {
    /// Reads the bytes between payloads and trailer.
    ///
    /// # Errors
    /// Damage: a checksum, counts that do not fit, a path that leads elsewhere, or a chunk that is not where it should be.
    pub fn read(bytes: &[u8], trailer: &Trailer) -> Result<Footer, Error> {
        let (part, expected) = (Part::Footer, trailer.footer_checksum);
        if bytes.len() != trailer.footer_bytes as usize {
            return Err(Error::Damaged { part, what: "it is shorter than the trailer says" });
        }
        let found = crc32c::crc32c(bytes);
        if found != expected {
            return Err(Error::Checksum { part, expected, found });
        }
        let (files, rest) = read_files(bytes)?;
        let chunks = read_chunks(rest, &files, trailer)?;
        Ok(Footer { files, chunks, sha256: Sha256(sha2::Sha256::digest(bytes).into()) })
    }
}

fn count(bytes: &[u8]) -> Result<(usize, &[u8]), Error> {
    let cut = Error::Damaged { part: Part::Footer, what: "it ends before a count" };
    let (count, rest) = bytes.split_first_chunk().ok_or(cut)?;
    Ok((u32::from_le_bytes(*count) as usize, rest))
}

fn read_files(bytes: &[u8]) -> Result<(Vec<PackedFile>, &[u8]), Error> {
    let damaged = |what| Error::Damaged { part: Part::Footer, what };
    let (count, mut rest) = count(bytes)?;
    // Each takes five bytes at least: what is allocated is bounded by what is there.
    if count > rest.len() / (size_of::<FileBytes>() + 1) {
        return Err(damaged("it has fewer files than it says"));
    }
    let mut files = Vec::with_capacity(count);
    let mut known = HashSet::with_capacity(count);
    for file in 0..count {
        let (head, tail) =
            FileBytes::read_from_prefix(rest).map_err(|_| damaged("it ends before a file's path"))?;
        let (path, tail) = tail
            .split_at_checked(head.path_bytes.get().into())
            .ok_or_else(|| damaged("it ends in a file's path"))?;
        let area = Area::of_code(head.area).ok_or_else(|| damaged("a file belongs to an unknown area"))?;
        let permissions = Permissions::of_code(head.permissions)?;
        let path = BackupPath::new(path).map_err(|reason| Error::Path { file, reason })?;
        if !known.insert((area, path.clone())) {
            return Err(damaged("a file is named twice"));
        }
        files.push(PackedFile { area, path, permissions });
        rest = tail;
    }
    Ok((files, rest))
}

fn read_chunks(bytes: &[u8], files: &[PackedFile], trailer: &Trailer) -> Result<Vec<Chunk>, Error> {
    let (count, rest) = count(bytes)?;
    if count > CHUNKS_MAX {
        return Err(Error::Limit { what: "chunks", found: count as u64, limit: CHUNKS_MAX as u64 });
    }
    let found = <[ChunkBytes]>::ref_from_bytes(rest).ok().filter(|found| found.len() == count);
    let what = "its size does not fit its number of chunks";
    let found = found.ok_or(Error::Damaged { part: Part::Footer, what })?;
    let mut at = HEADER_BYTES as u64;
    let mut chunks = Vec::with_capacity(count);
    for (index, bytes) in found.iter().enumerate() {
        let chunk = read_chunk(bytes, files.len(), at).map_err(|what| Error::Chunk { chunk: index, what })?;
        at += u64::from(chunk.stored_bytes);
        chunks.push(chunk);
    }
    if at != trailer.footer_at {
        return Err(Error::Damaged { part: Part::Footer, what: "payloads do not end where it begins" });
    }
    Ok(chunks)
}

fn read_chunk(bytes: &ChunkBytes, files: usize, at: u64) -> Result<Chunk, &'static str> {
    let file = bytes.file.get() as usize;
    let (offset, raw_bytes) = (bytes.offset.get(), bytes.raw_bytes.get());
    if file >= files {
        return Err("its file is not in the list");
    }
    if u64::from(bytes.at.get()) != at {
        return Err("its payload does not follow the one before");
    }
    if raw_bytes == 0 || raw_bytes > CHUNK_BYTES_MAX {
        return Err("its size is not 1 to 1048576 bytes");
    }
    if bytes.stored_bytes.get() == 0 {
        return Err("its payload is empty");
    }
    if bytes.stored_bytes.get() > raw_bytes {
        return Err("its payload is longer than the chunk");
    }
    if offset.checked_add(raw_bytes.into()).is_none_or(|end| end > i64::MAX as u64) {
        return Err("its offset is beyond any file");
    }
    if bytes.reserved != [0; 7] {
        return Err("reserved bytes are not zero");
    }
    let facts = ChunkFacts {
        offset,
        raw_bytes,
        blake3: Blake3(bytes.blake3),
        raw_checksum: bytes.raw_checksum.get(),
        codec: bytes.codec,
    };
    Ok(Chunk {
        file,
        facts,
        at: bytes.at.get(),
        stored_bytes: bytes.stored_bytes.get(),
        stored_checksum: bytes.stored_checksum.get(),
    })
}
