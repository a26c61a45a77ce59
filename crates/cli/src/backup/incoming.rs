//! What BASE_BACKUP sends, for the thread that reads archives.
//!
//! ```text
//!   queue:   connection --> Piece ... --> bounded queue --> Incoming --> ArchiveBytes: BufRead --> decompression --> tar
//!   direct:  connection --> Incoming --> ArchiveBytes: BufRead --> decompression --> tar
//! ```
//! What is not compressed, or is written by who decompresses it, is read on the connection's own thread: a queue would cost more
//! time than it saves.

use super::Failure;
use super::failure::broken_off;
use pgshrink_backup::base_backup::{Event, Sequence};
use pgshrink_pgclient::connection::CopyOut;
use std::io::{self, BufRead, Read};
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
    /// Buffers that were read.
    spare: Receiver<Vec<u8>>,
    joined: Vec<u8>,
}

/// Where archives are read.
pub(super) struct Incoming<'c> {
    from: From<'c>,
    /// What follows the bytes that were read last.
    next: Option<Piece>,
}

enum From<'c> {
    Queue { queue: Receiver<Piece>, spare: SyncSender<Vec<u8>> },
    Connection { direct: Direct<'c>, spare: Vec<u8> },
}

/// Where messages of BASE_BACKUP come from.
pub(super) trait Messages {
    /// As [`CopyOut::next`].
    fn next(&mut self) -> Result<Option<&[u8]>, pgshrink_pgclient::Error>;
}

impl Messages for CopyOut<'_> {
    fn next(&mut self) -> Result<Option<&[u8]>, pgshrink_pgclient::Error> {
        CopyOut::next(self)
    }
}

/// A connection that is read without a queue.
pub(super) struct Direct<'c> {
    pub(super) copy: &'c mut (dyn Messages + Send),
    pub(super) sequence: &'c mut Sequence,
    pub(super) progress: &'c (dyn Fn(u64) + Sync),
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
pub(super) fn queue() -> (Outgoing, Incoming<'static>) {
    let (sender, receiver) = sync_channel(PIECES_MAX);
    let (give_back, spare) = sync_channel(PIECES_MAX);
    let from = From::Queue { queue: receiver, spare: give_back };
    (Outgoing { queue: sender, spare, joined: Vec::new() }, Incoming { from, next: None })
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
            self.joined = self.spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(PIECE_BYTES));
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

impl<'c> Incoming<'c> {
    /// From a connection.
    pub(super) fn direct(direct: Direct<'c>) -> Incoming<'c> {
        Incoming { from: From::Connection { direct, spare: Vec::new() }, next: None }
    }

    /// What comes next. Bytes that nobody has read are passed over.
    pub(super) fn next(&mut self) -> Result<Part, Failure> {
        loop {
            match self.take()? {
                Piece::Archive(index) => return Ok(Part::Archive(index)),
                Piece::Manifest => return Ok(Part::Manifest),
                Piece::End => return Ok(Part::End),
                Piece::Bytes(bytes) => self.give_back(bytes),
            }
        }
    }

    /// Bytes of the archive or manifest up to its end.
    pub(super) fn bytes(&mut self) -> ArchiveBytes<'_, 'c> {
        ArchiveBytes { incoming: self, bytes: Vec::new(), at: 0 }
    }

    fn take(&mut self) -> Result<Piece, Failure> {
        if let Some(piece) = self.next.take() {
            return Ok(piece);
        }
        match &mut self.from {
            From::Queue { queue, .. } => queue.recv().map_err(|_| broken_off()),
            From::Connection { direct, spare } => direct.take(spare),
        }
    }

    fn give_back(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        match &mut self.from {
            From::Queue { spare, .. } => drop(spare.try_send(bytes)),
            From::Connection { spare, .. } => *spare = bytes,
        }
    }
}

impl Direct<'_> {
    fn take(&mut self, spare: &mut Vec<u8>) -> Result<Piece, Failure> {
        loop {
            let Some(content) = self.copy.next()? else { return Ok(Piece::End) };
            match self.sequence.handle(content)? {
                Event::ArchiveBegins(index) => return Ok(Piece::Archive(index)),
                Event::ManifestBegins => return Ok(Piece::Manifest),
                Event::ArchiveData(bytes) | Event::ManifestData(bytes) => {
                    let mut piece = std::mem::take(spare);
                    piece.extend_from_slice(bytes);
                    return Ok(Piece::Bytes(piece));
                }
                Event::Progress(bytes) => (self.progress)(bytes),
            }
        }
    }
}

/// Bytes of one archive.
pub(super) struct ArchiveBytes<'i, 'c> {
    incoming: &'i mut Incoming<'c>,
    bytes: Vec<u8>,
    at: usize,
}

impl BufRead for ArchiveBytes<'_, '_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.bytes.len() {
            if self.bytes.capacity() > 0 {
                self.incoming.give_back(std::mem::take(&mut self.bytes));
                self.at = 0;
            }
            match self.incoming.take().map_err(io::Error::other)? {
                Piece::Bytes(bytes) => (self.bytes, self.at) = (bytes, 0),
                other => {
                    self.incoming.next = Some(other);
                    return Ok(&[]);
                }
            }
        }
        Ok(&self.bytes[self.at..])
    }

    fn consume(&mut self, size: usize) {
        self.at += size;
    }
}

impl Read for ArchiveBytes<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let size = self.fill_buf()?.read(out)?;
        self.consume(size);
        Ok(size)
    }
}
