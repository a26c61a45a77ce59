//! Salvage: what can still be read of a damaged container, found by its records alone where the map is no
//! help.
//!
//! Where the newest root and its map are whole, they are believed, and only pages whose records they lead to
//! are damaged are looked for elsewhere. A root that is the only whole one is believed only if no record is
//! newer: damage may have taken the roots after it. Otherwise every record in the file is looked at and the
//! highest version of each page taken: that may be a version that a crash had discarded, which is why salvage
//! is for what cannot be opened, and why its result is read out, not written to.

use std::collections::BTreeMap;

use crate::device::{Device, ProcessTable};
use crate::engine::container::{Container, Options};
use crate::engine::dictionaries::number_of;
use crate::engine::leaves;
use crate::engine::stored::Found;
use crate::format::entry::Entry;
use crate::format::error::{Damage, Error, Part, Reason};
use crate::format::record::{self, Kind};
use crate::format::root::{
    DISK_BLOCK_BYTES, DictionaryPlace, HEAD_BYTES, Place, Root, SUPERBLOCK_SLOTS, peek,
};
use crate::format::units::{Block, ContainerId, DictionaryNumber, Span, Version};
use crate::shared::lock::CommitGuard;
use crate::shared::region::READ_ONLY;
use crate::shared::word::Word;

/// What salvage found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Salvaged {
    /// Whether a root was whole, and the map it leads to.
    pub map_is_whole: bool,
    /// Why not.
    pub failure: Option<Error>,
    /// Whole records of pages in the file, old versions included.
    pub records: u64,
    /// Pages taken from a record that no whole map leads to.
    pub from_records: u32,
    /// Blocks below the end of which nothing is left.
    pub lost: Vec<u32>,
}

/// The newest records of a scan.
#[derive(Default)]
struct Scanned {
    pages: BTreeMap<Block, (Entry, Version)>,
    /// With the sequence that each was written in.
    dictionaries: Vec<(Place, Version)>,
    records: u64,
}

impl<'m, D: Device, P: ProcessTable, W: Word> Container<'m, D, P, W> {
    /// Opens what is left for reading. `words` must be this process's own.
    ///
    /// # Errors
    /// [`Error::SharedMemory`] and [`Error::Limit`] for memory and geometry that do not fit;
    /// [`Error::Unsupported`] and [`Error::KeyMissing`] for a root that needs a newer version, or another
    /// key; [`Error::Device`] where the file cannot be read; and what opening would say where neither a root
    /// nor a record is whole. Damage of the map is no error, but in the report.
    pub fn salvage(
        device: D,
        processes: P,
        words: &'m [W],
        options: Options<'m>,
    ) -> Result<(Self, Salvaged), Error> {
        let mut container =
            Container::over(device, processes, words, Options { read_only: true, ..options })?;
        let guard = CommitGuard::lock(container.state.shared(), &container.processes);
        let found = container.find_root();
        let (id, scanned) = match &found {
            Ok(found) => (found.root.container, container.scan_as(found.root.container)?),
            Err(error @ (Error::Unsupported { .. } | Error::KeyMissing { .. })) => return Err(error.clone()),
            Err(error) => container.scan_as_any().ok_or_else(|| error.clone())?,
        };
        container.set_id(id);
        container.state.clear(&guard);
        let mut report = Salvaged { records: scanned.records, ..Salvaged::default() };
        let root = match found.and_then(|found| container.believe(&guard, found, &scanned)) {
            Ok(root) => {
                report.map_is_whole = true;
                root
            }
            Err(error) => {
                report.failure = Some(error);
                container.salvaged = container.dictionaries_of(&scanned);
                container.root_of(&scanned)
            }
        };
        container.fill(&root, &scanned, &mut report);
        container.start(&guard, &root, READ_ONLY);
        drop(guard);
        Ok((container, report))
    }

    /// Loads a root's map, if that may be the newest.
    fn believe(&self, guard: &CommitGuard<'_, W>, found: Found, scanned: &Scanned) -> Result<Root, Error> {
        let Found { root, whole, .. } = found;
        self.load_all(guard, &root)?;
        let is_newer = |(block, (entry, _)): &(&Block, &(Entry, Version))| {
            block.0 >= root.pages || self.state.entry(**block).clean() != entry.clean()
        };
        let newer = if whole > 1 { 0 } else { scanned.pages.iter().filter(is_newer).count() as u64 };
        if newer == 0 {
            return Ok(root);
        }
        let (offset, length) = (0, HEAD_BYTES as u64);
        Err(Damage { part: Part::Root, block: None, offset, length, reason: Reason::MayBeOlder { newer } }
            .into())
    }

    /// Loads every leaf that can be loaded.
    fn load_all(&self, guard: &CommitGuard<'_, W>, root: &Root) -> Result<(), Error> {
        self.check_size(root)?;
        self.load_root(guard, root)?;
        let failures: Vec<Error> = leaves::all().filter_map(|leaf| self.load_leaf(leaf).err()).collect();
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    fn scan_as(&self, id: ContainerId) -> Result<Scanned, Error> {
        let mut scanned = Scanned::default();
        let size = self.device.size().map_err(|source| Error::device("size", 0, 0, source))?;
        crate::engine::scan::scan(
            &self.device,
            record::seed_of(&id),
            HEAD_BYTES as u64..size,
            |location, header| match header.kind {
                Kind::Page(page) => {
                    scanned.records += 1;
                    let span = Span { location, units: header.units() };
                    let entry = Entry::record(span, header.version);
                    let best = scanned.pages.entry(page.block).or_insert((entry, header.version));
                    if best.1 <= header.version {
                        *best = (entry, header.version);
                    }
                }
                Kind::Dictionary => {
                    let bytes = (record::HEADER_BYTES + header.payload_len) as u32;
                    let place = Place::of(location, bytes, header.version);
                    scanned.dictionaries.push((place, header.version));
                }
                _ => {}
            },
        )?;
        Ok(scanned)
    }

    /// With no whole root: the id that a broken one names, if records bear it out.
    fn scan_as_any(&self) -> Option<(ContainerId, Scanned)> {
        (0..SUPERBLOCK_SLOTS)
            .filter_map(|index| {
                let mut slot = [0; DISK_BLOCK_BYTES];
                self.device.pread(&mut slot, (index * DISK_BLOCK_BYTES) as u64).ok()?;
                let id = peek(&slot)?.0.container;
                Some((id, self.scan_as(id).ok()?))
            })
            .filter(|(_, scanned)| scanned.records > 0)
            .max_by_key(|(_, scanned)| scanned.records)
    }

    /// All dictionaries that were found: a number is one dictionary's for the container's life, but for those
    /// whose commit never was durable. Of several with a number the last one written is the one that pages
    /// may have.
    fn dictionaries_of(&self, scanned: &Scanned) -> Vec<DictionaryPlace> {
        let mut newest: BTreeMap<DictionaryNumber, (Version, Place)> = BTreeMap::new();
        for (place, sequence) in &scanned.dictionaries {
            let payload = self.read_map(*place, Kind::Dictionary, Part::Dictionary);
            let Some(number) = payload.ok().and_then(|payload| number_of(&payload)) else { continue };
            let best = newest.entry(number).or_insert((*sequence, *place));
            if best.0 < *sequence {
                *best = (*sequence, *place);
            }
        }
        newest.into_iter().map(|(number, (_, place))| DictionaryPlace { number, place }).collect()
    }

    /// A root for what was scanned, without a map.
    fn root_of(&self, scanned: &Scanned) -> Root {
        let pages = crate::engine::segment::peek_pages(&self.device);
        let last = scanned.pages.keys().next_back().map_or(0, |block| block.0 + 1);
        // Implied checksums of pages are computed with the segment's number.
        let identity =
            crate::engine::segment::clear(&self.device).map(|clear| clear.identity).unwrap_or_default();
        Root {
            container: self.id,
            identity,
            pages: pages.max(last).min(self.options.geometry.pages_max),
            pages_max: self.options.geometry.pages_max,
            version_limit: Version(1),
            ..Root::default()
        }
    }

    fn fill(&self, root: &Root, scanned: &Scanned, report: &mut Salvaged) {
        // What is missing from now on is lost.
        self.state.shared().load_limit.store(0);
        let mut buffer = Vec::new();
        for block in Block(0).up_to(root.pages) {
            let known = self.state.entry(block);
            let is_good =
                known.is_zeros() || known.is_record() && self.read_at(known, block, &mut buffer).is_ok();
            if is_good && report.map_is_whole {
                continue;
            }
            match scanned.pages.get(&block) {
                Some((entry, _)) => {
                    report.from_records += 1;
                    self.state.set_entry(block, *entry);
                }
                None if known.is_zeros() => {}
                None => {
                    report.lost.push(block.0);
                    self.state.set_entry(block, Entry::MISSING);
                }
            }
        }
    }
}
