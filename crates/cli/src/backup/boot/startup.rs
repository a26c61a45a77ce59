//! Why a server did not start: the backup, or this machine.

use super::super::Failure;
use super::programs::Programs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Lines of a log that an error shows.
const LINES_SHOWN: usize = 12;

/// What in a log is this machine's matter, and what to do about it.
const OF_THIS_MACHINE: &[(&str, &str)] = &[
    ("unrecognized configuration parameter", CONFIGURATION),
    ("invalid value for parameter", CONFIGURATION),
    ("contains errors", CONFIGURATION),
    ("could not open configuration directory", CONFIGURATION),
    ("could not access the server configuration file", CONFIGURATION),
    ("parameters have incompatible", CONFIGURATION),
    ("could not map anonymous shared memory", MEMORY),
    ("could not create shared memory segment", MEMORY),
    ("could not create semaphores", MEMORY),
    ("could not resize shared memory segment", MEMORY),
    ("Cannot allocate memory", MEMORY),
    ("out of memory", MEMORY),
    ("No space left on device", "Make room there, or name another directory with --scratch"),
    ("Too many open files", "Raise the limit of open files (ulimit -n)"),
    ("could not create any Unix-domain sockets", "Set TMPDIR to a directory for sockets"),
    ("database files are incompatible with server", "Name programs of the right build with --server-bin"),
    ("maximum number of prepared transactions", "Try --set max_prepared_transactions=1000"),
    ("Permission denied", "Run as a user with permission"),
    ("io_uring", "Try --set io_method=worker"),
    ("Input/output error", "See the system's log about the disk of the scratch space"),
];
const CONFIGURATION: &str = "Change settings: --set NAME=VALUE, or --set config_file=FILE";
const MEMORY: &str = "Try less: --set shared_buffers=128MB";

/// The failure of a server that ended with this status instead of being ready.
pub(super) fn explain(log: &str, status: ExitStatus, programs: &Programs) -> Failure {
    let shown =
        |next: &str| format!("the server did not start. {next}. Its log ends with:\n{}", last_lines(log));
    if let Some(library) = lacking_library(log) {
        let bin = programs.bin.display();
        let what = format!(
            "the cluster's shared_preload_libraries contains {library}, which the server in {bin} cannot load"
        );
        let next = "Install it, or name the libraries to load: --set shared_preload_libraries=LIST";
        return Failure::new("--boot", shown(&format!("{what}. {next}")));
    }
    let cause = |line: &&str| {
        ["FATAL:", "PANIC:", "LOG:", "HINT:", "DETAIL:"].iter().any(|level| line.contains(level))
    };
    // A line of the log that is not the server's is of the loader or the shell.
    let causes: Vec<&str> = log.lines().rev().take(LINES_SHOWN).filter(cause).collect();
    for (text, next) in OF_THIS_MACHINE {
        if causes.iter().any(|line| line.contains(text)) {
            return Failure::new("--boot", shown(&format!("This machine cannot start it. {next}")));
        }
    }
    if !log.contains("FATAL:") && !log.contains("PANIC:") && status.code() != Some(1) {
        let what = match status.signal() {
            Some(signal) => format!("It was ended by signal {signal}"),
            None => format!("Its exit code is {}", status.code().unwrap_or_default()),
        };
        return Failure::new("--boot", shown(&what));
    }
    Failure::damage("the restored cluster", shown("The log says why"))
}

/// The library that could not be loaded.
fn lacking_library(log: &str) -> Option<&str> {
    let line = log.lines().rev().find(|line| {
        line.contains("FATAL:  could not access file")
            || line.contains("FATAL:  could not load library")
            || line.contains("FATAL:  incompatible library")
    })?;
    let (_, rest) = line.split_once('"')?;
    rest.split_once('"').map(|(name, _)| name)
}

pub(super) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}
