//! The server's functions that are called for every value, declared without pgrx's guard, and how ours are defined.
//!
//! pgrx's own declarations set up a jump buffer for each call (25 to 40 ns) so that an ERROR becomes a Rust panic.
//! Here an ERROR jumps over the Rust frames above instead. So:
//!
//! 1. whoever calls a function of [`raw`] holds nothing that needs dropping, and no borrow that must be given back;
//! 2. a function of [`pg_function!`] catches its own panics and turns them into ERRORs.
#![allow(unsafe_code)]

use pgrx::pg_sys::{self, Datum, FunctionCallInfo};
use pgshrink_zson::memory;

use crate::error::{PgSqlErrorCode as Code, raise, raise_core};
use crate::reserve::{drop_ballast, is_memory_short, keep_ballast};

pub mod raw {
    //! See the header of the parent: no destructors across these.
    use std::ffi::{c_char, c_int, c_void};

    use pgrx::pg_sys::{
        ArrayType, Datum, FunctionCallInfo, JsonbContainer, Oid, RangeType, Size, TypeCacheEntry, varlena,
    };

    unsafe extern "C-unwind" {
        pub fn pg_detoast_datum_packed(datum: *mut varlena) -> *mut varlena;
        pub fn palloc(size: Size) -> *mut c_void;
        pub fn pfree(pointer: *mut c_void);
        pub fn geterrcode() -> i32;
        pub fn jsonb_in(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_out(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_recv(fcinfo: FunctionCallInfo) -> Datum;
        pub fn jsonb_send(fcinfo: FunctionCallInfo) -> Datum;
        pub fn pg_detoast_datum(datum: *mut varlena) -> *mut varlena;
        pub fn pg_detoast_datum_slice(datum: *mut varlena, first: i32, count: i32) -> *mut varlena;
        pub fn cstring_to_text(string: *const c_char) -> *mut varlena;
        pub fn JsonbToCString(
            out: *mut c_void,
            container: *mut JsonbContainer,
            estimated_len: c_int,
        ) -> *mut c_char;
        pub fn DirectFunctionCall1Coll(
            function: unsafe extern "C-unwind" fn(FunctionCallInfo) -> Datum,
            collation: Oid,
            argument: Datum,
        ) -> Datum;
        pub fn DirectFunctionCall2Coll(
            function: unsafe extern "C-unwind" fn(FunctionCallInfo) -> Datum,
            collation: Oid,
            first: Datum,
            second: Datum,
        ) -> Datum;
        pub fn exprType(expression: *const c_void) -> Oid;
        pub fn numeric_out(fcinfo: FunctionCallInfo) -> Datum;
        pub fn deconstruct_array(
            array: *mut ArrayType,
            element: Oid,
            len: c_int,
            by_value: bool,
            align: c_char,
            elements: *mut *mut Datum,
            nulls: *mut *mut bool,
            count: *mut c_int,
        );
        pub fn multirange_deserialize(
            ranges: *mut TypeCacheEntry,
            multirange: *const c_void,
            count: *mut i32,
            all: *mut *mut *mut RangeType,
        );
    }
}

/// A version 1 function of the server's call convention by its C name, with the record that announces it.
///
/// The body is an expression of [`Datum`] with the call's `FunctionCallInfo` in the name given.
macro_rules! pg_function {
    ($($(#[$doc:meta])* fn $name:ident($fcinfo:ident) $body:block)*) => {$(
        const _: () = {
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($fcinfo: ::pgrx::pg_sys::FunctionCallInfo) -> ::pgrx::pg_sys::Datum {
                // SAFETY: the server calls it with a valid call record; panics end at the guard.
                #[allow(unused_unsafe)]
                unsafe { crate::sys::guarded(move || unsafe { $body }) }
            }
        };
        ::pastey::paste! {
            #[unsafe(no_mangle)]
            extern "C" fn [<pg_finfo_ $name>]() -> &'static ::pgrx::pg_sys::Pg_finfo_record {
                const RECORD: ::pgrx::pg_sys::Pg_finfo_record = ::pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
                &RECORD
            }
        }
    )*};
}
pub(crate) use pg_function;

/// Runs `body` so that a panic in it becomes an ERROR, and so that the ERROR of a lack of memory can be copied, which
/// pgrx does of every one that it catches ([`crate::reserve`]).
///
/// # Safety
/// Called by the server, in its main thread.
#[inline]
pub unsafe fn guarded<R: Copy>(body: impl FnOnce() -> R) -> R {
    // SAFETY: by the caller; the callback lives until it is taken off the stack, by us or by who catches an ERROR.
    unsafe {
        let mut callback = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(make_room_for_error),
            arg: std::ptr::null_mut(),
        };
        let previous = callback.previous;
        pg_sys::error_context_stack = &raw mut callback;
        let done = pg_sys::submodules::panic::pgrx_extern_c_guard(std::panic::AssertUnwindSafe(|| {
            require_ballast();
            body()
        }));
        pg_sys::error_context_stack = previous;
        done
    }
}

/// Sees to it that the ERROR of a lack of memory can be copied; if there is no memory even for that, that is the ERROR.
#[inline]
pub fn require_ballast() {
    if !keep_ballast() {
        out_of_memory();
    }
}

/// The ERROR of a lack of memory.
pub fn out_of_memory() -> ! {
    raise(Code::ERRCODE_OUT_OF_MEMORY, "zson: out of memory", "", "")
}

/// Called for every message on its way, before it is caught or sent.
unsafe extern "C-unwind" fn make_room_for_error(_: *mut std::ffi::c_void) {
    // SAFETY: only asks for the code of the message that is being made.
    if unsafe { raw::geterrcode() } == Code::ERRCODE_OUT_OF_MEMORY as i32 {
        drop_ballast();
    }
}

/// Argument `n`, whatever it is if that argument is null.
///
/// # Safety
/// `fcinfo` is a valid call record with more than `n` arguments.
#[inline]
pub unsafe fn arg(fcinfo: FunctionCallInfo, n: usize) -> Datum {
    // SAFETY: by the caller.
    unsafe { (*fcinfo).args.as_slice(n + 1)[n].value }
}

/// Whether argument `n` is null.
///
/// # Safety
/// As for [`arg`].
#[inline]
pub unsafe fn arg_is_null(fcinfo: FunctionCallInfo, n: usize) -> bool {
    // SAFETY: by the caller.
    unsafe { (*fcinfo).args.as_slice(n + 1)[n].isnull }
}

/// How many arguments the call has.
///
/// # Safety
/// `fcinfo` is a valid call record.
#[inline]
pub unsafe fn arg_count(fcinfo: FunctionCallInfo) -> usize {
    // SAFETY: by the caller.
    usize::try_from(unsafe { (*fcinfo).nargs }).unwrap_or(0)
}

/// Argument `n` as an integer, or `absent` where the call does not have it or it is null.
///
/// # Safety
/// `fcinfo` is a valid call record, and argument `n`, if it is there, an `int4`.
pub unsafe fn int4_arg(fcinfo: FunctionCallInfo, n: usize, absent: i32) -> i32 {
    // SAFETY: by the caller.
    unsafe {
        if arg_count(fcinfo) <= n || arg_is_null(fcinfo, n) {
            return absent;
        }
        arg(fcinfo, n).value() as i32
    }
}

/// Makes the call's result null.
///
/// # Safety
/// `fcinfo` is a valid call record.
pub unsafe fn null(fcinfo: FunctionCallInfo) -> Datum {
    // SAFETY: by the caller.
    unsafe { (*fcinfo).isnull = true };
    Datum::null()
}

/// The bytes of a varlena behind its header.
///
/// # Safety
/// `value` is a varlena in line and not compressed, as `pg_detoast_datum_packed` returns it, and lives for `'a`.
#[inline]
pub unsafe fn bytes_of<'a>(value: *const pg_sys::varlena) -> &'a [u8] {
    // SAFETY: by the caller.
    unsafe {
        std::slice::from_raw_parts(pgrx::vardata_any(value).cast::<u8>(), pgrx::varsize_any_exhdr(value))
    }
}

/// The bytes of a varlena behind its header, if it is in line and not compressed.
///
/// # Safety
/// `datum` is a varlena that lives for `'a`.
#[inline]
pub unsafe fn bytes_here<'a>(datum: Datum) -> Option<&'a [u8]> {
    // SAFETY: by the caller; the lowest bits of the first byte tell (`VARATT_IS_4B_U`, `VARATT_IS_1B` of varatt.h).
    unsafe {
        let value = datum.cast_mut_ptr::<pg_sys::varlena>();
        let first = *value.cast::<u8>();
        let is_here = first & 3 == 0 || (first & 1 == 1 && first != OUT_OF_LINE);
        is_here.then(|| bytes_of(value))
    }
}

/// Bytes of a varlena behind its header, if it is out of line and not compressed: parts of it can be fetched.
///
/// # Safety
/// `datum` is a varlena.
#[inline]
pub unsafe fn out_of_line_len(datum: Datum) -> Option<usize> {
    // SAFETY: by the caller; a pointer to TOAST is behind these two bytes, unaligned (`varattrib_1b_e` of varatt.h).
    unsafe {
        let start = datum.cast_mut_ptr::<u8>();
        let is_on_disk =
            *start == OUT_OF_LINE && *start.add(1) == pg_sys::vartag_external::VARTAG_ONDISK as u8;
        if !is_on_disk {
            return None;
        }
        let pointer = start.add(2).cast::<pg_sys::varatt_external>().read_unaligned();
        let len = pointer.va_extinfo & EXTERNAL_SIZE;
        let raw_len = u32::try_from(pointer.va_rawsize).ok()?.checked_sub(4)?;
        (len == raw_len).then_some(len as usize)
    }
}

/// The first byte of a varlena that is out of line, on a little-endian machine.
const OUT_OF_LINE: u8 = 0x01;
/// `VARLENA_EXTSIZE_MASK`
const EXTERNAL_SIZE: u32 = 0x3fff_ffff;

/// Gives the bytes of a varlena behind its header, fetched and decompressed as it needs, to `work`. For every value:
/// see the header.
///
/// # Safety
/// `datum` is a varlena, and the caller holds nothing that needs dropping.
#[inline]
pub unsafe fn with_bytes<R>(datum: Datum, work: impl FnOnce(&[u8]) -> R) -> R {
    // SAFETY: by the caller; the bytes are used up before their memory is freed.
    unsafe {
        let given = datum.cast_mut_ptr::<pg_sys::varlena>();
        let packed = raw::pg_detoast_datum_packed(given);
        let done = work(bytes_of(packed));
        if !std::ptr::eq(packed, given) {
            raw::pfree(packed.cast());
        }
        done
    }
}

/// The bytes of argument `n`, a varlena.
///
/// # Safety
/// `fcinfo` is a valid call record, and argument `n` a varlena and not null.
pub unsafe fn bytes_arg(fcinfo: FunctionCallInfo, n: usize) -> Vec<u8> {
    // SAFETY: by the caller.
    unsafe { copy_of(bytes_of(pg_sys::pg_detoast_datum_packed(arg(fcinfo, n).cast_mut_ptr()))) }
}

/// As [`bytes_arg`], of a name or a setting. A longer text is none, and an ERROR before anything is made of it.
///
/// # Safety
/// As for [`bytes_arg`].
pub unsafe fn name_arg(fcinfo: FunctionCallInfo, n: usize) -> Vec<u8> {
    // SAFETY: by the caller.
    unsafe {
        let bytes = bytes_of(pg_sys::pg_detoast_datum_packed(arg(fcinfo, n).cast_mut_ptr()));
        check_name_len(bytes);
        copy_of(bytes)
    }
}

/// Refuses what is too long for any name, quotes and schema included.
pub fn check_name_len(name: &[u8]) {
    if name.len() > NAME_BYTES_MAX {
        raise(
            Code::ERRCODE_NAME_TOO_LONG,
            format!("zson: a name of {} bytes", name.len()),
            &format!("Expected at most {NAME_BYTES_MAX} bytes."),
            "",
        );
    }
}

/// Bytes of a name as a query writes it: two identifiers, whose every character may be a doubled quote.
const NAME_BYTES_MAX: usize = 512;

/// A copy; an ERROR where memory is lacking.
pub fn copy_of(bytes: &[u8]) -> Vec<u8> {
    had(memory::copy(bytes))
}

/// What there was memory for; otherwise an ERROR.
pub fn had<T>(wanted: Result<T, pgshrink_zson::Error>) -> T {
    if is_memory_short() {
        out_of_memory();
    }
    wanted.unwrap_or_else(|error| raise_core(&error))
}

/// A row as the result of a call.
///
/// # Safety
/// `fcinfo` is a valid call record of a function that returns one row with such columns.
pub unsafe fn return_row<const N: usize>(fcinfo: FunctionCallInfo, row: [Option<Datum>; N]) -> Datum {
    // SAFETY: by the caller; as many of each as the row has columns.
    unsafe {
        let mut shape = std::ptr::null_mut();
        pg_sys::get_call_result_type(fcinfo, std::ptr::null_mut(), &mut shape);
        let shape = pg_sys::BlessTupleDesc(shape);
        let mut values = row.map(|value| value.unwrap_or(Datum::null()));
        let mut nulls = row.map(|value| value.is_none());
        let tuple = pg_sys::heap_form_tuple(shape, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
    }
}

/// Makes `rows` the result of a call that returns a set.
///
/// # Safety
/// `fcinfo` is a valid call record of a function that returns a set of rows with such columns.
pub unsafe fn return_rows<const N: usize>(
    fcinfo: FunctionCallInfo,
    rows: impl IntoIterator<Item = [Option<Datum>; N]>,
) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        for row in rows {
            let mut values = row.map(|value| value.unwrap_or(Datum::null()));
            let mut nulls = row.map(|value| value.is_none());
            pg_sys::tuplestore_putvalues(
                (*result).setResult,
                (*result).setDesc,
                values.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
        null(fcinfo)
    }
}
