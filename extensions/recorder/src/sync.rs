//! Fsyncs: recorded, not carried out.
// Replaces functions of libc.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::time::Duration;

use libc::off_t;

use crate::format::Kind;
use crate::recording::{is_on, token, turn};
use crate::streams::record_whole;
use crate::{inode_of, int, is_watched, mark, marks, set_errno, system};

/// The longest that an fsync takes. Half of them take no time.
const MICROSECONDS_MAX: u64 = 2000;

/// Others go on writing in the middle of an fsync, so that it takes some time now and then.
fn pause(token: u64) {
    let mixed = token.wrapping_add(u64::from(std::process::id())).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if mixed.is_multiple_of(2) {
        let errno = crate::errno();
        std::thread::sleep(Duration::from_micros(mixed / 2 % MICROSECONDS_MAX));
        set_errno(errno);
    }
}

fn synced(descriptor: c_int) -> c_int {
    let token = token();
    let (inode, _) = inode_of(descriptor);
    {
        let turn = turn();
        if marks(descriptor) & mark::STREAM != 0 {
            record_whole(&turn, descriptor);
        }
        turn.record(Kind::SyncBegin, inode, token, 0);
    }
    pause(token);
    turn().record(Kind::SyncEnd, inode, token, 0);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(descriptor: c_int) -> c_int {
    if is_watched(descriptor) { synced(descriptor) } else { int(system!(SYS_fsync, descriptor)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(descriptor: c_int) -> c_int {
    if is_watched(descriptor) { synced(descriptor) } else { int(system!(SYS_fdatasync, descriptor)) }
}

/// Makes nothing durable.
#[unsafe(no_mangle)]
unsafe extern "C" fn sync_file_range(descriptor: c_int, from: off_t, length: off_t, flags: c_uint) -> c_int {
    if is_watched(descriptor) {
        return 0;
    }
    int(system!(SYS_sync_file_range, descriptor, from, length, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn syncfs(descriptor: c_int) -> c_int {
    if !is_watched(descriptor) {
        return int(system!(SYS_syncfs, descriptor));
    }
    all_synced();
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync() {
    if is_on() {
        all_synced();
    } else {
        system!(SYS_sync);
    }
}

fn all_synced() {
    let token = token();
    turn().record(Kind::SyncAllBegin, 0, token, 0);
    pause(token);
    turn().record(Kind::SyncAllEnd, 0, token, 0);
}
