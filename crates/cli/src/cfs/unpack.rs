//! `pgshrink cfs unpack`.

use super::container::{Means, head_of, refuse_plain};
use super::copy::{Done, Plan};
use super::keys::{self, Kernel};
use super::manifest::Entry;
use super::output::{self, Progress};
use super::tree::Tree;
use super::walk::{Found, Kind};
use super::{Failure, Verdict, accept, running};
use crate::args::UnpackArgs;
use crate::ending::{Damage, Fault};
use pgshrink_cfs::seal::Keyring;
use pgshrink_cfs_server::{GUARD_NAME, RESERVE_NAME};
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub(super) fn run(args: &UnpackArgs) -> Result<Verdict, Failure> {
    running::refuse(&args.source, args.force)?;
    let mut keyring = keys::keyring(&args.key)?;
    let random = Kernel::new()?;
    let source = super::walk::segment_of(&args.source);
    let tree = if args.no_manifest { None } else { Some(Tree::of(source, &mut keyring, random)?) };
    let bar = |bytes| Progress::new(bytes, &args.output);
    let mut plan = Plan::new(source, &args.dest, false)?;
    for found in &plan.found {
        if let Some(suspicion) = accept::suspicion(found)? {
            return Err(Failure::new(source, suspicion));
        }
    }
    // A server's own files beside its containers, which only it may read and only it has a use for.
    plan.found.retain(|found| {
        let name = found.path.file_name().unwrap_or_default();
        found.kind != Kind::Other || name != GUARD_NAME && name != RESERVE_NAME
    });
    if !keyring.is_empty() && !args.allow_plain {
        refuse_plain_files(&plan.found)?;
    }
    let (mut copied, making) = plan.mirror(bar, |found, to, progress| match &found.kind {
        Kind::Container(file) => {
            let bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
            let done = unpack(found, file, to, &mut keyring, random, args.allow_plain);
            progress.add(bytes);
            done
        }
        _ => Ok(Done::AsItIs),
    })?;
    if copied.converted == 0 && copied.failed.is_empty() {
        eprintln!("pgshrink: {}: no container there; everything was copied unchanged", args.source.display());
    }
    if let Some(tree) = &tree {
        copied.differences = Some(tree.differences(source, &copied.entries, &copied.unknown)?);
        let was_link = |(path, entry): (String, Entry)| match entry {
            Entry::Directory { followed: Some(target) } => {
                let path = if path == "." { source.display().to_string() } else { path };
                Some(format!("{path} was a link to {target} when it was packed; here it is a directory"))
            }
            _ => None,
        };
        copied.notes.extend(tree.below(source)?.into_iter().filter_map(was_link));
    }
    // Where the one container that was named has damage, nothing was made.
    if making.path().symlink_metadata().is_ok() {
        if copied.verdict() == Verdict::Good {
            making.finish()?;
        } else {
            let dest = args.dest.display();
            let place = making.leave().display().to_string();
            copied.notes.push(format!("{dest} was not created; what could be unpacked is in {place}"));
        }
    }
    output::print(&args.output, &copied, |copied| {
        copied.text(source, "container unpacked", "containers unpacked")
    })?;
    Ok(copied.verdict())
}

/// With a key all files have to be sealed: a plain one may be anybody's.
fn refuse_plain_files(found: &[Found]) -> Result<(), Failure> {
    let is_plain = |item: &&Found| matches!(item.kind, Kind::Relation(_) | Kind::Other);
    found.iter().find(is_plain).map_or(Ok(()), |item| Err(keys::not_sealed(&item.path, "a plain file")))
}

/// Writes the plain segment. Damage leaves nothing behind; a key that is missing ends everything, as the next
/// container will want it too.
fn unpack(
    found: &Found,
    file: &Path,
    to: &Path,
    keyring: &mut Keyring,
    random: Kernel,
    allow_plain: bool,
) -> Result<Done, Failure> {
    let failed = |damage: Damage| {
        let path = found.path.display().to_string();
        Ok(Done::Failed(Fault { path, damage: with_salvage(damage) }))
    };
    let head = match head_of(file) {
        Ok(head) => head,
        Err(failure) => return failed(failure.into()),
    };
    if !allow_plain {
        refuse_plain(&found.path, &head, keyring)?;
    }
    let means = Means::of(&head, keyring, random).map_err(|reason| Failure::new(&found.path, reason))?;
    let mut reader = match means.open(file) {
        Ok((reader, _)) => reader,
        Err(failure) => return failed(failure.into()),
    };
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let mut out = BufWriter::with_capacity(1 << 20, opened.map_err(Failure::reading(to))?);
    let pages = reader.pages();
    let entry = match reader.plain(|bytes| Ok(out.write_all(bytes?)?)) {
        Ok(entry) => entry,
        Err(End::Written(error)) => return Err(Failure::reading(to)(error)),
        Err(End::Damaged(damage)) => {
            fs::remove_file(to).map_err(Failure::reading(to))?;
            return failed(damage);
        }
    };
    let out = out.into_inner().map_err(|error| Failure::new(to, error))?;
    out.sync_all().map_err(Failure::reading(to))?;
    Ok(Done::Converted(pages.into(), entry))
}

/// What is wrong, and what can be done about it.
fn with_salvage(damage: Damage) -> Damage {
    if damage.message.contains("pgshrink cfs salvage") {
        return damage;
    }
    Damage { message: format!("{damage} (see pgshrink cfs salvage)"), ..damage }
}

/// Why a container is not read to its end.
enum End {
    Damaged(Damage),
    /// The plain file could not be written.
    Written(io::Error),
}

impl From<String> for End {
    fn from(fault: String) -> End {
        End::Damaged(fault.into())
    }
}

impl From<Damage> for End {
    fn from(damage: Damage) -> End {
        End::Damaged(damage)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Written(error)
    }
}
