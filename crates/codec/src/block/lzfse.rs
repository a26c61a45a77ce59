//! LZFSE through its ring decoder, whose memory does not depend on what the input declares.

use std::io::{self, Write};

use lzfse_rust::{LzfseEncoder, LzfseRingDecoder};

use crate::algorithm::Algorithm;
use crate::error::Error;

use super::corrupt;

pub(super) fn compress(encoder: &mut LzfseEncoder, input: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    match encoder.encode_bytes(input, out) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::Unsupported { algorithm: Algorithm::Lzfse, what: "this block" }),
    }
}

pub(super) fn decompress(
    decoder: &mut LzfseRingDecoder,
    input: &[u8],
    raw_len: usize,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut rest = input;
    let mut capped = Capped { out, left: raw_len };
    match decoder.decode(&mut rest, &mut capped) {
        Ok(_) if rest.is_empty() => Ok(()),
        Ok(_) => Err(corrupt(Algorithm::Lzfse, "bytes after the end")),
        Err(_) => Err(corrupt(Algorithm::Lzfse, "malformed, or longer than the promised size")),
    }
}

/// Takes no more than `left` bytes.
struct Capped<'a> {
    out: &'a mut Vec<u8>,
    left: usize,
}

impl Write for Capped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
