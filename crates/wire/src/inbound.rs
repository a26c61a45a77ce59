//! One direction of a link: frames and plain messages in, plain messages out.
//!
//! Owns the decoder, its memory lease and every check on what a peer sends.
//!
//! Invariants
//! * I1 A size is checked against its limit before anything is allocated for it, and a decoder's memory is taken from the
//!   budget before the decoder allocates it, however a frame's header is split and whatever precedes it. What is
//!   decoded and not unpacked yet is counted directly behind the step that decoded it.
//! * I2 What comes out is whole messages in order: a plain message inside one begun in a frame, a nested frame or an
//!   impossible length is an error, never passed on.
//! * I3 Output is bounded by the caller's room: a frame that expands a thousandfold is decoded piece by piece, and not
//!   beyond `frame_raw_max`.
//! * I4 After an error the direction is dead.

use std::sync::Arc;

use pgshrink_codec::stream::{Decoder, DecoderOptions, Progress};

use crate::budget::{Lease, MemoryBudget};
use crate::error::Error;
use crate::link::LinkConfig;
use crate::message::{self, Header, tag};
use crate::negotiate::{Agreed, Dialect};
use crate::rows::Unpacker;
use crate::stats::{Clock, CodecTimer, DirectionStats};
use crate::walk::PartialHeader;
use crate::watch::{Event, Sender, Walker};

/// lz4 blocks carry at most this much (restart dialect); older peers send 16 KiB.
const LZ4_BLOCK_RAW_MAX: usize = 64 << 10;
/// No encoder makes more of that: LZ4_COMPRESSBOUND of lz4.h.
const LZ4_BLOCK_WIRE_MAX: usize = LZ4_BLOCK_RAW_MAX + LZ4_BLOCK_RAW_MAX / 255 + 16;
/// Ack dialect: `k`, its length and an index.
const METHOD_LENGTH: u32 = 5;

#[derive(Debug)]
enum Wire {
    Header(PartialHeader),
    /// Bytes left of a plain message.
    Plain(usize),
    /// The index byte of a SetCompressionMethod.
    Method,
    /// The restart byte of a frame with this many bytes behind it.
    Restart(usize),
    /// Bytes left of a frame's payload, and what it has given.
    Frame {
        left: usize,
        raw: usize,
    },
}

impl Wire {
    fn header() -> Self {
        Self::Header(PartialHeader::default())
    }
}

/// What this direction takes from the budget.
#[derive(Debug)]
struct Held {
    /// The sum of both.
    lease: Lease,
    /// What the decoder is allowed.
    decoder_bytes: usize,
    /// The buffers' capacities.
    buffer_bytes: usize,
}

impl Held {
    fn set_decoder(&mut self, bytes: usize) -> Result<(), Error> {
        self.set(bytes, self.buffer_bytes)
    }

    fn set_buffers(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes == self.buffer_bytes {
            return Ok(());
        }
        self.set(self.decoder_bytes, bytes)
    }

    fn set(&mut self, decoder_bytes: usize, buffer_bytes: usize) -> Result<(), Error> {
        self.lease.resize((decoder_bytes + buffer_bytes) as u64)?;
        (self.decoder_bytes, self.buffer_bytes) = (decoder_bytes, buffer_bytes);
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Inbound {
    agreed: Agreed,
    config: Arc<LinkConfig>,
    held: Held,
    decoder: Option<Decoder>,
    /// The method in force.
    code: Option<u8>,
    wire: Wire,
    pub(crate) walker: Walker,
    /// Payload of a frame that has to be decoded at once.
    payload: Vec<u8>,
    /// The decoder holds more output than there was room for.
    more_output: bool,
    /// Decoded bytes in which rows are packed.
    unpacker: Unpacker,
    pub(crate) events: Vec<Event>,
    pub(crate) stats: DirectionStats,
    pub(crate) clock: Option<Clock>,
}

impl Inbound {
    pub(crate) fn new(
        sender: Sender,
        agreed: Agreed,
        config: Arc<LinkConfig>,
        budget: &MemoryBudget,
    ) -> Self {
        let nested: &'static [u8] = match agreed.dialect() {
            Dialect::Ack => &[tag::COMPRESSED_DATA, tag::SET_COMPRESSION_METHOD, tag::COMPRESSION_ACK],
            Dialect::Restart => &[tag::COMPRESSION_ACK],
        };
        Self {
            agreed,
            config,
            held: Held { lease: budget.lease(), decoder_bytes: 0, buffer_bytes: 0 },
            decoder: None,
            code: None,
            wire: Wire::header(),
            walker: Walker::new(sender, nested),
            payload: Vec::new(),
            more_output: false,
            unpacker: Unpacker::default(),
            events: Vec::new(),
            stats: DirectionStats::default(),
            clock: None,
        }
    }

    pub(crate) fn wants_output_room(&self) -> bool {
        self.more_output || self.unpacker.is_full()
    }

    /// True when the peer may close without cutting a message or a frame.
    pub(crate) fn at_boundary(&self) -> bool {
        matches!(&self.wire, Wire::Header(header) if header.is_empty())
            && self.walker.at_boundary()
            && !self.more_output
            && self.unpacker.is_empty()
    }

    /// True when what was given out so far ends with a message.
    pub(crate) fn is_between_messages(&self) -> bool {
        self.walker.at_boundary()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.held.lease.bytes() as usize
    }

    /// Plain bytes given out so far.
    pub(crate) fn given(&self) -> u64 {
        self.walker.fed()
    }

    /// Gives back what a quiet session does not need; what the peer may still refer to stays.
    pub(crate) fn release_idle(&mut self) {
        if self.payload.is_empty() {
            self.payload = Vec::new();
        }
        self.unpacker.release();
        if matches!(self.wire, Wire::Header(_))
            && let Some(decoder) = &mut self.decoder
        {
            decoder.release();
            // It asks again before it allocates.
            let _ = self.held.set_decoder(decoder.memory_bytes());
            decoder.allow_memory(self.held.decoder_bytes);
        }
        // Giving back never fails.
        let _ = self.count_buffers();
    }

    fn count_buffers(&mut self) -> Result<(), Error> {
        self.held.set_buffers(self.payload.capacity() + self.unpacker.memory_bytes())
    }

    pub(crate) fn handle_wire(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        let before = out.len();
        let mut used = 0;
        while (used < input.len() || self.wants_output_room()) && out.len() < self.config.limits.out_max {
            let from = out.len();
            if self.unpacker.is_full() {
                self.unpack(out)?;
            } else {
                used += self.step(&input[used..], out)?;
            }
            self.walker.feed(&out[from..], &mut self.events)?;
        }
        self.stats.wire_bytes += used as u64;
        self.stats.raw_bytes += (out.len() - before) as u64;
        Ok(used)
    }

    /// Handles one piece of input; returns how much of it.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        match &mut self.wire {
            Wire::Header(partial) => {
                let (used, whole) = partial.read(input)?;
                if let Some((header, bytes)) = whole {
                    self.begin(header, &bytes, out)?;
                }
                Ok(used)
            }
            Wire::Plain(left) => {
                let n = (*left).min(input.len());
                out.extend_from_slice(&input[..n]);
                *left -= n;
                if *left == 0 {
                    self.wire = Wire::header();
                }
                Ok(n)
            }
            Wire::Method => {
                self.select(input[0])?;
                self.wire = Wire::header();
                Ok(1)
            }
            Wire::Restart(left) => {
                let left = *left;
                self.restart(input[0])?;
                self.begin_payload(left)?;
                Ok(1)
            }
            Wire::Frame { .. } => self.decode(input, out),
        }
    }

    fn begin(&mut self, header: Header, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let body = header.body_size();
        match (self.agreed.dialect(), header.tag) {
            (Dialect::Ack, tag::SET_COMPRESSION_METHOD) => {
                if header.length != METHOD_LENGTH {
                    return Err(Error::protocol(
                        "SetCompressionMethod",
                        "a length of 5",
                        format!("a length of {}", header.length),
                    ));
                }
                self.wire = Wire::Method;
            }
            (Dialect::Ack, tag::COMPRESSED_DATA) => {
                self.check_frame(body)?;
                if self.code.is_none() {
                    return Err(Error::protocol(
                        "CompressedData",
                        "a SetCompressionMethod before it",
                        "none",
                    ));
                }
                self.begin_payload(body)?;
                self.stats.frames += 1;
            }
            (Dialect::Restart, tag::COMPRESSION_ACK) => {
                self.check_frame(body)?;
                if body == 0 {
                    return Err(Error::protocol("compressed frame", "a restart byte", "an empty frame"));
                }
                self.wire = Wire::Restart(body - 1);
                self.stats.frames += 1;
            }
            _ if !self.walker.at_boundary() || !self.unpacker.is_empty() => {
                return Err(Error::protocol(
                    "plain message",
                    "the rest of a message that started in a compressed frame",
                    format!("a message of type {}", message::printable(header.tag)),
                ));
            }
            _ => {
                out.extend_from_slice(bytes);
                self.wire = if body == 0 { Wire::header() } else { Wire::Plain(body) };
            }
        }
        Ok(())
    }

    fn check_frame(&self, body: usize) -> Result<(), Error> {
        let allowed = self.config.limits.frame_wire_max;
        if body > allowed {
            return Err(Error::Limit {
                what: "compressed frame size",
                allowed: allowed as u64,
                found: body as u64,
            });
        }
        Ok(())
    }

    /// A frame's payload of so many bytes follows, for the decoder that is chosen.
    fn begin_payload(&mut self, size: usize) -> Result<(), Error> {
        let whole = self.decoder.as_ref().is_some_and(Decoder::needs_whole_payload);
        if whole && size > LZ4_BLOCK_WIRE_MAX {
            return Err(Error::Limit {
                what: "size of an lz4 block",
                allowed: LZ4_BLOCK_WIRE_MAX as u64,
                found: size as u64,
            });
        }
        self.wire = if size == 0 { Wire::header() } else { Wire::Frame { left: size, raw: 0 } };
        Ok(())
    }

    /// Ack dialect: a changed index begins a new stream, the same one changes nothing.
    fn select(&mut self, code: u8) -> Result<(), Error> {
        if self.code == Some(code) {
            return Ok(());
        }
        self.new_stream(code)
    }

    /// Restart dialect: zero continues, anything else begins a new stream.
    fn restart(&mut self, code: u8) -> Result<(), Error> {
        match (code, self.code) {
            (0, Some(_)) => Ok(()),
            (0, None) => Err(Error::protocol(
                "compressed frame",
                "a restart byte that names an algorithm",
                "0 in the first frame",
            )),
            _ => self.new_stream(code),
        }
    }

    fn new_stream(&mut self, code: u8) -> Result<(), Error> {
        let Some(algorithm) = self.agreed.algorithm_of_code(code) else {
            return Err(Error::protocol(
                "compression method",
                format!("one of the agreed {}", self.agreed.receive_text()),
                format!("method {code}"),
            ));
        };
        match &mut self.decoder {
            Some(decoder) if self.code == Some(code) => decoder.restart(),
            _ => {
                self.decoder = None;
                self.held.set_decoder(0)?;
                let decoder = Decoder::new(DecoderOptions {
                    algorithm,
                    window_log_max: self.config.limits.window_log_max,
                    block_raw_max: LZ4_BLOCK_RAW_MAX.min(self.config.limits.frame_raw_max),
                });
                let mut decoder =
                    decoder.map_err(|source| Error::Codec { what: "making a decoder", source })?;
                decoder.allow_memory(0);
                self.decoder = Some(decoder);
                self.code = Some(code);
            }
        }
        Ok(())
    }

    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        let Wire::Frame { left, raw } = self.wire else { return Ok(0) };
        let Some(decoder) = &mut self.decoder else { return Ok(0) };
        let n = left.min(input.len());
        let packs = self.agreed.packs_rows();
        let unpacker_bytes = self.unpacker.memory_bytes();
        let target = if packs { self.unpacker.buffer() } else { &mut *out };
        let from = target.len();
        let timer = CodecTimer::start(self.clock, n, self.stats.frames);
        let mut consumed = n;
        if decoder.needs_whole_payload() {
            let whole = if n == left && self.payload.is_empty() {
                Some(&input[..n])
            } else {
                if self.payload.capacity() < self.payload.len() + left {
                    self.held.set_buffers(self.payload.len() + left + unpacker_bytes)?;
                    self.payload.reserve_exact(left);
                }
                self.payload.extend_from_slice(&input[..n]);
                (n == left).then_some(self.payload.as_slice())
            };
            if let Some(payload) = whole {
                let room = self.config.limits.frame_raw_max;
                run(decoder, &mut self.held, payload, target, room)?;
                self.payload.clear();
            }
        } else {
            let room = self.config.limits.out_max.saturating_sub(from).max(1);
            let room = room.min(self.config.limits.frame_raw_max - raw + 1);
            let progress = run(decoder, &mut self.held, &input[..n], target, room)?;
            consumed = progress.consumed;
            self.more_output = progress.more_output;
        }
        let produced = target.len() - from;
        if packs {
            self.count_buffers()?;
            self.unpack(out)?;
        } else {
            self.stats.framed_raw_bytes += produced as u64;
        }
        self.stats.codec_ns += timer.stop();
        let raw = raw + produced;
        let allowed = self.config.limits.frame_raw_max;
        if raw > allowed {
            return Err(Error::Limit {
                what: "expansion of a compressed frame",
                allowed: allowed as u64,
                found: raw as u64,
            });
        }
        let left = left - consumed;
        if left > 0 || self.more_output {
            self.wire = Wire::Frame { left, raw };
            return Ok(consumed);
        }
        self.wire = Wire::header();
        if raw == 0 {
            self.peer_is_quiet();
        }
        Ok(consumed)
    }

    /// After a frame without output: the peer refers to nothing before any more. zstd's end of a frame and the begin of a stream say so
    /// to everybody, an empty frame of the ack dialect to those that have agreed on it.
    fn peer_is_quiet(&mut self) {
        let Some(decoder) = &mut self.decoder else { return };
        let agreed = self.agreed.dialect() == Dialect::Ack && self.agreed.takes_frame_ends();
        if agreed {
            decoder.forget();
        }
        if agreed || decoder.at_frame_end() {
            self.release_idle();
        }
    }

    fn unpack(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        let from = out.len();
        self.unpacker.unpack(out, self.config.limits.out_max)?;
        self.stats.framed_raw_bytes += (out.len() - from) as u64;
        Ok(())
    }
}

/// Decodes, and takes from the budget what the decoder asks for before it allocates.
fn run(
    decoder: &mut Decoder,
    held: &mut Held,
    input: &[u8],
    out: &mut Vec<u8>,
    room: usize,
) -> Result<Progress, Error> {
    let mut sum = Progress::default();
    loop {
        let progress = decoder
            .decode(&input[sum.consumed..], out, room - sum.produced)
            .map_err(|source| Error::Codec { what: "decompressing", source })?;
        sum.consumed += progress.consumed;
        sum.produced += progress.produced;
        sum.more_output = progress.more_output;
        let Some(bytes) = progress.wants_memory else { return Ok(sum) };
        held.set_decoder(bytes)?;
        decoder.allow_memory(bytes);
    }
}
