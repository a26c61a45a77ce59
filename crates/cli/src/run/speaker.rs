//! Whether a program speaks a dialect of compression itself: then its own `compression` option is its business.
//!
//! libpq and psql of the part 3 patch, and of part 2 before it, take `compression=` in connection strings and ask the server with a
//! startup parameter of their own. That parameter's name stands in the program or in the libpq it is linked to, and nowhere in
//! others. Scripts and programs that load libpq later are not recognized.

use pgshrink_wire::Dialect;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Larger files are not looked through.
const FILE_SIZE_MAX: u64 = 64 << 20;
/// First bytes of a program that the kernel loads by itself.
const ELF_MAGIC: &[u8] = b"\x7fELF";
/// Where the loader's path is looked for: it stands behind the program headers.
const LOADER_REACH: usize = 4096;

/// Whether the command, looked for in `path` as a shell does, asks for compression by itself.
pub(crate) fn speaks(command: &OsStr, path: Option<&OsStr>) -> bool {
    let Some(program) = find(command, path) else { return false };
    let Some(bytes) = read_program(&program) else { return false };
    if names_key(&bytes) {
        return true;
    }
    // Most programs use no libpq, and need no loader to say so.
    let uses_libpq = contains(&bytes, b"libpq.so");
    let library = if uses_libpq { loader(&bytes).and_then(|loader| libpq(&loader, &program)) } else { None };
    library.and_then(|library| read_program(&library)).is_some_and(|bytes| names_key(&bytes))
}

fn find(command: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(command));
    }
    std::env::split_paths(path?).map(|dir| dir.join(command)).find(|candidate| candidate.is_file())
}

fn read_program(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let mut magic = [0; ELF_MAGIC.len()];
    file.read_exact(&mut magic).ok()?;
    (magic == ELF_MAGIC && file.metadata().ok()?.len() <= FILE_SIZE_MAX).then(|| fs::read(path).ok())?
}

fn names_key(bytes: &[u8]) -> bool {
    [Dialect::Ack, Dialect::Restart].iter().any(|dialect| contains(bytes, dialect.key().as_bytes()))
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    let Some(first) = text.first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(text) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}

/// The dynamic loader that the program names: the first path in it.
fn loader(program: &[u8]) -> Option<PathBuf> {
    let head = &program[..program.len().min(LOADER_REACH)];
    let texts = head.split(|byte| *byte == 0);
    let loader = texts.into_iter().find(|text| text.starts_with(b"/") && contains(text, b"/ld-"))?;
    Some(PathBuf::from(OsStr::from_bytes(loader)))
}

/// The libpq that the loader would take. `--list` only looks: the program is not run.
fn libpq(loader: &Path, program: &Path) -> Option<PathBuf> {
    let listed =
        Command::new(loader).arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let listed = String::from_utf8(listed.ok()?.stdout).ok()?;
    let line = listed.lines().find(|line| line.trim_start().starts_with("libpq.so"))?;
    let path = line.split("=> ").nth(1)?.split(" (").next()?;
    Some(PathBuf::from(path))
}
