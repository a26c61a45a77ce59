//! Which relations lie below the paths, with their segments and names.

use crate::cfs::Failure;
use crate::cfs::names::{Named, Names};
use crate::cfs::walk::{self, Kind};
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::relation::{RelationName, number};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A fork of a relation.
pub(super) struct Relation {
    /// The first segment's.
    pub path: PathBuf,
    /// Relative to the path that was named.
    pub place: PathBuf,
    pub name: Option<Named>,
    /// Whether its file's name is that of a relation's file.
    pub has_relation_name: bool,
    pub fork: &'static str,
    /// Segments in order, with their whole pages.
    segments: Vec<(PathBuf, u64)>,
}

impl Relation {
    /// In all segments.
    pub(super) fn pages(&self) -> u64 {
        self.segments.iter().map(|(_, pages)| pages).sum()
    }

    /// Reads whole pages for as long as the caller takes them, by their numbers, ascending.
    pub(super) fn read(
        &self,
        blocks: impl Iterator<Item = u64>,
        mut take: impl FnMut(u64, &[u8; PAGE_SIZE]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut page = [0; PAGE_SIZE];
        let mut open: Option<(usize, File)> = None;
        let (mut first, mut index) = (0, 0);
        for block in blocks {
            while index < self.segments.len() && block - first >= self.segments[index].1 {
                first += self.segments[index].1;
                index += 1;
            }
            let Some((path, _)) = self.segments.get(index) else { break };
            if open.as_ref().is_none_or(|(of, _)| *of != index) {
                open = Some((index, File::open(path).map_err(Failure::reading(path))?));
            }
            let Some((_, file)) = &open else { break };
            file.read_exact_at(&mut page, (block - first) * PAGE_SIZE as u64)
                .map_err(Failure::reading(path))?;
            take(block, &page)?;
        }
        Ok(())
    }
}

/// Relations in the order of their paths. A file that is named itself counts as one whatever its name.
pub(super) fn find(paths: &[PathBuf]) -> Result<Vec<Relation>, Failure> {
    let mut groups: BTreeMap<(PathBuf, u32, u8), Vec<(u32, PathBuf)>> = BTreeMap::new();
    let mut relations = Vec::new();
    let mut places: HashMap<PathBuf, PathBuf> = HashMap::new();
    for path in paths {
        for found in walk::below(path, true)? {
            if let Ok(place) = found.path.strip_prefix(path) {
                places.insert(found.path.clone(), place.to_owned());
            }
            match found.kind {
                Kind::Relation(name) if found.path != *path => {
                    let folder = found.path.parent().unwrap_or(Path::new("")).to_owned();
                    groups
                        .entry((folder, name.number, name.fork))
                        .or_default()
                        .push((name.segment, found.path));
                }
                Kind::Relation(_) | Kind::Other if found.path == *path => relations.push(single(path)?),
                _ => {}
            }
        }
    }
    let mut known: HashMap<PathBuf, Names> = HashMap::new();
    for ((folder, file_number, fork), mut segments) in groups {
        segments.sort();
        let path = segments[0].1.clone();
        let segments = segments.into_iter().map(|(_, path)| with_pages(path)).collect::<Result<_, _>>()?;
        let name = name_of(&folder, file_number, &mut known);
        let fork = RelationName { number: file_number, fork, segment: 0 }.fork_name();
        let place = places.remove(&path).unwrap_or_else(|| path.clone());
        relations.push(Relation { path, place, name, has_relation_name: true, fork, segments });
    }
    relations.retain(|relation| relation.pages() > 0);
    if relations.is_empty() {
        let path = paths.first().map_or(Path::new("."), PathBuf::as_path);
        return Err(Failure::new(path, "no plain relation file with a page in it"));
    }
    Ok(relations)
}

fn single(path: &Path) -> Result<Relation, Failure> {
    let file_name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let parsed = RelationName::parse(file_name);
    let path = fs::canonicalize(path).map_err(Failure::reading(path))?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let name = parsed.and_then(|parsed| name_of(&folder, parsed.number, &mut HashMap::new()));
    let fork = parsed.map_or("main", |parsed| parsed.fork_name());
    let place = PathBuf::from(path.file_name().unwrap_or_default());
    let (has_relation_name, segments) = (parsed.is_some(), vec![with_pages(path.clone())?]);
    Ok(Relation { path, place, name, has_relation_name, fork, segments })
}

fn with_pages(path: PathBuf) -> Result<(PathBuf, u64), Failure> {
    let bytes = fs::metadata(&path).map_err(Failure::reading(&path))?.len();
    Ok((path, bytes / PAGE_SIZE as u64))
}

fn name_of(folder: &Path, file_number: u32, known: &mut HashMap<PathBuf, Names>) -> Option<Named> {
    let (home, tablespace) = home(folder)?;
    let names = known.entry(home).or_insert_with_key(|home| Names::read(home));
    names.get(tablespace, file_number).cloned()
}

/// The directory in which a database has its catalog, and the tablespace's oid as seen from there:
/// `DATA/pg_tblspc/16390/PG_15_202209061/5` is tablespace 16390 of `DATA/base/5`.
fn home(folder: &Path) -> Option<(PathBuf, u32)> {
    if folder.join("pg_filenode.map").is_file() {
        return Some((folder.to_owned(), 0));
    }
    let mut up = folder.ancestors();
    let database = up.next()?.file_name()?;
    let _version = up.next()?;
    let tablespace = number(up.next()?.file_name()?.to_str()?)?;
    let data = up.next().filter(|links| links.file_name() == Some(OsStr::new("pg_tblspc")))?.parent()?;
    Some((data.join("base").join(database), tablespace))
}
