//! Where a user wants a data directory and its tablespaces.

use super::Failure;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where a user wants a data directory.
pub(super) struct Destination {
    pub(super) into: PathBuf,
    /// Other places for tablespaces, by where they were.
    pub(super) mapping: HashMap<String, PathBuf>,
    /// Whether a restore goes on there that was interrupted.
    pub(super) resume: bool,
    /// Where configuration files from outside of the data directory go.
    pub(super) configuration: Option<PathBuf>,
}

impl Destination {
    /// From the options `--tablespace-mapping OLD=NEW`.
    pub(super) fn new(into: &Path, mappings: &[String]) -> Result<Destination, Failure> {
        let mut mapping = HashMap::new();
        for text in mappings {
            let (old, new) = parse_mapping(text)?;
            if mapping.contains_key(&old) {
                return Err(Failure::new("--tablespace-mapping", format!("{old} is mapped twice")));
            }
            mapping.insert(old, new);
        }
        Ok(Destination { into: into.to_owned(), mapping, resume: false, configuration: None })
    }

    /// Refuses places inside of the repository that is read.
    pub(super) fn check_outside(&self, repository: &str) -> Result<(), Failure> {
        refuse_inside(repository, "--into", &self.into)?;
        for place in self.mapping.values() {
            refuse_inside(repository, "--tablespace-mapping", place)?;
        }
        match &self.configuration {
            Some(place) => refuse_inside(repository, "--configuration-into", place),
            None => Ok(()),
        }
    }

    /// Where a restore goes on, if it was interrupted there.
    pub(super) fn resumed(self, resume: bool) -> Destination {
        Destination { resume, ..self }
    }
}

/// Refuses to write below the directory of a repository: the next `expire` or backup would meet files that are none of its
/// own. Object stores have no such directory.
pub(super) fn refuse_inside(repository: &str, flag: &str, place: &Path) -> Result<(), Failure> {
    let directory = match repository.strip_prefix("file://") {
        Some(path) => path,
        None if repository.contains("://") => return Ok(()),
        None => repository,
    };
    let Ok(directory) = Path::new(directory).canonicalize() else { return Ok(()) };
    let real = real(place).map_err(Failure::at(place))?;
    if !real.starts_with(&directory) {
        return Ok(());
    }
    let what = format!(
        "{} is inside the repository {}; name a directory outside of it",
        place.display(),
        directory.display()
    );
    Err(Failure::new(flag, what))
}

/// Without links, as far as it is there.
fn real(place: &Path) -> io::Result<PathBuf> {
    let place = std::path::absolute(place)?;
    for above in place.ancestors() {
        if let Ok(found) = above.canonicalize() {
            return Ok(place.strip_prefix(above).map_or_else(|_| found.clone(), |rest| found.join(rest)));
        }
    }
    Ok(place)
}

/// `OLD=NEW`, two absolute paths, in which `\=` stands for `=`, as pg_basebackup has it. Both without `//`, `/./` and a slash
/// at the end, as the server stores locations.
pub(super) fn parse_mapping(text: &str) -> Result<(String, PathBuf), Failure> {
    let is_separator = |at: &usize| !text[..*at].ends_with('\\');
    let mut separators = text.match_indices('=').map(|(at, _)| at).filter(is_separator);
    let path = |text: &str| Path::new(&text.replace("\\=", "=")).components().collect::<PathBuf>();
    if let (Some(at), None) = (separators.next(), separators.next()) {
        let (old, new) = (path(&text[..at]), path(&text[at + 1..]));
        if old.is_absolute() && new.is_absolute() {
            return Ok((old.to_string_lossy().into_owned(), new));
        }
    }
    let what = format!("expected OLD=NEW, two absolute paths, with \\= for each = in them; found {text}");
    Err(Failure::new("--tablespace-mapping", what))
}
