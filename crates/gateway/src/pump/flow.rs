//! One direction of a session.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BufMut;
use pgshrink_wire::{Error, Flush, Held, Link};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::gather::Gather;
use crate::scratch::Scratch;
use crate::stream::Stream;

/// Reads in one turn, so that one busy session does not starve its neighbours on the thread.
const ROUNDS_MAX: usize = 4;

/// Whether a flow waits for the rest of a message, with a time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    /// From this turn on: what waited before is gone.
    Begins,
    GoesOn,
}

/// What one turn of one flow works with.
pub(super) struct Turn<'a, 'c> {
    pub(super) cx: &'a mut Context<'c>,
    pub(super) from: &'a mut Stream,
    pub(super) to: &'a mut Stream,
    pub(super) scratch: &'a mut Scratch,
}

/// Why a flow cannot go on.
pub(super) enum Fault {
    Read(io::Error),
    Write(io::Error),
    Engine(Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The source has ended; what is left is written, then the end is passed on.
    Ending,
    Ended,
}

/// One direction: what could not be written yet, and whether the source has ended.
pub(super) struct Flow {
    /// Bytes that are ready to be written, from `sent` on.
    unsent: Vec<u8>,
    sent: usize,
    /// Bytes that are not looked at yet: those read ahead by the handshake, or wire input that had no room.
    unread: Vec<u8>,
    unread_at: usize,
    unflushed: bool,
    /// The engine stopped for want of output room.
    full: bool,
    state: State,
    /// Rows, or a reader in the middle of a bulk transfer, wait for more.
    pub(super) wait: Wait,
    /// Bytes read so far.
    total: u64,
    /// The last read of this turn found nothing.
    pub(super) drained: bool,
    gather: Gather,
}

/// What writing out came to.
enum Out {
    Done,
    Blocked,
}

impl Flow {
    pub(super) fn new(unread: Vec<u8>) -> Self {
        Self {
            unsent: Vec::new(),
            sent: 0,
            unread,
            unread_at: 0,
            unflushed: false,
            full: false,
            state: State::Open,
            wait: Wait::No,
            total: 0,
            drained: false,
            gather: Gather::default(),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Bytes read so far, those of the handshake left out.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Where something of the engine's own is put behind what is on its way; `None` once the end is.
    pub(super) fn outgoing(&mut self) -> Option<&mut Vec<u8>> {
        (self.state == State::Open).then_some(&mut self.unsent)
    }

    /// True when nothing is on its way.
    pub(super) fn is_clean(&self) -> bool {
        self.unsent.is_empty() && self.unread.is_empty() && !self.unflushed
    }

    /// The source is quiet: an idle session keeps no buffer.
    fn release(&mut self) {
        if self.unsent.is_empty() && self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
        }
        if self.unread.is_empty() && self.unread.capacity() > 0 {
            self.unread = Vec::new();
        }
    }

    /// What has not reached the destination yet.
    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = std::mem::take(&mut self.unsent).split_off(self.sent);
        self.sent = 0;
        unsent
    }

    /// The destination takes nothing any more: forget what was for it.
    pub(super) fn give_up(&mut self) -> bool {
        self.unsent = Vec::new();
        self.unread = Vec::new();
        self.state = State::Ended;
        true
    }

    /// Moves bytes unchanged; `see` looks at them on the way and says whether they end inside a message. `Ok(true)` when the flow has ended.
    pub(super) fn copy(
        &mut self,
        turn: &mut Turn<'_, '_>,
        due: bool,
        mut see: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Fault> {
        self.drained = false;
        self.begin_turn(turn, due);
        for _ in 0..ROUNDS_MAX {
            if let Out::Blocked = self.write_out(turn)? {
                self.wait = Wait::No;
                return Ok(false);
            }
            if self.state != State::Open {
                return self.pass_end_on(turn);
            }
            if !self.unread.is_empty() {
                self.unsent = std::mem::take(&mut self.unread);
                see(&self.unsent);
                continue;
            }
            let mut buf = ReadBuf::new(&mut turn.scratch.input);
            match Pin::new(&mut *turn.from).poll_read(turn.cx, &mut buf) {
                Poll::Pending => {
                    self.drained = true;
                    self.rest(turn);
                    self.release();
                    return Ok(false);
                }
                Poll::Ready(Err(e)) => return Err(Fault::Read(e)),
                Poll::Ready(Ok(())) => {}
            }
            let n = buf.filled().len();
            if n == 0 {
                self.state = State::Ending;
                continue;
            }
            let cut = see(&turn.scratch.input[..n]);
            self.count(n, cut);
            self.wait = Wait::Begins;
            let sent = write_some(turn.cx, turn.to, &turn.scratch.input[..n])?;
            self.unflushed = turn.to.is_tls();
            if sent < n {
                self.unsent.extend_from_slice(&turn.scratch.input[sent..n]);
            }
        }
        Ok(again(turn))
    }

    /// The source is empty: it wakes this flow for much from now on, or for anything.
    fn rest(&mut self, turn: &Turn<'_, '_>) {
        self.gather.rest(turn.from);
        if !self.gather.is_on() {
            self.wait = Wait::No;
        } else if self.wait == Wait::No {
            self.wait = Wait::Begins;
        }
    }

    /// What waited before this turn goes on waiting unless something moves.
    fn begin_turn(&mut self, turn: &Turn<'_, '_>, due: bool) {
        if due {
            self.gather.end(turn.from);
        }
        if self.wait == Wait::Begins {
            self.wait = Wait::GoesOn;
        }
    }

    /// Bytes were read; `cut` when they end inside a message.
    fn count(&mut self, size: usize, cut: bool) {
        self.total += size as u64;
        self.gather.count(size, cut);
    }

    /// Plain side to wire side.
    pub(super) fn compress(
        &mut self,
        turn: &mut Turn<'_, '_>,
        link: &mut Link,
        hold_due: bool,
        see: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Fault> {
        let ended = self.compress_rounds(turn, link, hold_due, see);
        give_buffer_back(turn, link);
        ended
    }

    fn compress_rounds(
        &mut self,
        turn: &mut Turn<'_, '_>,
        link: &mut Link,
        hold_due: bool,
        mut see: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Fault> {
        if !self.unread.is_empty() {
            see(&self.unread);
            link.plain_buffer().append(&mut self.unread);
            self.unread = Vec::new();
        }
        self.begin_turn(turn, hold_due);
        let mut frames = 0;
        let mut flush = Flush::No;
        for _ in 0..ROUNDS_MAX {
            if let Out::Blocked = self.write_out(turn)? {
                self.wait = Wait::No;
                return Ok(false);
            }
            if self.state == State::Open && !self.full {
                // Only a source that was found empty will wake this task: whatever came has to be read on from.
                flush = match read_plain(turn, link, &mut see)? {
                    Source::More { size, cut } => {
                        self.count(size, cut);
                        Flush::No
                    }
                    Source::Blocked if hold_due => Flush::Force,
                    Source::Blocked => Flush::Idle,
                    Source::End => {
                        self.state = State::Ending;
                        Flush::End
                    }
                };
            }
            if self.state != State::Open {
                flush = Flush::End;
            }
            let done = link.pump(flush, &mut turn.scratch.output).map_err(Fault::Engine)?;
            frames += done.frames;
            self.full = done.held == Held::OutputFull;
            self.write_output(turn)?;
            if self.full || flush == Flush::No {
                continue;
            }
            if let Out::Blocked = self.write_out(turn)? {
                self.wait = Wait::No;
                return Ok(false);
            }
            if self.state == State::Open {
                let went_on = self.wait == Wait::GoesOn && frames == 0;
                self.rest(turn);
                self.wait = match self.gather.is_on() || done.held == Held::PartOfMessage {
                    false => Wait::No,
                    true if went_on => Wait::GoesOn,
                    true => Wait::Begins,
                };
                self.release();
                return Ok(false);
            }
            return self.pass_end_on(turn);
        }
        Ok(again(turn))
    }

    /// Wire side to plain side.
    pub(super) fn expand(
        &mut self,
        turn: &mut Turn<'_, '_>,
        link: &mut Link,
        mut see: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Fault> {
        for _ in 0..ROUNDS_MAX {
            while link.wants_output_room() || self.unread_at < self.unread.len() {
                if let Out::Blocked = self.write_out(turn)? {
                    return Ok(false);
                }
                self.unread_at += link
                    .handle_wire(&self.unread[self.unread_at..], &mut turn.scratch.output)
                    .map_err(Fault::Engine)?;
                see(&turn.scratch.output);
                self.write_output(turn)?;
            }
            self.unread.clear();
            self.unread_at = 0;
            if let Out::Blocked = self.write_out(turn)? {
                return Ok(false);
            }
            if self.state != State::Open {
                return self.pass_end_on(turn);
            }
            let mut buf = ReadBuf::new(&mut turn.scratch.input);
            match Pin::new(&mut *turn.from).poll_read(turn.cx, &mut buf) {
                Poll::Pending => {
                    self.release();
                    return Ok(false);
                }
                Poll::Ready(Err(e)) => return Err(Fault::Read(e)),
                Poll::Ready(Ok(())) => {}
            }
            let n = buf.filled().len();
            if n == 0 {
                self.state = State::Ending;
                continue;
            }
            self.total += n as u64;
            self.expand_input(turn, link, n, &mut see)?;
        }
        Ok(again(turn))
    }

    /// Decodes what was just read, while the destination takes it; keeps the rest.
    fn expand_input(
        &mut self,
        turn: &mut Turn<'_, '_>,
        link: &mut Link,
        size: usize,
        see: &mut impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Fault> {
        let mut used = 0;
        while used < size && self.unsent.is_empty() {
            let Scratch { input, output, .. } = &mut *turn.scratch;
            used += link.handle_wire(&input[used..size], output).map_err(Fault::Engine)?;
            see(output);
            self.write_output(turn)?;
        }
        self.unread.extend_from_slice(&turn.scratch.input[used..size]);
        Ok(())
    }

    /// Writes the engine's output; what does not go is kept.
    fn write_output(&mut self, turn: &mut Turn<'_, '_>) -> Result<(), Fault> {
        let output = &mut turn.scratch.output;
        if output.is_empty() {
            return Ok(());
        }
        let sent = if self.unsent.is_empty() { write_some(turn.cx, turn.to, output)? } else { 0 };
        self.unflushed = turn.to.is_tls();
        self.unsent.extend_from_slice(&output[sent..]);
        output.clear();
        Ok(())
    }

    /// Writes and flushes what is left over from before.
    fn write_out(&mut self, turn: &mut Turn<'_, '_>) -> Result<Out, Fault> {
        if self.sent < self.unsent.len() {
            self.sent += write_some(turn.cx, turn.to, &self.unsent[self.sent..])?;
            self.unflushed |= turn.to.is_tls();
            if self.sent < self.unsent.len() {
                return Ok(Out::Blocked);
            }
        }
        self.unsent.clear();
        self.sent = 0;
        if self.unflushed {
            match Pin::new(&mut *turn.to).poll_flush(turn.cx) {
                Poll::Pending => return Ok(Out::Blocked),
                Poll::Ready(Err(e)) => return Err(Fault::Write(e)),
                Poll::Ready(Ok(())) => self.unflushed = false,
            }
        }
        Ok(Out::Done)
    }

    fn pass_end_on(&mut self, turn: &mut Turn<'_, '_>) -> Result<bool, Fault> {
        if self.state == State::Ending {
            match Pin::new(&mut *turn.to).poll_shutdown(turn.cx) {
                Poll::Pending => return Ok(false),
                // A peer that is gone already has its end.
                Poll::Ready(_) => self.state = State::Ended,
            }
        }
        Ok(true)
    }
}

enum Source {
    /// Bytes came, and more may; `cut` when they end inside a message.
    More {
        size: usize,
        cut: bool,
    },
    Blocked,
    End,
}

/// Reads plain bytes straight into the link's buffer, which borrows this thread's while it is empty.
fn read_plain(
    turn: &mut Turn<'_, '_>,
    link: &mut Link,
    see: &mut impl FnMut(&[u8]) -> bool,
) -> Result<Source, Fault> {
    let room = link.plain_room();
    if room == 0 {
        return Ok(Source::More { size: 0, cut: true });
    }
    let buffer = link.plain_buffer();
    if buffer.is_empty() && buffer.capacity() < turn.scratch.plain.capacity() {
        std::mem::swap(buffer, &mut turn.scratch.plain);
    }
    let before = buffer.len();
    buffer.reserve(room);
    match poll_read_buf(Pin::new(&mut *turn.from), turn.cx, &mut buffer.limit(room)) {
        Poll::Pending => Ok(Source::Blocked),
        Poll::Ready(Err(e)) => Err(Fault::Read(e)),
        Poll::Ready(Ok(0)) => Ok(Source::End),
        Poll::Ready(Ok(n)) => {
            let cut = see(&buffer[before..]);
            Ok(Source::More { size: n, cut })
        }
    }
}

/// An empty buffer goes back to the thread.
fn give_buffer_back(turn: &mut Turn<'_, '_>, link: &mut Link) {
    let buffer = link.plain_buffer();
    if buffer.is_empty() && buffer.capacity() > turn.scratch.plain.capacity() {
        std::mem::swap(buffer, &mut turn.scratch.plain);
    }
}

fn write_some(cx: &mut Context<'_>, to: &mut Stream, bytes: &[u8]) -> Result<usize, Fault> {
    let mut sent = 0;
    while sent < bytes.len() {
        match Pin::new(&mut *to).poll_write(cx, &bytes[sent..]) {
            Poll::Pending => break,
            Poll::Ready(Ok(0)) => return Err(Fault::Write(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => sent += n,
            Poll::Ready(Err(e)) => return Err(Fault::Write(e)),
        }
    }
    Ok(sent)
}

/// Comes back later for what may still be there.
fn again(turn: &mut Turn<'_, '_>) -> bool {
    turn.cx.waker().wake_by_ref();
    false
}
