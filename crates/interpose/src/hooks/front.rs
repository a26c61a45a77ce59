//! Calls of the front, and what becomes of their errors.
//!
//! A front that panics must not unwind into the program: the panic ends here, as EIO. Its message goes where
//! the process's panic hook sends it: standard error if nobody has set one, which is a server's log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::front::{Errno, Front, Outcome};
use crate::original::{errno, set_errno};

static FRONT: OnceLock<&'static dyn Front> = OnceLock::new();

/// Sets the front; false where there is another one already.
pub(crate) fn set_front(front: &'static dyn Front) -> bool {
    std::ptr::addr_eq(*FRONT.get_or_init(|| front), front)
}

/// Asks the front about a path. Leaves `errno` as it was.
#[inline]
pub(super) fn asked<T>(call: impl FnOnce(&'static dyn Front) -> Outcome<T>) -> Outcome<T> {
    let front = *FRONT.get()?;
    let before = errno();
    let outcome = catch_unwind(AssertUnwindSafe(|| call(front))).unwrap_or_else(|payload| {
        // Dropping it could panic again.
        std::mem::forget(payload);
        Some(Err(Errno(libc::EIO)))
    });
    set_errno(before);
    outcome
}

/// Has the front do something with a managed descriptor. Leaves `errno` as it was.
#[inline]
pub(super) fn guarded<T>(call: impl FnOnce(&'static dyn Front) -> Result<T, Errno>) -> Result<T, Errno> {
    asked(|front| Some(call(front))).unwrap_or(Err(Errno(libc::EIO)))
}

/// A result as libc's functions give it.
pub(super) trait Answer: Copy {
    /// What says that `errno` is set.
    const FAILED: Self;
}

impl Answer for i32 {
    const FAILED: i32 = -1;
}

impl Answer for isize {
    const FAILED: isize = -1;
}

impl Answer for i64 {
    const FAILED: i64 = -1;
}

/// Sets `errno` where there is an error.
#[inline]
pub(super) fn answer<T: Answer>(result: Result<T, Errno>) -> T {
    result.unwrap_or_else(|Errno(number)| {
        set_errno(number);
        T::FAILED
    })
}

/// 0, or -1 with `errno`.
pub(super) fn done(result: Result<(), Errno>) -> i32 {
    answer(result.map(|()| 0))
}
