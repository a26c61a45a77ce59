//! `TCP_INFO`: whether a peer still acknowledges what was sent to it.
//!
//! `TCP_USER_TIMEOUT` is not used: Linux also ends a connection whose peer lives, acknowledges every probe, and has just stopped
//! reading for that long (`tcp_probe_timer`). A paused `COPY TO STDOUT | less` and a COPY FROM that waits for a lock would be
//! cut. The figures here tell the two apart.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// What the kernel knows of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    /// Something that was sent, data or a probe of a closed window, is not acknowledged yet.
    pub(crate) is_due: bool,
    /// Since the last acknowledgement of anything.
    pub(crate) last: Duration,
}

/// Asks the kernel about a TCP socket.
pub(crate) fn acknowledgement(socket: &impl AsFd) -> io::Result<Acknowledgement> {
    // SAFETY: the struct consists of integers only, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, and the kernel writes at most `size` bytes into `info`, which lives across the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Acknowledgement {
        is_due: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
        last: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}
