//! Copying a tree, with something done to the relations in it. The source is left as it is; the copy is
//! durable, and has its name when it is whole.

use super::making::Making;
use super::manifest::{Differences, Entries, Entry, Hashing, NEXT_STEP};
use super::output::{Progress, counted, size};
use super::walk::{self, Found, Kind, relative};
use super::{Failure, Verdict};
use crate::ending::Fault;
use serde::Serialize;
use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What became of a tree.
#[derive(Serialize, Default)]
pub(crate) struct Copied {
    /// Containers or relation files that were converted.
    pub converted: u32,
    pub pages: u64,
    /// Files that were copied as they are.
    pub as_they_are: u32,
    /// Bytes on disk before and after, of what was converted.
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// What could not be converted, and why.
    pub failed: Vec<Fault>,
    /// What a reader should know of links.
    pub notes: Vec<String>,
    /// From the manifest, where there is one.
    pub differences: Option<Differences>,
    /// What was found, as a manifest has it, and what of it could not be read.
    #[serde(skip)]
    pub entries: Entries,
    #[serde(skip)]
    pub unknown: Vec<String>,
}

impl Copied {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.failed.is_empty() && self.differences.as_ref().is_none_or(Differences::are_none))
    }

    /// In words.
    /// `one` or `many` say what was converted, and how.
    pub(crate) fn text(&self, source: &Path, one: &str, many: &str) -> String {
        let failed = self.failed.iter().map(|reason| format!("LEFT OUT: {reason}\n"));
        let notes = self.notes.iter().map(|note| format!("note: {note}\n"));
        let differences = self
            .differences
            .as_ref()
            .filter(|differences| !differences.are_none())
            .map(|differences| differences.text(source) + NEXT_STEP);
        failed.chain(differences).chain(notes).collect::<String>()
            + &format!(
                "{}, {}, {} -> {}; {} copied\n",
                counted(self.converted.into(), one, many),
                counted(self.pages, "page", "pages"),
                size(self.bytes_before),
                size(self.bytes_after),
                counted(self.as_they_are.into(), "other file", "other files")
            )
    }
}

/// What [`Plan::mirror`] does with a file.
pub(crate) enum Done {
    /// It was converted, with so many pages, from or to these bytes.
    Converted(u64, Entry),
    /// It is to be copied.
    AsItIs,
    /// It could not be; nothing is left of it at the destination.
    Failed(Fault),
}

/// A tree that is to be copied.
pub(crate) struct Plan {
    source: PathBuf,
    pub found: Vec<Found>,
    making: Making,
}

impl Plan {
    /// Looks at all of `source`, and begins `dest`, which must not be there.
    pub(crate) fn new(source: &Path, dest: &Path, follow: bool) -> Result<Plan, Failure> {
        let source = fs::canonicalize(source).map_err(Failure::reading(source))?;
        refuse_existing(dest)?;
        let above = parent(dest);
        if fs::canonicalize(above).map_err(Failure::reading(above))?.starts_with(&source) {
            return Err(Failure::new(dest, "is inside the directory to be copied"));
        }
        let found = walk::below(&source, follow)?;
        Ok(Plan { source, found, making: Making::begin(dest)? })
    }

    /// Copies it, handing files to `convert`. The copy is yet to be given its name.
    pub(crate) fn mirror(
        self,
        progress: impl FnOnce(u64) -> Progress,
        mut convert: impl FnMut(&Found, &Path, &Progress) -> Result<Done, Failure>,
    ) -> Result<(Copied, Making), Failure> {
        let dest = self.making.path();
        let progress = progress(self.found.iter().map(bytes_of).sum());
        let (mut copied, mut folders) = (Copied::default(), Vec::new());
        for item in &self.found {
            let inside = item.path.strip_prefix(&self.source).unwrap_or(Path::new(""));
            let to = if inside.as_os_str().is_empty() { dest.clone() } else { dest.join(inside) };
            let name = relative(inside);
            progress.at(&item.path);
            let done = match &item.kind {
                Kind::Directory | Kind::Followed => {
                    DirBuilder::new().mode(0o700).create(&to).map_err(Failure::reading(&to))?;
                    folders.push((item.path.clone(), to));
                    let followed = followed(item, &name, &mut copied.notes)?;
                    copied.entries.insert(name, Entry::Directory { followed });
                    continue;
                }
                Kind::Link => {
                    let target = fs::read_link(&item.path).map_err(Failure::reading(&item.path))?;
                    std::os::unix::fs::symlink(&target, &to).map_err(Failure::reading(&to))?;
                    let target = relative(&target);
                    copied
                        .notes
                        .push(format!("{name} was copied as a link; its target, {target}, was not copied"));
                    copied.entries.insert(name, Entry::Link { target });
                    continue;
                }
                Kind::Manifest(_) => continue,
                Kind::Container(_) | Kind::Relation(_) | Kind::Other => convert(item, &to, &progress)?,
            };
            match done {
                Done::Converted(pages, entry) => {
                    copied.converted += 1;
                    copied.pages += pages;
                    copied.bytes_before += disk_bytes(&item.path);
                    copied.bytes_after += disk_bytes(&to);
                    copied.entries.insert(name, entry);
                }
                Done::AsItIs => {
                    let entry = copy_whole(&item.path, &to)?;
                    progress.add(bytes_of(item));
                    copied.as_they_are += 1;
                    copied.entries.insert(name, entry);
                }
                Done::Failed(reason) => {
                    copied.failed.push(reason);
                    copied.unknown.push(name);
                }
            }
        }
        // From the inside out: a directory that its owner may not write to takes no more files.
        for (from, to) in folders.iter().rev() {
            let mode = fs::metadata(from).map_err(Failure::reading(from))?.mode();
            File::open(to).and_then(|folder| folder.sync_all()).map_err(Failure::reading(to))?;
            // The first one takes the manifest.
            let more = if *to == dest { 0o200 } else { 0 };
            fs::set_permissions(to, Permissions::from_mode(mode & 0o7777 | more))
                .map_err(Failure::reading(to))?;
        }
        Ok((copied, self.making))
    }
}

/// Where a link leads that was followed.
fn followed(item: &Found, name: &str, notes: &mut Vec<String>) -> Result<Option<String>, Failure> {
    if item.kind != Kind::Followed {
        return Ok(None);
    }
    let target = fs::read_link(&item.path).map_err(Failure::reading(&item.path))?;
    notes.push(format!("{name} is a link; its target, {}, was copied as a directory", target.display()));
    Ok(Some(relative(&target)))
}

/// Fails if something is there: what exists is never written to.
pub(crate) fn refuse_existing(dest: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(dest) {
        Ok(_) => Err(Failure::new(dest, "already exists; choose another name")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::reading(dest)(error)),
    }
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn copy_whole(from: &Path, to: &Path) -> Result<Entry, Failure> {
    fs::copy(from, to)
        .map_err(|error| Failure::new(from, format!("copying to {}: {error}", to.display())))?;
    File::open(to).and_then(|file| file.sync_all()).map_err(Failure::reading(to))?;
    Ok(Entry::File(Hashing::of(to)?))
}

fn bytes_of(found: &Found) -> u64 {
    let file = match &found.kind {
        Kind::Container(file) => file,
        Kind::Relation(_) | Kind::Other => &found.path,
        _ => return 0,
    };
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// What a file, or the container in a directory, takes on disk.
fn disk_bytes(path: &Path) -> u64 {
    let of = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    if path.is_dir() { of(&path.join(pgshrink_cfs::segment::FILE_NAME)) } else { of(path) }
}
