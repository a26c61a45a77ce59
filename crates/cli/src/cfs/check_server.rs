//! `pgshrink cfs check-server`.

use super::{Failure, Verdict, output};
use crate::args::{CheckServerArgs, OutputArgs};
use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Architecture, FileKind, Object, ObjectSymbol};
use pgshrink_interpose::table::{self, Class};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Versions of PostgreSQL whose file calls have been read.
const MAJORS: std::ops::RangeInclusive<u32> = 15..=18;
/// Of these, major versions that `make test` runs few tests with; `make soak` runs more.
const LESS_TESTED: [u32; 2] = [16, 17];

const OTHER_BUILD: &str = "use a build of PostgreSQL 15 to 18 for x86-64 with glibc, such as that of \
    Debian or apt.postgresql.org, or do not use compressed tables on this server";

#[derive(Serialize)]
struct Report {
    binary: PathBuf,
    /// As the program says it; none where it cannot be run.
    version: Option<String>,
    imports: usize,
    hooked: Vec<String>,
    problems: Vec<Problem>,
    notes: Vec<String>,
}

/// Why the library would refuse.
#[derive(Serialize)]
struct Problem {
    what: String,
    #[serde(rename = "where")]
    place: String,
    expected: String,
    found: String,
    next_step: String,
}

pub(super) fn run(args: &CheckServerArgs) -> Result<Verdict, Failure> {
    let binary = args.binary.canonicalize().map_err(Failure::reading(&args.binary))?;
    let data = fs::read(&binary).map_err(Failure::reading(&binary))?;
    let mut report = look_at(&binary, &data)?;
    if report.problems.is_empty() {
        look_at_version(&mut report);
    }
    let verdict = Verdict::of(report.problems.is_empty());
    output::print(&OutputArgs { json: args.json, quiet: true }, &report, text)?;
    Ok(verdict)
}

impl Report {
    fn problem(&mut self, what: &str, expected: &str, found: String, next_step: &str) {
        self.problems.push(Problem {
            what: what.to_owned(),
            place: self.binary.display().to_string(),
            expected: expected.to_owned(),
            found,
            next_step: next_step.to_owned(),
        });
    }
}

/// What the file says.
fn look_at(binary: &Path, data: &[u8]) -> Result<Report, Failure> {
    let mut report = Report {
        binary: binary.to_owned(),
        version: None,
        imports: 0,
        hooked: Vec::new(),
        problems: Vec::new(),
        notes: Vec::new(),
    };
    let broken = |error: object::Error| Failure::new(binary, format!("not a complete ELF file: {error}"));
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => {
            report.problem("processor", "x86-64", "a 32-bit executable".to_owned(), OTHER_BUILD);
            return Ok(report);
        }
        Ok(other) => {
            return Err(Failure::new(binary, format!("expected an ELF executable; found {other:?}")));
        }
        Err(_) => {
            let found = if data.starts_with(b"#!") { "a script" } else { "another kind of file" };
            let next = "name the program postgres itself, as in /usr/lib/postgresql/15/bin/postgres";
            let text = format!("expected an ELF executable; found {found}; next step: {next}");
            return Err(Failure::new(binary, text));
        }
    }
    let elf: ElfFile64<'_, object::Endianness> = ElfFile64::parse(data).map_err(broken)?;
    if elf.architecture() != Architecture::X86_64 {
        let found = match elf.architecture() {
            Architecture::Aarch64 => "arm64 (aarch64)".to_owned(),
            other => format!("{other:?}"),
        };
        report.problem("processor", "x86-64", found, OTHER_BUILD);
        return Ok(report);
    }
    look_at_libc(&mut report, &elf, data).map_err(broken)?;
    if report.problems.is_empty() {
        look_at_imports(&mut report, &elf).map_err(broken)?;
    }
    Ok(report)
}

/// The loader's name tells the C library.
fn look_at_libc(
    report: &mut Report,
    elf: &ElfFile64<'_, object::Endianness>,
    data: &[u8],
) -> object::Result<()> {
    let endian = elf.endian();
    let mut loader = None;
    for header in elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == PT_INTERP) {
        loader = header.interpreter(endian, data)?;
    }
    let found = match loader {
        None => "no loader: it is statically linked, or not an executable".to_owned(),
        Some(name) => {
            let name = String::from_utf8_lossy(name).into_owned();
            if name.contains("ld-musl") {
                format!("musl ({name})")
            } else if name.contains("ld-linux") {
                return Ok(());
            } else {
                name
            }
        }
    };
    report.problem("C library", "glibc, by its loader ld-linux-x86-64.so.2", found, OTHER_BUILD);
    Ok(())
}

fn look_at_imports(report: &mut Report, elf: &ElfFile64<'_, object::Endianness>) -> object::Result<()> {
    let mut names = Vec::new();
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.is_undefined()) {
        names.push(String::from_utf8_lossy(symbol.name_bytes()?).into_owned());
    }
    names.sort();
    names.dedup();
    for problem in table::check(names.iter().map(String::as_str), &[]) {
        report.problem("imports", problem.expected(), problem.found(), problem.next_step());
    }
    if names.iter().any(|name| name.starts_with("io_uring_")) {
        report.notes.push(
            "built with io_uring, which bypasses the C library: run it with io_method = worker or sync"
                .to_owned(),
        );
    }
    report.imports = names.len();
    report.hooked = names.into_iter().filter(|name| table::class_of(name) == Class::Hooked).collect();
    Ok(())
}

/// What the program says of itself.
fn look_at_version(report: &mut Report) {
    let output = Command::new(&report.binary).arg("--version").stdin(Stdio::null()).output();
    let said = match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            report.notes.push(format!("its version cannot be determined: {}: {error}", output.status));
            return;
        }
        Err(error) => {
            report.notes.push(format!("its version cannot be determined: it cannot be run here: {error}"));
            return;
        }
    };
    let Some(version) = said.strip_prefix("postgres (PostgreSQL) ") else {
        let next = "name the program postgres of the server";
        report.problem("version", "postgres (PostgreSQL) 15 to 18", said, next);
        return;
    };
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    report.version = Some(version.to_owned());
    if !digits.parse().is_ok_and(|major| MAJORS.contains(&major)) {
        let next = "use a supported version, or a pgshrink that supports this one; before an upgrade, make \
            compressed tables plain";
        report.problem("version", "PostgreSQL 15, 16, 17 or 18", format!("PostgreSQL {version}"), next);
    }
    if digits.parse().is_ok_and(|major| LESS_TESTED.contains(&major)) {
        report
            .notes
            .push(format!("PostgreSQL {digits} is tested less with compressed tables than 15 and 18"));
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let binary = report.binary.display();
    let version = report.version.as_ref().map_or(String::new(), |version| format!("PostgreSQL {version}, "));
    if report.problems.is_empty() {
        let (imports, hooked) = (report.imports, report.hooked.len());
        text += &format!(
            "{binary}: {version}{imports} imports, {hooked} of them replaced: it supports compressed tables\n"
        );
    } else {
        text += &format!("{binary}: {version}it does not support compressed tables\n");
    }
    for problem in &report.problems {
        text += &format!(
            "what: {}\n  where: {}\n  expected: {}\n  found: {}\n  next step: {}\n",
            problem.what, problem.place, problem.expected, problem.found, problem.next_step
        );
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    text
}
