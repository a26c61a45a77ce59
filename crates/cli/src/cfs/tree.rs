//! Manifests of packed trees on disk: written last, asked for first.

use super::container::{Means, head_of, refuse_plain};
use super::keys::{self, Kernel};
use super::manifest::{self, BYTES_MAX, Differences, Entries, Manifest};
use super::walk::relative;
use super::{Failure, pack};
use crate::ending::Damage;
use pgshrink_cfs::seal::Keyring;
use pgshrink_cfs::segment;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A packed tree that a path lies in.
pub(crate) struct Tree {
    root: PathBuf,
    manifest: Manifest,
}

impl Tree {
    /// Of the nearest manifest at the path or above it. With a key it has to be a sealed one.
    pub(crate) fn of(path: &Path, keyring: &mut Keyring, random: Kernel) -> Result<Tree, Failure> {
        let real = fs::canonicalize(path).map_err(Failure::reading(path))?;
        let Some(root) = nearest(&real)? else {
            let none = format!(
                "has no {}: pack was interrupted, or it was not created by pack; use --no-manifest to work \
                 without it",
                manifest::NAME
            );
            return Err(Failure::new(path, none));
        };
        let file = root.join(manifest::NAME);
        let text = if file.is_dir() {
            opened(&file, keyring, random)?
        } else if keyring.is_empty() {
            plain(&file)?
        } else {
            return Err(keys::not_sealed(&file, "a plain manifest"));
        };
        let manifest = Manifest::parse(&text, &file)?;
        Ok(Tree { root: root.to_owned(), manifest })
    }

    /// How what was found below a path differs from what is listed there.
    pub(crate) fn differences(
        &self,
        path: &Path,
        found: &Entries,
        unknown: &[String],
    ) -> Result<Differences, Failure> {
        Ok(Differences::between(&self.below(path)?, found, unknown))
    }

    /// What is listed at a path in the tree and below it.
    pub(crate) fn below(&self, path: &Path) -> Result<Entries, Failure> {
        let real = fs::canonicalize(path).map_err(Failure::reading(path))?;
        let inside = real.strip_prefix(&self.root).unwrap_or(Path::new(""));
        Ok(self.manifest.below(&relative(inside)))
    }
}

/// The nearest directory with a manifest. Where it may not be looked for, it is not taken for absent.
fn nearest(real: &Path) -> Result<Option<&Path>, Failure> {
    for above in real.ancestors() {
        let file = above.join(manifest::NAME);
        match file.symlink_metadata() {
            Ok(_) => return Ok(Some(above)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(Failure::reading(&file)(error)),
        }
    }
    Ok(None)
}

/// Lists what was made, durably: as a plain file, or in a container if there is a key.
pub(super) fn write(folder: &Path, entries: Entries, packing: &mut pack::Packing) -> Result<(), Failure> {
    let path = folder.join(manifest::NAME);
    let text = Manifest::new(entries).text(&path)?;
    if packing.is_sealing() {
        packing.memory(&path, text)?;
    } else {
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = created.map_err(Failure::reading(&path))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(Failure::reading(&path))?;
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Failure::reading(folder))
}

fn plain(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = fs::metadata(file).map_err(Failure::reading(file))?.len();
    if bytes > BYTES_MAX {
        return Err(Failure::new(
            file,
            format!("has {bytes} bytes; the limit for a manifest is {BYTES_MAX}"),
        ));
    }
    fs::read(file).map_err(Failure::reading(file))
}

fn opened(folder: &Path, keyring: &mut Keyring, random: Kernel) -> Result<Vec<u8>, Failure> {
    let file = folder.join(segment::FILE_NAME);
    let head = head_of(&file)?;
    refuse_plain(folder, &head, keyring)?;
    let means = Means::of(&head, keyring, random).map_err(|reason| Failure::new(folder, reason))?;
    let (mut reader, _) = means.open(&file)?;
    let mut text = Vec::new();
    let read = reader.plain(|bytes| bytes.map(|bytes| text.extend_from_slice(bytes)));
    read.map_err(|damage: Damage| Failure::new(folder, damage))?;
    Ok(text)
}
