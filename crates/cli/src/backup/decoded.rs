//! Bytes that are decoded piece by piece, for whoever reads them.

use std::io::{self, Read};

/// Decodes a stream.
pub(super) trait Decode {
    /// Appends some more to `output`, which is empty; maybe nothing yet. False: the stream has ended.
    fn fill(&mut self, output: &mut Vec<u8>) -> io::Result<bool>;

    /// Decodes to the begin of `output`, if that is worth it for so many bytes, and gives how many came; 0: the stream has
    /// ended. None: [`fill`](Decode::fill) has to be used.
    fn direct(&mut self, _output: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(None)
    }
}

/// What it decodes, to be read.
pub(super) struct Decoded<D> {
    decoder: D,
    output: Vec<u8>,
    /// Bytes of it that were read.
    at: usize,
}

impl<D: Decode> Decoded<D> {
    pub(super) fn new(decoder: D) -> Decoded<D> {
        Decoded { decoder, output: Vec::new(), at: 0 }
    }
}

impl<D: Decode> Read for Decoded<D> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.output.len() {
            self.output.clear();
            self.at = 0;
            if let Some(size) = self.decoder.direct(out)? {
                return Ok(size);
            }
            if !self.decoder.fill(&mut self.output)? {
                return Ok(0);
            }
        }
        let taken = out.len().min(self.output.len() - self.at);
        out[..taken].copy_from_slice(&self.output[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}
