//! `pgshrink cfs accept`: containers that were copied from a snapshot, or from a server that was not running.

use super::keys::{self, Kernel};
use super::output::{self, Progress, counted};
use super::verify::{self, Verified};
use super::walk::{self, Kind};
use super::{Failure, Verdict, container, manifest, running};
use crate::args::AcceptArgs;
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs_server::GUARD_NAME;
use pgshrink_cfs_server::guard::{self, Content};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One directory of a database.
#[derive(Serialize)]
struct Accepted {
    directory: PathBuf,
    /// Whether a server starts with it now.
    accepted: bool,
    containers: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    damaged: Vec<Verified>,
}

/// What a guard that is there says against the containers beside it.
pub(super) fn suspicion(found: &walk::Found) -> Result<Option<String>, Failure> {
    let is_guard = found.kind == Kind::Other && found.path.file_name().is_some_and(|name| name == GUARD_NAME);
    let Some(directory) = found.path.parent().filter(|_| is_guard) else { return Ok(None) };
    let content = guard::read(directory).map_err(Failure::reading(&found.path))?;
    let has_containers =
        || pgshrink_cfs_server::has_containers(directory).map_err(Failure::reading(directory));
    if !content.is_some_and(Content::is_suspect) || !has_containers()? {
        return Ok(None);
    }
    Ok(Some(format!(
        "{}: may be a copy of files that a running server was writing, so its parts may not match; take \
         another backup, or run pgshrink cfs accept if it is a copy of an atomic snapshot, or of a stopped \
         server",
        directory.display()
    )))
}

pub(super) fn run(args: &AcceptArgs) -> Result<Verdict, Failure> {
    for path in &args.paths {
        running::refuse(path, args.force)?;
        if path.join(manifest::NAME).symlink_metadata().is_ok() {
            return Err(Failure::new(
                path,
                "a packed tree, not a server's directory; use pgshrink cfs verify",
            ));
        }
    }
    let mut directories: BTreeMap<PathBuf, Vec<(PathBuf, PathBuf)>> = BTreeMap::new();
    for (path, file) in walk::containers(&args.paths)? {
        let directory = path.parent().unwrap_or(Path::new(".")).to_owned();
        directories.entry(directory).or_default().push((path, file));
    }
    let mut keyring = keys::keyring(&args.key)?;
    let random = Kernel::new()?;
    let pages = |file: &Path| container::head_of(file).map_or(0, |head| u64::from(head.pages));
    let all: u64 = directories.values().flatten().map(|(_, file)| pages(file)).sum();
    let progress = Progress::new(all * PAGE_SIZE as u64, &args.output);
    let mut done = Vec::new();
    for (directory, containers) in directories {
        let found = guard::read(&directory).map_err(Failure::reading(&directory))?;
        let mut damaged = Vec::new();
        for (path, file) in &containers {
            progress.at(path);
            let verified =
                verify::verify(path, file, &mut keyring, random, container::Plain::OfServer, &progress)?;
            damaged.extend(Some(verified).filter(|verified| !verified.damages.is_empty()));
        }
        if damaged.is_empty() && found.is_none_or(Content::is_suspect) {
            guard::accept(&directory).map_err(Failure::reading(&directory))?;
        }
        done.push(Accepted {
            accepted: damaged.is_empty(),
            containers: containers.len(),
            damaged,
            directory,
        });
    }
    drop(progress);
    output::print(&args.output, &done, |done| done.iter().map(text).collect())?;
    Ok(Verdict::of(done.iter().all(|accepted| accepted.accepted)))
}

fn text(done: &Accepted) -> String {
    let Accepted { directory, containers, damaged, .. } = done;
    let mut text = String::new();
    for container in damaged {
        container.damages.iter().for_each(|damage| text.push_str(&format!("{}: {damage}\n", container.path)));
    }
    let directory = directory.display();
    text + &match damaged.len() {
        0 => {
            format!("{directory}: {}: accepted\n", counted(*containers as u64, "container", "containers"))
        }
        count => format!(
            "{directory}: {count} of {} DAMAGED: not accepted. Take another backup, \
             or recover the intact pages with pgshrink cfs salvage SOURCE DEST\n",
            counted(*containers as u64, "container", "containers")
        ),
    }
}
