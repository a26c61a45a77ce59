//! Values: a zson datum as jsonb, and back.
//!
//! A document that is asked for again (several `->>` in a row) is decoded once. It is recognised by its bytes, never
//! by its address, so nothing that reuses memory can be mistaken for it. Small ones stay in the backend's memo;
//! those too large for it in a few buffers of the transaction's memory.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::ptr;

use pgrx::pg_sys::{self, Datum, varlena};
use pgshrink_codec::Algorithm;
use pgshrink_zson::datum::{Header, Method, Stored, parse};
use pgshrink_zson::{self as zson, Decoder, Encoder, ReadingDictionary, WritingDictionary, legacy};

use crate::backend::{Writing, backend, legacy_words, reader, warn_of_uncommitted, writing};
use crate::error::{PgSqlErrorCode as Code, raise, raise_core};
use crate::internal::check_interrupts;
use crate::misses;
use crate::settings;
use crate::sys::{self, bytes_of, raw, with_bytes};

/// Documents of more bytes than this are not kept in the memo.
const MEMO_DOCUMENT_MAX: usize = 256 << 10;
/// Large documents kept, of which the last two are in use when an operator compares two.
const LARGE_KEPT: usize = 4;
/// A scratch buffer above this is given back after use.
const SCRATCH_KEPT_MAX: usize = 1 << 20;
const VARLENA_HEADER: usize = 4;
/// The server's limit of an allocation (`MaxAllocSize`).
const VARLENA_MAX: usize = 0x3fff_ffff;

/// The jsonb of a zson datum: a plain varlena with a 4-byte header.
///
/// # Safety
/// `datum` is a zson value. The result is borrowed: it is valid until the fourth next call, and not to be freed or
/// changed.
pub unsafe fn view(datum: Datum) -> Datum {
    // SAFETY: by the caller.
    unsafe { Datum::from(with_bytes(datum, |bytes| view_of(bytes))) }
}

/// The jsonb of the bytes of a zson, as of [`view`].
unsafe fn view_of(bytes: &[u8]) -> *mut c_void {
    // SAFETY: the borrow ends before anything is decoded.
    unsafe {
        match backend().memo.get(bytes) {
            Some(known) => known.varlena().as_ptr().cast::<c_void>().cast_mut(),
            None => decode(bytes),
        }
    }
}

/// The jsonb of a zson datum in memory of the current context.
///
/// # Safety
/// `datum` is a zson value.
pub unsafe fn copy(datum: Datum) -> Datum {
    // SAFETY: a view is a plain varlena.
    unsafe {
        let seen = view(datum).cast_mut_ptr::<varlena>();
        let size = pgrx::varsize_4b(seen);
        let copied = raw::palloc(size);
        ptr::copy_nonoverlapping(seen.cast::<u8>(), copied.cast::<u8>(), size);
        Datum::from(copied)
    }
}

/// Encodes a jsonb for a column of this typmod; -1 is the database's default.
///
/// # Safety
/// `jsonb` is a jsonb value.
pub unsafe fn pack(jsonb: Datum, typmod: i32) -> Datum {
    // SAFETY: by the caller; what is borrowed of the backend is not touched by palloc.
    unsafe {
        let (passing, counted) = with_bytes(jsonb, |bytes| {
            let how = writing(typmod);
            encode(bytes, how, Earlier::Latest);
            let shaped = how.dictionary.as_ref().filter(|dictionary| dictionary.has_shapes());
            (how.passing, shaped.map(|dictionary| (dictionary.id().get(), backend().encoder.was_strange())))
        });
        let value = take_scratch();
        if let Some((dictionary, is_miss)) = counted {
            misses::count(dictionary, is_miss);
        }
        if passing {
            warn_of_uncommitted(typmod);
        }
        value
    }
}

/// A zson in which values of a jsonb replace those of the same keys, for a column of this typmod, without decoding it; none if
/// that needs the document.
///
/// # Safety
/// `zson` is one, in line and not compressed, and `patch` a jsonb.
pub unsafe fn patched(zson: Datum, patch: Datum, typmod: i32) -> Option<Datum> {
    // SAFETY: by the caller; what is borrowed of the backend is not touched by palloc.
    unsafe {
        let (dictionary, is_miss) = with_bytes(patch, |patch| {
            let datum = sys::bytes_here(zson)?;
            let how = writing(typmod);
            let dictionary = how.dictionary.as_ref().filter(|with| with.has_shapes() && !how.passing)?;
            let all = backend();
            all.scratch.clear();
            let mut proceed = proceed;
            match all.encoder.patch(dictionary, datum, patch, &mut all.scratch, &mut proceed) {
                Ok(true) => Some((dictionary.id().get(), all.encoder.was_strange())),
                Ok(false) => None,
                Err(error) => raise_core(&error),
            }
        })?;
        let value = take_scratch();
        misses::count(dictionary, is_miss);
        Some(value)
    }
}

/// Whether a datum is written as a column of this typmod writes now.
///
/// # Safety
/// `datum` is a zson value.
pub unsafe fn is_current(datum: Datum, typmod: i32) -> bool {
    // SAFETY: by the caller.
    unsafe {
        with_bytes(datum, |bytes| {
            let how = writing(typmod);
            let Ok(Stored::Current(header)) = parse(bytes) else { return false };
            let algorithm = match header.method() {
                Method::Shapes => {
                    let wanted = how.dictionary.as_ref().filter(|wanted| wanted.has_shapes());
                    return wanted.is_some_and(|wanted| header.dictionary() == Some(wanted.id()));
                }
                // What did not get smaller may do so now.
                Method::Raw => {
                    encode(header.payload(), how, Earlier::None);
                    return backend().scratch.len() >= bytes.len();
                }
                // By shapes it may be smaller, or that was tried.
                _ if how.dictionary.as_ref().is_some_and(WritingDictionary::has_shapes) => {
                    let jsonb = view_of(bytes).cast::<varlena>();
                    encode(bytes_of(jsonb), writing(typmod), Earlier::None);
                    return backend().scratch == bytes;
                }
                Method::Zstd => Algorithm::Zstd,
                _ => Algorithm::Lz4,
            };
            let wanted = how.dictionary.as_ref().and_then(WritingDictionary::plain_id);
            how.codec.choice.algorithm == algorithm && header.dictionary() == wanted
        })
    }
}

/// Whether values are taken over from another document.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Earlier {
    None,
    /// The one that was decoded last, which an update changes.
    Latest,
}

/// What a long work asks.
fn proceed() -> ControlFlow<()> {
    check_interrupts();
    ControlFlow::Continue(())
}

/// Encodes into the backend's scratch.
unsafe fn encode(jsonb: &[u8], how: &Writing, earlier: Earlier) {
    let mut proceed = proceed;
    // SAFETY: the server is called for interrupts only, past pgrx's guard and so by a panic, and runs nothing of ours
    // then but the callback of an invalidation.
    let done = unsafe {
        let all = backend();
        all.scratch.clear();
        if all.scratch.try_reserve(jsonb.len() + jsonb.len() / 128 + 1024).is_err() {
            raise_memory(jsonb.len());
        }
        let latest = if earlier == Earlier::Latest { all.memo.take_latest() } else { None };
        let earlier = latest.map(|(datum, document)| zson::Earlier { datum, document: document.document() });
        all.encoder.encode_after(
            how.codec.choice,
            how.dictionary.as_ref(),
            (jsonb, earlier),
            &mut all.scratch,
            &mut proceed,
        )
    };
    if let Err(error) = done {
        raise_core(&error);
    }
}

/// The scratch as a varlena. A large one is given back.
unsafe fn take_scratch() -> Datum {
    // SAFETY: the vector stays in place while palloc runs; if that raises, it stays for the next value.
    unsafe {
        let (start, len) = (backend().scratch.as_ptr(), backend().scratch.len());
        let value = varlena_in(len, |size| raw::palloc(size));
        ptr::copy_nonoverlapping(start, value.cast::<u8>().add(VARLENA_HEADER), len);
        let value = Datum::from(value);
        if backend().scratch.capacity() > SCRATCH_KEPT_MAX {
            backend().scratch = Vec::new();
            // A large document or a high level leaves large tables behind.
            if backend().encoder.memory_size() > settings::cache_bytes() / 2 {
                backend().encoder = Encoder::new();
            }
        }
        value
    }
}

/// A varlena of these bytes in memory of the current context, for callers that hold what needs dropping.
pub fn new_varlena(bytes: &[u8]) -> Datum {
    // SAFETY: pgrx's palloc unwinds if it does not return; the varlena has room for the bytes.
    unsafe {
        let value = varlena_in(bytes.len(), |size| pg_sys::palloc(size));
        ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>().add(VARLENA_HEADER), bytes.len());
        Datum::from(value)
    }
}

/// A varlena with room for `len` bytes.
///
/// # Safety
/// As for `palloc`, which returns as much as is asked for, or does not return.
pub unsafe fn varlena_in(len: usize, palloc: impl FnOnce(usize) -> *mut c_void) -> *mut varlena {
    let size = len + VARLENA_HEADER;
    if size > VARLENA_MAX {
        raise_memory(len);
    }
    // SAFETY: by the caller.
    unsafe {
        let value = palloc(size).cast::<varlena>();
        pgrx::set_varsize_4b(value, size as i32);
        value
    }
}

/// Decodes a document that the memo does not have.
unsafe fn decode(bytes: &[u8]) -> *mut c_void {
    let stored = parse(bytes).unwrap_or_else(|error| raise_core(&error));
    // SAFETY: the target has the promised size; what is ready is used before the server looks anything up again.
    unsafe {
        let raw_len = match &stored {
            Stored::Current(header) => header.raw_len(),
            Stored::Legacy(legacy) => legacy.raw_len(),
        };
        if raw_len > MEMO_DOCUMENT_MAX {
            return LARGE.find(bytes).unwrap_or_else(|| decode_large(bytes, Ready::of(&stored), raw_len));
        }
        let ready = Ready::of(&stored);
        let all = backend();
        match all.memo.insert(bytes, raw_len, |target| ready.decode(&mut all.decoder, target)) {
            Ok(document) => document.varlena().as_ptr().cast::<c_void>().cast_mut(),
            Err(error) => raise_core(&error),
        }
    }
}

/// A datum with what it takes to decode it.
enum Ready<'a> {
    Current(&'a Header<'a>, Option<&'static ReadingDictionary>),
    Legacy(&'a legacy::Datum<'a>, &'static legacy::Words),
}

impl<'a> Ready<'a> {
    /// Looks up what the datum names.
    unsafe fn of(stored: &'a Stored<'a>) -> Ready<'a> {
        // SAFETY: by the caller, who uses it before the server looks anything up again.
        unsafe {
            match stored {
                Stored::Current(header) => Ready::Current(header, header.dictionary().map(|id| reader(id))),
                Stored::Legacy(legacy) => Ready::Legacy(legacy, legacy_words(legacy.dictionary_id())),
            }
        }
    }

    /// Before memory is taken for the size that the datum promises; one of ours is checked when it is parsed, but for
    /// one of shapes, whose promise is as good as its check sum.
    fn verify(&self) -> Result<(), pgshrink_zson::Error> {
        match self {
            Ready::Current(header, Some(dictionary)) => dictionary.view(header).map(drop),
            Ready::Current(..) => Ok(()),
            Ready::Legacy(legacy, words) => words.verify(legacy),
        }
    }

    fn decode(&self, decoder: &mut Decoder, target: &mut [u8]) -> Result<(), pgshrink_zson::Error> {
        match self {
            Ready::Current(header, dictionary) => decoder.decode(header, *dictionary, target),
            Ready::Legacy(legacy, words) => words.decode(legacy, target),
        }
    }
}

/// A large document decoded in this transaction, with the bytes it is recognised by.
#[derive(Clone, Copy)]
struct Large {
    encoded: *mut u8,
    encoded_len: usize,
    jsonb: *mut c_void,
}

struct LargeOnes {
    kept: [Cell<Option<Large>>; LARGE_KEPT],
    next: Cell<usize>,
    registered: Cell<bool>,
}
// SAFETY: only the one thread of the backend that runs server code comes here.
unsafe impl Sync for LargeOnes {}
static LARGE: LargeOnes = LargeOnes {
    kept: [const { Cell::new(None) }; LARGE_KEPT],
    next: Cell::new(0),
    registered: Cell::new(false),
};

impl LargeOnes {
    /// The jsonb of a document that is still here.
    unsafe fn find(&self, bytes: &[u8]) -> Option<*mut c_void> {
        for (at, slot) in self.kept.iter().enumerate() {
            // SAFETY: what is kept was allocated in this transaction: its end empties the slots.
            if let Some(large) = slot.get()
                && unsafe { std::slice::from_raw_parts(large.encoded, large.encoded_len) } == bytes
            {
                self.next.set((at + 1) % LARGE_KEPT);
                return Some(large.jsonb);
            }
        }
        None
    }
}

/// Decodes into memory of the transaction, in place of the large document decoded longest ago.
unsafe fn decode_large(bytes: &[u8], ready: Ready<'_>, raw_len: usize) -> *mut c_void {
    if let Err(error) = ready.verify() {
        raise_core(&error);
    }
    // SAFETY: what is kept was allocated in this transaction: its end empties the slots.
    unsafe {
        if !LARGE.registered.replace(true) {
            pg_sys::RegisterXactCallback(Some(forget_large), ptr::null_mut());
        }
        let slot = &LARGE.kept[LARGE.next.get()];
        if let Some(old) = slot.take() {
            raw::pfree(old.encoded.cast());
            raw::pfree(old.jsonb);
        }
        let context = pg_sys::TopTransactionContext;
        let jsonb = pg_sys::MemoryContextAlloc(context, raw_len + VARLENA_HEADER);
        let target = std::slice::from_raw_parts_mut(jsonb.cast::<u8>().add(VARLENA_HEADER), raw_len);
        if let Err(error) = ready.decode(&mut backend().decoder, target) {
            raw::pfree(jsonb);
            raise_core(&error);
        }
        pgrx::set_varsize_4b(jsonb.cast(), (raw_len + VARLENA_HEADER) as i32);
        let encoded = pg_sys::MemoryContextAlloc(context, bytes.len()).cast::<u8>();
        ptr::copy_nonoverlapping(bytes.as_ptr(), encoded, bytes.len());
        slot.set(Some(Large { encoded, encoded_len: bytes.len(), jsonb }));
        LARGE.next.set((LARGE.next.get() + 1) % LARGE_KEPT);
        jsonb
    }
}

unsafe extern "C-unwind" fn forget_large(_: pg_sys::XactEvent::Type, _: *mut c_void) {
    // Before the memory goes: at commit and abort the context is deleted after the callbacks.
    LARGE.kept.iter().for_each(|slot| slot.set(None));
}

#[cold]
fn raise_memory(len: usize) -> ! {
    raise(
        Code::ERRCODE_OUT_OF_MEMORY,
        "zson: out of memory",
        &format!("A document of {len} bytes could not be encoded."),
        "",
    )
}
