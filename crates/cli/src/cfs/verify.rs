//! `pgshrink cfs verify`.

use super::container::{Means, Plain, head_of, refuse_plain};
use super::damage;
use super::file::ContainerFile;
use super::keys::{self, Kernel};
use super::manifest::{self, Differences, Entries, Entry, Hashing};
use super::output::{self, Progress, counted};
use super::tree::Tree;
use super::walk::{self, Kind, relative};
use super::{Failure, Verdict, accept, running};
use crate::args::VerifyArgs;
use crate::ending::{Damage, Fault};
use pgshrink_cfs::OpenReport;
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::seal::Keyring;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What is said where a container has damage.
const NEXT_STEP: &str = "next step: get the damaged containers from another copy, or run pgshrink cfs \
    salvage SOURCE DEST on each of them to recover the intact pages\n";

/// What is said of a relation's directory without a container.
const MISSING: &str = "the relation's container, segment.pgshrink, is missing from its directory; \
     next step: get it from another copy, unless the relation was being dropped when the server crashed";

/// Damages of one container that are listed; the rest is counted.
const LISTED_MAX: usize = 100;

#[derive(Serialize, Default)]
struct Report {
    trees: Vec<Compared>,
    containers: Vec<Verified>,
    /// Directories whose containers may be of different moments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspect: Vec<String>,
    /// What could not be looked at, and why: for want of a key, or of the right to read it.
    not_verified: Vec<Fault>,
}

/// A path, and how what is there differs from the manifest.
#[derive(Serialize)]
struct Compared {
    path: PathBuf,
    #[serde(flatten)]
    differences: Differences,
}

/// One container.
#[derive(Serialize)]
pub(super) struct Verified {
    pub(super) path: String,
    /// None: no root can be read.
    pages: Option<u32>,
    /// Pages that cannot be recovered from it.
    damaged_pages: u32,
    /// What is wrong, by page where it is one.
    pub(super) damages: Vec<Damage>,
    /// Damaged pages that these are about.
    #[serde(skip)]
    listed_pages: u32,
    /// What a crash leaves, and opening mends.
    notes: Vec<String>,
    /// What is in it, where all could be read.
    #[serde(skip)]
    entry: Option<Entry>,
}

/// What all looking takes.
struct Verifier {
    keyring: Keyring,
    random: Kernel,
    plain: Plain,
    progress: Progress,
    report: Report,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Verdict, Failure> {
    let has_manifest = |path: &PathBuf| path.join(manifest::NAME).symlink_metadata().is_ok();
    let containers = match walk::containers(&args.paths) {
        // What was packed had no relation in it that became a container.
        Err(_) if !args.no_manifest && args.paths.iter().all(has_manifest) => Vec::new(),
        other => other?,
    };
    let keyring = keys::keyring(&args.key)?;
    let random = Kernel::new()?;
    let sizes = containers
        .iter()
        .filter_map(|(_, file)| head_of(file).ok())
        .filter(|head| head.is_whole)
        .map(|head| u64::from(head.pages));
    let progress = Progress::new(sizes.sum::<u64>() * PAGE_SIZE as u64, &args.output);
    let plain = Plain::taken_if(args.allow_plain);
    let mut verifier = Verifier { keyring, random, plain, progress, report: Report::default() };
    for path in &args.paths {
        if let Err(failure) = verifier.path(path, !args.no_manifest) {
            verifier.report.not_verified.push(failure.into());
        }
    }
    let Verifier { report, progress, .. } = verifier;
    drop(progress);
    let good = report.containers.iter().all(|verified| verified.damages.is_empty())
        && report.trees.iter().all(|tree| tree.differences.are_none())
        && report.suspect.is_empty();
    output::print(&args.output, &report, text)?;
    if report.containers.iter().any(|verified| !verified.damages.is_empty()) {
        for failure in args.paths.iter().filter_map(|path| running::refuse(path, false).err()) {
            eprintln!(
                "pgshrink: note: {failure}. A container that a server is writing to may look damaged: \
                 verify it again after CHECKPOINT"
            );
        }
    }
    report.not_verified.iter().for_each(|failure| eprintln!("pgshrink: not verified: {failure}"));
    match report.not_verified.is_empty() {
        false if good => Ok(Verdict::Unknown),
        _ => Ok(Verdict::of(good)),
    }
}

impl Verifier {
    /// A tree, or what is below a directory of one.
    fn path(&mut self, path: &Path, with_manifest: bool) -> Result<(), Failure> {
        let path = walk::segment_of(path);
        let tree = if with_manifest { Some(Tree::of(path, &mut self.keyring, self.random)?) } else { None };
        let mut found = Entries::new();
        let mut unknown = Vec::new();
        // A tree lists its links as what they are; a server's go on elsewhere.
        for item in walk::below(path, tree.is_none())? {
            let name = relative(item.path.strip_prefix(path).unwrap_or(Path::new("")));
            self.progress.at(&item.path);
            self.report.suspect.extend(accept::suspicion(&item)?);
            if walk::lacks_container(&item) {
                self.report.not_verified.push(Fault::new(item.path.display(), MISSING));
            }
            let entry = match &item.kind {
                Kind::Container(file) => self.container(&item.path, file),
                Kind::Directory | Kind::Followed => Ok(Some(Entry::Directory { followed: None })),
                Kind::Manifest(_) => continue,
                Kind::Relation(_) | Kind::Other
                    if !self.keyring.is_empty() && self.plain == Plain::Refused =>
                {
                    Err(keys::not_sealed(&item.path, "a plain file"))
                }
                _ if tree.is_none() => continue,
                Kind::Link => fs::read_link(&item.path)
                    .map(|target| Some(Entry::Link { target: relative(&target) }))
                    .map_err(Failure::reading(&item.path)),
                Kind::Relation(_) | Kind::Other => {
                    Hashing::of(&item.path).map(|content| Some(Entry::File(content)))
                }
            };
            match entry {
                Ok(Some(entry)) => {
                    found.insert(name, entry);
                }
                Ok(None) => unknown.push(name),
                Err(failure) => {
                    self.report.not_verified.push(failure.into());
                    unknown.push(name);
                }
            }
        }
        if let Some(tree) = tree {
            let differences = tree.differences(path, &found, &unknown)?;
            self.report.trees.push(Compared { path: path.to_owned(), differences });
        }
        Ok(())
    }

    /// None: it has damage.
    fn container(&mut self, path: &Path, file: &Path) -> Result<Option<Entry>, Failure> {
        let verified = verify(path, file, &mut self.keyring, self.random, self.plain, &self.progress)?;
        let entry = verified.entry.clone();
        self.report.containers.push(verified);
        Ok(entry)
    }
}

/// An error: it could not be looked at, for want of its key or of the right to read it, or it is plain where
/// a key was given.
pub(super) fn verify(
    path: &Path,
    file: &Path,
    keyring: &mut Keyring,
    random: Kernel,
    plain: Plain,
    progress: &Progress,
) -> Result<Verified, Failure> {
    // Whether it can be read at all, and whether somebody writes to it, is not the container's fault.
    ContainerFile::read_only(file).map_err(Failure::reading(file))?;
    let mut verified = Verified {
        path: path.display().to_string(),
        pages: None,
        damaged_pages: 0,
        damages: Vec::new(),
        listed_pages: 0,
        notes: Vec::new(),
        entry: None,
    };
    let head = match head_of(file) {
        Ok(head) => head,
        Err(failure) => {
            verified.damages.push(failure.into());
            return Ok(verified);
        }
    };
    verified.pages = head.is_whole.then_some(head.pages);
    if plain == Plain::Refused {
        refuse_plain(path, &head, keyring)?;
    }
    let means = Means::of(&head, keyring, random).map_err(|reason| Failure::new(path, reason))?;
    let opened = if plain == Plain::OfServer { means.open_of_server(file) } else { means.open(file) };
    let (mut reader, report) = match opened {
        Ok(opened) => opened,
        Err(failure) => {
            verified.damages.push(failure.into());
            return Ok(verified);
        }
    };
    if let Some(report) = report {
        let bytes = fs::metadata(file).map_err(Failure::reading(file))?.len();
        verified.damages.extend(damage::of_report(&report, bytes));
        verified.notes.extend(notes(&report));
    }
    // Leaves of the map, and whether their pages share space.
    verified.damages.extend(reader.container().complete().err().map(|error| Damage::from(&error)));
    let entry = reader.plain(|bytes| {
        if let Err(fault) = bytes {
            verified.damaged_pages += 1;
            // A damaged leaf of the map, said once, is that of all its pages.
            let is_said = verified.damages.contains(&fault);
            if !is_said && verified.damages.len() < LISTED_MAX {
                verified.damages.push(fault);
                verified.listed_pages += 1;
            } else if is_said {
                verified.listed_pages += 1;
            }
        }
        progress.add(PAGE_SIZE as u64);
        Ok(())
    });
    match entry {
        Ok(entry) => verified.entry = Some(entry).filter(|_| verified.damages.is_empty()),
        Err(damage) => verified.damages.push(damage),
    }
    Ok(verified)
}

/// What opening found that is no damage.
fn notes(report: &OpenReport) -> Vec<String> {
    let mut notes = Vec::new();
    if report.broken_roots.len() == 1 && !report.was_closed {
        notes.push("a root was being written at a crash".to_owned());
    }
    if report.discarded_bytes > 0 {
        let discarded = counted(report.discarded_bytes, "byte was", "bytes were");
        notes.push(format!("{discarded} written after the last commit"));
    }
    notes
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for verified in &report.containers {
        for damage in &verified.damages {
            text.push_str(&format!("{}: {damage}\n", verified.path));
        }
        let unlisted = verified.damaged_pages - verified.listed_pages;
        if unlisted > 0 {
            let more = counted(unlisted.into(), "more page", "more pages");
            text.push_str(&format!("{}: and {more}\n", verified.path));
        }
        for note in &verified.notes {
            text.push_str(&format!("{}: note: {note}\n", verified.path));
        }
    }
    for tree in &report.trees {
        text.push_str(&tree.differences.text(&tree.path));
    }
    if !report.trees.iter().all(|tree| tree.differences.are_none()) {
        text.push_str(manifest::NEXT_STEP);
    }
    if report.containers.iter().any(|verified| !verified.damages.is_empty()) {
        text.push_str(NEXT_STEP);
    }
    report.suspect.iter().for_each(|suspect| text.push_str(&format!("{suspect}\n")));
    let pages: u64 = report.containers.iter().filter_map(|verified| verified.pages).map(u64::from).sum();
    let bad = report.containers.iter().filter(|verified| !verified.damages.is_empty()).count();
    let count = |of: fn(&Differences) -> usize| -> usize {
        report.trees.iter().map(|tree| of(&tree.differences)).sum()
    };
    let found = [
        (bad, "DAMAGED"),
        (count(|differences| differences.missing.len()), "MISSING"),
        (count(|differences| differences.extra.len()), "EXTRA"),
        (count(|differences| differences.changed.len()), "CHANGED"),
        (report.not_verified.len(), "NOT VERIFIED"),
    ];
    let mut found: Vec<String> =
        found.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if !report.suspect.is_empty() {
        let directories = counted(report.suspect.len() as u64, "directory", "directories");
        found.push(format!("{directories} MAY HAVE BEEN COPIED WHILE A SERVER WAS RUNNING"));
    }
    let result = if found.is_empty() { "all intact".to_owned() } else { found.join(", ") };
    let containers = counted(report.containers.len() as u64, "container", "containers");
    let pages = match report.containers.iter().any(|verified| verified.pages.is_some()) {
        false if bad > 0 => "pages unreadable".to_owned(),
        _ => counted(pages, "page", "pages"),
    };
    text + &format!("{containers}, {pages}: {result}\n")
}
