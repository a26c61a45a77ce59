//! Salvage: what can still be read of a damaged container, found by its records alone where the map is no help.
//!
//! Where the newest root and its map are whole, they are believed, and only pages whose records they lead to are damaged are looked for
//! elsewhere. Otherwise every record in the file is looked at and the highest version of each page taken: that
//! may be a version that a crash had discarded, which is why salvage is for what cannot be opened, and why its result is read out, not written
//! to.

use std::collections::BTreeMap;

use crate::container::{Container, Options};
use crate::device::{Device, Peers};
use crate::entry::Entry;
use crate::error::Error;
use crate::live::{self, Word};
use crate::map::LEAVES_MAX;
use crate::record::{self, ContainerId, Kind};
use crate::root::{DictionaryPlace, HEAD_BYTES, Place, ROOT_SHEETS, Root, SHEET_BYTES, glance};

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
    pages: BTreeMap<u32, (Entry, u64)>,
    dictionaries: Vec<Place>,
    records: u64,
}

impl<'m, D: Device, P: Peers, W: Word> Container<'m, D, P, W> {
    /// Opens what is left for reading. `words` must be this process's own.
    pub fn salvage(
        device: D,
        peers: P,
        words: &'m [W],
        options: Options<'m>,
    ) -> Result<(Self, Salvaged), Error> {
        let mut container = Container::over(device, peers, words, Options { read_only: true, ..options })?;
        let found = container.find_root().map(|found| found.root);
        let (id, scanned) = match &found {
            Ok(root) => (root.container, container.scan_as(root.container)?),
            Err(error @ (Error::Unsupported { .. } | Error::KeyMissing { .. })) => return Err(error.clone()),
            Err(error) => container.scan_as_any().ok_or_else(|| error.clone())?,
        };
        container.set_id(id);
        container.clear();
        let mut report = Salvaged { records: scanned.records, ..Salvaged::default() };
        let root = match found.and_then(|root| container.load_all(&root).map(|()| root)) {
            Ok(root) => {
                report.map_is_whole = true;
                root
            }
            Err(error) => {
                report.failure = Some(error);
                container.root_of(&scanned)
            }
        };
        container.fill(&root, &scanned, &mut report);
        container.start(&root);
        Ok((container, report))
    }

    /// Loads every leaf that can be loaded.
    fn load_all(&self, root: &Root) -> Result<(), Error> {
        self.check_size(root)?;
        self.load_root(root)?;
        let failures: Vec<Error> = (0..LEAVES_MAX).filter_map(|leaf| self.load_leaf(leaf).err()).collect();
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    fn scan_as(&self, id: ContainerId) -> Result<Scanned, Error> {
        let mut scanned = Scanned::default();
        let size = self.device.size().map_err(|source| Error::device("size", 0, 0, source))?;
        crate::scan::scan(
            &self.device,
            record::seed_of(&id),
            HEAD_BYTES as u64..size,
            |location, header| match header.kind {
                Kind::Page { block, .. } => {
                    scanned.records += 1;
                    let entry = Entry::record(location, header.grains(), header.version);
                    let best = scanned.pages.entry(block).or_insert((entry, header.version));
                    if best.1 <= header.version {
                        *best = (entry, header.version);
                    }
                }
                Kind::Dictionary => {
                    let bytes = (record::HEADER_BYTES + header.payload_len) as u32;
                    scanned.dictionaries.push(Place::of(location, bytes, header.version));
                }
                _ => {}
            },
        )?;
        Ok(scanned)
    }

    /// With no whole root: the id that a broken one names, if records bear it out.
    fn scan_as_any(&self) -> Option<(ContainerId, Scanned)> {
        (0..ROOT_SHEETS)
            .filter_map(|index| {
                let mut sheet = [0; SHEET_BYTES];
                self.device.pread(&mut sheet, (index * SHEET_BYTES) as u64).ok()?;
                let id = glance(&sheet)?.0.container;
                Some((id, self.scan_as(id).ok()?))
            })
            .filter(|(_, scanned)| scanned.records > 0)
            .max_by_key(|(_, scanned)| scanned.records)
    }

    /// A root for what was scanned, without a map.
    fn root_of(&self, scanned: &Scanned) -> Root {
        let pages = crate::segment::pages_at_a_glance(&self.device);
        let last = scanned.pages.keys().next_back().map_or(0, |block| block + 1);
        let dictionaries = scanned.dictionaries.iter().filter_map(|place| {
            let payload = self.read_map(*place, Kind::Dictionary, "dictionary").ok()?;
            Some(DictionaryPlace { id: *payload.first()?, place: *place })
        });
        Root {
            container: self.id,
            pages: pages.max(last).min(self.options.geometry.pages_max),
            pages_max: self.options.geometry.pages_max,
            version_limit: 1,
            dictionaries: dictionaries.collect(),
            ..Root::default()
        }
    }

    fn fill(&self, root: &Root, scanned: &Scanned, report: &mut Salvaged) {
        // What is missing from now on is lost.
        self.live.set(live::LOAD_LIMIT, 0);
        let mut buffer = Vec::new();
        for block in 0..root.pages {
            let known = self.live.entry(block);
            let is_good =
                known.is_zeros() || known.is_record() && self.read_at(known, block, &mut buffer).is_ok();
            if is_good && report.map_is_whole {
                continue;
            }
            match scanned.pages.get(&block) {
                Some((entry, _)) => {
                    report.from_records += 1;
                    self.live.set_entry(block, *entry);
                }
                None if known.is_zeros() => {}
                None => {
                    report.lost.push(block);
                    self.live.set_entry(block, Entry::MISSING);
                }
            }
        }
        self.live.set(live::PAGES, root.pages.into());
    }
}
