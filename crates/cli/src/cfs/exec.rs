//! `pgshrink cfs exec`: a program that sees compressed files as plain ones.
//!
//! Everything that can be refused is refused here, before the program runs: the server that is up, the program that cannot
//! be hooked, the second data directory. Then the process becomes the program, with the library in `LD_PRELOAD`.

use super::{Failure, Verdict, running};
use crate::args::{ExecArgs, KeyArgs};
use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Architecture, FileKind, Object, ObjectSymbol};
use pgshrink_cfs_server::tool::{self, KEYS_OF_A_KIND_MAX, Request};
use pgshrink_interpose::table;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = "libpgshrink_cfs_exec.so";
const PRELOAD: &str = "LD_PRELOAD";
/// Options by which PostgreSQL's programs are given the data directory that they work on.
const DATA_OPTIONS: [&str; 2] = ["--pgdata", "--target-pgdata"];
/// By which pg_rewind is given another one.
const SOURCE_OPTION: &str = "--source-pgdata";
/// Programs of PostgreSQL's that start servers, or are one.
const STARTS_SERVERS: [&str; 5] = ["initdb", "pg_createsubscriber", "pg_ctl", "pg_upgrade", "postgres"];
const SET_ID_BITS: u32 = 0o6000;

pub(super) fn run(args: &ExecArgs) -> Result<Verdict, Failure> {
    let (name, rest) =
        args.program.split_first().ok_or_else(|| Failure::new(Path::new("PROGRAM"), "missing"))?;
    let program = found_in_path(name)?;
    check_program(&program)?;
    let data = data_directory(args, rest)?;
    if !args.read_only {
        running::refuse_with(
            &data,
            "Stop it, or use --read-only, which reads while a server is running. If it is not a server, \
             remove postmaster.pid",
        )?;
    }
    refuse_source(rest, &data)?;
    let library = library(args.library.as_deref())?;
    let request = Request {
        program: program.canonicalize().map_err(Failure::reading(&program))?,
        data_directory: data,
        is_read_only: args.read_only,
        key_files: absolute(&args.key)?,
        key_commands: args.key.key_command.clone(),
    };
    let mut command = Command::new(&program);
    command.arg0(name).args(rest);
    for (variable, value) in request.to_environment() {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env(PRELOAD, preload);
    Err(Failure::new(&program, command.exec()))
}

/// As a shell finds it.
fn found_in_path(name: &OsStr) -> Result<PathBuf, Failure> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        let found = match path.metadata() {
            _ if is_program(&path) => return Ok(path),
            Ok(found) if found.is_file() => "a file without execute permission".to_owned(),
            Ok(found) if found.is_dir() => "a directory".to_owned(),
            Ok(_) => "something else".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(Failure::new(
            &path,
            format!("expected a program; found: {found}. Name a program after --"),
        ));
    }
    let all = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&all).map(|folder| folder.join(name)).find(is_program).ok_or_else(|| {
        let reason =
            "no such program in PATH. Give its path, for example /usr/lib/postgresql/15/bin/pg_rewind";
        Failure::new(Path::new(name), reason)
    })
}

/// Refuses what the loader or the library would pass over in silence.
fn check_program(program: &Path) -> Result<(), Failure> {
    let refused = |found: &str, next: &str| {
        let expected = "expected a program for x86-64 that is linked dynamically with glibc";
        Err(Failure::new(program, format!("{expected}; found {found}. {next}")))
    };
    let metadata = program.metadata().map_err(Failure::reading(program))?;
    if metadata.mode() & SET_ID_BITS != 0 {
        return refused(
            "a setuid or setgid program, for which the loader loads no library",
            "Run pgshrink as that user, and the program itself with it",
        );
    }
    if metadata.len() > 0 && rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64][..]).is_ok()
    {
        return refused(
            "a program with file capabilities, for which the loader loads no library",
            "Run a copy of the program, which has none",
        );
    }
    let name = program.file_name().unwrap_or_default();
    if STARTS_SERVERS.iter().any(|known| name == *known) {
        let next = "Servers load the library through shared_preload_libraries; before pg_upgrade, \
            decompress compressed tables";
        let reason = "expected a program that works on files itself; found one that starts servers";
        return Err(Failure::new(program, format!("{reason}. {next}")));
    }
    let content = fs::read(program).map_err(Failure::reading(program))?;
    if content.starts_with(b"#!") {
        return refused(
            "a script",
            "Name the program that it runs, for example /usr/lib/postgresql/15/bin/pg_rewind",
        );
    }
    let next = "Use a build such as that of Debian or apt.postgresql.org";
    if !matches!(FileKind::parse(&*content), Ok(FileKind::Elf64)) {
        return refused("a file of another format", next);
    }
    let broken = |error: object::Error| Failure::new(program, format!("not a complete ELF file: {error}"));
    let elf: ElfFile64<'_> = ElfFile64::parse(&*content).map_err(broken)?;
    if elf.architecture() != Architecture::X86_64 {
        return refused(&format!("one for {:?}", elf.architecture()), next);
    }
    let interpreters =
        elf.elf_program_headers().iter().filter(|header| header.p_type(elf.endian()) == PT_INTERP);
    let Some(interpreter) =
        interpreters.filter_map(|header| header.interpreter(elf.endian(), &*content).ok()?).next()
    else {
        return refused("a static program", "Use one that is linked dynamically");
    };
    if !interpreter.windows(8).any(|part| part == b"ld-linux") {
        return refused(&format!("the loader {}", String::from_utf8_lossy(interpreter)), next);
    }
    let names: Vec<&str> = elf
        .dynamic_symbols()
        .filter(object::ObjectSymbol::is_undefined)
        .filter_map(|symbol| symbol.name().ok())
        .map(|name| name.split('@').next().unwrap_or(name))
        .collect();
    match table::check_tool(names.iter().copied()).as_slice() {
        [] => Ok(()),
        problems => {
            let found: Vec<String> = problems.iter().map(table::Problem::found).collect();
            refused(
                &found.join("; "),
                "Use another program for this, or unpack the files first with pgshrink cfs unpack",
            )
        }
    }
}

/// Whether a directory is a server's.
fn is_data_directory(path: &Path) -> bool {
    path.join("PG_VERSION").is_file() && path.join("global/pg_control").is_file()
}

/// What the option says, or the program's own arguments, or the environment.
fn data_directory(args: &ExecArgs, rest: &[OsString]) -> Result<PathBuf, Failure> {
    let named = args.data_directory.clone().or_else(|| of_options(rest, &DATA_OPTIONS, Some("-D")));
    let found = named.map(Ok).or_else(|| of_arguments(rest).transpose());
    let found = found.or_else(|| std::env::var_os("PGDATA").map(|path| Ok(path.into())));
    let path = found.unwrap_or_else(|| {
        let reason = "found none: the program has no -D option, no argument is a data directory, and \
            PGDATA is not set. Name it with --data-directory, before --";
        Err(Failure::new(Path::new("data directory"), reason))
    })?;
    let real = path.canonicalize().map_err(|error| {
        let next = "Name it with --data-directory, before --";
        Failure::new(&path, format!("expected a data directory; found: {error}. {next}"))
    })?;
    if !is_data_directory(&real) {
        let reason = "expected a data directory; found no PG_VERSION and global/pg_control. Name it with --data-directory, before --";
        return Err(Failure::new(&path, reason));
    }
    Ok(real)
}

/// The value of an option that the program is given: `--option VALUE`, `--option=VALUE`, `-O VALUE`, `-OVALUE`.
fn of_options(rest: &[OsString], long: &[&str], short: Option<&str>) -> Option<PathBuf> {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    for (at, argument) in rest.iter().enumerate() {
        let bytes = argument.as_bytes();
        let next = || rest.get(at + 1).map(PathBuf::from);
        for option in long {
            match bytes.strip_prefix(option.as_bytes()) {
                Some([]) => return next(),
                Some([b'=', value @ ..]) => return Some(path(value)),
                _ => {}
            }
        }
        match short.and_then(|short| bytes.strip_prefix(short.as_bytes())) {
            Some([]) => return next(),
            Some(value) => return Some(path(value)),
            None => {}
        }
    }
    None
}

/// The one argument that is a data directory.
fn of_arguments(rest: &[OsString]) -> Result<Option<PathBuf>, Failure> {
    let mut found = rest.iter().map(PathBuf::from).filter(|path| is_data_directory(path));
    let first = found.next();
    match found.next() {
        Some(other) => {
            let reason = "another data directory among the arguments; use --data-directory to name the one \
                with the compressed files";
            Err(Failure::new(&other, reason))
        }
        None => Ok(first),
    }
}

/// Only one data directory's containers are seen as files.
fn refuse_source(rest: &[OsString], data: &Path) -> Result<(), Failure> {
    let Some(source) = of_options(rest, &[SOURCE_OPTION], None) else { return Ok(()) };
    let target = of_options(rest, &DATA_OPTIONS, Some("-D"));
    for other in target.into_iter().chain([source]) {
        let real = other.canonicalize().map_err(Failure::reading(&other))?;
        let is_other = real != data && is_data_directory(&real);
        if is_other && tool::has_containers(&real).map_err(Failure::reading(&other))? {
            let reason = format!(
                "has compressed files too, but only those of {} are presented as plain files; start the \
                 source, and use pg_rewind --source-server",
                data.display()
            );
            return Err(Failure::new(&other, reason));
        }
    }
    Ok(())
}

/// Beside this program, or where it is installed.
fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return path.canonicalize().map_err(Failure::reading(path));
    }
    let own = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(Failure::reading(Path::new("pgshrink")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/pgshrink").join(LIBRARY)];
    let found = places.iter().find_map(|path| path.canonicalize().ok());
    found.ok_or_else(|| {
        let [beside, installed] = places.map(|path| path.display().to_string());
        let reason = format!(
            "not found, and not at {installed} either; install it (make install), or name it with --library"
        );
        Failure::new(Path::new(&beside), reason)
    })
}

/// Key files, by their paths from anywhere: the program may change its working directory.
fn absolute(key: &KeyArgs) -> Result<Vec<PathBuf>, Failure> {
    for (option, count) in [("--key-file", key.key_file.len()), ("--key-command", key.key_command.len())] {
        if count > KEYS_OF_A_KIND_MAX {
            let reason = format!(
                "given {count} times; expected at most {KEYS_OF_A_KIND_MAX}: the key, and the previous one"
            );
            return Err(Failure::new(Path::new(option), reason));
        }
    }
    key.key_file.iter().map(|path| std::path::absolute(path).map_err(Failure::reading(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arguments: &[&str]) -> Vec<OsString> {
        arguments.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_data_directory_is_found_among_the_programs_options() {
        for arguments in [
            &["-D", "/d"][..],
            &["-D/d"],
            &["--pgdata=/d"],
            &["-P", "--target-pgdata", "/d"],
            &["--target-pgdata=/d"],
        ] {
            let found = of_options(&all(arguments), &DATA_OPTIONS, Some("-D"));
            assert_eq!(found, Some(PathBuf::from("/d")), "{arguments:?}");
        }
        for arguments in [&["-d", "/d"][..], &["-D"], &["--pgdatum=/d"], &["--source-pgdata=/d"]] {
            assert_eq!(of_options(&all(arguments), &DATA_OPTIONS, Some("-D")), None, "{arguments:?}");
        }
    }
}
