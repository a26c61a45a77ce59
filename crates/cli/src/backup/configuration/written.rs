//! Configuration files in a directory that a user names, below it as they were below the root: `/etc/x.conf` is `DIR/etc/x.conf`.

use super::Found;
use crate::args::BackupArgs;
use crate::backup::Failure;
use crate::backup::destination::parse_mapping;
use crate::backup::places::{Access, Place, sync};
use crate::backup::room::check_empty;
use pgshrink_backup::configuration::below;
use pgshrink_backup::record::{self, Configuration, ConfigurationFile, ConfigurationRole, Record};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Files that were written. They are taken away again unless they are kept.
pub(in crate::backup) struct Written(Option<Place>);

impl Written {
    /// Leaves them where they are.
    pub(in crate::backup) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            place.remove();
        }
    }
}

/// Writes what was found beside a plain or tar backup, or says that it is not in it.
pub(in crate::backup) fn beside(args: &BackupArgs, found: &Found) -> Result<Option<Written>, Failure> {
    let Some(record) = &found.record else { return Ok(None) };
    let Some(folder) = &args.configuration_into else {
        if !record.files.is_empty() {
            let paths: Vec<_> = record.files.iter().map(|file| file.path.as_str()).collect();
            eprintln!(
                "pgshrink: not in this backup, because they are outside of the data directory: {}. Use \
                 --configuration-into DIRECTORY to write them beside it",
                paths.join(", ")
            );
        }
        return Ok(None);
    };
    let mapped = args.tablespace_mapping.iter().map(|mapping| Ok(parse_mapping(mapping)?.1));
    let mapped = mapped.collect::<Result<Vec<_>, Failure>>()?;
    check_apart(folder, std::iter::once(Path::new(&args.to)).chain(mapped.iter().map(|place| &**place)))?;
    if record.files.is_empty() {
        eprintln!("pgshrink: the server has no configuration files outside of the data directory");
        return Ok(None);
    }
    write(folder, record, found.files()).map(Some)
}

/// Where the file or directory with this absolute path goes.
pub(in crate::backup) fn place(folder: &Path, path: &str) -> Result<PathBuf, Failure> {
    let below = record::place(path)?;
    Ok(folder.join(OsStr::from_bytes(below.as_bytes())))
}

/// Writes all files into an empty directory, or one that is not there, and makes them durable.
pub(in crate::backup) fn write<'f>(
    folder: &Path,
    configuration: &Configuration,
    files: impl IntoIterator<Item = (&'f ConfigurationFile, &'f [u8])>,
) -> Result<Written, Failure> {
    let written = Written(Some(Place::make(folder, Access::Owner)?));
    for directory in &configuration.directories {
        make_folder(&place(folder, directory)?)?;
    }
    for (file, content) in files {
        let path = place(folder, &file.path)?;
        path.parent().map_or(Ok(()), make_folder)?;
        let write = |mut file: File| file.write_all(content);
        Access::Owner.create(&path).and_then(write).map_err(Failure::at(&path))?;
    }
    sync(folder)?;
    Ok(written)
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Failure::at(path))
}

/// Refuses a directory for configuration that has something in it, or is one of the places of a data directory and its
/// tablespaces, lies in one, or has one in it.
pub(in crate::backup) fn check_apart<'p>(
    folder: &Path,
    others: impl IntoIterator<Item = &'p Path>,
) -> Result<(), Failure> {
    check_empty(folder)?;
    let here = whole(folder)?;
    for other in others {
        let there = whole(other)?;
        if here.starts_with(&there) || there.starts_with(&here) {
            let what = format!("expected a directory outside of {}, for configuration only", other.display());
            return Err(Failure::new(folder.display(), what));
        }
    }
    Ok(())
}

/// The path without links, as far as it is there.
fn whole(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).map_err(Failure::at(path))?;
    let there = path.ancestors().find(|above| above.exists()).unwrap_or(&path);
    let real = there.canonicalize().map_err(Failure::at(there))?;
    Ok(path.strip_prefix(there).map_or(real.clone(), |rest| real.join(rest)))
}

/// What a user has to know who has restored a data directory: how its configuration is had, or is used where it is now.
pub(in crate::backup) fn hints(
    record: &Record,
    into: &Path,
    folder: Option<&Path>,
) -> Result<Vec<String>, Failure> {
    let known = record.configuration.as_ref();
    let found = known.filter(|found| !(found.files.is_empty() && found.directories.is_empty()));
    let config =
        |found: &Configuration| found.files.iter().any(|file| file.role == ConfigurationRole::Config);
    let mut lines = Vec::new();
    match (found, folder) {
        (None, None) => {}
        (None, Some(folder)) => lines.push(format!(
            "the backup has no configuration files from outside of the data directory: nothing was written to {}",
            folder.display()
        )),
        (Some(found), None) => {
            let paths = found.files.iter().map(|file| &file.path).chain(&found.directories);
            let first = paths.map(|path| path.escape_debug()).next();
            lines.push(format!(
                "the backup has {} from outside of the data directory, such as {}. The server needs the \
                 files that its configuration refers to before it can start: restore --configuration-into \
                 DIRECTORY writes them",
                counted(found.files.len()),
                first.map(|path| path.to_string()).unwrap_or_default()
            ));
        }
        (Some(found), Some(folder)) => lines.push(format!(
            "{} from outside of the data directory: {}. Put them where they were, or start it with: postgres {}",
            counted(found.files.len()),
            folder.display(),
            options(found, into, folder)?
        )),
    }
    if let Some(known) = known.filter(|known| !known.absent.is_empty()) {
        let names: Vec<_> = known.absent.iter().map(|path| path.escape_debug().to_string()).collect();
        lines.push(format!(
            "the configuration refers to files that the backup does not have: {}",
            names.join(", ")
        ));
    }
    let is_inside = match known {
        Some(known) => below(known.config_file.as_bytes(), known.data_directory.as_bytes()).is_some(),
        None => into.join("postgresql.conf").exists(),
    };
    if !is_inside && !known.is_some_and(config) {
        let place = known.map(|known| format!(" It was {}.", known.config_file.escape_debug()));
        let place = place.unwrap_or_default();
        lines.push(format!(
            "the backup has no postgresql.conf, which a server needs to start, nor the files beside \
             it.{place} Put one into {}, with a pg_hba.conf, or name those of the server: postgres -D {} \
             -c config_file=FILE -c hba_file=FILE -c ident_file=FILE",
            into.display(),
            into.display()
        ));
    }
    Ok(lines)
}

/// `1 configuration file`.
pub(in crate::backup) fn counted(count: usize) -> String {
    pgshrink_codec::counted(count as u64, "configuration file", "configuration files")
}

/// Options that start a server with configuration that is in a directory.
fn options(found: &Configuration, into: &Path, folder: &Path) -> Result<String, Failure> {
    let folder = std::path::absolute(folder).map_err(Failure::at(folder))?;
    // It is stronger than data_directory in a file.
    let mut options = vec![("data_directory", std::path::absolute(into).map_err(Failure::at(into))?)];
    for file in &found.files {
        let name = match file.role {
            ConfigurationRole::Config => "config_file",
            ConfigurationRole::Hba => "hba_file",
            ConfigurationRole::Ident => "ident_file",
            ConfigurationRole::Included => continue,
        };
        options.push((name, place(&folder, &file.path)?));
    }
    let words: Vec<_> =
        options.iter().map(|(name, path)| format!("-c {name}='{}'", path.display())).collect();
    Ok(words.join(" "))
}
