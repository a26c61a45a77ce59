//! Whether a server runs on files that are to be copied or written to.

use super::{Failure, walk};
use pgshrink_cfs_server::owner;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

const FILE_NAME: &str = "postmaster.pid";
/// A data directory is so many levels above its files at most: `pg_tblspc/16390/PG_15_202209061/5/16385`.
const LEVELS_MAX: usize = 6;
/// Links that a path is followed through at most, as Linux has it.
const LINKS_MAX: usize = 40;

/// Fails if a server's postmaster.pid lies in the directory or above it and its process is alive, or above a
/// link of a data directory that the path leads through; and if a server with the extension has a tablespace's
/// directory. A tablespace without compressed files that is named by its own place says nothing.
pub(crate) fn refuse(path: &Path, force: bool) -> Result<(), Failure> {
    match force {
        true => Ok(()),
        false => refuse_with(path, "Stop it, or work on a copy; use --force if it is not a server"),
    }
}

/// The same, with another next step.
pub(crate) fn refuse_with(path: &Path, next_step: &str) -> Result<(), Failure> {
    let real = fs::canonicalize(path).map_err(Failure::reading(path))?;
    let links = links_through(&from_root(path));
    for entry in fs::read_dir(&real).into_iter().flatten().flatten() {
        refuse_owned(&entry.path(), next_step)?;
    }
    for place in links.iter().chain([&real]) {
        for folder in place.ancestors().take(LEVELS_MAX) {
            let file = folder.join(FILE_NAME);
            refuse_owned(folder, next_step)?;
            match fs::read_to_string(&file) {
                Ok(text) => refuse_alive(&file, &text, next_step)?,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(Failure::reading(&file)(error)),
            }
        }
    }
    Ok(())
}

/// From the first directory on, by the links that a shell went through to the working directory.
fn from_root(path: &Path) -> PathBuf {
    let real = fs::canonicalize(".").unwrap_or_default();
    let by_links = std::env::var_os("PWD").map(PathBuf::from);
    let is_here = |here: &PathBuf| fs::canonicalize(here).is_ok_and(|here| here == real);
    by_links.filter(|here| here.is_absolute()).filter(is_here).unwrap_or(real).join(path)
}

/// The links with which a data directory goes on elsewhere (`pg_tblspc/16390`, `pg_wal`), of those that a
/// path leads through: the directory that the server locks is above the link, not above what it leads to.
fn links_through(path: &Path) -> Vec<PathBuf> {
    let reversed = |path: &Path| -> Vec<OsString> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut at, mut ahead, mut found, mut links) = (PathBuf::new(), reversed(path), Vec::new(), 0);
    while let Some(name) = ahead.pop() {
        if Path::new(&name).components().next() == Some(Component::ParentDir) {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        match fs::read_link(&next) {
            Ok(target) if links < LINKS_MAX => {
                links += 1;
                ahead.extend(reversed(&target));
                if walk::goes_on(&next) {
                    found.push(next);
                }
            }
            // Of an absolute target the first part is the root, which replaces what was before it.
            _ => at = next,
        }
    }
    found
}

/// Fails if it is a tablespace's directory that a server with the extension has.
fn refuse_owned(folder: &Path, next_step: &str) -> Result<(), Failure> {
    let is_version = folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"PG_"));
    match is_version.then(|| owner::user_of(folder)).flatten() {
        None => Ok(()),
        Some(owner) => {
            Err(Failure::new(folder, format!("is in use by {}. {next_step}", owner.named("a server"))))
        }
    }
}

fn refuse_alive(file: &Path, text: &str, next_step: &str) -> Result<(), Failure> {
    // A single-user server's is negative.
    let number =
        text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()).map(i32::saturating_abs);
    let Some(pid) = number.and_then(Pid::from_raw) else {
        let reason = format!("contains no process id, so a server may be running here. {next_step}");
        return Err(Failure::new(file, reason));
    };
    match test_kill_process(pid) {
        Err(Errno::SRCH) => Ok(()),
        _ => Err(Failure::new(
            file,
            format!("process {} is alive: a server is running here. {next_step}", pid.as_raw_nonzero()),
        )),
    }
}
