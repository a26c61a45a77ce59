//! Pages through a [`PageStore`]: against a model, with others at work on the same pages, with damage, within
//! budgets.

mod budget;
mod damage;
mod dictionaries;
mod oracle;
mod ranges;
mod shared;

use pgshrink_cfs::device::Alone;
use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::page::{PageDictionary, Policy};
use pgshrink_cfs::sim::DiskFile;
use pgshrink_cfs::store::{Error, Page, PageStore, Workspace, Writing};
use pgshrink_cfs::{Budget, Container, Device, DeviceError, Folder, Options, Recovery, Seal, segment};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::seed::{Rng, Seed};

use crate::fixture::{Bench, TestSeal};
use crate::shell::Watched;

type Store<D = DiskFile> = PageStore<'static, D, Alone>;

/// What `generation` writes to a block: mostly lines of text, of one or another length.
fn page(block: u32, generation: u32) -> Page {
    let mut page = [0; 8192];
    let mut rng = Seed(u64::from(block) << 32 | u64::from(generation)).rng();
    match (block + 3 * generation) % 11 {
        7 => {}
        5 => page.fill_with(|| rng.below(256) as u8),
        _ => {
            let mut text = format!("block {block} generation {generation}\n");
            while text.len() < page.len() {
                text.push_str(&format!("line {} of a page that has many of them\n", rng.below(9000)));
            }
            let length = 200 + rng.below(page.len() - 200);
            page[..length].copy_from_slice(&text.as_bytes()[..length]);
        }
    }
    page
}

fn workspace() -> Workspace {
    Workspace::new(Workspace::BUDGET_BYTES).unwrap()
}

fn by(algorithm: Algorithm, level: i64) -> Writing {
    let choice = Choice::new(algorithm, level).unwrap();
    Writing { policy: Policy { choice, ..Policy::default() }, ..Writing::default() }
}

/// Not trained: any bytes will do.
fn dictionary(of: u8) -> PageDictionary {
    let lines = (0..300).map(|line| format!("dictionary {of} line {line} of a page that has many of them\n"));
    PageDictionary::new(lines.collect::<String>().into_bytes(), &[]).unwrap()
}

fn fill(store: &Store, blocks: std::ops::Range<u32>, generation: u32, how: &Writing) {
    let pages: Vec<Page> = blocks.clone().map(|block| page(block, generation)).collect();
    store.write_range(blocks.start, &pages, how, &mut workspace()).unwrap();
}

fn read<D: Device>(store: &Store<D>, block: u32, workspace: &mut Workspace) -> Result<Page, Error> {
    let mut page = [0x5a; 8192];
    store.read(block, &mut page, workspace).map(|_| page)
}

fn read_range<D: Device>(
    store: &Store<D>,
    blocks: std::ops::Range<u32>,
    workspace: &mut Workspace,
) -> (Vec<Page>, Vec<(u32, Error)>) {
    let mut pages = vec![[0x5a; 8192]; blocks.len()];
    let faults = store.read_range(blocks.start, pages.iter_mut(), workspace);
    (pages, faults)
}

/// Opens the bench's container through a device that is watched.
fn watched(bench: &Bench) -> Store<Watched<DiskFile>> {
    let file = Watched::new(bench.disk.open(segment::FILE_NAME).unwrap());
    let opened = Container::open(file, Alone, bench.words(), Recovery::Discard, bench.options);
    let container = opened.unwrap().0;
    container.complete().unwrap();
    PageStore::new(container).unwrap()
}

fn preads_of(store: &Store<Watched<DiskFile>>, work: impl FnOnce()) -> u64 {
    let preads = &store.container().device().preads;
    let before = preads.get();
    work();
    preads.get() - before
}

/// A segment and what it should hold.
struct Life {
    bench: Bench,
    store: Store,
    workspace: Workspace,
    budget: usize,
    /// None: zeros.
    pages: Vec<Page>,
    numbers: Vec<u16>,
    made: u8,
    rng: Rng,
}

impl Life {
    fn new(seed: Seed, seal: Option<&'static dyn Seal>, budget: usize) -> Life {
        let options = Options { seal, ..crate::plan::options(Fault::None, 0) };
        let bench = Bench::new(options);
        let store = PageStore::new(bench.create(1)).unwrap();
        let workspace = Workspace::new(budget).unwrap();
        let (pages, numbers) = (Vec::new(), Vec::new());
        Life { bench, store, workspace, budget, pages, numbers, made: 0, rng: seed.rng() }
    }

    fn how(&mut self) -> Writing {
        let choices = [
            (Algorithm::Zstd, 1),
            (Algorithm::Zstd, 1),
            (Algorithm::Zstd, 7),
            (Algorithm::Lz4, 1),
            (Algorithm::Zlib, 6),
            (Algorithm::Snappy, 0),
            (Algorithm::Pglz, 0),
            (Algorithm::Lzfse, 0),
            (Algorithm::None, 0),
        ];
        let (algorithm, level) = choices[self.rng.below(choices.len())];
        let which = self.rng.below(self.numbers.len() + 1);
        let dictionary = self.numbers.get(which).copied();
        Writing { dictionary, verify: self.rng.below(3) == 0, ..by(algorithm, level) }
    }

    fn step(&mut self, generation: u32) {
        let most = crate::plan::PAGES_MAX as usize;
        match self.rng.below(100) {
            0..50 => {
                let first = self.rng.below((self.pages.len() + 2).min(most));
                let count = 1 + self.rng.below((most - first).min(20));
                let how = self.how();
                let pages: Vec<Page> =
                    (first..first + count).map(|block| page(block as u32, generation)).collect();
                self.store.write_range(first as u32, &pages, &how, &mut self.workspace).unwrap();
                let length = self.pages.len().max(first + count);
                self.pages.resize(length, [0; 8192]);
                self.pages[first..first + count].copy_from_slice(&pages);
            }
            50..80 => {
                let first = self.rng.below(self.pages.len() + 1) as u32;
                let end = first + self.rng.below(40) as u32;
                self.check(first..end);
            }
            80..84 => {
                let left = self.rng.between(self.pages.len() / 2, self.pages.len());
                self.store.container().truncate(left as u32).unwrap();
                self.pages.truncate(left);
            }
            84..90 => drop(self.store.container().commit().unwrap()),
            90..94 => {
                let budget = Budget { bytes: 12 << 10, garbage_percent: 20 };
                self.store.container().collect(budget).unwrap();
            }
            94..96 if self.numbers.len() < 6 => {
                self.made += 1;
                match self.store.add_dictionary(&dictionary(self.made % 9)) {
                    Ok(number) => self.numbers.push(number),
                    // It needs four extents side by side, and nothing is moved for it.
                    Err(Error::Container(error)) if error.is_no_space() => {}
                    Err(error) => panic!("{error}"),
                }
            }
            96..98 if !self.numbers.is_empty() => {
                let which = self.rng.below(self.numbers.len());
                if self.store.container().drop_dictionary(self.numbers[which]).unwrap() {
                    self.numbers.remove(which);
                }
            }
            _ => {
                self.store.container().close().unwrap();
                self.store = PageStore::new(self.bench.open().unwrap().0).unwrap();
            }
        }
        let held = self.workspace.memory_size();
        assert!(held <= self.budget, "{held} bytes of {}", self.budget);
    }

    /// Together and one by one.
    fn check(&mut self, blocks: std::ops::Range<u32>) {
        let (found, faults) = read_range(&self.store, blocks.clone(), &mut self.workspace);
        for (block, found) in blocks.clone().zip(found) {
            let fault = faults.iter().find(|(failed, _)| *failed == block);
            let Some(expected) = self.pages.get(block as usize) else {
                let pages = self.pages.len() as u32;
                let past = Error::Container(pgshrink_cfs::Error::PastEnd { block, pages });
                assert_eq!(fault, Some(&(block, past.clone())));
                assert_eq!(read(&self.store, block, &mut self.workspace), Err(past));
                continue;
            };
            assert_eq!(fault, None);
            assert!(found == *expected, "block {block} of a range");
            assert!(read(&self.store, block, &mut self.workspace).unwrap() == *expected, "block {block}");
        }
    }
}

#[test]
fn p1_random_operations_give_what_a_model_says_sealed_or_not_in_little_memory_or_much() {
    let seed = Seed::from_env_or_time();
    let mut rng = seed.rng();
    for round in 0..12 {
        let seal = || -> &'static dyn Seal {
            let mut nonce = 0;
            Box::leak(Box::new(TestSeal::new(5, move || {
                nonce += 1;
                nonce
            })))
        };
        let budget = if round % 3 == 0 { 6 << 20 } else { Workspace::BUDGET_BYTES };
        let mut life = Life::new(Seed(rng.bits()), (round % 2 == 0).then(seal), budget);
        for generation in 0..250 {
            life.step(generation);
        }
        let pages = life.pages.len() as u32;
        life.check(0..pages + 2);
    }
}

#[test]
fn p3_a_codec_that_lies_is_found_before_anything_is_published() {
    let plan = |fault| Bench::new(crate::plan::options(fault, 0));
    for fault in [Fault::None, Fault::CodecLies] {
        let bench = plan(fault);
        let store = PageStore::new(bench.create(1)).unwrap();
        let mut workspace = workspace();
        let how = Writing { verify: true, ..Writing::default() };
        store.write(0, &[0; 8192], &how, &mut workspace).unwrap();
        let written = store.write(0, &page(0, 1), &how, &mut workspace);
        if fault == Fault::None {
            assert!(written.is_ok() && read(&store, 0, &mut workspace).unwrap() == page(0, 1));
            continue;
        }
        let error = written.unwrap_err();
        assert_eq!(error, Error::NotVerified { block: 0, choice: how.policy.choice });
        assert!(!error.is_damage(), "nothing that is stored is");
        assert!(error.to_string().contains("zstd:1"), "{error}");
        assert!(read(&store, 0, &mut workspace).unwrap() == [0; 8192], "the page is what it was");
        // Without verifying it is published, and whole as a record.
        let unseen = Writing::default();
        store.write(0, &page(0, 1), &unseen, &mut workspace).unwrap();
        assert!(read(&store, 0, &mut workspace).ok() != Some(page(0, 1)));
    }
}

#[test]
fn a_page_of_zeros_needs_no_record_and_a_page_says_what_it_is_stored_as() {
    let bench = Bench::small();
    let store = PageStore::new(bench.create(1)).unwrap();
    let mut workspace = workspace();
    let mut found = [1; 8192];
    for (given, is_zeros) in [([0; 8192], true), (page(1, 0), false)] {
        let written = store.write(1, &given, &Writing::default(), &mut workspace).unwrap();
        assert_eq!(written.payload_len == 0, is_zeros);
        assert_eq!(store.read(1, &mut found, &mut workspace).unwrap(), written);
        assert!(found == given);
        assert_eq!(store.location(1).is_none(), is_zeros);
    }
    assert_eq!(store.container().pages(), 2);
    assert!(read(&store, 0, &mut workspace).unwrap() == [0; 8192]);
}

#[test]
fn check_sums_of_pages_are_those_of_their_place_in_the_relation() {
    use pgshrink_cfs::page::{PageCodec, checksum};
    use pgshrink_cfs::{Birth, Identity, KEY_BYTES, PAGES_MAX, Stored};

    let bench = Bench::small();
    let identity = Identity { segment: 3, ..Identity::default() };
    let birth = Birth { id: [1; 16], identity, key: [0; KEY_BYTES] };
    let made = segment::create(&bench.disk, Alone, bench.words(), &birth, bench.options).unwrap();
    let store = PageStore::new(made).unwrap();
    let (block, in_relation) = (6, 3 * PAGES_MAX + 6);
    let mut given = page(block, 0);
    let sum = checksum(&given, in_relation);
    given[8..10].copy_from_slice(&sum.to_le_bytes());
    let (mut codec, mut found, mut workspace) = (PageCodec::new(), [0; 8192], workspace());
    store.write(block, &given, &Writing::default(), &mut workspace).unwrap();
    let Stored::Record { mode, payload, .. } = store.stored(block, &mut workspace).unwrap() else { panic!() };
    codec.decode(mode, payload, Some(in_relation), None, &mut found).unwrap();
    assert!(found == given);
    codec.decode(mode, payload, Some(block), None, &mut found).unwrap();
    assert!(found != given, "its check sum is not stored");
    assert!(read(&store, block, &mut workspace).unwrap() == given);
}
