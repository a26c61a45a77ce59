//! Single RFC 1950 streams.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::algorithm::{Algorithm, Level};
use crate::dictionary::Dictionary;
use crate::error::Error;

use super::corrupt;

#[derive(Default)]
pub(super) struct Compressor(Option<(Level, Compress)>);

#[derive(Default)]
pub(super) struct Decompressor(Option<Decompress>);

impl Compressor {
    pub(super) fn compress(
        &mut self,
        level: Level,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let unusable = Error::Unsupported { algorithm: Algorithm::Zlib, what: "this block" };
        let deflate = match &mut self.0 {
            Some((known, deflate)) if *known == level => {
                deflate.reset();
                deflate
            }
            slot => {
                // zlib-rs' level 1 compresses a quarter worse than zlib's own, its level 2 better.
                let new = Compress::new(Compression::new(level.0.unsigned_abs().max(2)), true);
                &mut slot.insert((level, new)).1
            }
        };
        if let Some(dictionary) = dictionary {
            deflate.set_dictionary(dictionary.bytes()).map_err(|_| unusable.clone())?;
        }
        out.reserve(crate::stream::zlib_bound(input.len()));
        match deflate.compress_vec(input, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => Ok(()),
            _ => Err(unusable),
        }
    }
}

impl Decompressor {
    pub(super) fn decompress(
        &mut self,
        dictionary: Option<&Dictionary>,
        input: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let inflate = self.0.get_or_insert_with(|| Decompress::new(true));
        inflate.reset(true);
        let start = out.len();
        // One byte more shows a block that is longer than promised.
        out.resize(start + raw_len + 1, 0);
        let status = match inflate.decompress(input, &mut out[start..], FlushDecompress::Finish) {
            Err(error) if error.needs_dictionary().is_some() => {
                let Some(dictionary) = dictionary else {
                    return Err(corrupt(Algorithm::Zlib, "it needs a dictionary"));
                };
                if inflate.set_dictionary(dictionary.bytes()).is_err() {
                    return Err(corrupt(Algorithm::Zlib, "it needs another dictionary"));
                }
                let consumed = inflate.total_in() as usize;
                inflate.decompress(&input[consumed..], &mut out[start..], FlushDecompress::Finish)
            }
            Ok(_) if dictionary.is_some() => return Err(corrupt(Algorithm::Zlib, "it names no dictionary")),
            status => status,
        };
        let (consumed, produced) = (inflate.total_in() as usize, inflate.total_out() as usize);
        out.truncate(start + produced);
        match status {
            Ok(Status::StreamEnd) if consumed == input.len() => Ok(()),
            Ok(Status::StreamEnd) => Err(corrupt(Algorithm::Zlib, "bytes after the end")),
            Ok(_) if produced > raw_len => Err(corrupt(Algorithm::Zlib, "longer than the promised size")),
            Ok(_) => Err(corrupt(Algorithm::Zlib, "truncated")),
            Err(_) => Err(corrupt(Algorithm::Zlib, "invalid header, block, code, distance or checksum")),
        }
    }
}
