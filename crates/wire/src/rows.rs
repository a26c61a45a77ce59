//! Packed rows: what a frame carries when both ends are pgshrink's.
//!
//! PostgreSQL puts 5 bytes before each line of a COPY and 7 before each row of a result, with 4 more per column. The lengths in them
//! vary from row to row, cost the codec 3 to 25 % of what real tables compress to, and follow from the text: a line ends with a line feed,
//! a column in text form contains no zero byte. So a run of such rows travels without them.
//!
//! ```text
//!   0x01 | u24 size | lines                          COPY data, one line per message
//!   0x02 | u24 size | u16 columns | columns          result rows; a column is its text and 00, NULL is 01 00
//!   anything else: a message as it is
//! ```
//! `size` counts what follows it. No message type is below 0x20.
//!
//! Invariants
//! * R1 `unpack(pack(messages)) == messages` for any messages of types from 0x20 on (the sender keeps others out of frames):
//!   what is not exactly such a row stays a message.
//! * R2 Packed is never longer than the messages.
//! * R3 A run lies in one frame, so frames that can be read on their own stay so.
//! * R4 One run gives at most eleven times its bytes (rows of one empty column); a run longer than [`RUN_SIZE_MAX`] is refused
//!   before it is waited for.
//!
//! Format: `formats/wire.md`.

use memchr::memchr;

use crate::error::Error;
use crate::message::{HEADER_SIZE, MESSAGE_SIZE_MAX, tag};
use crate::walk::{Found, message_at};

const LINES: u8 = 1;
const COLUMNS: u8 = 2;
const NULL: &[u8] = &[1];
const COLUMN_END: u8 = 0;
/// Marker and size.
const RUN_HEADER_SIZE: usize = 4;
/// Bytes in one run at most.
pub(crate) const RUN_SIZE_MAX: usize = 64 << 10;
/// Fewer rows are not worth their marker.
const RUN_ROWS_MIN: usize = 3;

/// Appends `messages` with their runs of rows packed. The first `skip` bytes belong to a message begun before; the last message may be
/// cut.
pub(crate) fn pack(messages: &[u8], skip: usize, out: &mut Vec<u8>) {
    let (mut at, mut copied) = (skip, 0);
    while let Some(found) = whole(messages, at) {
        let run = match found.tag {
            tag::COPY_DATA => Run::lines(messages, at, out, copied),
            tag::DATA_ROW => Run::columns(messages, at, out, copied),
            _ => None,
        };
        match run {
            Some(run) if run.packed => {
                at = run.end;
                copied = at;
            }
            // What was looked at is not looked at again.
            Some(run) => at = run.end,
            None => at += found.total,
        }
    }
    out.extend_from_slice(&messages[copied..]);
}

struct Whole<'a> {
    tag: u8,
    total: usize,
    body: &'a [u8],
}

/// The message at `at`, if all of it is there.
fn whole(messages: &[u8], at: usize) -> Option<Whole<'_>> {
    let Found { header, body } = message_at(messages, at).ok()??;
    Some(Whole { tag: header.tag, total: header.total(), body: body? })
}

/// A run that was tried at some place of the messages.
struct Run {
    /// Behind the last message looked at.
    end: usize,
    packed: bool,
}

impl Run {
    fn lines(messages: &[u8], at: usize, out: &mut Vec<u8>, copied: usize) -> Option<Run> {
        Self::collect(messages, at, out, copied, &[LINES], |row, out| {
            let line = row.tag == tag::COPY_DATA
                && memchr(b'\n', row.body).is_some_and(|at| at + 1 == row.body.len());
            if line {
                out.extend_from_slice(row.body);
            }
            line
        })
    }

    fn columns(messages: &[u8], at: usize, out: &mut Vec<u8>, copied: usize) -> Option<Run> {
        let count = *whole(messages, at)?.body.first_chunk::<2>()?;
        if count == [0, 0] {
            return None;
        }
        Self::collect(messages, at, out, copied, &[COLUMNS, count[0], count[1]], |row, out| {
            row.tag == tag::DATA_ROW && row.body.starts_with(&count) && put_columns(row.body, out)
        })
    }

    /// Puts what is not copied yet before `at` and a run of the messages from there that `put` takes; the run is taken back
    /// when it is too short. `None` when the first message is no row.
    fn collect(
        messages: &[u8],
        at: usize,
        out: &mut Vec<u8>,
        copied: usize,
        head: &[u8],
        mut put: impl FnMut(&Whole<'_>, &mut Vec<u8>) -> bool,
    ) -> Option<Run> {
        let base = out.len();
        out.extend_from_slice(&messages[copied..at]);
        let start = out.len();
        out.extend_from_slice(&[head[0], 0, 0, 0]);
        out.extend_from_slice(&head[1..]);
        let (mut end, mut rows) = (at, 0);
        while let Some(row) = whole(messages, end) {
            let before = out.len();
            // A row is never longer packed than in its message.
            if before - start - RUN_HEADER_SIZE + row.total > RUN_SIZE_MAX || !put(&row, out) {
                out.truncate(before);
                break;
            }
            end += row.total;
            rows += 1;
        }
        let packed = rows >= RUN_ROWS_MIN;
        if packed {
            let size = (out.len() - start - RUN_HEADER_SIZE) as u32;
            out[start + 1..start + RUN_HEADER_SIZE].copy_from_slice(&size.to_be_bytes()[1..]);
        } else {
            out.truncate(base);
        }
        (rows > 0).then_some(Run { end, packed })
    }
}

/// Puts a row's columns; false when the row has another form, with some of them already in `out`.
fn put_columns(body: &[u8], out: &mut Vec<u8>) -> bool {
    let Some((&count, mut rest)) = body.split_first_chunk::<2>() else { return false };
    let count = usize::from(u16::from_be_bytes(count));
    let before = out.len();
    for _ in 0..count {
        let Some((&length, behind)) = rest.split_first_chunk::<4>() else { return false };
        rest = behind;
        if length == [0xff; 4] {
            out.extend_from_slice(NULL);
        } else {
            let Some((column, behind)) = rest.split_at_checked(u32::from_be_bytes(length) as usize) else {
                return false;
            };
            if column == NULL {
                return false;
            }
            out.extend_from_slice(column);
            rest = behind;
        }
        out.push(COLUMN_END);
    }
    // As many zero bytes as columns: none is inside a column.
    rest.is_empty() && memchr::memchr_iter(COLUMN_END, &out[before..]).count() == count
}

/// Packed bytes in pieces, messages out.
#[derive(Debug, Default)]
pub(crate) struct Unpacker {
    /// Bytes that came; those before `at` are done.
    packed: Vec<u8>,
    at: usize,
    /// Bytes left of a message that travels as it is.
    left: usize,
    /// Stopped for want of room.
    full: bool,
}

impl Unpacker {
    /// Where packed bytes are appended.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.packed
    }

    /// True when `unpack` has something to give without more input.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// True when nothing waits for more input.
    pub(crate) fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.packed.capacity()
    }

    pub(crate) fn release(&mut self) {
        if self.packed.is_empty() {
            self.packed = Vec::new();
        }
    }

    /// Appends messages to `out` until its size passes `out_max`, by one run at most.
    pub(crate) fn unpack(&mut self, out: &mut Vec<u8>, out_max: usize) -> Result<(), Error> {
        self.full = false;
        while self.at < self.packed.len() {
            if out.len() >= out_max {
                self.full = true;
                return Ok(());
            }
            let here = &self.packed[self.at..];
            if self.left > 0 {
                let n = self.left.min(here.len());
                out.extend_from_slice(&here[..n]);
                self.left -= n;
                self.at += n;
                continue;
            }
            match here[0] {
                LINES | COLUMNS => {
                    let Some((&[kind, a, b, c], body)) = here.split_first_chunk::<RUN_HEADER_SIZE>() else {
                        break;
                    };
                    let size = u32::from_be_bytes([0, a, b, c]) as usize;
                    if size > RUN_SIZE_MAX {
                        return Err(Error::Limit {
                            what: "size of a run of packed rows",
                            allowed: RUN_SIZE_MAX as u64,
                            found: size as u64,
                        });
                    }
                    let Some(run) = body.get(..size) else { break };
                    if kind == LINES {
                        give_lines(run, out)?
                    } else {
                        give_rows(run, out)?
                    }
                    self.at += RUN_HEADER_SIZE + size;
                }
                _ => match message_at(here, 0)? {
                    Some(found) => self.left = found.header.total(),
                    None => break,
                },
            }
        }
        self.packed.drain(..self.at);
        self.at = 0;
        Ok(())
    }
}

fn give_lines(mut run: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    while !run.is_empty() {
        let Some(end) = memchr(b'\n', run) else {
            return Err(Error::protocol("packed rows", "a line feed at the end of a run of lines", "none"));
        };
        let (line, rest) = run.split_at(end + 1);
        out.push(tag::COPY_DATA);
        out.extend_from_slice(&(line.len() as u32 + 4).to_be_bytes());
        out.extend_from_slice(line);
        run = rest;
    }
    Ok(())
}

fn give_rows(run: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let wrong = |found: &str| Error::protocol("packed rows", "complete rows of at least one column", found);
    let Some((&count, mut run)) = run.split_first_chunk::<2>() else {
        return Err(wrong("a run without a column count"));
    };
    let columns = u16::from_be_bytes(count);
    if columns == 0 {
        return Err(wrong("a column count of 0"));
    }
    while !run.is_empty() {
        let start = out.len();
        out.extend_from_slice(&[tag::DATA_ROW, 0, 0, 0, 0, count[0], count[1]]);
        for _ in 0..columns {
            let Some(end) = memchr(COLUMN_END, run) else { return Err(wrong("a row that ends early")) };
            let column = &run[..end];
            if column == NULL {
                out.extend_from_slice(&[0xff; 4]);
            } else {
                out.extend_from_slice(&(column.len() as u32).to_be_bytes());
                out.extend_from_slice(column);
            }
            run = &run[end + 1..];
        }
        // Bounded by the run's size: far below the largest message.
        let length = (out.len() - start - 1) as u32;
        debug_assert!(length <= MESSAGE_SIZE_MAX);
        out[start + 1..start + HEADER_SIZE].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{data_row, message};

    fn packed(messages: &[u8], skip: usize) -> Vec<u8> {
        let mut out = Vec::new();
        pack(messages, skip, &mut out);
        out
    }

    /// Unpacks in pieces of `piece` bytes, with room for little.
    fn unpacked(packed: &[u8], piece: usize) -> Result<Vec<u8>, Error> {
        let (mut unpacker, mut all) = (Unpacker::default(), Vec::new());
        for bytes in packed.chunks(piece) {
            unpacker.buffer().extend_from_slice(bytes);
            loop {
                let mut out = Vec::new();
                unpacker.unpack(&mut out, 100)?;
                all.append(&mut out);
                if !unpacker.is_full() {
                    break;
                }
            }
        }
        Ok(all)
    }

    fn comes_back(messages: &[u8]) -> Vec<u8> {
        let small = packed(messages, 0);
        assert!(small.len() <= messages.len());
        for piece in [1, 2, 3, 7, 1000, usize::MAX] {
            assert_eq!(unpacked(&small, piece).unwrap(), messages, "pieces of {piece}");
        }
        small
    }

    #[test]
    fn lines_and_rows_lose_their_headers() {
        let lines: Vec<u8> =
            ["a\tb\n", "\n", "c\td\n", "x\n"].iter().flat_map(|l| message(b'd', l.as_bytes())).collect();
        assert_eq!(comes_back(&lines), b"\x01\0\0\x0ba\tb\n\nc\td\nx\n");
        let rows = [data_row(&[Some("1"), None]), data_row(&[Some(""), Some("{}")]), data_row(&[None, None])]
            .concat();
        assert_eq!(comes_back(&rows), b"\x02\0\0\x0e\0\x021\0\x01\0\0{}\0\x01\0\x01\0");
        let session = [message(b'T', b"x"), rows, message(b'C', b"SELECT 3\0"), message(b'Z', b"I")].concat();
        assert!(comes_back(&session).len() < session.len());
    }

    #[test]
    fn what_is_not_exactly_such_a_row_stays_a_message() {
        let odd = [
            message(b'd', b"no line feed"),
            message(b'd', b"two\nlines\n"),
            message(b'd', b""),
            data_row(&[]),
            data_row(&[Some("\x01")]),
            data_row(&[Some("zero \0 byte")]),
            message(b'D', b"\0\x01\0\0\0\x09short"),
            message(b'D', b"\0\x01\0\0\0\x01xlong"),
            message(b'D', b"S\0"),
        ];
        for message in odd {
            assert_eq!(comes_back(&message.repeat(5)), message.repeat(5));
        }
        let mixed =
            [message(b'd', b"a\n").repeat(4), message(b'd', b"b"), data_row(&[Some("c")]).repeat(3)].concat();
        comes_back(&mixed);
    }

    #[test]
    fn cut_messages_at_both_ends_stay_as_they_are() {
        let lines = message(b'd', b"one line of text\n").repeat(20);
        for cut in 0..22 {
            let (head, rest) = lines.split_at(cut);
            let skip = (22 - cut) % 22;
            let tail = &rest[..rest.len() - 9];
            let mut stream = packed(head, 0);
            stream.extend(packed(tail, skip));
            stream.extend(packed(&rest[rest.len() - 9..], 9));
            assert_eq!(unpacked(&stream, 5).unwrap(), lines, "cut at {cut}");
        }
    }

    #[test]
    fn long_runs_are_split_and_hostile_ones_refused() {
        let many = message(b'd', &[b"x".repeat(1000), b"\n".to_vec()].concat()).repeat(200);
        comes_back(&many);
        for bad in [
            &b"\x01\x01\0\x01"[..],
            b"\x01\0\0\x02ab",
            b"\x02\0\0\x01\0",
            b"\x02\0\0\x03\0\0\0",
            b"\x02\0\0\x04\0\x02a\0",
            b"\x03\0\0\0\x02",
        ] {
            assert!(unpacked(bad, usize::MAX).is_err(), "{bad:?}");
        }
    }
}
