//! The pages of a container's plain file: a relation's segment page by page, or any file behind a page with
//! its length.
//!
//! Any file can be in a container, which sealed trees need. It is marked by the relation number 0, which no
//! relation has; layout: `formats/cfs-tree.md`.

use super::Failure;
use super::manifest::{Content, Entry, Hashing};
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::relation::{RelationName, number};
use pgshrink_cfs::{Identity, PAGES_MAX};
use pgshrink_codec::counted;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// At the start of the first page of a file that is no relation.
const MAGIC: &[u8; 16] = b"pgshrink file 1\0";
/// Larger ones do not fit into a container.
const FILE_BYTES_MAX: u64 = (PAGES_MAX as u64 - 1) * PAGE_SIZE as u64;

/// What goes into a container.
pub(super) struct PlainFile {
    pub path: PathBuf,
    /// None: any file.
    pub name: Option<RelationName>,
    pub pages: u32,
    pub bytes: u64,
    source: Source,
}

enum Source {
    File(File),
    Memory(Vec<u8>),
}

impl PlainFile {
    /// As a relation's segment if it has the name and the size of one, else as any file.
    pub(super) fn open(path: &Path, name: Option<RelationName>) -> Result<PlainFile, Failure> {
        let file = File::open(path).map_err(Failure::reading(path))?;
        let bytes = file.metadata().map_err(Failure::reading(path))?.len();
        Ok(PlainFile::new(path, name, bytes, Source::File(file)))
    }

    /// A file that is only in memory.
    pub(super) fn of_memory(path: &Path, text: Vec<u8>) -> PlainFile {
        PlainFile::new(path, None, text.len() as u64, Source::Memory(text))
    }

    fn new(path: &Path, name: Option<RelationName>, bytes: u64, source: Source) -> PlainFile {
        let whole = bytes.is_multiple_of(PAGE_SIZE as u64) && bytes / PAGE_SIZE as u64 <= PAGES_MAX.into();
        let name = name.filter(|_| whole);
        let pages = bytes.div_ceil(PAGE_SIZE as u64) + u64::from(name.is_none());
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        PlainFile { path: path.to_owned(), name, pages, bytes, source }
    }

    /// Fails if it is too large for a container.
    pub(super) fn fits(&self) -> Result<(), Failure> {
        if self.pages <= PAGES_MAX {
            return Ok(());
        }
        let large = format!(
            "has {} bytes; a file that is not a relation segment may have at most {FILE_BYTES_MAX} in a \
             container: move it out of SOURCE and encrypt it by other means, or pack without --seal",
            self.bytes
        );
        Err(Failure::new(&self.path, large))
    }

    /// A page as it goes into the container.
    pub(super) fn page(&self, block: u32, page: &mut [u8; PAGE_SIZE]) -> Result<(), Failure> {
        let first = u32::from(self.name.is_none());
        page.fill(0);
        if block < first {
            page[..16].copy_from_slice(MAGIC);
            page[16..24].copy_from_slice(&self.bytes.to_le_bytes());
            return Ok(());
        }
        let offset = u64::from(block - first) * PAGE_SIZE as u64;
        let wanted = (self.bytes - offset).min(PAGE_SIZE as u64) as usize;
        match &self.source {
            Source::File(file) => {
                if let Err(error) = file.read_exact_at(&mut page[..wanted], offset) {
                    // That it was cut says more than that the page ends early.
                    self.same_length()?;
                    return Err(Failure::reading(&self.path)(error));
                }
            }
            Source::Memory(text) => page[..wanted].copy_from_slice(&text[offset as usize..][..wanted]),
        }
        Ok(())
    }

    /// Fails if the file is not as long as it was.
    pub(super) fn same_length(&self) -> Result<(), Failure> {
        let Source::File(file) = &self.source else { return Ok(()) };
        let now = file.metadata().map_err(Failure::reading(&self.path))?.len();
        if now == self.bytes {
            return Ok(());
        }
        let changed = format!(
            "had {} and now has {}; is a server writing to it?",
            counted(self.bytes, "byte", "bytes"),
            counted(now, "byte", "bytes")
        );
        Err(Failure::new(&self.path, changed))
    }

    /// For taking the plain bytes out of its pages.
    pub(super) fn bytes_of_pages(&self) -> PlainBytes {
        PlainBytes::new(self.name.is_some(), self.pages)
    }

    /// A block's number in its relation, which check sums are of.
    pub(super) fn in_relation(&self, block: u32) -> u32 {
        self.name.map_or(0, |name| name.segment).wrapping_mul(PAGES_MAX).wrapping_add(block)
    }

    /// Where PostgreSQL would have the file: `base/DATABASE`, `global`, or `TABLESPACE/PG_15_…/DATABASE`.
    pub(super) fn identity(&self) -> Identity {
        let Some(name) = self.name else { return Identity::default() };
        let up: Vec<&str> = self
            .path
            .ancestors()
            .skip(1)
            .take(3)
            .map(|up| up.file_name().and_then(OsStr::to_str).unwrap_or_default())
            .collect();
        let nth = |index: usize| up.get(index).copied().unwrap_or_default();
        let tablespace = match (nth(0), nth(1)) {
            ("global", _) => 1664,
            (_, "base") => 1663,
            _ => number(nth(2)).unwrap_or(0),
        };
        let database = number(nth(0)).unwrap_or(0);
        Identity { tablespace, database, relation: name.number, fork: name.fork, segment: name.segment }
    }
}

/// Takes the bytes of the plain file out of a container's pages, which it is given in order.
pub(super) struct PlainBytes {
    is_relation: bool,
    pages: u32,
    /// Of the file, still to come.
    left: u64,
    hashing: Hashing,
}

impl PlainBytes {
    pub(super) fn new(is_relation: bool, pages: u32) -> PlainBytes {
        let left = u64::from(pages) * PAGE_SIZE as u64;
        PlainBytes { is_relation, pages, left, hashing: Hashing::default() }
    }

    /// What is the file's of the page of this block.
    pub(super) fn of<'p>(&mut self, block: u32, page: &'p [u8; PAGE_SIZE]) -> Result<&'p [u8], String> {
        if block == 0 && !self.is_relation {
            self.left = file_bytes(page, self.pages)?;
            return Ok(&[]);
        }
        let wanted = self.left.min(PAGE_SIZE as u64) as usize;
        self.left -= wanted as u64;
        self.hashing.add(&page[..wanted]);
        Ok(&page[..wanted])
    }

    /// After the last page.
    pub(super) fn entry(self) -> Result<Entry, String> {
        let content: Content = self.hashing.content();
        match (self.is_relation, self.pages) {
            (true, _) => Ok(Entry::Relation(content)),
            (false, 0) => Err("the page with the file's length is missing".to_owned()),
            (false, _) => Ok(Entry::File(content)),
        }
    }
}

/// From the first page of a file that is no relation.
fn file_bytes(page: &[u8; PAGE_SIZE], pages: u32) -> Result<u64, String> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[16..24]);
    let bytes = u64::from_le_bytes(bytes);
    if page[..16] != MAGIC[..] || page[24..].iter().any(|byte| *byte != 0) {
        return Err("block 0: expected the length of a file, found something else".to_owned());
    }
    if bytes.div_ceil(PAGE_SIZE as u64) != u64::from(pages - 1) {
        return Err(format!(
            "block 0: a file of {} does not have {}",
            counted(bytes, "byte", "bytes"),
            counted(pages.into(), "page", "pages")
        ));
    }
    Ok(bytes)
}

#[test]
#[allow(clippy::unwrap_used, reason = "a test that cannot set up its case fails")]
fn a_segment_of_more_than_a_gigabyte_is_any_file_and_fits_into_no_container() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("16384");
    let name = RelationName::parse("16384");
    let file = File::create(&path).unwrap();
    for (bytes, is_segment, fits) in [
        (0, true, true),
        (8191, false, true),
        (FILE_BYTES_MAX, true, true),
        (FILE_BYTES_MAX + 1, false, false),
        (1 << 30, true, true),
        ((1 << 30) + 8192, false, false),
        (1 << 40, false, false),
    ] {
        file.set_len(bytes).unwrap();
        let plain = PlainFile::open(&path, name).unwrap();
        assert_eq!((plain.name.is_some(), plain.fits().is_ok()), (is_segment, fits), "{bytes}");
    }
}

#[test]
#[allow(clippy::unwrap_used, reason = "a test that cannot set up its case fails")]
fn a_file_that_is_cut_while_it_is_read_says_from_what_to_what() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("16384");
    let file = File::create(&path).unwrap();
    file.set_len(3 * PAGE_SIZE as u64).unwrap();
    let plain = PlainFile::open(&path, RelationName::parse("16384")).unwrap();
    file.set_len(PAGE_SIZE as u64).unwrap();
    let mut page = [1; PAGE_SIZE];
    plain.page(0, &mut page).unwrap();
    let failure = plain.page(2, &mut page).unwrap_err().to_string();
    assert!(
        failure.contains("had 24,576 bytes and now has 8,192 bytes; is a server writing to it?"),
        "{failure}"
    );
}
