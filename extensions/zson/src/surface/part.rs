//! Parts of a document that is stored by its shape, read without the rest of it.
//!
//! What jsonb does for each operator is written down here once more, for such documents only; every other document goes to
//! the server's function, as a whole. Results are the same (`extensions/tests`, `parts`): what jsonb does with paths, nulls,
//! negative indexes and values alone is of `src/backend/utils/adt/jsonfuncs.c` (`get_jsonb_path_all`, `jsonb_array_element`)
//! and `jsonb_op.c` (`jsonb_exists`).
//!
//! 1. A part is written to the backend's buffer, and goes to the server's memory when nothing of ours is borrowed. A text of a
//!    small document is written to the server's memory at once.
//! 2. The stored bytes that are read, and the dictionary, are compared with the datum's check sum first.
//! 3. What is looked for while a document is borrowed may fetch a text or make a jsonb, which looks no dictionary up.
#![allow(unsafe_code)]

use std::ops::Range;
use std::ptr;

use pgrx::pg_sys::{self, Datum, FunctionCallInfo};
use pgshrink_zson::datum::{BLOCK_BYTES, Header, Method, Stored, method_and_dictionary, parse, parse_shapes};
use pgshrink_zson::shapes::{Step, Text, Type, Value, View};
use pgshrink_zson::{Error, ReadingDictionary, Sliced, memory};

use super::call::{Builtin, document, scalar};
use crate::backend::{backend, reader};
use crate::error::raise_core;
use crate::sys::{self, bytes_of, pg_function, raw, with_bytes};

/// What an operator's result is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// `->`, `#>`
    Jsonb,
    /// `->>`, `#>>`
    Text,
}

/// What became of a part, whose bytes are in one of the backend's buffers.
pub(super) enum Part {
    /// There is none, or null where a text is wanted.
    Null,
    /// A text of so many bytes.
    Text(usize),
    /// A numeric of so many bytes with its header, of which the text is wanted.
    Numeric(usize),
    /// A jsonb of so many bytes without its header.
    Jsonb(usize),
}

pg_function! {
    fn zson_object_field(fcinfo) {
        let key = sys::arg(fcinfo, 1);
        let whole = || document(fcinfo, [0], builtin::jsonb_object_field);
        by_path(fcinfo, Wanted::Jsonb, |path| path.key(key), whole)
    }
    fn zson_object_field_text(fcinfo) {
        let key = sys::arg(fcinfo, 1);
        match text_of_key(sys::arg(fcinfo, 0), key) {
            Some(Some(text)) => text,
            Some(None) => sys::null(fcinfo),
            None => {
                let whole = || scalar(fcinfo, [0], builtin::jsonb_object_field_text);
                by_path(fcinfo, Wanted::Text, |path| path.key(key), whole)
            }
        }
    }
    fn zson_array_element(fcinfo) {
        let index = sys::arg(fcinfo, 1);
        let whole = || document(fcinfo, [0], builtin::jsonb_array_element);
        by_path(fcinfo, Wanted::Jsonb, |path| path.index(index), whole)
    }
    fn zson_array_element_text(fcinfo) {
        let index = sys::arg(fcinfo, 1);
        let whole = || scalar(fcinfo, [0], builtin::jsonb_array_element_text);
        by_path(fcinfo, Wanted::Text, |path| path.index(index), whole)
    }
    fn zson_extract_path(fcinfo) {
        let texts = Texts::of(sys::arg(fcinfo, 1));
        let whole = || document(fcinfo, [0], builtin::jsonb_extract_path);
        by_path(fcinfo, Wanted::Jsonb, |path| path.texts(&texts), whole)
    }
    fn zson_extract_path_text(fcinfo) {
        let texts = Texts::of(sys::arg(fcinfo, 1));
        let whole = || scalar(fcinfo, [0], builtin::jsonb_extract_path_text);
        by_path(fcinfo, Wanted::Text, |path| path.texts(&texts), whole)
    }
    fn zson_exists(fcinfo) {
        let key = sys::arg(fcinfo, 1);
        whether(fcinfo, |path| with_bytes(key, |key| path.has(key)), builtin::jsonb_exists)
    }
    fn zson_exists_any(fcinfo) {
        let keys = sys::arg(fcinfo, 1);
        let any = |path: &Path<'_>| Texts::of(keys).any(true, |key| path.has(key));
        whether(fcinfo, any, builtin::jsonb_exists_any)
    }
    fn zson_exists_all(fcinfo) {
        let keys = sys::arg(fcinfo, 1);
        let all = |path: &Path<'_>| Ok(!Texts::of(keys).any(false, |key| path.has(key))?);
        whether(fcinfo, all, builtin::jsonb_exists_all)
    }
}

mod builtin {
    use super::{Datum, FunctionCallInfo};

    unsafe extern "C-unwind" {
        pub fn jsonb_object_field(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_object_field_text(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_array_element(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_array_element_text(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_extract_path(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_extract_path_text(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_exists(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_exists_any(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_exists_all(fcinfo: FunctionCallInfo) -> Datum;
    }
}

/// A document that is stored by its shape, in which a path is followed.
pub(super) struct Path<'a> {
    view: View<'a>,
}

impl<'a> Path<'a> {
    /// # Safety
    /// `key` is a text.
    unsafe fn key(&self, key: Datum) -> Result<Option<Value<'a>>, Error> {
        // SAFETY: by the caller.
        unsafe { with_bytes(key, |key| self.key_of_document(key)) }
    }

    /// The value of a key of the document.
    #[inline]
    pub(super) fn key_of_document(&self, key: &[u8]) -> Result<Option<Value<'a>>, Error> {
        // SAFETY: the server is not called below.
        self.view.key(unsafe { &mut backend().known }, key)
    }

    fn index(&self, index: Datum) -> Result<Option<Value<'a>>, Error> {
        let (root, index) = (self.view.root()?, index.value() as i32);
        match self.view.type_of(root)? {
            Type::Object => Ok(None),
            Type::Array => self.view.next(root, Step::Index(index.into())),
            // A value alone is an array of one, for this operator.
            _ => Ok(matches!(index, 0 | -1).then_some(root)),
        }
    }

    /// Where a path of texts leads, of which each is a key or an index, as the value before it demands. One with a null
    /// leads nowhere.
    fn texts(&self, path: &Texts) -> Result<Option<Value<'a>>, Error> {
        if path.has_null() {
            return Ok(None);
        }
        let mut value = None;
        for text in path.iter() {
            // SAFETY: an element of an array of texts.
            match unsafe { with_bytes(text, |text| self.text_step(value, text)) }? {
                None => return Ok(None),
                found => value = found,
            }
        }
        value.map_or_else(|| self.root(), Ok).map(Some)
    }

    /// The document's values.
    pub(super) fn view(&self) -> &View<'a> {
        &self.view
    }

    /// The document.
    pub(super) fn root(&self) -> Result<Value<'a>, Error> {
        self.view.root()
    }

    /// One step on, by a key or by an index, as the value demands. The first one has no value before it, and is of the document.
    pub(super) fn text_step(
        &self,
        value: Option<Value<'a>>,
        text: &[u8],
    ) -> Result<Option<Value<'a>>, Error> {
        let from = value.map_or_else(|| self.root(), Ok)?;
        match self.view.type_of(from)? {
            Type::Object if value.is_none() => self.key_of_document(text),
            Type::Object => self.view.next(from, Step::Key(text)),
            Type::Array => match index_of(text) {
                Some(index) => self.view.next(from, Step::Index(index)),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The same by a number.
    pub(super) fn index_step(
        &self,
        value: Option<Value<'a>>,
        index: i32,
    ) -> Result<Option<Value<'a>>, Error> {
        let value = value.map_or_else(|| self.root(), Ok)?;
        match self.view.type_of(value)? {
            Type::Object => self.view.next(value, Step::Key(index.to_string().as_bytes())),
            Type::Array => self.view.next(value, Step::Index(index.into())),
            _ => Ok(None),
        }
    }

    fn has(&self, key: &[u8]) -> Result<bool, Error> {
        if self.view.type_of(self.root()?)? == Type::Object {
            return Ok(self.key_of_document(key)?.is_some());
        }
        // SAFETY: the server is not called below.
        let all = unsafe { backend() };
        self.view.has(key, &mut all.part, all.decoder.scratch())
    }

    /// Writes a value to the backend's buffer.
    pub(super) fn write(&self, value: Value<'a>, wanted: Wanted) -> Result<Part, Error> {
        // SAFETY: the server is not called below.
        let all = unsafe { backend() };
        if wanted == Wanted::Text {
            match self.view.text_into(value, &mut all.part, all.decoder.scratch())? {
                (Text::Null, _) => return Ok(Part::Null),
                (Text::Written, len) => return Ok(Part::Text(len)),
                (Text::Numeric, len) => return Ok(Part::Numeric(len)),
                _ => {}
            }
        }
        // It is made longer, never shorter: a document is written over whatever is there.
        memory::at_least(&mut all.target, self.view.raw_len())?;
        Ok(Part::Jsonb(self.view.document(value, &mut all.target, all.decoder.scratch())?))
    }
}

/// The text of a key, which is asked for most, if both datums are here as they are: in fewer steps. `Some(None)`: it is null.
/// None: it is to be looked for as anything else.
///
/// # Safety
/// `zson` is one and `key` a text; the caller holds nothing that needs dropping.
#[inline]
unsafe fn text_of_key(zson: Datum, key: Datum) -> Option<Option<Datum>> {
    // SAFETY: by the caller; the server is called for memory and to make a dictionary ready, before anything is borrowed. The
    // varlena has the room that is said.
    unsafe {
        let (zson, key) = (sys::bytes_here(zson)?, sys::bytes_here(key)?);
        let header = parse_shapes(zson)?;
        let id = header.dictionary()?;
        if header.raw_len() > SMALL_BYTES_MAX {
            return text_of_larger(&header, reader(id), key);
        }
        // A text in pieces that were just written takes long to be copied.
        let value = crate::value::varlena_in(TEXT_ROOM_BYTES, |size| raw::palloc(size));
        let start = value.cast::<u8>().add(size_of::<u32>());
        let room = std::slice::from_raw_parts_mut(start, TEXT_ROOM_BYTES);
        match reader(id).text_of_key(&mut backend().known, &header, key, room) {
            Some((Text::Written, len)) => {
                pgrx::set_varsize_4b(value, (len + size_of::<u32>()) as i32);
                Some(Some(Datum::from(value)))
            }
            found => {
                raw::pfree(value.cast());
                found.map(|_| None)
            }
        }
    }
}

/// The same of a document that is not small: its texts are copied.
///
/// # Safety
/// As for [`text_of_key`].
unsafe fn text_of_larger(
    header: &Header<'_>,
    dictionary: &ReadingDictionary,
    key: &[u8],
) -> Option<Option<Datum>> {
    let room = header.raw_len() + TEXT_ROOM_BYTES;
    // A buffer is made longer by doubling it.
    if room > PART_KEPT_MAX / 2 {
        return None;
    }
    // SAFETY: by the caller.
    unsafe {
        let all = backend();
        memory::at_least(&mut all.part, room).ok()?;
        match dictionary.text_of_key(&mut all.known, header, key, &mut all.part)? {
            (Text::Written, len) => Some(Some(copied(&mut all.part, len))),
            _ => Some(None),
        }
    }
}

/// Room for a text of a small document. With its header it is a piece of 256 bytes of the server's memory, of which there is room
/// for about thirty in a row's first block.
const TEXT_ROOM_BYTES: usize = 256 - size_of::<u32>();
/// Bytes of a small document: its texts have fewer, and may be written with as many bytes more as are copied at once.
const SMALL_BYTES_MAX: usize = TEXT_ROOM_BYTES - 16;

/// The document is not stored by its shape.
pub(super) struct Elsewhere;

/// What `look` finds in a document that is stored by its shape. One that is long and out of line is fetched slice by slice,
/// and `look` begins anew after each.
///
/// # Safety
/// `zson` is one, and the caller holds nothing that needs dropping.
#[inline]
pub(super) unsafe fn looked<R>(
    zson: Datum,
    look: impl for<'a> Fn(&Path<'a>) -> Result<R, Error>,
) -> Result<R, Elsewhere> {
    // SAFETY: by the caller; the dictionary is used before the server looks anything up.
    unsafe {
        if let Some(header) = sys::bytes_here(zson).and_then(parse_shapes) {
            return looked_in(&header, look);
        }
        if let Some(len) = sys::out_of_line_len(zson).filter(|len| *len >= SLICED_LEN_MIN) {
            return looked_by_slices(zson, len, look);
        }
        with_bytes(zson, |bytes| match parse(bytes) {
            Ok(Stored::Current(header)) => looked_in(&header, look),
            _ => Err(Elsewhere),
        })
    }
}

/// The same in a datum that is here.
#[inline]
unsafe fn looked_in<R>(
    header: &Header<'_>,
    look: impl for<'a> Fn(&Path<'a>) -> Result<R, Error>,
) -> Result<R, Elsewhere> {
    let Some(id) = header.dictionary().filter(|_| header.method() == Method::Shapes) else {
        return Err(Elsewhere);
    };
    // SAFETY: by the caller.
    let found = match unsafe { reader(id) }.view(header) {
        Ok(Some(view)) => look(&Path { view }),
        Ok(None) => return Err(Elsewhere),
        Err(error) => Err(error),
    };
    Ok(found.unwrap_or_else(|error| raise_core(&error)))
}

/// Datums of so many bytes are fetched slice by slice: more than the first slice has.
const SLICED_LEN_MIN: usize = 3 * BLOCK_BYTES;

#[cold]
unsafe fn looked_by_slices<R>(
    zson: Datum,
    len: usize,
    look: impl for<'a> Fn(&Path<'a>) -> Result<R, Error>,
) -> Result<R, Elsewhere> {
    // SAFETY: by the caller; what the backend keeps is not borrowed while the server fetches.
    unsafe {
        let head = slice_of(zson, 0..Sliced::head_len(len));
        let Some((Method::Shapes, Some(id))) = method_and_dictionary(bytes_of(head)) else {
            raw::pfree(head.cast());
            return Err(Elsewhere);
        };
        let begun = Sliced::new(bytes_of(head), len, reader(id));
        backend().sliced = begun.unwrap_or_else(|error| raise_core(&error));
        raw::pfree(head.cast());
        loop {
            let dictionary = reader(id);
            let Some(sliced) = &backend().sliced else { return Err(Elsewhere) };
            let found = sliced.view(dictionary).and_then(|view| look(&Path { view }));
            let needed = match (found, sliced.needed()) {
                (Err(Error::Missing), Some(needed)) => needed,
                (found, _) => {
                    backend().sliced = None;
                    return Ok(found.unwrap_or_else(|error| raise_core(&error)));
                }
            };
            let slice = slice_of(zson, needed);
            let filled = match &mut backend().sliced {
                Some(sliced) => sliced.fill(bytes_of(slice)),
                None => Ok(()),
            };
            if let Err(error) = filled {
                backend().sliced = None;
                raise_core(&error);
            }
            raw::pfree(slice.cast());
        }
    }
}

/// A range of a value's bytes, fetched.
unsafe fn slice_of(value: Datum, range: Range<usize>) -> *mut pg_sys::varlena {
    // SAFETY: by the caller; no value has more bytes than an i32 counts.
    unsafe { raw::pg_detoast_datum_slice(value.cast_mut_ptr(), range.start as i32, range.len() as i32) }
}

/// The number of an element as `strtoint` of the server reads it; none if it is no `int4`.
fn index_of(text: &[u8]) -> Option<i64> {
    // What C calls white space.
    let start = text.iter().position(|byte| !matches!(byte, b' ' | 0x09..=0x0d))?;
    let index: i32 = std::str::from_utf8(&text[start..]).ok()?.parse().ok()?;
    Some(index.into())
}

/// The elements of an array of texts.
struct Texts {
    elements: *const Datum,
    nulls: *const bool,
    count: usize,
}

impl Texts {
    /// # Safety
    /// `array` is an array of texts.
    unsafe fn of(array: Datum) -> Texts {
        let (mut elements, mut nulls, mut count) = (ptr::null_mut(), ptr::null_mut(), 0);
        // SAFETY: by the caller; what the server makes lives as long as the current context.
        unsafe {
            let plain = raw::pg_detoast_datum(array.cast_mut_ptr()).cast();
            let align = pg_sys::TYPALIGN_INT as std::ffi::c_char;
            let (elements, nulls, count) = (&raw mut elements, &raw mut nulls, &raw mut count);
            raw::deconstruct_array(plain, pg_sys::TEXTOID, -1, false, align, elements, nulls, count);
        }
        Texts { elements, nulls, count: usize::try_from(count).unwrap_or(0) }
    }

    fn is_null(&self, at: usize) -> bool {
        // SAFETY: one for each element.
        unsafe { *self.nulls.add(at) }
    }

    fn has_null(&self) -> bool {
        (0..self.count).any(|at| self.is_null(at))
    }

    fn iter(&self) -> impl Iterator<Item = Datum> {
        // SAFETY: there are so many elements.
        (0..self.count).filter(|at| !self.is_null(*at)).map(|at| unsafe { *self.elements.add(at) })
    }

    /// Whether for any of them `is_so` gives `wanted`; nulls are not asked.
    fn any(&self, wanted: bool, is_so: impl Fn(&[u8]) -> Result<bool, Error>) -> Result<bool, Error> {
        for text in self.iter() {
            // SAFETY: elements are texts.
            if unsafe { with_bytes(text, &is_so) }? == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The value at a path of argument 0, a zson.
///
/// # Safety
/// `fcinfo` is a valid call record whose first argument is a zson and not null.
#[inline]
unsafe fn by_path(
    fcinfo: FunctionCallInfo,
    wanted: Wanted,
    follow: impl for<'a> Fn(&Path<'a>) -> Result<Option<Value<'a>>, Error>,
    whole: impl FnOnce() -> Datum,
) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        match part_of(sys::arg(fcinfo, 0), wanted, follow) {
            Ok(Some(part)) => part,
            Ok(None) => sys::null(fcinfo),
            Err(Elsewhere) => whole(),
        }
    }
}

/// A value of a zson, in memory of the current context.
///
/// # Safety
/// `zson` is one.
#[inline]
pub(super) unsafe fn part_of(
    zson: Datum,
    wanted: Wanted,
    follow: impl for<'a> Fn(&Path<'a>) -> Result<Option<Value<'a>>, Error>,
) -> Result<Option<Datum>, Elsewhere> {
    // SAFETY: by the caller; the buffer stays as it is until it is copied.
    unsafe {
        let part = looked(zson, |path| match follow(path)? {
            Some(value) => path.write(value, wanted),
            None => Ok(Part::Null),
        })?;
        Ok(Some(match part {
            Part::Null => return Ok(None),
            Part::Text(len) => copied(&mut backend().part, len),
            Part::Numeric(len) => text_of_numeric(len),
            Part::Jsonb(len) if wanted == Wanted::Text => {
                let jsonb = copied(&mut backend().target, len).cast_mut_ptr::<pg_sys::Jsonb>();
                let text = raw::JsonbToCString(ptr::null_mut(), &raw mut (*jsonb).root, len as i32);
                let text = Datum::from(raw::cstring_to_text(text));
                raw::pfree(jsonb.cast());
                text
            }
            Part::Jsonb(len) => copied(&mut backend().target, len),
        }))
    }
}

/// The text of the numeric in the backend's buffer.
#[cold]
unsafe fn text_of_numeric(len: usize) -> Datum {
    // SAFETY: the buffer stays in place while palloc runs, and has a whole numeric.
    unsafe {
        let start = backend().part.as_ptr();
        let numeric = raw::palloc(len);
        ptr::copy_nonoverlapping(start, numeric.cast::<u8>(), len);
        let none = pg_sys::InvalidOid;
        let text = raw::DirectFunctionCall1Coll(raw::numeric_out, none, Datum::from(numeric));
        Datum::from(raw::cstring_to_text(text.cast_mut_ptr()))
    }
}

/// A varlena of the first bytes of one of the backend's buffers. A large buffer is given back.
pub(super) unsafe fn copied(buffer: *mut Vec<u8>, len: usize) -> Datum {
    // SAFETY: the buffer stays in place while palloc runs, which runs nothing of ours; it has so many bytes.
    unsafe {
        let value = crate::value::varlena_in(len, |size| raw::palloc(size));
        let start = (*buffer).as_ptr();
        ptr::copy_nonoverlapping(start, value.cast::<u8>().add(size_of::<u32>()), len);
        if (*buffer).capacity() > PART_KEPT_MAX {
            *buffer = Vec::new();
        }
        Datum::from(value)
    }
}

/// A buffer above this is given back after use.
const PART_KEPT_MAX: usize = 1 << 20;

/// Whether argument 0, a zson, is so.
///
/// # Safety
/// As for [`by_path`].
unsafe fn whether(
    fcinfo: FunctionCallInfo,
    is_so: impl for<'a> Fn(&Path<'a>) -> Result<bool, Error>,
    whole: Builtin,
) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        match looked(sys::arg(fcinfo, 0), is_so) {
            Ok(found) => Datum::from(found),
            Err(Elsewhere) => scalar(fcinfo, [0], whole),
        }
    }
}
