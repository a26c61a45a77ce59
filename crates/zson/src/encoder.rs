//! Documents into datums.

use std::ops::ControlFlow;

use pgshrink_codec::bare::{Compressor, Proceed};
use pgshrink_codec::{self as codec, Algorithm, Choice};

use crate::datum::{
    Encoded, Form, Header, OVERHEAD_BYTES_MAX, Stored, header_len, parse, seal_shapes, sums_of,
};
use crate::dictionary::{DictionaryId, WritingDictionary};
use crate::error::Error;
use crate::limits::RAW_BYTES_MAX;
use crate::memory;
use crate::shapes::{self, Remembered};

/// A document that was decoded before the one that is encoded, which may be an update of it.
#[derive(Copy, Clone, Debug)]
pub struct Earlier<'e> {
    /// The datum.
    pub datum: &'e [u8],
    /// The jsonb that it was decoded to, byte for byte: parts of another document would be written for its own.
    pub document: &'e [u8],
}

/// Compression contexts, made when first needed and kept. Changing the choice or the dictionary costs nothing.
///
/// Once it has seen the largest document of its kind, encoding allocates nothing but what `out` lacks. Documents of
/// more than 1 MiB, and by zstd from level 13 on of more than 128 KiB, have a context that is given back after them.
#[derive(Default, Debug)]
pub struct Encoder {
    compressor: Compressor,
    remembered: Remembered,
    /// Where zstd writes what shapes have written already.
    spare: Vec<u8>,
    is_strange: bool,
}

impl Encoder {
    /// Without any context yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the datum of `jsonb` to `out`: the shorter of compressed and raw, and thus never more than
    /// [`OVERHEAD_BYTES_MAX`] bytes longer than the document. By its shape if the dictionary has some and was prepared for
    /// them, and if zstd is not so much shorter that the dictionary's rule prefers it.
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
        self.encode_after(choice, dictionary, (jsonb, None), out, proceed)
    }

    /// As [`encode_while`](Self::encode_while), to a datum of the same document. If the earlier document is of the same
    /// dictionary and shape, values that both have are taken over as they were stored, and zstd is not tried again where the
    /// datum takes no larger part of its document than the earlier one. That makes an update of a few keys cheap.
    pub fn encode_after(
        &mut self,
        choice: Choice,
        dictionary: Option<&WritingDictionary>,
        (jsonb, earlier): (&[u8], Option<Earlier<'_>>),
        out: &mut Vec<u8>,
        proceed: &mut Proceed<'_>,
    ) -> Result<(), Error> {
        if jsonb.len() > RAW_BYTES_MAX {
            let (found, allowed) = (jsonb.len() as u64, RAW_BYTES_MAX as u64);
            return Err(Error::Limit { what: "document size", found, allowed });
        }
        self.is_strange = false;
        let shaped = dictionary.and_then(|with| Some((with, with.shapes()?)));
        if let Some((dictionary, shapes)) = shaped.filter(|_| choice.algorithm != Algorithm::None) {
            if choice != dictionary.choice() {
                let what = "a dictionary prepared for another level";
                return Err(codec::Error::Unsupported { algorithm: choice.algorithm, what }.into());
            }
            let earlier = earlier.and_then(|earlier| earlier.stored_with(dictionary, shapes));
            if self.by_shape((dictionary, shapes), (jsonb, earlier), out, proceed)? {
                return Ok(());
            }
        }
        let dictionary = dictionary.filter(|dictionary| dictionary.prepared().is_some());
        self.by_choice(choice, dictionary, jsonb, out, proceed)
    }

    /// Whether the last document was unlike those that its dictionary of shapes was learned from.
    pub fn was_strange(&self) -> bool {
        self.is_strange
    }

    /// By its shape; false, and nothing is appended, if that does not pay.
    fn by_shape(
        &mut self,
        (dictionary, shapes): (&WritingDictionary, &shapes::Writer),
        (jsonb, earlier): (&[u8], Option<shapes::Earlier<'_>>),
        out: &mut Vec<u8>,
        proceed: &mut Proceed<'_>,
    ) -> Result<bool, Error> {
        let (start, id) = (out.len(), dictionary.id());
        let header = begin(Some(id), jsonb.len(), out)?;
        let long = long(&mut self.compressor, dictionary, &mut *proceed);
        let written = shapes.encode(jsonb, earlier, &mut self.remembered, long, out);
        let written_len = out.len() - start;
        let datum_len = written_len + sums_of(written_len - header);
        let Some(written) = written.inspect_err(|_| out.truncate(start))? else {
            out.truncate(start);
            self.is_strange = true;
            return Ok(false);
        };
        self.is_strange = written.is_strange;
        let is_too_long = datum_len >= OVERHEAD_BYTES_MAX + jsonb.len();
        if written.is_doubtful {
            let (choice, plain) = (dictionary.choice(), dictionary.prepared().map(|_| dictionary));
            let mut spare = std::mem::take(&mut self.spare);
            spare.clear();
            let done = self.by_choice(choice, plain, jsonb, &mut spare, proceed);
            let is_preferred = shapes.fallback().prefers_zstd(datum_len, spare.len());
            let is_taken = done.is_ok() && (is_preferred || is_too_long);
            if is_taken || done.is_err() {
                out.truncate(start);
            }
            let appended = if is_taken { memory::append(out, &spare) } else { Ok(()) };
            if spare.capacity() <= SPARE_KEPT_MAX {
                self.spare = spare;
            }
            done.and(appended)?;
            if is_taken {
                return Ok(true);
            }
        }
        if is_too_long {
            out.truncate(start);
            return Ok(false);
        }
        let sealed = seal_shapes(id, shapes.identity(), jsonb.len(), start, out);
        sealed.inspect_err(|_| out.truncate(start)).map(|()| true)
    }

    /// Appends the datum of a document in which values of `patch`, a jsonb, replace those of the same keys, without decoding it:
    /// the document of `doc || patch`. False, and nothing is appended, if that needs the document, or if the datum was not
    /// written by shapes with this very dictionary.
    ///
    /// # Errors
    /// As of [`encode_after`](Self::encode_after).
    pub fn patch(
        &mut self,
        dictionary: &WritingDictionary,
        datum: &[u8],
        patch: &[u8],
        out: &mut Vec<u8>,
        proceed: &mut Proceed<'_>,
    ) -> Result<bool, Error> {
        self.is_strange = false;
        let Some(shapes) = dictionary.shapes() else { return Ok(false) };
        let Some(header) = stored_with(dictionary, shapes, datum) else { return Ok(false) };
        // The length of the new document takes as many bytes as that of the old one, or the head is not as long.
        let (start, id) = (out.len(), dictionary.id());
        let head = begin(Some(id), header.raw_len(), out)?;
        let long = long(&mut self.compressor, dictionary, proceed);
        let document = (header.payload(), header.raw_len());
        let patched = shapes.patch(document, patch, &mut self.remembered, long, out);
        let patched = patched.inspect_err(|_| out.truncate(start))?;
        let len = out.len() - start;
        let fitting = patched.filter(|(raw_len, written)| {
            !written.is_doubtful
                && header_len(Some(id), *raw_len) == head
                && len + sums_of(len - head) < OVERHEAD_BYTES_MAX + raw_len
        });
        let Some((raw_len, written)) = fitting else {
            out.truncate(start);
            return Ok(false);
        };
        self.is_strange = written.is_strange;
        let sealed = seal_shapes(id, shapes.identity(), raw_len, start, out);
        sealed.inspect_err(|_| out.truncate(start)).map(|()| true)
    }

    /// By an algorithm, or raw.
    fn by_choice(
        &mut self,
        choice: Choice,
        dictionary: Option<&WritingDictionary>,
        jsonb: &[u8],
        out: &mut Vec<u8>,
        proceed: &mut Proceed<'_>,
    ) -> Result<(), Error> {
        let hopeless = dictionary.is_none() && jsonb.len() < ALONE_BYTES_MIN;
        if choice.algorithm == Algorithm::None || hopeless || jsonb.is_empty() {
            return append_raw(jsonb, out);
        }
        let start = out.len();
        let id = dictionary.map(WritingDictionary::id);
        let header_len = begin(id, jsonb.len(), out)?;
        let prepared = dictionary.and_then(WritingDictionary::prepared);
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
                Err(Error::of_codec(error))
            }
        }
    }

    /// Bytes of memory its contexts hold.
    pub fn memory_size(&self) -> usize {
        self.compressor.memory_size() + self.remembered.memory_size() + self.spare.capacity()
    }
}

impl<'e> Earlier<'e> {
    /// Its payload, if it was stored by shapes with this very dictionary.
    fn stored_with(
        self,
        dictionary: &WritingDictionary,
        shapes: &shapes::Writer,
    ) -> Option<shapes::Earlier<'e>> {
        let header = stored_with(dictionary, shapes, self.datum)?;
        let is_its_own = header.raw_len() == self.document.len();
        is_its_own.then(|| shapes::Earlier { payload: header.payload(), document: self.document })
    }
}

/// The header of a datum that was stored by shapes with this very dictionary.
fn stored_with<'d>(
    dictionary: &WritingDictionary,
    shapes: &shapes::Writer,
    datum: &'d [u8],
) -> Option<Header<'d>> {
    let Ok(Stored::Current(header)) = parse(datum) else { return None };
    let is_of_id = header.form() == Form::Shapes && header.dictionary() == Some(dictionary.id());
    // Of the same id is not enough.
    (is_of_id && header.verify_stored(shapes.identity()).is_ok()).then_some(header)
}

/// What a dictionary's long texts are written with.
fn long<'l, 'p>(
    compressor: &'l mut Compressor,
    dictionary: &'l WritingDictionary,
    proceed: &'l mut Proceed<'p>,
) -> shapes::Long<'l, 'p> {
    shapes::Long { compressor, choice: dictionary.choice(), dictionary: dictionary.prepared(), proceed }
}

/// Appends room for the header of a datum. Returns its length.
fn begin(dictionary: Option<DictionaryId>, raw_len: usize, out: &mut Vec<u8>) -> Result<usize, Error> {
    let header = header_len(dictionary, raw_len);
    memory::reserve(out, header)?;
    out.resize(out.len() + header, 0);
    Ok(header)
}

/// A spare buffer above this is given back after use.
const SPARE_KEPT_MAX: usize = 1 << 20;

/// No document below this gets shorter without a dictionary: the jsonb header alone is 4 bytes, an entry 4 more.
const ALONE_BYTES_MIN: usize = 24;

fn append_raw(jsonb: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    memory::reserve(out, OVERHEAD_BYTES_MAX + jsonb.len())?;
    out.extend_from_slice(Encoded::new(Form::Raw, None, jsonb).bytes());
    out.extend_from_slice(jsonb);
    Ok(())
}
