//! The part of the LZ4 library that streams and dictionaries need and that `lz4-sys` does not declare.
//!
//! Here is all that touches C or pointers; callers only promise that the bytes a stream remembers stay in place.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

// Links the library, of which it declares only a part.
use lz4_sys as _;

/// How far back a block can refer.
pub(crate) const HISTORY_BYTES: usize = crate::limits::LZ4_HISTORY_BYTES;
const TABLE_ENTRIES: usize = 1 << 12;
/// `LZ4_STREAM_MINSIZE` of lz4.h.
pub(crate) const STREAM_BYTES: usize = (1 << 14) + 32;

/// `LZ4_stream_t` of lz4.h 1.10, whose layout it publishes so that programs can allocate it.
#[repr(C)]
pub(crate) union Stream {
    space: [u64; STREAM_BYTES / 8],
    state: State,
}

#[derive(Copy, Clone)]
#[repr(C)]
struct State {
    /// Positions, on the scale of `current_offset`; zero in an unused entry.
    table: [u32; TABLE_ENTRIES],
    place: Place,
}

/// Where a stream stands.
#[derive(Copy, Clone)]
#[repr(C)]
pub(crate) struct Place {
    dictionary: *const u8,
    dictionary_context: *const c_void,
    /// Position of the next byte.
    current_offset: u32,
    table_type: u32,
    /// Bytes directly before the next one that can be referred to.
    dictionary_size: u32,
}

const _: () = assert!(size_of::<Stream>() == STREAM_BYTES);

/// The library whose `LZ4_stream_t_internal` is [`State`]: 1.10.0.
const VERSION: c_int = 11_000;
/// `byU32` of lz4.c.
const TABLE_OF_POSITIONS: u32 = 2;

/// Whether the library at hand has the streams that [`State`] describes. Rewinding one that has not would damage what
/// is compressed next, and nothing would notice but the reader. Found out once.
pub(crate) fn layout_is_known() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    // SAFETY: it only returns a constant.
    *KNOWN.get_or_init(|| unsafe { lz4_sys::LZ4_versionNumber() } == VERSION && behaves_as_known())
}

/// Compresses twice, rewinding in between, and looks at every field on the way.
fn behaves_as_known() -> bool {
    const BLOCK: usize = 64;
    let text: Vec<u8> = (0..2 * BLOCK as u8).map(|n| b'a' + n % 23).collect();
    let (first, second) = text.split_at(BLOCK);
    let (mut stream, mut begin, mut once, mut again) = (Stream::new(), Vec::new(), Vec::new(), Vec::new());
    if stream.place().current_offset != 0 {
        return false;
    }
    // SAFETY: the text outlives the stream and never changes.
    if !unsafe { stream.compress_continue(first, &mut begin, 1) } {
        return false;
    }
    let place = stream.place();
    // SAFETY: every bit pattern is a state.
    let table = unsafe { stream.state.table };
    let as_described = place.dictionary == first.as_ptr()
        && place.dictionary_context.is_null()
        && place.current_offset as usize == BLOCK
        && place.dictionary_size as usize == BLOCK
        && place.table_type == TABLE_OF_POSITIONS
        && table.iter().all(|position| *position < place.current_offset)
        && table.iter().any(|position| *position > 0);
    // SAFETY: as before.
    let compressed = as_described
        && unsafe { stream.compress_continue(second, &mut once, 1) }
        && stream.place().current_offset as usize == 2 * BLOCK
        && stream.rewind(place)
        // SAFETY: as before.
        && unsafe { stream.compress_continue(second, &mut again, 1) };
    let mut back = [MaybeUninit::new(0); BLOCK];
    compressed && once == again && decompress(&again, &mut back, first) == Some(BLOCK)
}

unsafe extern "C" {
    fn LZ4_initStream(buffer: *mut c_void, size: usize) -> *mut Stream;
    fn LZ4_resetStream_fast(stream: *mut Stream);
    fn LZ4_loadDictSlow(stream: *mut Stream, dictionary: *const c_char, size: c_int) -> c_int;
    fn LZ4_loadDict(stream: *mut Stream, dictionary: *const c_char, size: c_int) -> c_int;
    fn LZ4_saveDict(stream: *mut Stream, safe: *mut c_char, size_max: c_int) -> c_int;
    fn LZ4_attach_dictionary(stream: *mut Stream, dictionary: *const Stream);
    fn LZ4_compress_fast_continue(
        stream: *mut Stream,
        source: *const c_char,
        target: *mut c_char,
        source_size: c_int,
        target_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_compress_fast_extState_fastReset(
        stream: *mut Stream,
        source: *const c_char,
        target: *mut c_char,
        source_size: c_int,
        target_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        source: *const c_char,
        target: *mut c_char,
        source_size: c_int,
        target_capacity: c_int,
        dictionary: *const c_char,
        dictionary_size: c_int,
    ) -> c_int;
}

// SAFETY: it is plain memory; its pointers are followed only by its methods, whose callers vouch for them.
unsafe impl Send for Stream {}

impl Stream {
    pub(crate) fn new() -> Box<Stream> {
        let mut stream = Box::new(Stream { space: [0; STREAM_BYTES / 8] });
        // SAFETY: the memory is a stream's, in size and alignment, which is all that could make it fail.
        unsafe { LZ4_initStream((&raw mut *stream).cast(), STREAM_BYTES) };
        stream
    }

    pub(crate) fn place(&self) -> Place {
        // SAFETY: every bit pattern is a state.
        unsafe { self.state.place }
    }

    /// Forgets the history.
    pub(crate) fn reset(&mut self) {
        // SAFETY: the stream is initialised.
        unsafe { LZ4_resetStream_fast(self) }
    }

    /// Makes `history` the history; `thorough` finds more in it and takes longer.
    ///
    /// # Safety
    /// The history must stay in place and unchanged until a reset.
    pub(crate) unsafe fn load(&mut self, history: &[u8], thorough: bool) {
        let history = &history[history.len().saturating_sub(HISTORY_BYTES)..];
        let load = if thorough { LZ4_loadDictSlow } else { LZ4_loadDict };
        // SAFETY: the history is valid for its length, at most 64 KiB.
        unsafe { load(self, history.as_ptr().cast(), history.len() as c_int) };
    }

    /// Moves the history to the front of `buffer`, in which it may lie already; returns its size.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    pub(crate) unsafe fn move_history(&mut self, buffer: &mut [u8]) -> usize {
        assert!(buffer.len() >= HISTORY_BYTES);
        // SAFETY: the target has the size that LZ4 is given.
        unsafe { LZ4_saveDict(self, buffer.as_mut_ptr().cast(), HISTORY_BYTES as c_int) as usize }
    }

    /// Forgets the history and refers to what `dictionary` has loaded, for the next block only.
    ///
    /// # Safety
    /// The dictionary and its history must outlive the compression of the next block.
    pub(crate) unsafe fn attach(&mut self, dictionary: &Stream) {
        self.reset();
        // SAFETY: both are initialised.
        unsafe { LZ4_attach_dictionary(self, dictionary) }
    }

    /// Appends `input` as a block that may refer to the history, whose part it becomes.
    ///
    /// # Safety
    /// The input must stay in place and unchanged until a reset; the history must have.
    pub(crate) unsafe fn compress_continue(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        acceleration: i32,
    ) -> bool {
        // SAFETY: the function is given valid ranges by `append_block`.
        unsafe { append_block(LZ4_compress_fast_continue, self, input, out, acceleration) }
    }

    /// Appends `input` as an independent block and forgets all history.
    pub(crate) fn compress_alone(&mut self, input: &[u8], out: &mut Vec<u8>, acceleration: i32) -> bool {
        // SAFETY: the function is given valid ranges by `append_block` and keeps no pointer that the reset
        // leaves.
        let done =
            unsafe { append_block(LZ4_compress_fast_extState_fastReset, self, input, out, acceleration) };
        self.reset();
        done
    }

    /// Goes back to `before`, as if what was compressed since had never been: its entries leave the table.
    /// False: LZ4 has renumbered its table meanwhile, so that a new one must be made by [`load`](Self::load).
    pub(crate) fn rewind(&mut self, before: Place) -> bool {
        // SAFETY: every bit pattern is a state.
        let state = unsafe { &mut self.state };
        if state.place.current_offset < before.current_offset {
            return false;
        }
        for position in &mut state.table {
            *position = if *position < before.current_offset { *position } else { 0 };
        }
        state.place = before;
        true
    }
}

impl Place {
    /// Bytes of history a block here can refer to.
    pub(crate) fn history_len(&self) -> usize {
        (self.dictionary_size as usize).min(HISTORY_BYTES)
    }
}

/// LZ4_COMPRESSBOUND of lz4.h.
pub(crate) const fn bound(raw_len: usize) -> usize {
    raw_len + raw_len / 255 + 16
}

/// Decodes a block that may refer to `history` into the begin of `target`; returns how many bytes it wrote. None:
/// the block is malformed, longer than the target, or refers to before the history. Fastest where the history
/// ends at the target.
pub(crate) fn decompress(block: &[u8], target: &mut [MaybeUninit<u8>], history: &[u8]) -> Option<usize> {
    let history = &history[history.len().saturating_sub(HISTORY_BYTES)..];
    let block_size = c_int::try_from(block.len()).ok()?;
    let target_size = c_int::try_from(target.len()).unwrap_or(c_int::MAX);
    // SAFETY: each range is valid for the size that LZ4 is given.
    let written = unsafe {
        LZ4_decompress_safe_usingDict(
            block.as_ptr().cast(),
            target.as_mut_ptr().cast(),
            block_size,
            target_size,
            history.as_ptr().cast(),
            history.len() as c_int,
        )
    };
    usize::try_from(written).ok()
}

/// The raw size of a block by its sequences alone (lz4_Block_format.md); none if they do not end with the block.
pub(crate) fn block_raw_size(block: &[u8]) -> Option<u64> {
    let mut rest = block.iter();
    let mut size = 0u64;
    loop {
        let token = *rest.next()?;
        let literals = length(&mut rest, token >> 4)?;
        size += literals;
        let after = usize::try_from(literals).ok()?;
        rest = rest.as_slice().get(after..)?.iter();
        if rest.as_slice().is_empty() {
            return Some(size);
        }
        let _offset = (rest.next()?, rest.next()?);
        size += length(&mut rest, token & 15)? + 4;
    }
}

fn length(bytes: &mut std::slice::Iter<'_, u8>, nibble: u8) -> Option<u64> {
    let mut length = u64::from(nibble);
    if nibble == 15 {
        loop {
            let byte = *bytes.next()?;
            length += u64::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Some(length)
}

type Compress = unsafe extern "C" fn(*mut Stream, *const c_char, *mut c_char, c_int, c_int, c_int) -> c_int;

/// # Safety
/// `compress` reads `input`, writes at most the capacity it is given, and otherwise needs what its callers say.
unsafe fn append_block(
    compress: Compress,
    stream: &mut Stream,
    input: &[u8],
    out: &mut Vec<u8>,
    acceleration: i32,
) -> bool {
    let capacity = bound(input.len());
    let (Ok(source_size), Ok(target_size)) = (c_int::try_from(input.len()), c_int::try_from(capacity)) else {
        return false;
    };
    out.reserve(capacity);
    let target = out.spare_capacity_mut().as_mut_ptr().cast();
    // SAFETY: source and target are valid for these sizes.
    let written =
        unsafe { compress(stream, input.as_ptr().cast(), target, source_size, target_size, acceleration) };
    if written <= 0 {
        return false;
    }
    // SAFETY: LZ4 has written that many bytes.
    unsafe { out.set_len(out.len() + written as usize) };
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_stream_layout_is_that_of_the_library_version_it_was_taken_from() {
        assert!(super::layout_is_known());
    }
}
