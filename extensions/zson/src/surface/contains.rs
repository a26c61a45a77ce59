//! Whether a document that is stored by its shape holds another, without the rest of it.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum, FunctionCallInfo};
use pgshrink_zson::Error;
use pgshrink_zson::shapes::{Type, Value};

use super::call::scalar;
use super::document::{Document, Element};
use super::part::{Elsewhere, Part, Path, Wanted, copied, looked};
use crate::backend::backend;
use crate::sys::{self, bytes_of, pg_function, raw};
use crate::value::{new_varlena, view};

/// Whether a zson that is stored by its shape holds all pairs of a jsonb object, as `@>` asks (`JsonbDeepContains` of
/// `src/backend/utils/adt/jsonb_util.c`). Each is looked for alone; what it has to hold may be an array or an object, about
/// which the server's function is asked. What is no object is looked for elsewhere, as a whole.
///
/// # Safety
/// `zson` and `jsonb` are values of these types, the latter with a plain header.
unsafe fn contains(zson: Datum, jsonb: Datum) -> Result<bool, Elsewhere> {
    // SAFETY: by the caller.
    unsafe {
        let wanted = Document::new(bytes_of(jsonb.cast_mut_ptr()));
        if !wanted.is_object() {
            return Err(Elsewhere);
        }
        looked(zson, |path| {
            let root = path.root()?;
            if path.view().type_of(root)? != Type::Object {
                return Ok(false);
            }
            for pair in 0..wanted.count() {
                let Element::String(key) = wanted.at(2 * pair) else { return Ok(false) };
                let found = path.key_of_document(key)?;
                let is_held = match found {
                    Some(value) => {
                        holds(path, value, wanted.at(2 * pair + 1), wanted.bytes_at(2 * pair + 1))?
                    }
                    None => false,
                };
                if !is_held {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

/// Whether a value of a document holds an element, whose bytes these are.
unsafe fn holds(path: &Path<'_>, value: Value<'_>, wanted: Element<'_>, bytes: &[u8]) -> Result<bool, Error> {
    let of = path.view().type_of(value)?;
    match (wanted, of) {
        (Element::Null, Type::Null) => return Ok(true),
        (Element::Bool(wanted), Type::Bool(found)) => return Ok(wanted == found),
        (Element::String(wanted), Type::Text) => {
            // SAFETY: the server is not called below.
            let all = unsafe { backend() };
            let (_, len) = path.view().text_into(value, &mut all.part, all.decoder.scratch())?;
            return Ok(all.part.get(..len) == Some(wanted));
        }
        (Element::Numeric(_), Type::Number)
        | (Element::Array(_), Type::Array)
        | (Element::Object(_), Type::Object) => {}
        _ => return Ok(false),
    }
    let Part::Jsonb(len) = path.write(value, Wanted::Jsonb)? else { return Ok(false) };
    // SAFETY: both are jsonb, made here; what compares them looks no dictionary up.
    unsafe {
        let found = copied(&mut backend().target, len);
        let wanted = match wanted {
            Element::Numeric(numeric) => {
                // An array of one, as a value alone is.
                let head = [0x5000_0001_u32, 0x9000_0000 | numeric.len() as u32];
                let head: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
                new_varlena(&[&head, numeric].concat())
            }
            _ => new_varlena(bytes),
        };
        let none = pg_sys::InvalidOid;
        let held = raw::DirectFunctionCall2Coll(builtin::jsonb_contains, none, found, wanted);
        raw::pfree(found.cast_mut_ptr());
        raw::pfree(wanted.cast_mut_ptr());
        Ok(held.value() != 0)
    }
}

pg_function! {
    fn zson_contains(fcinfo) {
        let jsonb = view(sys::arg(fcinfo, 1));
        match contains(sys::arg(fcinfo, 0), jsonb) {
            Ok(found) => Datum::from(found),
            Err(Elsewhere) => scalar(fcinfo, [0, 1], builtin::jsonb_contains),
        }
    }
    fn zson_contains_jsonb(fcinfo) {
        let jsonb = raw::pg_detoast_datum(sys::arg(fcinfo, 1).cast_mut_ptr());
        match contains(sys::arg(fcinfo, 0), Datum::from(jsonb)) {
            Ok(found) => Datum::from(found),
            Err(Elsewhere) => scalar(fcinfo, [0], builtin::jsonb_contains),
        }
    }
    fn zson_contained(fcinfo) {
        let jsonb = view(sys::arg(fcinfo, 0));
        match contains(sys::arg(fcinfo, 1), jsonb) {
            Ok(found) => Datum::from(found),
            Err(Elsewhere) => scalar(fcinfo, [0, 1], builtin::jsonb_contained),
        }
    }
    fn jsonb_contained_zson(fcinfo) {
        let jsonb = raw::pg_detoast_datum(sys::arg(fcinfo, 0).cast_mut_ptr());
        match contains(sys::arg(fcinfo, 1), Datum::from(jsonb)) {
            Ok(found) => Datum::from(found),
            Err(Elsewhere) => scalar(fcinfo, [1], builtin::jsonb_contained),
        }
    }
}

mod builtin {
    use super::{Datum, FunctionCallInfo};

    unsafe extern "C-unwind" {
        pub fn jsonb_contains(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_contained(fcinfo: FunctionCallInfo) -> Datum;
    }
}
