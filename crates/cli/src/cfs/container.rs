//! Containers opened by the tool: keys found, dictionaries loaded, pages decoded.

use super::content::PlainBytes;
use super::file::ContainerFile;
use super::keys::{self, Kernel};
use super::manifest::Entry;
use super::{Failure, damage};
use crate::ending::Damage;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs::seal::{KeyError, Keyring, RecordSeal};
use pgshrink_cfs::segment::{Clear, clear};
use pgshrink_cfs::store::{self, Page};
use pgshrink_cfs::{
    Container, Device, Error, Geometry, OpenReport, Options, PageStore, Recovery, Salvaged, Seal, Stored,
    Workspace,
};
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Bytes of all three superblock slots (`formats/cfs.md`).
pub(crate) const ROOTS_BYTES: usize = 3 * 4096;

/// A container for one process.
pub(crate) type Alones<'m> = Container<'m, ContainerFile, Alone, AtomicU64>;

/// What opening needs to live as long as the container.
pub(crate) struct Means {
    words: Vec<AtomicU64>,
    seal: Option<RecordSeal<Kernel>>,
    geometry: Geometry,
}

impl Means {
    /// For a segment of so many pages at most.
    pub(crate) fn new(pages_max: u32, seal: Option<RecordSeal<Kernel>>) -> Means {
        let geometry = Geometry::of(pages_max);
        let words = (0..geometry.words()).map(|_| AtomicU64::new(0)).collect();
        Means { words, seal, geometry }
    }

    /// For the container of this head, its key found in the ring.
    pub(crate) fn of(head: &Clear, keyring: &mut Keyring, random: Kernel) -> Result<Means, NoMeans> {
        let seal = if is_sealed(head) {
            let key = keyring.data_key(&head.id, &head.key_id, &head.key)?;
            Some(key.into_seal(head.key_id, random))
        } else {
            None
        };
        if head.pages_max == 0 || head.pages_max > pgshrink_cfs::PAGES_MAX {
            return Err(NoMeans::Pages(head.pages_max));
        }
        Ok(Means::new(head.pages_max, seal))
    }

    /// For opening the same container anew: what an earlier use left in memory is forgotten.
    pub(crate) fn fresh(self) -> Means {
        Means { words: Means::new(self.geometry.pages_max, None).words, ..self }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    pub(crate) fn options(&self, read_only: bool) -> Options<'_> {
        let seal = self.seal.as_ref().map(|seal| seal as &dyn Seal);
        Options { geometry: self.geometry, seal, read_only, ..Options::new(self.geometry.pages_max) }
    }

    /// Opens for reading alone.
    pub(crate) fn open(&self, path: &Path) -> Result<(Reader<'_>, Option<OpenReport>), Failure> {
        let (reader, report) = self.open_of_server(path)?;
        if let Some(report) = report.as_ref().filter(|report| report.may_be_older()) {
            return Err(Failure::damaged(path, damage::older(report.discarded_bytes)));
        }
        Ok((reader, report))
    }

    /// The same of a server's file, which may have been made since the last checkpoint before a crash: it has one root
    /// then, and the server's log has its pages.
    pub(crate) fn open_of_server(&self, path: &Path) -> Result<(Reader<'_>, Option<OpenReport>), Failure> {
        let file = ContainerFile::read_only(path).map_err(Failure::reading(path))?;
        let bytes = file.size().map_err(|error| Failure::new(path, error))?;
        if bytes < ROOTS_BYTES as u64 {
            // Its first root, alone, may be that of the empty container it once was.
            return Err(Failure::damaged(path, damage::cut_off(bytes)));
        }
        let opened = Container::open(file, Alone, &self.words, Recovery::Discard, self.options(true));
        let (container, report) = opened.map_err(|error| Failure::opening(path, &error))?;
        Ok((Reader::new(container, path)?, report))
    }

    /// Opens what is left of it.
    pub(crate) fn salvage(&self, path: &Path) -> Result<(Reader<'_>, Salvaged), Failure> {
        let file = ContainerFile::read_only(path).map_err(Failure::reading(path))?;
        let opened = Container::salvage(file, Alone, &self.words, self.options(true));
        let (container, report) = opened.map_err(|error| Failure::opening(path, &error))?;
        Ok((Reader::new(container, path)?, report))
    }
}

/// Why there is nothing to open a container with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoMeans {
    #[error("{}", keys::explained(.0))]
    Key(#[from] KeyError),
    #[error("a segment of {0} pages at most is not supported")]
    Pages(u32),
}

impl NoMeans {
    /// Whether another key may open it: the container is not at fault.
    pub(crate) fn is_for_want_of_key(&self) -> bool {
        matches!(self, NoMeans::Key(KeyError::Missing { .. } | KeyError::Wrong { .. }))
    }
}

/// What the container in a file shows without being opened. Where nothing can be made out, opening it says
/// why.
pub(crate) fn head_of(path: &Path) -> Result<Clear, Failure> {
    let file = ContainerFile::read_only(path).map_err(Failure::reading(path))?;
    match clear(&file) {
        Some(head) => Ok(head),
        None => match Means::new(pgshrink_cfs::PAGES_MAX, None).open(path) {
            Err(failure) => Err(failure),
            Ok(_) => Err(Failure::new(path, "no intact root")),
        },
    }
}

/// Whether reading pages takes a key.
pub(crate) fn is_sealed(head: &Clear) -> bool {
    head.key_id != [0; 16]
}

/// What is not sealed although a key was given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plain {
    Refused,
    Taken,
    /// Taken; and these are a crashed server's own files, which its log makes whole.
    OfServer,
}

impl Plain {
    pub(crate) fn taken_if(is_taken: bool) -> Plain {
        if is_taken { Plain::Taken } else { Plain::Refused }
    }
}

/// Fails on a container that is not sealed although a key was given.
pub(crate) fn refuse_plain(path: &Path, head: &Clear, keyring: &Keyring) -> Result<(), Failure> {
    if keyring.is_empty() || is_sealed(head) {
        return Ok(());
    }
    Err(keys::not_sealed(path, "a container that is not encrypted"))
}

/// Pages read in one call.
const BATCH_PAGES: usize = 64;

/// Reads pages of an open container.
pub(crate) struct Reader<'m> {
    store: PageStore<'m, ContainerFile>,
    workspace: Workspace,
    pages: u32,
}

impl<'m> Reader<'m> {
    /// Without the segment's number the check sums of its pages would come out wrong.
    fn new(container: Alones<'m>, path: &Path) -> Result<Reader<'m>, Failure> {
        let store = PageStore::new(container).map_err(|error| {
            Failure::new(
                path,
                format!("it cannot be determined which segment it is, so no page can be decoded: {error}"),
            )
        })?;
        let workspace = workspace(path)?;
        let pages = store.container().page_count().map_err(|error| Failure::new(path, error))?;
        Ok(Reader { store, workspace, pages })
    }

    /// Pages of the segment, in the container and in the plain file beside it.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    pub(crate) fn container(&self) -> &Alones<'m> {
        self.store.container()
    }

    /// Reads and decodes all pages, in order. `take` is given each, or why it cannot be read, and ends it by
    /// an error.
    ///
    /// # Errors
    /// What `take` returned.
    pub(crate) fn each<E>(
        &mut self,
        mut take: impl FnMut(u32, Result<&Page, store::Error>) -> Result<(), E>,
    ) -> Result<(), E> {
        let pages = self.pages;
        let mut batch = vec![[0; PAGE_SIZE]; BATCH_PAGES.min(pages as usize)];
        for first in (0..pages).step_by(BATCH_PAGES) {
            let count = (pages - first).min(BATCH_PAGES as u32);
            let batch = &mut batch[..count as usize];
            let faults = self.store.read_range(first, batch.iter_mut(), &mut self.workspace);
            let mut faults = faults.into_iter().peekable();
            for (block, page) in (first..).zip(batch) {
                let fault = faults.next_if(|(failed, _)| *failed == block);
                take(block, fault.map_or(Ok(page), |(_, fault)| Err(fault)))?;
            }
        }
        Ok(())
    }

    /// Reads all pages, in order. `take` is given what each has of the plain file, or why that cannot be read,
    /// and ends it by an error. Returns what the file is, as a manifest lists it.
    ///
    /// # Errors
    /// What `take` returned; that the page with the file's length is missing.
    pub(crate) fn plain<E: From<String>>(
        &mut self,
        mut take: impl FnMut(Result<&[u8], Damage>) -> Result<(), E>,
    ) -> Result<Entry, E> {
        // Of a relation, or of any file (`content`).
        let is_relation = self.store.identity().relation != 0;
        let mut bytes = PlainBytes::new(is_relation, self.pages);
        self.each(|block, page| {
            let page = page.map_err(|fault| Damage::from(&fault));
            take(page.and_then(|page| bytes.of(block, page).map_err(Damage::from)))
        })?;
        Ok(bytes.entry()?)
    }

    /// A page as it is stored: none for zeros, else mode, dictionary and payload.
    pub(crate) fn stored(&mut self, block: u32) -> Result<Stored<'_>, Error> {
        self.store.stored(block, &mut self.workspace)
    }
}

/// Memory for the codecs of one container's pages.
pub(crate) fn workspace(path: &Path) -> Result<Workspace, Failure> {
    Workspace::new(Workspace::BUDGET_BYTES).map_err(|error| Failure::new(path, error))
}

#[test]
#[allow(clippy::unwrap_used, reason = "a test that cannot set up its case fails")]
fn a_container_whose_segment_cannot_be_read_gives_no_pages() {
    use std::sync::atomic::Ordering;
    let dir = tempfile::tempdir().unwrap();
    let made = dir.path().join("made");
    let random = super::keys::Kernel::new().unwrap();
    let mut packing = super::pack::Packing::of_manifest(None, random).unwrap();
    packing.memory(&made, vec![7; 3 * PAGE_SIZE]).unwrap();
    let file = made.join(pgshrink_cfs::segment::FILE_NAME);
    let means = Means::of(&head_of(&file).unwrap(), &mut Keyring::new(Vec::new()), random).unwrap();
    let device = ContainerFile::read_only(&file).unwrap();
    let opened = Container::open(device, Alone, &means.words, Recovery::Discard, means.options(true));
    let (container, _) = opened.unwrap();
    // The root in memory is gone, and the file's with it.
    means.words.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(0).unwrap();
    let Err(failure) = Reader::new(container, &file) else { panic!("read as pages of segment 0") };
    assert!(failure.to_string().contains("it cannot be determined which segment it is"), "{failure}");
}
