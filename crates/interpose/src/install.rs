//! Putting the hooks in, all or none.
// Writes into the executable's table of imports.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fmt;
use std::fs;
use std::ops::Range;

use crate::front::Front;
use crate::hooks::{hook_of, set_front};
use crate::imports::Imports;
use crate::original;
use crate::table::{self, Problem};

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installed {
    /// Names whose slots hold a hook now, each once.
    pub hooked: Vec<String>,
    /// Slots that were changed: none where all was installed before.
    pub changed: usize,
}

/// Why nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The program imports what it must not, or lacks what it must have.
    Imports(Vec<Problem>),
    /// Another front is there.
    OtherFront,
    /// The table of imports cannot be read or changed; in words.
    Table(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Imports(problems) => {
                for (index, problem) in problems.iter().enumerate() {
                    write!(f, "{}{problem}", if index == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
            Refused::OtherFront => f.write_str("hooks with another front are installed in this process"),
            Refused::Table(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refused {}

/// Sets the front and finds the functions behind the hooks, without changing an import.
///
/// # Errors
/// [`Refused::OtherFront`].
pub fn prepare(front: &'static dyn Front) -> Result<(), Refused> {
    let imports = Imports::of_this_process().unwrap_or_default();
    prepare_with(front, &imports)
}

fn prepare_with(front: &'static dyn Front, imports: &Imports) -> Result<(), Refused> {
    original::resolve(|name| imports.bound(name));
    if set_front(front) { Ok(()) } else { Err(Refused::OtherFront) }
}

/// Puts the hooks into the executable's imports. A second call with the same front changes nothing.
///
/// # Errors
/// Nothing has been changed then.
pub fn install(front: &'static dyn Front) -> Result<Installed, Refused> {
    install_despite(front, &[])
}

/// As [`install`], for a program that does not use these imports on managed files.
///
/// # Errors
/// Nothing has been changed then.
pub fn install_despite(front: &'static dyn Front, despite: &[&str]) -> Result<Installed, Refused> {
    install_checked(front, |imports| table::check(imports.names(), despite))
}

/// As [`install`], for a program that is no server and may lack file functions that servers have.
///
/// # Errors
/// Nothing has been changed then.
pub fn install_in_tool(front: &'static dyn Front) -> Result<Installed, Refused> {
    install_checked(front, |imports| table::check_tool(imports.names()))
}

fn install_checked(
    front: &'static dyn Front,
    check: impl FnOnce(&Imports) -> Vec<Problem>,
) -> Result<Installed, Refused> {
    let imports = Imports::of_this_process().map_err(Refused::Table)?;
    let problems = check(&imports);
    if !problems.is_empty() {
        return Err(Refused::Imports(problems));
    }
    let mut changes = Vec::new();
    let mut hooked = Vec::new();
    for import in &imports.imports {
        let Some(hook) = hook_of(&import.name) else { continue };
        hooked.push(import.name.clone());
        if import.held() != hook as usize {
            changes.push(Change { slot: import.slot, from: import.held(), to: hook as usize });
        }
    }
    hooked.sort();
    hooked.dedup();
    prepare_with(front, &imports)?;
    apply(&changes).map_err(Refused::Table)?;
    Ok(Installed { hooked, changed: changes.len() })
}

#[derive(Clone, Copy, Debug)]
struct Change {
    slot: usize,
    from: usize,
    to: usize,
}

/// A part of the address space, and what may be done there.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mapping {
    range: Range<usize>,
    protection: c_int,
}

/// Lines of `/proc/self/maps`.
fn mappings(text: &str) -> Vec<Mapping> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let letters = words.next()?;
        let kinds = [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)];
        let allowed = kinds.iter().filter(|(letter, _)| letters.contains(*letter));
        Some(Mapping { range: start..end, protection: allowed.fold(0, |sum, (_, kind)| sum | kind) })
    };
    text.lines().filter_map(line).collect()
}

/// Writes all slots. Pages have the protection of before afterwards; where one cannot have it, nothing stays
/// changed.
fn apply(changes: &[Change]) -> Result<(), String> {
    if changes.is_empty() {
        return Ok(());
    }
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let maps = fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
    let maps = mappings(&maps);
    let mut pages: BTreeMap<usize, c_int> = BTreeMap::new();
    for change in changes {
        let found = maps.iter().find(|mapping| mapping.range.contains(&change.slot));
        let found = found.ok_or_else(|| format!("/proc/self/maps does not have {:#x}", change.slot))?;
        pages.insert(change.slot / page * page, found.protection);
    }
    let locked: Vec<(usize, c_int)> =
        pages.into_iter().filter(|(_, protection)| protection & libc::PROT_WRITE == 0).collect();
    for (index, (at, protection)) in locked.iter().enumerate() {
        if let Err(error) = protect(*at, page, protection | libc::PROT_WRITE) {
            lock(&locked[..index], page)?;
            return Err(error);
        }
    }
    write(changes.iter().map(|change| (change.slot, change.to)));
    if let Err(error) = lock(&locked, page) {
        for (at, protection) in &locked {
            protect(*at, page, protection | libc::PROT_WRITE)?;
        }
        write(changes.iter().map(|change| (change.slot, change.from)));
        return Err(error);
    }
    Ok(())
}

fn write(slots: impl Iterator<Item = (usize, usize)>) {
    for (slot, address) in slots {
        // SAFETY: a slot of the executable whose page can be written to; calls read it as a whole.
        unsafe { (slot as *mut usize).write_volatile(address) };
    }
}

fn lock(pages: &[(usize, c_int)], page: usize) -> Result<(), String> {
    pages.iter().try_for_each(|(at, protection)| protect(*at, page, *protection))
}

fn protect(at: usize, bytes: usize, protection: c_int) -> Result<(), String> {
    // SAFETY: whole pages of the executable, which stay readable.
    match unsafe { libc::mprotect(at as *mut _, bytes, protection) } {
        0 => Ok(()),
        _ => Err(format!("mprotect of {at:#x}: {}", std::io::Error::last_os_error())),
    }
}
