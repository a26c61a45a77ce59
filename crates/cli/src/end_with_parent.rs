//! `pgshrink end-with-parent PID PROGRAM…`: a program that does not outlive the process that started it.
//!
//! pgshrink starts servers through it. The kernel sends SIGINT when the parent ends, even by SIGKILL, which is a fast shutdown for a
//! PostgreSQL server. The setting belongs to the process and survives exec, so no code has to run between fork and exec.

use crate::args::EndWithParentArgs;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Becomes the program. Returns only when it cannot.
pub(crate) fn main(args: &EndWithParentArgs) -> ExitCode {
    let error = become_program(args);
    let program = args.program.first().map(|program| Path::new(program).display().to_string());
    eprintln!("pgshrink: {}: {error}", program.unwrap_or_default());
    ExitCode::from(crate::EXIT_FAILED)
}

fn become_program(args: &EndWithParentArgs) -> io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::INT)) {
        return error.into();
    }
    // It may have ended before the setting was made.
    if getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get) != Some(args.parent) {
        return io::Error::other("the process that started it has ended");
    }
    let mut words = args.program.iter();
    match words.next() {
        Some(program) => Command::new(program).args(words).exec(),
        None => io::Error::other("no program"),
    }
}

/// A command that runs this program, as long as this process runs. The thread that spawns it must not end before it does: the
/// kernel takes the end of that thread for the end of the parent.
pub(crate) fn command(program: &Path) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("end-with-parent").arg(std::process::id().to_string()).arg("--").arg(program);
    Ok(command)
}
