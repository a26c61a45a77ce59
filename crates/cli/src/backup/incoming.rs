//! What BASE_BACKUP sends, from the connection's thread to the one that reads archives.
//!
//! ```text
//!   connection --> Piece ... --> bounded queue --> Incoming --> ArchiveBytes: Read --> decompression --> tar
//! ```

use super::Failure;
use super::failure::broken_off;
use pgshrink_backup::base_backup::{Event, Sequence};
use pgshrink_pgclient::connection::CopyOut;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes of archives that wait for the other thread, at most.
const QUEUE_BYTES_MAX: usize = PIECES_MAX * PIECE_BYTES;
/// Messages are joined up to so many bytes.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_MAX: usize = 16;
const _: () = assert!(QUEUE_BYTES_MAX == 4 << 20);

/// What goes through the queue.
enum Piece {
    /// The archive of the tablespace with this index begins.
    Archive(usize),
    /// Bytes of the archive or the manifest.
    Bytes(Vec<u8>),
    /// The manifest begins.
    Manifest,
    /// Everything came.
    End,
}

/// The end where pieces go in.
pub(super) struct Outgoing {
    queue: SyncSender<Piece>,
    joined: Vec<u8>,
}

/// The end where they come out.
pub(super) struct Incoming {
    queue: Receiver<Piece>,
    /// What follows the bytes that were read last.
    next: Option<Piece>,
}

/// What comes next.
pub(super) enum Part {
    /// Read it from [`Incoming::bytes`] to its end.
    Archive(usize),
    /// Likewise.
    Manifest,
    /// Nothing.
    End,
}

/// Both ends.
pub(super) fn queue() -> (Outgoing, Incoming) {
    let (sender, receiver) = sync_channel(PIECES_MAX);
    (Outgoing { queue: sender, joined: Vec::new() }, Incoming { queue: receiver, next: None })
}

impl Outgoing {
    /// Hands on all that the server sends; `progress` gets the bytes before compression.
    pub(super) fn run(
        mut self,
        copy: &mut CopyOut<'_>,
        sequence: &mut Sequence,
        progress: &dyn Fn(u64),
    ) -> Result<(), Failure> {
        while let Some(content) = copy.next()? {
            match sequence.handle(content)? {
                Event::ArchiveBegins(index) => self.send(Piece::Archive(index))?,
                Event::ManifestBegins => self.send(Piece::Manifest)?,
                Event::ArchiveData(bytes) | Event::ManifestData(bytes) => self.add(bytes)?,
                Event::Progress(bytes) => progress(bytes),
            }
        }
        self.send(Piece::End)
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.joined.len() + bytes.len() > PIECE_BYTES {
            self.flush()?;
        }
        if self.joined.capacity() == 0 {
            self.joined.reserve_exact(PIECE_BYTES.max(bytes.len()));
        }
        self.joined.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.joined.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.joined);
        self.queue.send(Piece::Bytes(bytes)).map_err(|_| broken_off())
    }

    fn send(&mut self, piece: Piece) -> Result<(), Failure> {
        self.flush()?;
        self.queue.send(piece).map_err(|_| broken_off())
    }
}

impl Incoming {
    /// What comes next. Bytes that nobody has read are passed over.
    pub(super) fn next(&mut self) -> Result<Part, Failure> {
        loop {
            match self.take()? {
                Piece::Archive(index) => return Ok(Part::Archive(index)),
                Piece::Manifest => return Ok(Part::Manifest),
                Piece::End => return Ok(Part::End),
                Piece::Bytes(_) => {}
            }
        }
    }

    /// Bytes of the archive or manifest up to its end.
    pub(super) fn bytes(&mut self) -> ArchiveBytes<'_> {
        ArchiveBytes { incoming: self, bytes: Vec::new(), at: 0 }
    }

    fn take(&mut self) -> Result<Piece, Failure> {
        match self.next.take() {
            Some(piece) => Ok(piece),
            None => self.queue.recv().map_err(|_| broken_off()),
        }
    }
}

/// Bytes of one archive.
pub(super) struct ArchiveBytes<'i> {
    incoming: &'i mut Incoming,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for ArchiveBytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() {
            match self.incoming.take().map_err(io::Error::other)? {
                Piece::Bytes(bytes) => (self.bytes, self.at) = (bytes, 0),
                other => {
                    self.incoming.next = Some(other);
                    return Ok(0);
                }
            }
        }
        let taken = out.len().min(self.bytes.len() - self.at);
        out[..taken].copy_from_slice(&self.bytes[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}
