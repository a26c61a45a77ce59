//! What values are made of: their headers, the dictionaries they need, the strings in them.
//!
//! Values of any type are looked through: zson alone, under domains, in arrays, rows and ranges.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::c_char;
use std::ptr;

use pgrx::pg_sys::{self, Datum, Oid};
use pgshrink_zson::datum::{Method, Stored, parse};
use pgshrink_zson::memory;

use crate::backend::objects;
use crate::catalog::{Row, c_string, text_datum};
use crate::error::{PgSqlErrorCode as Code, raise, raise_core};
use crate::sys::{self, bytes_of, copy_of, had, out_of_memory, pg_function, raw};

/// The server's own limit of one allocation (`MaxAllocSize`).
const ALLOC_BYTES_MAX: usize = 0x3fff_ffff;
/// Types in types are followed this far.
const DEPTH_MAX: u32 = 64;

pg_function! {
    /// `zson_info(zson)`, a text: version, codec, dictionary and sizes.
    fn zson_info_text(fcinfo) {
        let packed = pg_sys::pg_detoast_datum_packed(sys::arg(fcinfo, 0).cast_mut_ptr());
        text_datum(&info(bytes_of(packed)))
    }
    /// The same, a cstring: what version 1.1 declares, and views made with it.
    fn zson_info(fcinfo) {
        let packed = pg_sys::pg_detoast_datum_packed(sys::arg(fcinfo, 0).cast_mut_ptr());
        Datum::from(pg_sys::pstrdup(c_string(&info(bytes_of(packed))).as_ptr()))
    }
    /// `zson_dictionary_ids(anyelement)`.
    fn zson_dictionary_ids(fcinfo) {
        let of = pg_sys::get_fn_expr_argtype((*fcinfo).flinfo, 0);
        let mut found = BTreeSet::new();
        dictionaries_of(sys::arg(fcinfo, 0), of, objects().zson, &mut found, 0);
        let mut ids: Vec<Datum> = found.into_iter().map(Datum::from).collect();
        Datum::from(pg_sys::construct_array(
            ids.as_mut_ptr(),
            ids.len() as i32,
            pg_sys::INT4OID,
            4,
            true,
            pg_sys::TYPALIGN_INT as c_char,
        ))
    }
    /// `zson_extract_strings(jsonb)`: keys and string values at any depth; of each object the keys first.
    fn zson_extract_strings(fcinfo) {
        let jsonb = pg_sys::pg_detoast_datum(sys::arg(fcinfo, 0).cast_mut_ptr());
        let mut texts = Vec::new();
        strings_of(Datum::from(jsonb), &mut |text| had(memory::push(&mut texts, copy_of(text))));
        text_array(&texts)
    }
}

/// A `text[]`, in one piece: what asks for memory text by text may be refused when not even the refusal can be copied.
///
/// # Safety
/// Called by the server, with a memory context for the result.
unsafe fn text_array(texts: &[Vec<u8>]) -> Datum {
    const HEAD_BYTES: usize = size_of::<pg_sys::ArrayType>() + 2 * size_of::<i32>();
    // SAFETY: all of the piece is written: a header, then each text's, its bytes, and zeros up to the next.
    unsafe {
        if texts.is_empty() {
            return Datum::from(pg_sys::construct_empty_array(pg_sys::TEXTOID));
        }
        let bytes = HEAD_BYTES
            + texts.iter().map(|text| (size_of::<i32>() + text.len()).next_multiple_of(4)).sum::<usize>();
        if bytes > ALLOC_BYTES_MAX {
            raise(
                Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
                "zson: the strings of the document do not fit into an array",
                &format!("The array would have {bytes} bytes; at most {ALLOC_BYTES_MAX} are allowed."),
                "",
            );
        }
        let array = pg_sys::palloc_extended(bytes, pg_sys::MCXT_ALLOC_NO_OOM as i32).cast::<u8>();
        if array.is_null() {
            out_of_memory();
        }
        let head = [(bytes << 2) as i32, 1, 0, u32::from(pg_sys::TEXTOID) as i32, texts.len() as i32, 1];
        ptr::copy_nonoverlapping(head.as_ptr().cast(), array, HEAD_BYTES);
        let mut at = array.add(HEAD_BYTES);
        for text in texts {
            let varlena = size_of::<i32>() + text.len();
            at.cast::<i32>().write((varlena << 2) as i32);
            ptr::copy_nonoverlapping(text.as_ptr(), at.add(size_of::<i32>()), text.len());
            at.add(varlena).write_bytes(0, varlena.next_multiple_of(4) - varlena);
            at = at.add(varlena.next_multiple_of(4));
        }
        Datum::from(array)
    }
}

fn info(bytes: &[u8]) -> String {
    let percent = |raw_len: usize| bytes.len() as f64 * 100.0 / raw_len.max(1) as f64;
    match parse(bytes).unwrap_or_else(|error| raise_core(&error)) {
        // What the original printed.
        Stored::Legacy(legacy) => format!(
            "zson version = 0, dict version = {}, jsonb size = {}, zson size (without pglz compression) = {} ({:.2}%)",
            legacy.dictionary_id(),
            legacy.raw_len(),
            bytes.len(),
            percent(legacy.raw_len())
        ),
        Stored::Current(header) => {
            let codec = match header.method() {
                Method::Raw => "none",
                method => method.name(),
            };
            let dictionary = header.dictionary().map_or("none".to_owned(), |id| id.to_string());
            format!(
                "zson version = 2, codec = {codec}, dictionary = {dictionary}, jsonb size = {}, zson size = {} ({:.2}%)",
                header.raw_len(),
                bytes.len(),
                percent(header.raw_len())
            )
        }
    }
}

/// The dictionary that one datum names: the original's as a negative number.
///
/// # Safety
/// `datum` is a zson value.
pub unsafe fn dictionary_of(datum: Datum) -> Option<i32> {
    // SAFETY: by the caller.
    unsafe {
        let packed = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        let id = match parse(bytes_of(packed)).unwrap_or_else(|error| raise_core(&error)) {
            Stored::Legacy(legacy) => Some(-i64::from(legacy.dictionary_id()) - 1),
            Stored::Current(header) => header.dictionary().map(|id| i64::from(id.get())),
        };
        if !std::ptr::eq(packed, datum.cast_mut_ptr()) {
            pg_sys::pfree(packed.cast());
        }
        id.map(|id| i32::try_from(id).unwrap_or(i32::MIN))
    }
}

/// The dictionaries that the elements of an array need, whose type only the array itself tells.
///
/// # Safety
/// `array` is an array.
pub unsafe fn element_dictionaries(array: Datum, zson: Oid) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    // SAFETY: by the caller.
    unsafe {
        let plain = pg_sys::pg_detoast_datum(array.cast_mut_ptr());
        let element = (*plain.cast::<pg_sys::ArrayType>()).elemtype;
        if can_hold(element, zson, 0) {
            for_each_element(Datum::from(plain), element, |inner| {
                dictionaries_of(inner, element, zson, &mut found, 0);
            });
        }
    }
    found
}

/// Whether a value of type `of` can hold a zson.
pub fn can_hold(of: Oid, zson: Oid, depth: u32) -> bool {
    if of == zson {
        return true;
    }
    if depth > DEPTH_MAX {
        return true;
    }
    // SAFETY: catalog lookups.
    unsafe {
        match Parts::of(of) {
            Parts::Element(inner) => can_hold(inner, zson, depth + 1),
            Parts::Row(row) => {
                let shape = pg_sys::lookup_rowtype_tupdesc(row, -1);
                let columns =
                    (0..(*shape).natts as usize).filter_map(|at| column_type(shape, at)).collect::<Vec<_>>();
                release(shape);
                columns.into_iter().any(|inner| can_hold(inner, zson, depth + 1))
            }
            Parts::None => false,
        }
    }
}

enum Parts {
    /// A domain's, an array's, a range's.
    Element(Oid),
    Row(Oid),
    None,
}

impl Parts {
    unsafe fn of(of: Oid) -> Parts {
        // SAFETY: catalog lookups.
        unsafe {
            let element = pg_sys::get_element_type(of);
            if element != pg_sys::InvalidOid {
                return Parts::Element(element);
            }
            match pg_sys::get_typtype(of) as u8 {
                pg_sys::TYPTYPE_DOMAIN => Parts::Element(pg_sys::getBaseType(of)),
                pg_sys::TYPTYPE_COMPOSITE => Parts::Row(of),
                pg_sys::TYPTYPE_RANGE => Parts::Element(pg_sys::get_range_subtype(of)),
                pg_sys::TYPTYPE_MULTIRANGE => Parts::Element(pg_sys::get_multirange_range(of)),
                _ => Parts::None,
            }
        }
    }
}

/// Adds the dictionaries that `value`, of type `of`, needs.
unsafe fn dictionaries_of(value: Datum, of: Oid, zson: Oid, found: &mut BTreeSet<i32>, depth: u32) {
    // SAFETY: the value is of the type.
    unsafe {
        if of == zson {
            found.extend(dictionary_of(value));
            return;
        }
        if depth > DEPTH_MAX {
            raise(Code::ERRCODE_STATEMENT_TOO_COMPLEX, "zson: a value is nested too deeply", "", "");
        }
        if of != pg_sys::RECORDOID && !can_hold(of, zson, 0) {
            return;
        }
        let kind = pg_sys::get_typtype(of) as u8;
        let element = pg_sys::get_element_type(of);
        if element != pg_sys::InvalidOid {
            for_each_element(value, element, |inner| dictionaries_of(inner, element, zson, found, depth + 1));
        } else if kind == pg_sys::TYPTYPE_DOMAIN {
            dictionaries_of(value, pg_sys::getBaseType(of), zson, found, depth + 1);
        } else if kind == pg_sys::TYPTYPE_RANGE {
            let cache = pg_sys::lookup_type_cache(of, pg_sys::TYPECACHE_RANGE_INFO as i32);
            let range = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast();
            for_each_bound(cache, range, |inner| {
                dictionaries_of(inner, (*(*cache).rngelemtype).type_id, zson, found, depth + 1);
            });
        } else if kind == pg_sys::TYPTYPE_MULTIRANGE {
            let cache = pg_sys::lookup_type_cache(of, pg_sys::TYPECACHE_MULTIRANGE_INFO as i32);
            let ranges = (*cache).rngtype;
            let multirange = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast();
            let (mut count, mut all) = (0, std::ptr::null_mut());
            raw::multirange_deserialize(ranges, multirange, &mut count, &mut all);
            for at in 0..count as usize {
                for_each_bound(ranges, *all.add(at), |inner| {
                    dictionaries_of(inner, (*(*ranges).rngelemtype).type_id, zson, found, depth + 1);
                });
            }
        } else if kind == pg_sys::TYPTYPE_COMPOSITE || of == pg_sys::RECORDOID {
            for_each_column(value, |inner, inner_type| {
                dictionaries_of(inner, inner_type, zson, found, depth + 1)
            });
        }
    }
}

unsafe fn for_each_element(array: Datum, element: Oid, mut each: impl FnMut(Datum)) {
    // SAFETY: an array of this element type.
    unsafe {
        let (mut len, mut by_value, mut align) = (0, false, 0);
        pg_sys::get_typlenbyvalalign(element, &mut len, &mut by_value, &mut align);
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        let (mut elements, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        pg_sys::deconstruct_array(
            array,
            element,
            len.into(),
            by_value,
            align,
            &mut elements,
            &mut nulls,
            &mut count,
        );
        for at in 0..count as usize {
            if !*nulls.add(at) {
                each(*elements.add(at));
            }
        }
    }
}

unsafe fn for_each_bound(
    cache: *mut pg_sys::TypeCacheEntry,
    range: *mut pg_sys::RangeType,
    mut each: impl FnMut(Datum),
) {
    let (mut lower, mut upper) = (pg_sys::RangeBound::default(), pg_sys::RangeBound::default());
    let mut empty = false;
    // SAFETY: a range of the type of this cache entry.
    unsafe { pg_sys::range_deserialize(cache, range, &mut lower, &mut upper, &mut empty) };
    for bound in [lower, upper] {
        if !empty && !bound.infinite {
            each(bound.val);
        }
    }
}

unsafe fn for_each_column(value: Datum, mut each: impl FnMut(Datum, Oid)) {
    // SAFETY: a row value names its type.
    unsafe {
        let header = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
        let of = (*header).t_choice.t_datum.datum_typeid;
        let typmod = (*header).t_choice.t_datum.datum_typmod;
        let shape = pg_sys::lookup_rowtype_tupdesc(of, typmod);
        let columns = (*shape).natts as usize;
        let mut tuple = pg_sys::HeapTupleData { t_data: header, ..Default::default() };
        tuple.t_len = pgrx::varsize_4b(header.cast()) as u32;
        let row = Row::of(&mut tuple, shape);
        let types: Vec<Option<Oid>> = (0..columns).map(|at| column_type(shape, at)).collect();
        release(shape);
        for (at, of) in types.into_iter().enumerate() {
            if let (Some(value), Some(of)) = (row.value(at + 1), of) {
                each(value, of);
            }
        }
    }
}

/// The type of column `at`, from 0, unless it was dropped.
unsafe fn column_type(shape: pg_sys::TupleDesc, at: usize) -> Option<Oid> {
    // SAFETY: `at` is below the number of columns.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        let columns = (*shape).attrs.as_ptr();
        // Since 18 behind an array of as many compact ones (`TupleDescAttrAddress` of tupdesc.h).
        #[cfg(feature = "pg18")]
        let columns = (*shape).compact_attrs.as_ptr().add((*shape).natts as usize);
        let column = columns.cast::<pg_sys::FormData_pg_attribute>().add(at);
        (!(*column).attisdropped).then_some((*column).atttypid)
    }
}

unsafe fn release(shape: pg_sys::TupleDesc) {
    // SAFETY: a descriptor that lookup_rowtype_tupdesc returned.
    unsafe {
        if (*shape).tdrefcount >= 0 {
            pg_sys::DecrTupleDescRefCount(shape);
        }
    }
}

/// Gives each key and each string of a jsonb to `each`: of an object first its keys.
///
/// # Safety
/// `jsonb` is a jsonb that is not compressed or out of line.
pub unsafe fn strings_of(jsonb: Datum, each: &mut dyn FnMut(&[u8])) {
    use pg_sys::JsonbIteratorToken as Token;
    // SAFETY: the iterator is of this value; strings are read before it moves on.
    unsafe {
        let jsonb = jsonb.cast_mut_ptr::<pg_sys::Jsonb>();
        let mut iterator = pg_sys::JsonbIteratorInit(&raw mut (*jsonb).root);
        let mut value = pg_sys::JsonbValue::default();
        // Keys and values of each container that is open.
        let mut open: Vec<[Vec<Vec<u8>>; 2]> = vec![Default::default()];
        loop {
            let token = pg_sys::JsonbIteratorNext(&mut iterator, &mut value, false);
            match token {
                Token::WJB_DONE => break,
                Token::WJB_BEGIN_OBJECT | Token::WJB_BEGIN_ARRAY => {
                    had(memory::push(&mut open, Default::default()));
                }
                Token::WJB_END_OBJECT | Token::WJB_END_ARRAY => {
                    let [keys, values] = open.pop().unwrap_or_default();
                    if let Some([_, outer]) = open.last_mut() {
                        had(memory::reserve(outer, keys.len() + values.len()));
                        outer.extend(keys);
                        outer.extend(values);
                    }
                }
                Token::WJB_KEY | Token::WJB_VALUE | Token::WJB_ELEM
                    if value.type_ == pg_sys::jbvType::jbvString =>
                {
                    let string = value.val.string;
                    let text =
                        copy_of(std::slice::from_raw_parts(string.val.cast::<u8>(), string.len as usize));
                    if let Some([keys, values]) = open.last_mut() {
                        had(memory::push(if token == Token::WJB_KEY { keys } else { values }, text));
                    }
                }
                _ => {}
            }
        }
        open.into_iter().flatten().flatten().for_each(|text| each(&text));
    }
}
