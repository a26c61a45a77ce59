//! The bytes of a new pack around its payloads.

use super::layout::{ChunkBytes, FileBytes, HEADER_MAGIC, Header, TRAILER_MAGIC, TrailerBytes, VERSION};
use super::{
    Area, BackupId, CHUNKS_MAX, ChunkFacts, FOOTER_BYTES_MAX, HEADER_BYTES, PAYLOAD_BYTES_MAX, PackNumber,
    PackedFile, Permissions, Sha256,
};
use crate::path::BackupPath;
use sha2::Digest;
use std::collections::HashMap;
use zerocopy::IntoBytes;

/// Collects what a pack's footer says while its payloads are written.
///
/// The caller writes [`PackWriter::header`], the payload of every chunk that [`PackWriter::add`] took, in that order, and
/// what [`PackWriter::finish`] gives.
pub struct PackWriter {
    backup: BackupId,
    number: PackNumber,
    /// Where each file stands in `file_list`.
    files: HashMap<(Area, BackupPath), u32>,
    /// The footer's list of files as its bytes.
    file_list: Vec<u8>,
    chunks: Vec<ChunkBytes>,
    /// Offset of the next payload in the pack.
    at: u32,
}

/// The pack has no room for the chunk. Finish it, and begin another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// What ends a pack.
pub struct Ending {
    /// Footer and trailer: the last bytes of the object.
    pub bytes: Vec<u8>,
    /// SHA-256 of the footer: `backup.json` has it, and so everything in the pack is what was backed up.
    pub footer: Sha256,
}

impl PackWriter {
    /// An empty pack.
    pub fn new(backup: BackupId, number: PackNumber) -> PackWriter {
        PackWriter {
            backup,
            number,
            files: HashMap::new(),
            file_list: Vec::new(),
            chunks: Vec::new(),
            at: HEADER_BYTES as u32,
        }
    }

    /// The first bytes of the object.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = Header {
            magic: HEADER_MAGIC,
            version: VERSION.into(),
            features: 0.into(),
            number: self.number.0.into(),
            backup: self.backup.0,
            reserved: [0; 28],
            checksum: 0.into(),
        };
        header.checksum = crc32c::crc32c(&header.as_bytes()[..60]).into();
        zerocopy::transmute!(header)
    }

    /// Which pack this is.
    pub fn number(&self) -> PackNumber {
        self.number
    }

    /// Bytes of header and payloads so far.
    pub fn bytes(&self) -> u32 {
        self.at
    }

    /// Whether there is nothing in it yet.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Takes a chunk, whose payload is the next to be written. A file's permissions are those that came with its first one.
    ///
    /// # Errors
    /// [`Full`]: a limit of packs is reached; nothing has changed. An empty pack takes any chunk.
    pub fn add(&mut self, file: &PackedFile, facts: &ChunkFacts, payload: &[u8]) -> Result<(), Full> {
        let stored_bytes = u32::try_from(payload.len()).map_err(|_| Full)?;
        let end = self.at.checked_add(stored_bytes).ok_or(Full)?;
        if end - HEADER_BYTES as u32 > PAYLOAD_BYTES_MAX || self.chunks.len() == CHUNKS_MAX {
            return Err(Full);
        }
        let file = self.file(file, size_of::<ChunkBytes>())?;
        self.chunks.push(ChunkBytes {
            blake3: facts.blake3.0,
            offset: facts.offset.into(),
            file: file.into(),
            at: self.at.into(),
            stored_bytes: stored_bytes.into(),
            raw_bytes: facts.raw_bytes.into(),
            stored_checksum: crc32c::crc32c(payload).into(),
            raw_checksum: facts.raw_checksum.into(),
            codec: facts.codec,
            reserved: [0; 7],
        });
        self.at = end;
        Ok(())
    }

    /// Names a file of no bytes.
    ///
    /// # Errors
    /// [`Full`]: the footer's limit is reached; nothing has changed.
    pub fn add_empty(&mut self, file: &PackedFile) -> Result<(), Full> {
        self.file(file, 0).map(|_| ())
    }

    /// Index of a file, which is added to the list if it is new, if so many bytes more fit into the footer.
    fn file(&mut self, file: &PackedFile, more_bytes: usize) -> Result<u32, Full> {
        let footer_bytes =
            8 + self.file_list.len() + self.chunks.len() * size_of::<ChunkBytes>() + more_bytes;
        let key = (file.area, file.path.clone());
        if let Some(&file) = self.files.get(&key) {
            return if footer_bytes <= FOOTER_BYTES_MAX as usize { Ok(file) } else { Err(Full) };
        }
        let path = file.path.as_bytes();
        if footer_bytes + size_of::<FileBytes>() + path.len() > FOOTER_BYTES_MAX as usize {
            return Err(Full);
        }
        let permissions = file.permissions.map_or(0, Permissions::code);
        let head = FileBytes { area: file.area.code(), permissions, path_bytes: (path.len() as u16).into() };
        self.file_list.extend_from_slice(head.as_bytes());
        self.file_list.extend_from_slice(path);
        let file = self.files.len() as u32;
        self.files.insert(key, file);
        Ok(file)
    }

    /// Footer and trailer.
    pub fn finish(self) -> Ending {
        let mut bytes = Vec::with_capacity(self.file_list.len() + self.chunks.len() * 72 + 72);
        bytes.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.file_list);
        bytes.extend_from_slice(&(self.chunks.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.chunks.as_bytes());
        let footer = Sha256(sha2::Sha256::digest(&bytes).into());
        let mut trailer = TrailerBytes {
            magic: TRAILER_MAGIC,
            version: VERSION.into(),
            features: 0.into(),
            number: self.number.0.into(),
            backup: self.backup.0,
            footer_at: u64::from(self.at).into(),
            footer_bytes: (bytes.len() as u32).into(),
            footer_checksum: crc32c::crc32c(&bytes).into(),
            reserved: [0; 12],
            checksum: 0.into(),
        };
        trailer.checksum = crc32c::crc32c(&trailer.as_bytes()[..60]).into();
        bytes.extend_from_slice(trailer.as_bytes());
        Ending { bytes, footer }
    }
}
