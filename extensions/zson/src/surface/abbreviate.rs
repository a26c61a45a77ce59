//! Sorting documents by abbreviated keys: each is decoded once for its key, and again only where keys are equal.
//!
//! A key is 64 bits and never orders two documents otherwise than jsonb does; equal keys say nothing. From the top:
//!
//! | bits | what |
//! |---|---|
//! | 13 | class: object or array, number of elements up to 2047, scalar or not |
//! | 8 | where the document leaves the first one of the sort (the *pivot*) of its class, and to which side |
//! | 43 | type and first bits of the element with which it leaves |
//!
//! Documents of one table mostly have the same number of keys, the same keys, and some values in common, so that
//! only what follows tells them apart. jsonb compares element by element, key, value, key, value. A document that is
//! less than the pivot is the smaller the earlier it leaves it; one that is greater is the greater. Among those that
//! leave it at the same place to the same side, the elements at that place decide. Where the pivot has a nested
//! container the walk ends, for all documents: to see that two containers are equal takes more than bytes.
// The server's sort support is pointers and callbacks, and numerics are compared by the server.
#![allow(unsafe_code)]

use std::cmp::Ordering;
use std::ffi::{c_char, c_int};
use std::ptr;

use pgrx::pg_sys::{self, Datum, FunctionCallInfo, Oid, SortSupport, SortSupportData, varlena};

use super::decoded::Decoded;
use super::document::{Document, Element};
use super::order::stored_alike;
use crate::sys::{self, guarded, pg_function};
use crate::value;

unsafe extern "C-unwind" {
    fn compareJsonbContainers(a: *const u8, b: *const u8) -> c_int;
    fn varstr_cmp(a: *const c_char, a_len: c_int, b: *const c_char, b_len: c_int, collation: Oid) -> c_int;
    fn numeric_cmp(fcinfo: FunctionCallInfo) -> Datum;
    fn DirectFunctionCall2Coll(
        function: unsafe extern "C-unwind" fn(FunctionCallInfo) -> Datum,
        collation: Oid,
        a: Datum,
        b: Datum,
    ) -> Datum;
    fn MemoryContextAlloc(context: pg_sys::MemoryContext, size: usize) -> *mut u8;
}

const JSONB_HEADER: usize = 4;
const COUNT_MAX: u64 = (1 << 11) - 1;
const CLASS_SHIFT: u32 = 51;
const PLACE_SHIFT: u32 = 43;
const TYPE_SHIFT: u32 = 40;
/// The place of documents that did not leave the pivot.
const WITH_PIVOT: u64 = 128;
/// How many places are looked at; those on the other side count down from 255.
const PLACE_MAX: usize = 120;

/// What a sort remembers, in its memory.
struct Sort {
    /// A jsonb; null before the first document.
    pivot: *const varlena,
    /// Whether the database's collation is that of bytes.
    by_bytes: bool,
    decoded: Decoded,
}

pg_function! {
    /// `zson_sortsupport(internal)`.
    fn zson_sortsupport(fcinfo) {
        let support = sys::arg(fcinfo, 0).cast_mut_ptr::<SortSupportData>();
        let sort = MemoryContextAlloc((*support).ssup_cxt, size_of::<Sort>()).cast::<Sort>();
        let decoded = Decoded::new((*support).ssup_cxt);
        sort.write(Sort { pivot: ptr::null(), by_bytes: false, decoded });
        (*support).ssup_extra = sort.cast();
        (*support).comparator = Some(compare_documents);
        if (*support).abbreviate {
            (*sort).by_bytes = collates_by_bytes();
            (*support).comparator = Some(compare_keys);
            (*support).abbrev_converter = Some(abbreviate);
            (*support).abbrev_abort = Some(never);
            (*support).abbrev_full_comparator = Some(compare_documents);
        }
        Datum::null()
    }
}

unsafe extern "C-unwind" fn compare_documents(a: Datum, b: Datum, support: SortSupport) -> c_int {
    // SAFETY: the sort's values are zson, and its extra state is what zson_sortsupport put there.
    unsafe {
        guarded(move || {
            if stored_alike(a, b) {
                return 0;
            }
            let decoded = &raw mut (*(*support).ssup_extra.cast::<Sort>()).decoded;
            (*decoded).trim();
            let (a, b) = ((*decoded).get(a), (*decoded).get(b));
            compareJsonbContainers(a.add(JSONB_HEADER), b.add(JSONB_HEADER))
        })
    }
}

unsafe extern "C-unwind" fn compare_keys(a: Datum, b: Datum, _support: SortSupport) -> c_int {
    a.value().cmp(&b.value()) as c_int
}

/// A key costs one decoding, and a comparison without it two: even keys that tell little apart pay.
unsafe extern "C-unwind" fn never(_count: c_int, _support: SortSupport) -> bool {
    false
}

unsafe extern "C-unwind" fn abbreviate(original: Datum, support: SortSupport) -> Datum {
    // SAFETY: the sort's values are zson, and its extra state is what zson_sortsupport put there.
    unsafe {
        guarded(move || {
            let sort = (*support).ssup_extra.cast::<Sort>();
            let jsonb = value::view(original).cast_mut_ptr::<varlena>();
            if (*sort).pivot.is_null() {
                let size = pgrx::varsize_4b(jsonb);
                let pivot = MemoryContextAlloc((*support).ssup_cxt, size);
                ptr::copy_nonoverlapping(jsonb.cast::<u8>(), pivot, size);
                (*sort).pivot = pivot.cast();
            }
            let document = Document::new(sys::bytes_of(jsonb));
            let pivot = Document::new(sys::bytes_of((*sort).pivot));
            Datum::from(key(&document, &pivot, (*sort).by_bytes))
        })
    }
}

fn key(document: &Document, pivot: &Document, by_bytes: bool) -> u64 {
    let class = class(document);
    let rest = if class == self::class(pivot) && (document.count() as u64) < COUNT_MAX {
        departure(document, pivot, by_bytes)
    } else {
        0
    };
    class << CLASS_SHIFT | rest
}

/// As jsonb orders documents first: an array of no elements before scalars, scalars before arrays of one.
fn class(document: &Document) -> u64 {
    let count = (document.count() as u64).min(COUNT_MAX);
    u64::from(document.is_object()) << 12 | count << 1 | u64::from(!document.is_scalar())
}

/// Of two documents of one class: place and content.
fn departure(document: &Document, pivot: &Document, by_bytes: bool) -> u64 {
    for place in 0..pivot.places().min(PLACE_MAX) {
        let (element, there) = (document.at(place), pivot.at(place));
        if matches!(there, Element::Array(_) | Element::Object(_)) {
            return WITH_PIVOT << PLACE_SHIFT | content(element, there, by_bytes);
        }
        let place = place as u64;
        match compare(element, there, by_bytes) {
            Ordering::Less => return place << PLACE_SHIFT | content(element, there, by_bytes),
            Ordering::Greater => return (255 - place) << PLACE_SHIFT | content(element, there, by_bytes),
            Ordering::Equal => {}
        }
    }
    WITH_PIVOT << PLACE_SHIFT
}

/// As `compareJsonbContainers` does for elements of which `b` is no container.
fn compare(a: Element, b: Element, by_bytes: bool) -> Ordering {
    match (a, b) {
        (Element::String(a), Element::String(b)) if by_bytes || a == b => a.cmp(b),
        (Element::String(a), Element::String(b)) => {
            let [a_len, b_len] = [a, b].map(|text| c_int::try_from(text.len()).unwrap_or(c_int::MAX));
            // SAFETY: two texts of the database's encoding with their lengths.
            let sign = unsafe {
                varstr_cmp(a.as_ptr().cast(), a_len, b.as_ptr().cast(), b_len, pg_sys::DEFAULT_COLLATION_OID)
            };
            sign.cmp(&0)
        }
        (Element::Numeric(a), Element::Numeric(b)) if a == b => Ordering::Equal,
        (Element::Numeric(a), Element::Numeric(b)) => {
            // SAFETY: two numerics as jsonb holds them.
            let sign = unsafe {
                let [a, b] = [a, b].map(|number| Datum::from(number.as_ptr()));
                DirectFunctionCall2Coll(numeric_cmp, Oid::INVALID, a, b)
            };
            (sign.value() as i32).cmp(&0)
        }
        (Element::Bool(a), Element::Bool(b)) => a.cmp(&b),
        _ => a.rank().cmp(&b.rank()),
    }
}

/// Type and first bits, 43 in all, of an element that stands where the pivot has `there`.
fn content(element: Element, there: Element, by_bytes: bool) -> u64 {
    let first = match (element, there) {
        (Element::Null, _) => 0,
        (Element::String(text), Element::String(there)) if by_bytes => string_departure(text, there),
        (Element::String(text), _) if by_bytes => first_bytes(text),
        (Element::String(_), _) => 0,
        // SAFETY: a numeric as jsonb holds it.
        (Element::Numeric(number), _) => numeric_bits(unsafe { sys::bytes_of(number.as_ptr().cast()) }),
        (Element::Bool(value), _) => u64::from(value),
        (Element::Array(count) | Element::Object(count), _) => count as u64,
    };
    element.rank() << TYPE_SHIFT | first
}

/// As for documents: where a string leaves the pivot's, to which side, and what follows. Strings on different sides
/// are never compared by it.
fn string_departure(text: &[u8], there: &[u8]) -> u64 {
    let common = text.iter().zip(there).take_while(|(a, b)| a == b).count();
    let at = common.min(255);
    let place = if text < there { at } else { 255 - at };
    (place as u64) << 32 | first_bytes(&text[at..]) >> 8
}

/// 40 bits.
fn first_bytes(text: &[u8]) -> u64 {
    (0..5).fold(0, |bits, at| bits << 8 | u64::from(text.get(at).copied().unwrap_or(0)))
}

/// The sign and the first 39 bits of the magnitude of a stored numeric: its weight (powers of 10,000) and its digits,
/// as the server's `numeric.c` lays them out.
fn numeric_bits(stored: &[u8]) -> u64 {
    let word = |at: usize| stored.get(at..at + 2).map_or(0, |two| u16::from_ne_bytes([two[0], two[1]]));
    let header = word(0);
    let (negative, weight, digits) = if header & 0x8000 != 0 {
        let weight = (header & 0x3f) as i16 - if header & 0x40 != 0 { 64 } else { 0 };
        (header & 0x2000 != 0, weight, 2)
    } else {
        (header & 0xc000 == 0x4000, word(2) as i16, 4)
    };
    let magnitude = match weight {
        _ if stored.len() <= digits => 0,
        ..-126 => 1 << 31,
        -126..=126 => {
            let digit = |n: usize| u64::from(word(digits + 2 * n));
            ((i64::from(weight) + 128) as u64) << 31 | digit(0) << 17 | digit(1) << 3 | digit(2) >> 11
        }
        127.. => 255 << 31,
    };
    if negative { (1 << 39) - 1 - magnitude } else { 1 << 39 | magnitude }
}

/// Whether the database's collation orders strings by their bytes.
unsafe fn collates_by_bytes() -> bool {
    // SAFETY: in a transaction; the attribute is copied before the row is released.
    unsafe {
        let row = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::DATABASEOID as c_int,
            Datum::from(pg_sys::MyDatabaseId),
        );
        if row.is_null() {
            return false;
        }
        let provider = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_database>()).datlocprovider as u8;
        let mut null = true;
        let name = pg_sys::SysCacheGetAttr(
            pg_sys::SysCacheIdentifier::DATABASEOID as c_int,
            row,
            pg_sys::Anum_pg_database_datcollate as i16,
            &raw mut null,
        );
        let of_c = !null
            && matches!(sys::bytes_of(pg_sys::pg_detoast_datum_packed(name.cast_mut_ptr())), b"C" | b"POSIX");
        pg_sys::ReleaseSysCache(row);
        // 'b', since 17, is code point order, and so that of bytes in UTF-8.
        provider == b'c' && of_c
    }
}
