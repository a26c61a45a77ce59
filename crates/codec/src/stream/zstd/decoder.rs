//! Reads zstd frames one after the other, within a window limit and the caller's room.

use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, SafeResult, WriteBuf};

use super::super::Progress;
use super::{MAGIC, MEMORY, SKIPPABLE_MAGIC, encoder_error, is};
use crate::algorithm::Algorithm;
use crate::error::Error;
use crate::room::{Out, Room};

/// Magic number, descriptor, window, dictionary id and content size at their longest (RFC 8878, 3.1.1.1).
const HEADER_BYTES_MAX: usize = 18;
/// Magic number and size of a skippable frame (RFC 8878, 3.1.2).
const SKIPPABLE_HEADER_BYTES: usize = 8;
/// A context without its buffers: 96 KiB in zstd 1.5.
const CONTEXT_BYTES_MAX: usize = 112 << 10;
/// Blocks are no larger than the window and than this.
const BLOCK_BYTES_MAX: u64 = 128 << 10;

/// Where the next byte stands.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Place {
    /// It begins a frame, or goes on with a header of which `header` holds the first bytes.
    Header,
    /// zstd has the frame's header.
    Inside,
}

/// A decoder that gives zstd no frame header before its window is known to be allowed: zstd allocates the window as
/// soon as it has the header, however few bytes at a time that comes and whatever precedes it.
pub(crate) struct Decoder {
    /// None until the first frame and after `release`.
    context: Option<DCtx<'static>>,
    window_log_max: u32,
    /// Heap bytes that the context may come to.
    memory_max: usize,
    place: Place,
    /// The begin of a header that came in pieces, which zstd has not seen.
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    /// The last call filled its room, so zstd may hold decoded bytes back.
    held_back: bool,
    consumed_total: u64,
    failed: Option<Error>,
}

/// What came of looking at a frame's header.
enum Opening {
    /// So many bytes were taken, and more are needed.
    Incomplete(usize),
    /// The frame needs so much memory.
    Memory { taken: usize, bytes: usize },
    /// The header may go to zstd: from `header`, or from the input itself where it is there in one piece.
    Allowed { taken: usize },
}

impl Decoder {
    pub(crate) fn new(window_log_max: u32) -> Self {
        Decoder {
            context: None,
            window_log_max,
            memory_max: usize::MAX,
            place: Place::Header,
            header: [0; HEADER_BYTES_MAX],
            header_len: 0,
            held_back: false,
            consumed_total: 0,
            failed: None,
        }
    }

    pub(crate) fn decode(&mut self, input: &[u8], out: Out<'_>, out_room: usize) -> Result<Progress, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.run(input, out, out_room).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn run(&mut self, input: &[u8], mut out: Out<'_>, out_room: usize) -> Result<Progress, Error> {
        let mut progress = Progress::default();
        loop {
            let rest = &input[progress.consumed..];
            let room_left = out_room - progress.produced;
            progress.more_output = self.held_back || self.header_is_whole() || !rest.is_empty();
            // Not only for speed: zstd counts calls that cannot get anywhere and turns them into an error.
            if room_left == 0 || !progress.more_output {
                return Ok(progress);
            }
            if self.place == Place::Header {
                match self.open(rest)? {
                    Opening::Incomplete(taken) => {
                        progress.consumed += taken;
                        progress.more_output = false;
                        return Ok(progress);
                    }
                    Opening::Memory { taken, bytes } => {
                        progress.consumed += taken;
                        progress.wants_memory = Some(bytes);
                        return Ok(progress);
                    }
                    Opening::Allowed { taken } => {
                        progress.consumed += taken;
                        self.place = Place::Inside;
                    }
                }
                let (header, len) = (self.header, std::mem::take(&mut self.header_len));
                if len > 0 {
                    progress.produced += self.step(&header[..len], &mut out, room_left)?.1;
                    continue;
                }
            }
            let (consumed, produced) = self.step(&input[progress.consumed..], &mut out, room_left)?;
            progress.consumed += consumed;
            progress.produced += produced;
        }
    }

    pub(crate) fn restart(&mut self) {
        if let Some(context) = &mut self.context {
            // Resetting only the session cannot fail.
            let _ = context.reset(ResetDirective::SessionOnly);
        }
        (self.header_len, self.place, self.held_back) = (0, Place::Header, false);
        (self.consumed_total, self.failed) = (0, None);
    }

    pub(crate) fn allow_memory(&mut self, bytes: usize) {
        self.memory_max = bytes;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.sizeof())
    }

    pub(crate) fn at_frame_end(&self) -> bool {
        self.place == Place::Header && self.header_len == 0 && !self.held_back
    }

    pub(crate) fn release(&mut self) {
        self.context = None;
    }

    fn header_is_whole(&self) -> bool {
        self.header_len > 0 && self.kept_header() != Header::Incomplete
    }

    fn kept_header(&self) -> Header {
        header(&self.header[..self.header_len])
    }

    /// Looks at the header that `header` and `input` begin with.
    fn open(&mut self, input: &[u8]) -> Result<Opening, Error> {
        let mut taken = 0;
        let mut found = if self.header_len == 0 { header(input) } else { self.kept_header() };
        while found == Header::Incomplete && taken < input.len() {
            self.header[self.header_len] = input[taken];
            self.header_len += 1;
            taken += 1;
            found = self.kept_header();
        }
        let window = match found {
            Header::Incomplete => return Ok(Opening::Incomplete(taken)),
            Header::Unknown => {
                let detail = "no zstd frame begins here";
                return Err(Error::Corrupt {
                    algorithm: Algorithm::Zstd,
                    offset: self.consumed_total,
                    detail,
                });
            }
            Header::Skippable => 0,
            Header::Frame { window } => window,
        };
        let allowed = 1u64 << self.window_log_max;
        if window > allowed {
            return Err(Error::Limit { what: "zstd window size", found: window, allowed });
        }
        let bytes = memory_for(window).max(self.memory_bytes());
        if bytes > self.memory_max {
            return Ok(Opening::Memory { taken, bytes });
        }
        Ok(Opening::Allowed { taken })
    }

    /// Decodes once, into a bounded step of the room; says how much was taken and given.
    fn step(&mut self, input: &[u8], out: &mut Out<'_>, room: usize) -> Result<(usize, usize), Error> {
        let context = match &mut self.context {
            Some(context) => context,
            empty => empty.insert(new_context(self.window_log_max)?),
        };
        let (result, consumed, produced, full) = match out {
            Out::Vec(vec) => step(context, input, &mut Room::step(vec, room)),
            Out::Slice(slice) => step(context, input, &mut slice[..room]),
        };
        let hint = result.map_err(|code| self.decoder_error(code))?;
        out.filled(produced);
        self.consumed_total += consumed as u64;
        self.place = if hint == 0 { Place::Header } else { Place::Inside };
        self.held_back = full && hint != 0;
        if consumed == 0 && produced == 0 && !input.is_empty() {
            let detail = "no progress";
            return Err(Error::Corrupt { algorithm: Algorithm::Zstd, offset: self.consumed_total, detail });
        }
        Ok((consumed, produced))
    }

    fn decoder_error(&self, code: usize) -> Error {
        if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
            return MEMORY;
        }
        let detail = zstd_safe::get_error_name(code);
        Error::Corrupt { algorithm: Algorithm::Zstd, offset: self.consumed_total, detail }
    }
}

/// Decodes once; gives zstd's hint, the bytes taken and given, and whether `room` is full.
fn step(
    context: &mut DCtx<'_>,
    input: &[u8],
    room: &mut (impl WriteBuf + ?Sized),
) -> (SafeResult, usize, usize, bool) {
    let (mut output, mut source) = (OutBuffer::around(room), InBuffer::around(input));
    let result = context.decompress_stream(&mut output, &mut source);
    (result, source.pos, output.pos(), output.pos() == output.capacity())
}

/// What some bytes at the begin of a frame say (RFC 8878, 3.1).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Header {
    /// More of them are needed.
    Incomplete,
    /// A whole header.
    Frame { window: u64 },
    /// A whole header of a frame to be skipped.
    Skippable,
    /// Neither.
    Unknown,
}

fn header(bytes: &[u8]) -> Header {
    if bytes.is_empty() {
        return Header::Incomplete;
    }
    let skippable = bytes[0] & 0xf0 == SKIPPABLE_MAGIC[0];
    let magic = if skippable { SKIPPABLE_MAGIC } else { MAGIC };
    let seen = bytes.len().min(magic.len());
    if !skippable && bytes[0] != magic[0] || bytes[1..seen] != magic[1..seen] {
        return Header::Unknown;
    }
    if skippable {
        return if bytes.len() < SKIPPABLE_HEADER_BYTES { Header::Incomplete } else { Header::Skippable };
    }
    let Some(&descriptor) = bytes.get(MAGIC.len()) else { return Header::Incomplete };
    let single_segment = descriptor & 0x20 != 0;
    let window_bytes = usize::from(!single_segment);
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = match descriptor >> 6 {
        0 => usize::from(single_segment),
        flag => 1 << flag,
    };
    let size_at = MAGIC.len() + 1 + window_bytes + dictionary_bytes;
    let Some(size) = bytes.get(size_at..size_at + size_bytes) else { return Header::Incomplete };
    if !single_segment {
        let byte = u64::from(bytes[MAGIC.len() + 1]);
        let base = 1u64 << (10 + (byte >> 3));
        return Header::Frame { window: base + (base >> 3) * (byte & 7) };
    }
    // The window is the content.
    let value = size.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    Header::Frame { window: if size_bytes == 2 { value + 256 } else { value } }
}

/// Heap bytes that a context has at most while it reads a frame of this window: itself, a block of input, and what
/// ZSTD_decodingBufferSize_internal asks for.
fn memory_for(window: u64) -> usize {
    const SLACK_BYTES: u64 = 64;
    let window = window.max(1 << 10);
    let block = window.min(BLOCK_BYTES_MAX);
    CONTEXT_BYTES_MAX + (window + 3 * block + SLACK_BYTES) as usize
}

fn new_context(window_log_max: u32) -> Result<DCtx<'static>, Error> {
    let mut context = DCtx::try_create().ok_or(MEMORY)?;
    context.set_parameter(DParameter::WindowLogMax(window_log_max)).map_err(encoder_error)?;
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame's header and an empty block that leaves the frame open.
    fn open_frame(descriptor: u8, fields: &[u8]) -> Vec<u8> {
        [&MAGIC[..], &[descriptor], fields, &[0, 0, 0]].concat()
    }

    #[test]
    fn a_context_never_holds_more_than_was_asked_for_its_frame() {
        for window_byte in (0..=(23 - 10) << 3).chain([3, 7, 77]) {
            let mut decoder = Decoder::new(23);
            let frame = open_frame(0, &[window_byte]);
            decoder.decode(&frame, Out::Vec(&mut Vec::new()), 1000).unwrap();
            let Header::Frame { window } = header(&frame) else { panic!("{window_byte}") };
            let (held, promised) = (decoder.memory_bytes(), memory_for(window));
            assert!(held <= promised, "window of {window}: {held} held, {promised} promised");
            assert!(held + (64 << 10) > promised, "window of {window}: {held} held, {promised} promised");
        }
    }

    #[test]
    fn headers_of_all_shapes_are_read_as_zstd_reads_them() {
        for (descriptor, fields, window) in [
            (0x00, &[0x51][..], (1 << 20) + (1 << 17)),
            (0x20, &[9], 9),
            (0x60, &[1, 0], 257),
            (0xa0, &[0, 0, 1, 0], 1 << 16),
            (0xe0, &[0, 0, 0, 0, 1, 0, 0, 0], 1 << 32),
            (0x41, &[0, 7, 1, 0], 1 << 10),
            (0x23, &[1, 2, 3, 4, 200], 200),
        ] {
            let frame = open_frame(descriptor, fields);
            let size = MAGIC.len() + 1 + fields.len();
            assert_eq!(header(&frame[..size]), Header::Frame { window }, "{descriptor:x}");
            for len in 0..size {
                assert_eq!(header(&frame[..len]), Header::Incomplete, "{descriptor:x}, {len} bytes");
            }
        }
        assert_eq!(header(&[0x5a, 0x2a, 0x4d, 0x18, 1, 0, 0]), Header::Incomplete);
        assert_eq!(header(&[0x5a, 0x2a, 0x4d, 0x18, 1, 0, 0, 0]), Header::Skippable);
        for other in [&b"x"[..], &[0x28, 0xb5, 0x2e], &[0x50, 0x2a, 0x4e], &[0x27, 0xb5, 0x2f, 0xfd]] {
            assert_eq!(header(other), Header::Unknown);
        }
    }
}
