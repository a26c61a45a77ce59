//! Documents into datums.

use std::ops::ControlFlow;

use pgshrink_codec::bare::{Compressor, Proceed};
use pgshrink_codec::{self as codec, Algorithm, Choice};

use crate::datum::{Encoded, Form, OVERHEAD_BYTES_MAX, header_len};
use crate::dictionary::WritingDictionary;
use crate::error::Error;
use crate::limits::RAW_BYTES_MAX;
use crate::memory;

/// Compression contexts, made when first needed and kept. Changing the choice or the dictionary costs nothing.
///
/// Once it has seen the largest document of its kind, encoding allocates nothing but what `out` lacks. Documents of
/// more than 1 MiB, and by zstd from level 13 on of more than 128 KiB, have a context that is given back after them.
#[derive(Default, Debug)]
pub struct Encoder {
    compressor: Compressor,
}

impl Encoder {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the datum of `jsonb` to `out`: the shorter of compressed and raw, and thus never more than
    /// [`OVERHEAD_BYTES_MAX`] bytes longer than the document.
    ///
    /// `choice` is zstd, LZ4 or none. A dictionary must have been prepared for this very choice. On an error nothing
    /// was appended.
    pub fn encode(
        &mut self,
        choice: Choice,
        dictionary: Option<&WritingDictionary>,
        jsonb: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.encode_while(choice, dictionary, jsonb, out, &mut || ControlFlow::Continue(()))
    }

    /// As [`encode`](Self::encode), to the same bytes. `proceed` is asked before each piece of a document that takes
    /// long, about a second apart at most, and may end the work with [`Error::Interrupted`]. If it panics, `out` keeps
    /// what it had and bytes without meaning behind it.
    pub fn encode_while(
        &mut self,
        choice: Choice,
        dictionary: Option<&WritingDictionary>,
        jsonb: &[u8],
        out: &mut Vec<u8>,
        proceed: &mut Proceed<'_>,
    ) -> Result<(), Error> {
        if jsonb.len() > RAW_BYTES_MAX {
            let (found, allowed) = (jsonb.len() as u64, RAW_BYTES_MAX as u64);
            return Err(Error::Limit { what: "document size", found, allowed });
        }
        let hopeless = dictionary.is_none() && jsonb.len() < ALONE_BYTES_MIN;
        if choice.algorithm == Algorithm::None || hopeless || jsonb.is_empty() {
            return append_raw(jsonb, out);
        }
        let start = out.len();
        let id = dictionary.map(WritingDictionary::id);
        let header_len = header_len(id, jsonb.len());
        memory::reserve(out, header_len)?;
        out.resize(start + header_len, 0);
        let prepared = dictionary.map(WritingDictionary::prepared);
        match self.compressor.compress_while(choice, prepared, jsonb, out, proceed) {
            Ok(shape) if out.len() - start < OVERHEAD_BYTES_MAX + jsonb.len() => {
                let header = Encoded::new(Form::Compressed(shape), id, jsonb);
                out[start..start + header_len].copy_from_slice(header.bytes());
                Ok(())
            }
            Ok(_) => {
                out.truncate(start);
                append_raw(jsonb, out)
            }
            Err(error) => {
                out.truncate(start);
                Err(if error == codec::Error::Interrupted { Error::Interrupted } else { error.into() })
            }
        }
    }

    /// Bytes of memory its contexts hold.
    pub fn memory_size(&self) -> usize {
        self.compressor.memory_size()
    }
}

/// No document below this gets shorter without a dictionary: the jsonb header alone is 4 bytes, an entry 4 more.
const ALONE_BYTES_MIN: usize = 24;

fn append_raw(jsonb: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    memory::reserve(out, OVERHEAD_BYTES_MAX + jsonb.len())?;
    out.extend_from_slice(Encoded::new(Form::Raw, None, jsonb).bytes());
    out.extend_from_slice(jsonb);
    Ok(())
}
