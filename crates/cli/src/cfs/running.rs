//! Whether a server runs on files that are to be copied or written to.

use super::Failure;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const FILE_NAME: &str = "postmaster.pid";
/// A data directory is so many levels above its files at most: `pg_tblspc/16390/PG_15_202209061/5/16385`.
const LEVELS_MAX: usize = 6;

/// Fails if a server's postmaster.pid lies in the directory or above it and its process is alive. A tablespace that is
/// named by its own place has none above it.
pub(crate) fn refuse(path: &Path, force: bool) -> Result<(), Failure> {
    if force {
        return Ok(());
    }
    let path = fs::canonicalize(path).map_err(Failure::reading(path))?;
    for folder in path.ancestors().take(LEVELS_MAX) {
        let file = folder.join(FILE_NAME);
        match fs::read_to_string(&file) {
            Ok(text) => refuse_alive(&file, &text)?,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(Failure::reading(&file)(error)),
        }
    }
    Ok(())
}

fn refuse_alive(file: &Path, text: &str) -> Result<(), Failure> {
    // A single-user server's is negative.
    let number =
        text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()).map(i32::saturating_abs);
    let Some(pid) = number.and_then(Pid::from_raw) else {
        return Err(Failure::new(file, "names no process; if no server runs here, remove it or add --force"));
    };
    match test_kill_process(pid) {
        Err(Errno::SRCH) => Ok(()),
        _ => Err(Failure::new(
            file,
            format!(
                "process {} is alive: a server runs here. Stop it, or work on a copy; --force if it is no server",
                pid.as_raw_nonzero()
            ),
        )),
    }
}
