//! Copying a tree, with something done to the relations in it. The source is left as it is; the copy is durable.

use super::output::Progress;
use super::walk::{self, Found, Kind};
use super::{Failure, Verdict};
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
    pub failed: Vec<String>,
}

impl Copied {
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.failed.is_empty())
    }

    /// In words.
    pub(crate) fn text(&self, what: &str) -> String {
        let failed = self.failed.iter().map(|reason| format!("LEFT OUT: {reason}\n"));
        failed.collect::<String>()
            + &format!(
                "{} {what}, {} pages, {} -> {}; {} other files copied\n",
                self.converted,
                self.pages,
                super::output::size(self.bytes_before),
                super::output::size(self.bytes_after),
                self.as_they_are
            )
    }
}

/// What [`mirror`] does with a container or a relation file.
pub(crate) enum Done {
    /// It was converted, with so many pages.
    Converted(u64),
    /// It is to be copied.
    AsItIs,
    /// It could not be; nothing is left of it at the destination.
    Failed(String),
}

/// Copies `source` to `dest`, which must not be there, handing containers and relation files to `convert`.
pub(crate) fn mirror(
    source: &Path,
    dest: &Path,
    progress: impl FnOnce(u64) -> Progress,
    mut convert: impl FnMut(&Found, &Path, &Progress) -> Result<Done, Failure>,
) -> Result<Copied, Failure> {
    let source = fs::canonicalize(source).map_err(Failure::reading(source))?;
    refuse_existing(dest)?;
    let above = parent(dest);
    let above = fs::canonicalize(above).map_err(Failure::reading(above))?;
    if above.starts_with(&source) {
        return Err(Failure::new(dest, "lies in what is to be copied"));
    }
    let found = walk::below(&source, false)?;
    let progress = progress(found.iter().map(bytes_of).sum());
    let (mut copied, mut folders) = (Copied::default(), vec![above]);
    for item in &found {
        let inside = item.path.strip_prefix(&source).unwrap_or(Path::new(""));
        let to = if inside.as_os_str().is_empty() { dest.to_owned() } else { dest.join(inside) };
        progress.at(&item.path);
        match &item.kind {
            Kind::Directory => {
                make_directory(&item.path, &to)?;
                folders.push(to);
                continue;
            }
            Kind::Link => {
                let target = fs::read_link(&item.path).map_err(Failure::reading(&item.path))?;
                std::os::unix::fs::symlink(target, &to).map_err(Failure::reading(&to))?;
                continue;
            }
            Kind::Container(_) | Kind::Relation(_) | Kind::Other => {}
        }
        let done = if item.kind == Kind::Other { Done::AsItIs } else { convert(item, &to, &progress)? };
        match done {
            Done::Converted(pages) => {
                copied.converted += 1;
                copied.pages += pages;
                copied.bytes_before += disk_bytes(&item.path);
                copied.bytes_after += disk_bytes(&to);
            }
            Done::AsItIs => {
                copy_whole(item, &to)?;
                copied.as_they_are += 1;
            }
            Done::Failed(reason) => copied.failed.push(reason),
        }
    }
    for folder in folders.iter().rev() {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(Failure::reading(folder))?;
    }
    Ok(copied)
}

/// Fails if something is there: what exists is never written to.
pub(crate) fn refuse_existing(dest: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(dest) {
        Ok(_) => Err(Failure::new(dest, "is there already; name something new")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::reading(dest)(error)),
    }
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_directory(from: &Path, to: &Path) -> Result<(), Failure> {
    let mode = fs::metadata(from).map_err(Failure::reading(from))?.mode();
    DirBuilder::new().mode(0o700).create(to).map_err(Failure::reading(to))?;
    fs::set_permissions(to, Permissions::from_mode(mode & 0o7777)).map_err(Failure::reading(to))
}

fn copy_whole(item: &Found, to: &Path) -> Result<(), Failure> {
    let copy = |from: &Path, to: &Path| -> Result<(), Failure> {
        fs::copy(from, to).map_err(Failure::reading(from))?;
        File::open(to).and_then(|file| file.sync_all()).map_err(Failure::reading(to))
    };
    let Kind::Container(file) = &item.kind else {
        return copy(&item.path, to);
    };
    // A container keeps its directory.
    make_directory(&item.path, to)?;
    let name: PathBuf = file.file_name().map(PathBuf::from).unwrap_or_default();
    copy(file, &to.join(name))?;
    File::open(to).and_then(|folder| folder.sync_all()).map_err(Failure::reading(to))
}

fn bytes_of(found: &Found) -> u64 {
    let file = match &found.kind {
        Kind::Container(file) => file,
        Kind::Relation(_) => &found.path,
        _ => return 0,
    };
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

/// What a file, or the container in a directory, takes on disk.
fn disk_bytes(path: &Path) -> u64 {
    let of = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    if path.is_dir() { of(&path.join(pgshrink_cfs::segment::FILE_NAME)) } else { of(path) }
}
