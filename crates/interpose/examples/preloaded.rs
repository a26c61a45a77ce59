//! A library for `LD_PRELOAD` that installs hooks of a front without files, and says so on standard error: what
//! a test sees of executables that are linked in other ways than a test is.
// Runs before a program's main function.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::RawFd;

use pgshrink_interpose::{
    Advice, Attributes, Errno, Front, Listed, Outcome, PagesToRead, PagesToWrite, install,
};

struct NoFiles;

const NONE: Errno = Errno(libc::EBADF);

impl Front for NoFiles {
    fn open(&self, _: &CStr, _: i32, _: libc::mode_t) -> Outcome<RawFd> {
        None
    }
    fn attributes(&self, _: &CStr) -> Outcome<Attributes> {
        None
    }
    fn access(&self, _: &CStr, _: i32) -> Outcome<()> {
        None
    }
    fn truncate_path(&self, _: &CStr, _: u64) -> Outcome<()> {
        None
    }
    fn unlink(&self, _: &CStr) -> Outcome<()> {
        None
    }
    fn rename(&self, _: &CStr, _: &CStr) -> Outcome<()> {
        None
    }
    fn link(&self, _: &CStr, _: &CStr) -> Outcome<()> {
        None
    }
    fn remove_directory(&self, _: &CStr) -> Outcome<()> {
        None
    }
    fn open_directory(&self, _: &CStr) -> Option<u64> {
        Some(1)
    }
    fn listed(&self, _: u64, _: &CStr, _: u8) -> Listed {
        Listed::Shown
    }
    fn close(&self, _: RawFd) {}
    fn pages(&self, _: RawFd) -> Result<u32, Errno> {
        Err(NONE)
    }
    fn read(&self, _: RawFd, _: u32, _: &mut PagesToRead<'_>) -> Result<u32, Errno> {
        Err(NONE)
    }
    fn write(&self, _: RawFd, _: u32, _: &mut PagesToWrite<'_>) -> Result<u32, Errno> {
        Err(NONE)
    }
    fn extend(&self, _: RawFd, _: u32) -> Result<(), Errno> {
        Err(NONE)
    }
    fn truncate(&self, _: RawFd, _: u32) -> Result<(), Errno> {
        Err(NONE)
    }
    fn sync(&self, _: RawFd) -> Result<(), Errno> {
        Err(NONE)
    }
    fn advise(&self, _: RawFd, _: u32, _: u32, _: Advice) {}
    fn descriptor_attributes(&self, _: RawFd) -> Result<Attributes, Errno> {
        Err(NONE)
    }
}

/// The shell and other programs that a server starts inherit the variable, and are none of ours.
fn is_server() -> bool {
    std::env::current_exe().is_ok_and(|path| path.ends_with("postgres"))
}

extern "C" fn start() {
    if !is_server() {
        return;
    }
    let said = match (install(&NoFiles), install(&NoFiles)) {
        (Ok(first), Ok(second)) => {
            format!("installed {} {} {}", first.hooked.len(), first.changed, second.changed)
        }
        (Err(refused), _) | (_, Err(refused)) => format!("refused: {refused}"),
    };
    eprintln!("{said}");
}

/// A slot that the loader binds at the first call must not be bound past the hook.
extern "C" fn end() {
    if is_server() {
        match install(&NoFiles) {
            Ok(again) => eprintln!("lost {}", again.changed),
            Err(refused) => eprintln!("refused: {refused}"),
        }
    }
}

#[used]
// SAFETY: the loader calls what is in this section, once, after all relocations.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
// SAFETY: the loader calls what is in this section, once, at the end.
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
