//! `SO_RCVLOWAT`: how many bytes must be there before a reader is woken.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Wakes readers of a TCP socket only for this many bytes, its end or an error. Lowering it wakes them at once if as many are
/// there (Linux; elsewhere a reader may wake earlier, which only costs time).
pub(crate) fn set(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is borrowed, and the option's value is one C int that lives across the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
