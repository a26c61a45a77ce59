//! `pgshrink cfs pack`.

use super::container::Means;
use super::copy::{self, Done};
use super::dictionary::{self, Sample};
use super::file::SegmentFolder;
use super::keys::{self, Kernel};
use super::output::{self, Progress};
use super::relation::{RelationName, number};
use super::walk::{Found, Kind};
use super::{Failure, Verdict};
use crate::args::PackArgs;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::dictionaries::DICTIONARIES_MAX;
use pgshrink_cfs::dictionary_policy::DictionaryPolicy;
use pgshrink_cfs::page::{self, Mode, PAGE_SIZE, PageCodec, PageDictionary, Policy, TransformPolicy};
use pgshrink_cfs::seal::{Keyring, Random};
use pgshrink_cfs::{Birth, ContainerId, Identity, KEY_BYTES, PAGES_MAX, Scratch, segment};
use pgshrink_codec::{Algorithm, AlgorithmList};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// Pages between two commits: the engine gives out so many versions and more before it wants one.
const COMMIT_PAGES: u32 = 1 << 14;

/// What is the same for all containers of a run.
struct Packing {
    policy: Policy,
    dictionary: bool,
    keyring: Option<Keyring>,
    random: Kernel,
    /// Of the relation that was packed last: its segments share it.
    trained: Option<Trained>,
}

/// A relation's dictionary, and what decides on the next one.
struct Trained {
    folder: PathBuf,
    number: u32,
    fork: u8,
    policy: DictionaryPolicy,
    dictionary: Option<PageDictionary>,
}

pub(super) fn run(args: &PackArgs) -> Result<Verdict, Failure> {
    let wrong = |reason: String| Failure::new(Path::new("--compression"), reason);
    let text = args.compression.as_deref().unwrap_or("zstd:1");
    let list = AlgorithmList::parse(text, &Algorithm::ALL[1..]).map_err(|error| wrong(error.to_string()))?;
    let choice = list.get(0).filter(|_| list.len() == 1);
    let choice = choice.ok_or_else(|| wrong("one algorithm, with or without a level".to_owned()))?;
    let mut keyring = args.seal.then(|| keys::keyring(&args.key)).transpose()?;
    let random = Kernel::new()?;
    if let Some(keyring) = &mut keyring {
        keyring.master(&random).map_err(|error| Failure::new(Path::new("--seal"), error))?;
    }
    let policy = Policy { choice, transform: TransformPolicy::Auto };
    let mut packing = Packing { policy, dictionary: !args.no_dictionary, keyring, random, trained: None };
    let bar = |bytes| Progress::new(bytes, &args.output);
    let copied = copy::mirror(&args.source, &args.dest, bar, |found, to, progress| match found.kind {
        Kind::Relation(name) => packing.relation(found, name, to, progress),
        _ => Ok(Done::AsItIs),
    })?;
    if copied.converted == 0 {
        eprintln!(
            "pgshrink: {}: no relation file to pack; everything was copied as it is",
            args.source.display()
        );
    }
    output::print(&args.output, &copied, |copied| copied.text("relation files packed"))?;
    Ok(copied.verdict())
}

impl Packing {
    fn relation(
        &mut self,
        found: &Found,
        name: RelationName,
        to: &Path,
        progress: &Progress,
    ) -> Result<Done, Failure> {
        let file = File::open(&found.path).map_err(Failure::reading(&found.path))?;
        let bytes = file.metadata().map_err(Failure::reading(&found.path))?.len();
        let pages = bytes / PAGE_SIZE as u64;
        let is_small = pages <= segment::PLAIN_PAGES_MAX.into();
        if is_small || pages > PAGES_MAX.into() || !bytes.is_multiple_of(PAGE_SIZE as u64) {
            progress.add(bytes);
            return Ok(Done::AsItIs);
        }
        let pages = pages as u32;
        self.train(found, name, &file, pages)?;
        DirBuilder::new().mode(0o700).create(to).map_err(Failure::reading(to))?;
        let packed = self.write(found, name, &file, pages, to, progress);
        if let Err(failure) = packed.and_then(|means| self.compare(&means, found, &file, pages, to)) {
            // Nothing half-made stays.
            fs::remove_dir_all(to).map_err(Failure::reading(to))?;
            return Err(failure);
        }
        Ok(Done::Converted(pages.into()))
    }

    fn train(&mut self, found: &Found, name: RelationName, file: &File, pages: u32) -> Result<(), Failure> {
        let folder = copy::parent(&found.path);
        let is_known = |known: &Trained| {
            known.folder == folder && (known.number, known.fork) == (name.number, name.fork)
        };
        if self.trained.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let mut samples: Vec<Sample> = Vec::new();
        for block in dictionary::sampled(if self.dictionary { pages.into() } else { 0 }) {
            let (block, mut page) = (block as u32, [0; PAGE_SIZE]);
            read_page(file, block, &mut page).map_err(Failure::reading(&found.path))?;
            samples.push((in_relation(name, block), page));
        }
        let (policy, dictionary) = dictionary::first(&samples, pages, &self.policy, &found.path)?;
        let (folder, number, fork) = (folder.to_owned(), name.number, name.fork);
        self.trained = Some(Trained { folder, number, fork, policy, dictionary });
        Ok(())
    }

    fn write(
        &mut self,
        found: &Found,
        name: RelationName,
        file: &File,
        pages: u32,
        to: &Path,
        progress: &Progress,
    ) -> Result<Means, Failure> {
        let failed = |error: pgshrink_cfs::Error| Failure::new(to, error);
        let (means, birth) = birth(identity(&found.path, name), self.keyring.as_mut(), self.random)
            .map_err(|reason| Failure::new(to, reason))?;
        let folder = SegmentFolder(to.to_owned());
        let container =
            segment::create(&folder, Alone, means.words(), &birth, means.options(false)).map_err(failed)?;
        let add = |dictionary: &PageDictionary| {
            container.add_dictionary(short(dictionary.hash()), dictionary.bytes()).map_err(failed)
        };
        let known = self.trained.as_ref().and_then(|trained| trained.dictionary.as_ref());
        let mut number = known.map(add).transpose()?;
        let mut count = usize::from(number.is_some());
        let (mut codec, mut scratch) = (PageCodec::new(), Scratch::new());
        let (mut page, mut payload) = ([0; PAGE_SIZE], Vec::new());
        for block in 0..pages {
            read_page(file, block, &mut page).map_err(Failure::reading(&found.path))?;
            payload.clear();
            let present = self.trained.as_ref().and_then(|trained| trained.dictionary.as_ref());
            let number_in_relation = Some(in_relation(name, block));
            let encoded = codec.encode(&page, number_in_relation, &self.policy, present, &mut payload);
            let mode = encoded.map_err(|error| Failure::new(&found.path, error))?.mode;
            if mode == Mode::ZERO {
                container.write_zeros(block).map_err(failed)?;
            } else {
                let needed = number.filter(|_| mode.has_dictionary()).unwrap_or(0);
                container.write(block, mode.byte(), needed, &payload, &mut scratch).map_err(failed)?;
                let to_come = if count < DICTIONARIES_MAX { pages - block } else { 0 };
                let better = self.follow(in_relation(name, block), &page, payload.len(), to_come);
                if let Some(better) = better.map_err(|error| Failure::new(&found.path, error))? {
                    number = Some(add(better)?);
                    count += 1;
                }
            }
            if block % COMMIT_PAGES == COMMIT_PAGES - 1 {
                container.commit().map_err(failed)?;
            }
            progress.add(PAGE_SIZE as u64);
        }
        container.close().map_err(failed)?;
        drop(container);
        Ok(means.fresh())
    }

    /// Takes note of a page that was written; a better dictionary, if one is due and found.
    fn follow(
        &mut self,
        block: u32,
        page: &[u8; PAGE_SIZE],
        payload_len: usize,
        pages_to_come: u32,
    ) -> Result<Option<&PageDictionary>, page::Error> {
        let Some(trained) = self.trained.as_mut().filter(|_| self.dictionary) else { return Ok(None) };
        if !trained.policy.note(block, page, payload_len) {
            return Ok(None);
        }
        let present = trained.dictionary.as_ref();
        let found = trained.policy.trial(&mut PageCodec::new(), &self.policy, present, pages_to_come)?;
        Ok(match found {
            Some(better) => Some(trained.dictionary.insert(better)),
            None => None,
        })
    }

    /// Opens what was made, and compares every page.
    fn compare(
        &self,
        means: &Means,
        found: &Found,
        file: &File,
        pages: u32,
        to: &Path,
    ) -> Result<(), Failure> {
        let (mut reader, _) = means.open(&to.join(segment::FILE_NAME))?;
        let (mut before, mut after) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        for block in 0..pages {
            read_page(file, block, &mut before).map_err(Failure::reading(&found.path))?;
            reader.page(block, &mut after).map_err(|fault| Failure::new(to, fault))?;
            if before != after || reader.container.pages() != pages {
                let changed = format!("block {block} did not come back; does a server write to it?");
                return Err(Failure::new(&found.path, changed));
            }
        }
        Ok(())
    }
}

/// A new container's name and key, and what it takes to write it.
pub(super) fn birth(
    identity: Identity,
    keyring: Option<&mut Keyring>,
    random: Kernel,
) -> Result<(Means, Birth), String> {
    let mut id: ContainerId = [0; 16];
    random.fill(&mut id);
    let mut birth = Birth { id, identity, key: [0; KEY_BYTES] };
    let mut seal = None;
    if let Some(keyring) = keyring {
        let master = keyring.master(&random).map_err(|error| error.to_string())?;
        let (key, slot) = master.new_data_key(&id, &random);
        birth.key = slot;
        seal = Some(key.into_seal(master.id(), random));
    }
    Ok((Means::new(PAGES_MAX, seal), birth))
}

/// Where PostgreSQL would have the file: `base/DATABASE`, `global`, or `TABLESPACE/PG_15_…/DATABASE`.
fn identity(path: &Path, name: RelationName) -> Identity {
    let up: Vec<&str> = path
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

fn read_page(file: &File, block: u32, page: &mut [u8; PAGE_SIZE]) -> std::io::Result<()> {
    file.read_exact_at(page, u64::from(block) * PAGE_SIZE as u64)
}

/// A block's number in its relation, which check sums are of.
fn in_relation(name: RelationName, block: u32) -> u32 {
    name.segment.wrapping_mul(PAGES_MAX).wrapping_add(block)
}

/// What the engine knows a dictionary by.
fn short(hash: &[u8; 32]) -> [u8; 16] {
    let mut name = [0; 16];
    name.copy_from_slice(&hash[..16]);
    name
}
