//! Calls of the server's jsonb functions with views in place of zson arguments.
// The server's call convention is pointers.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use pgrx::pg_sys::{Datum, FunctionCallInfo, FunctionCallInfoBaseData, NullableDatum};

use crate::sys;
use crate::value;

/// A function of the server, declared without pgrx's guard: no destructor may be alive across a call of it.
pub(super) type Builtin = unsafe extern "C-unwind" fn(FunctionCallInfo) -> Datum;

/// Of the functions called here: GIN's `consistent`.
const ARGS_MAX: usize = 8;

/// A call record of our own, with its arguments behind it as the server lays them out.
#[repr(C)]
pub(super) struct Call {
    head: FunctionCallInfoBaseData,
    args: [MaybeUninit<NullableDatum>; ARGS_MAX],
}

impl Call {
    /// The same call as `fcinfo`, to be changed freely.
    ///
    /// # Safety
    /// `fcinfo` is a valid call record.
    #[inline]
    pub(super) unsafe fn like(fcinfo: FunctionCallInfo) -> Call {
        // SAFETY: by the caller; the head is plain data and the arguments follow it.
        unsafe {
            let head = std::ptr::read(fcinfo);
            let mut args = [const { MaybeUninit::uninit() }; ARGS_MAX];
            let count = sys::arg_count(fcinfo);
            assert!(count <= ARGS_MAX, "a call with {count} arguments");
            for (to, from) in args.iter_mut().zip((*fcinfo).args.as_slice(count)) {
                to.write(*from);
            }
            Call { head, args }
        }
    }

    /// The same call with views in place of the arguments at `zson`.
    ///
    /// # Safety
    /// As for [`Call::like`], and the arguments at `zson` are zson and not null.
    #[inline]
    unsafe fn viewing<const N: usize>(fcinfo: FunctionCallInfo, zson: [usize; N]) -> Call {
        // SAFETY: by the caller.
        unsafe {
            let mut call = Call::like(fcinfo);
            for n in zson {
                call.view_arg(n);
            }
            call
        }
    }

    /// # Safety
    /// The call has more than `n` arguments.
    #[inline]
    pub(super) unsafe fn arg(&self, n: usize) -> Datum {
        // SAFETY: by the caller, it was written by `like`.
        unsafe { self.args[n].assume_init_ref().value }
    }

    #[inline]
    pub(super) fn set_arg(&mut self, n: usize, value: Datum) {
        self.args[n].write(NullableDatum { value, isnull: false });
    }

    /// Puts the jsonb in place of the zson that argument `n` is.
    ///
    /// # Safety
    /// The call has more than `n` arguments, and that one is a zson and not null.
    #[inline]
    pub(super) unsafe fn view_arg(&mut self, n: usize) {
        // SAFETY: by the caller.
        unsafe { self.set_arg(n, value::view(self.arg(n))) }
    }

    /// Calls `builtin`; a null result becomes that of `fcinfo`.
    ///
    /// # Safety
    /// The arguments are of the types that `builtin` takes, and `fcinfo` is the record that this one was made from.
    #[inline]
    pub(super) unsafe fn run(&mut self, builtin: Builtin, fcinfo: FunctionCallInfo) -> Datum {
        // SAFETY: by the caller.
        unsafe {
            let result = builtin((&raw mut *self).cast());
            (*fcinfo).isnull = self.head.isnull;
            result
        }
    }
}

/// `builtin` with the arguments at `zson` replaced by their views. Its result is no document.
///
/// # Safety
/// `fcinfo` is a valid call record, its arguments at `zson` are zson and not null, the others are what `builtin` takes.
#[inline]
pub(super) unsafe fn scalar<const N: usize>(
    fcinfo: FunctionCallInfo,
    zson: [usize; N],
    builtin: Builtin,
) -> Datum {
    // SAFETY: by the caller.
    unsafe { Call::viewing(fcinfo, zson).run(builtin, fcinfo) }
}

/// As [`scalar`], for a result that is a document: `doc #> '{}'` and `doc || '{}'` are the argument itself.
///
/// # Safety
/// As for [`scalar`].
#[inline]
pub(super) unsafe fn document<const N: usize>(
    fcinfo: FunctionCallInfo,
    zson: [usize; N],
    builtin: Builtin,
) -> Datum {
    // SAFETY: by the caller.
    unsafe {
        let mut call = Call::viewing(fcinfo, zson);
        let result = call.run(builtin, fcinfo);
        if (*fcinfo).isnull {
            return result;
        }
        for n in zson {
            if call.arg(n) == result {
                return value::copy(sys::arg(fcinfo, n));
            }
        }
        result
    }
}
