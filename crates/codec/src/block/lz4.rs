//! Single LZ4 blocks, alone or with a dictionary.
#![allow(unsafe_code)]

use crate::algorithm::{Algorithm, Level};
use crate::dictionary::Dictionary;
use crate::error::Error;
use crate::lz4::{self, Stream};

use super::corrupt;

pub(super) struct Compressor {
    stream: Box<Stream>,
    /// The dictionary used last and its table.
    prepared: Option<(Dictionary, Box<Stream>)>,
}

impl Default for Compressor {
    fn default() -> Self {
        Compressor { stream: Stream::new(), prepared: None }
    }
}

impl Compressor {
    pub(super) fn compress(
        &mut self,
        level: Level,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let done = match dictionary {
            None => self.stream.compress_alone(input, out, level.0),
            Some(dictionary) => {
                let prepared = prepare(&mut self.prepared, dictionary);
                // SAFETY: the prepared table and its dictionary outlive this call, the input does too, and after
                // the reset nothing remembers them.
                unsafe {
                    self.stream.attach(prepared);
                    let done = self.stream.compress_continue(input, out, level.0);
                    self.stream.reset();
                    done
                }
            }
        };
        if done { Ok(()) } else { Err(Error::Unsupported { algorithm: Algorithm::Lz4, what: "this block" }) }
    }
}

pub(super) fn decompress(
    dictionary: Option<&Dictionary>,
    input: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    out.reserve(raw_len);
    let target = &mut out.spare_capacity_mut()[..raw_len];
    let history = dictionary.map_or(&[][..], Dictionary::bytes);
    let written = lz4::decompress(input, target, history)
        .ok_or_else(|| corrupt(Algorithm::Lz4, "malformed, or longer than the promised size"))?;
    // SAFETY: LZ4 has written that many bytes of the target.
    unsafe { out.set_len(out.len() + written) };
    Ok(())
}

fn prepare<'a>(slot: &'a mut Option<(Dictionary, Box<Stream>)>, dictionary: &Dictionary) -> &'a Stream {
    if !matches!(slot, Some((known, _)) if known == dictionary) {
        *slot = None;
    }
    let (_, stream) = slot.get_or_insert_with(|| {
        let (dictionary, mut stream) = (dictionary.clone(), Stream::new());
        // SAFETY: the bytes are immutable, on the heap, and kept alive beside the stream.
        unsafe { stream.load(dictionary.bytes(), true) };
        (dictionary, stream)
    });
    stream
}
