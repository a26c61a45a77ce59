//! What the executable of this process imports, and where each import is kept.
//!
//! The loader's own tables are read: relocations of kind JUMP_SLOT (calls, bound at start or at the first
//! call), GLOB_DAT and 64 (addresses of functions). Works for position independent executables and others.
// The tables come as addresses.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// Where the address of an imported function is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// Its name.
    pub name: String,
    /// The address of the slot.
    pub slot: usize,
}

impl Import {
    /// What the slot holds.
    pub(crate) fn held(&self) -> usize {
        // SAFETY: a slot of the executable, which stays mapped, aligned by the linker.
        unsafe { (self.slot as *const usize).read_volatile() }
    }
}

/// The executable's imports.
#[derive(Clone, Default, Debug)]
pub struct Imports {
    /// One entry for each slot.
    pub imports: Vec<Import>,
    /// Where the executable is mapped: an import that holds an address there has not been bound yet.
    mapped: Vec<Range<usize>>,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

unsafe extern "C" fn first_object(info: *mut libc::dl_phdr_info, _: usize, to: *mut c_void) -> c_int {
    // SAFETY: the loader's description, and the room that `Imports::of_this_process` has passed.
    unsafe { *to.cast::<Option<libc::dl_phdr_info>>() = Some(*info) };
    // The first is the executable.
    1
}

impl Imports {
    /// Of the running executable.
    ///
    /// # Errors
    /// In words, where it has no dynamic section: it is linked statically.
    pub fn of_this_process() -> Result<Imports, String> {
        let mut found: Option<libc::dl_phdr_info> = None;
        // SAFETY: `first_object` takes this room.
        unsafe { libc::dl_iterate_phdr(Some(first_object), (&raw mut found).cast()) };
        let info = found.ok_or("the loader does not list the executable")?;
        let base = info.dlpi_addr as usize;
        // SAFETY: the loader's array, which stays.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let mapped = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| base + header.p_vaddr as usize..base + (header.p_vaddr + header.p_memsz) as usize)
            .collect();
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
        let dynamic = dynamic.ok_or("the executable is statically linked: it imports nothing")?;
        // SAFETY: the dynamic section of a loaded object, which ends with an entry of tag 0.
        let entries = unsafe { entries((base + dynamic.p_vaddr as usize) as *const Dynamic) };
        let mut imports = Imports { imports: Vec::new(), mapped };
        imports.read(base, &entries)?;
        Ok(imports)
    }

    fn read(&mut self, base: usize, entries: &BTreeMap<i64, usize>) -> Result<(), String> {
        let address = |tag| {
            let value = *entries.get(&tag)?;
            // The loader writes addresses over offsets.
            Some(if value < base { value + base } else { value })
        };
        let symbols = address(DT_SYMTAB).ok_or("the executable has no table of dynamic symbols")?;
        let names = address(DT_STRTAB).ok_or("the executable has no names of dynamic symbols")?;
        for (table, bytes) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let (Some(at), Some(bytes)) = (address(table), entries.get(&bytes)) else { continue };
            let count = bytes / size_of::<libc::Elf64_Rela>();
            // SAFETY: the loader has used this table.
            let relocations = unsafe { std::slice::from_raw_parts(at as *const libc::Elf64_Rela, count) };
            for relocation in relocations {
                let kind = relocation.r_info as u32;
                let symbol = (relocation.r_info >> 32) as usize;
                let imports = [R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT].contains(&kind);
                if !imports || symbol == 0 {
                    continue;
                }
                // SAFETY: symbol and name are in the tables that the loader uses.
                let (symbol, name) = unsafe {
                    let symbol = &*(symbols as *const libc::Elf64_Sym).add(symbol);
                    (symbol, CStr::from_ptr((names + symbol.st_name as usize) as *const _))
                };
                if symbol.st_shndx == 0
                    && let Ok(name) = name.to_str()
                {
                    let slot = base + relocation.r_offset as usize;
                    self.imports.push(Import { name: name.to_owned(), slot });
                }
            }
        }
        Ok(())
    }

    /// The names, each as often as it has slots.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.imports.iter().map(|import| import.name.as_str())
    }

    /// What an import of this name was bound to; `None` where none was, or to one of our functions.
    pub(crate) fn bound(&self, name: &str) -> Option<usize> {
        let slots = self.imports.iter().filter(|import| import.name == name);
        slots.map(Import::held).find(|held| {
            *held != 0
                && !crate::hooks::is_hook(*held)
                && !self.mapped.iter().any(|range| range.contains(held))
        })
    }
}

/// # Safety
/// A dynamic section.
unsafe fn entries(first: *const Dynamic) -> BTreeMap<i64, usize> {
    let mut entries = BTreeMap::new();
    let mut at = first;
    // SAFETY: the section ends with an entry of tag 0.
    unsafe {
        while (*at).tag != 0 {
            entries.insert((*at).tag, (*at).value);
            at = at.add(1);
        }
    }
    entries
}
