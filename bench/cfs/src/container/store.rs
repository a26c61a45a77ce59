//! What a `PageStore` adds to codec and container, and what reading many pages in one call saves.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use pgshrink_bench_report::{Result, Samples, Table, Unit, cpu_seconds_of_thread};
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::estimate::{DICTIONARY_BYTES, TRAINING_PAGES_MAX};
use pgshrink_cfs::page::{Mode, PAGE_SIZE, PageCodec, PageDictionary, Policy};
use pgshrink_cfs::store::{Page, PageStore, Workspace, Writing};
use pgshrink_cfs::{
    Birth, Container, Folder, Geometry, Identity, KEY_BYTES, Options, Recovery, Scratch, Stored, segment,
};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::{Rng, Seed, TempDir};

use crate::relations::Relations;
use crate::shell::{FileDevice, FileFolder, Watched};

/// Pages that are read together.
const RANGE: u32 = 16;
/// Pages of one measurement.
const PIECE: u32 = 2048;
const FULL_ROUNDS: usize = 101;
const QUICK_ROUNDS: usize = 25;

type Store<'m> = PageStore<'m, Watched<FileDevice>, Alone>;

/// Pages of several relations, a run of each after the other, with the relation's dictionary.
pub struct Pages {
    pages: Vec<Page>,
    /// Where each relation's run ends.
    runs: Vec<(u32, Option<Vec<u8>>)>,
}

impl Pages {
    /// `count` of all relations, as many of each as its share in all their pages.
    pub fn of(relations: &Relations, count: usize) -> Result<Pages> {
        let all = relations.all.iter().map(|relation| relation.pages()).collect::<Result<Vec<_>>>()?;
        let total: usize = all.iter().map(Vec::len).sum();
        let mut found = Pages { pages: Vec::new(), runs: Vec::new() };
        for relation in &all {
            let share = (relation.len() * count / total).min(relation.len());
            let dictionary =
                PageDictionary::train(relation.iter().take(TRAINING_PAGES_MAX), DICTIONARY_BYTES);
            found.pages.extend_from_slice(&relation[..share]);
            found.runs.push((u32::try_from(found.pages.len())?, dictionary));
        }
        Ok(found)
    }

    fn count(&self) -> u32 {
        self.pages.len() as u32
    }

    fn page(&self, block: u32) -> &Page {
        &self.pages[block as usize]
    }
}

/// A container of the pages, and all that it takes to use it either way.
struct Subject<'m> {
    pages: &'m Pages,
    store: Store<'m>,
    /// The container's, to have the page cache forget it.
    file: File,
    workspace: Workspace,
    how: Policy,
    codec: PageCodec,
    scratch: Scratch,
    payload: Vec<u8>,
    dictionaries: Vec<(u16, PageDictionary)>,
    /// By block.
    numbers: Vec<Option<u16>>,
    rng: Rng,
}

impl<'m> Subject<'m> {
    /// Packed page after page, closed and opened again, all of it in memory.
    fn new(pages: &'m Pages, choice: Choice, folder: &Path, words: &'m [AtomicU64]) -> Result<Subject<'m>> {
        let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
        let folder = FileFolder(folder.to_owned());
        let options = Options::new(pages.count());
        let made = segment::create(&folder, Alone, words, &birth, options)?;
        let packed = PageStore::new(made)?;
        let how = Policy { choice, ..Policy::default() };
        let mut workspace = Workspace::new(Workspace::BUDGET_BYTES)?;
        let (mut dictionaries, mut numbers) = (Vec::new(), Vec::new());
        for (end, bytes) in &pages.runs {
            let dictionary = match bytes {
                Some(bytes) => {
                    let prepared = PageDictionary::new(bytes.clone(), &[choice])?;
                    let number = packed.add_dictionary(&prepared)?;
                    dictionaries.push((number, prepared));
                    Some(number)
                }
                None => None,
            };
            let first = numbers.len() as u32;
            let writing = Writing { policy: how, dictionary, verify: false };
            let run = &pages.pages[first as usize..*end as usize];
            packed.write_range(first, run, &writing, &mut workspace).map_err(|(_, error)| error)?;
            numbers.resize(*end as usize, dictionary);
        }
        packed.container().close()?;
        drop(packed);
        words.iter().for_each(|word| word.store(0, std::sync::atomic::Ordering::Relaxed));
        let device = Watched::new(folder.open(segment::FILE_NAME)?);
        let (container, _) = Container::open(device, Alone, words, Recovery::Discard, options)?;
        container.complete()?;
        Ok(Subject {
            pages,
            store: PageStore::new(container)?,
            file: File::open(folder.0.join(segment::FILE_NAME))?,
            workspace: Workspace::new(Workspace::BUDGET_BYTES)?,
            how,
            codec: PageCodec::new(),
            scratch: Scratch::new(),
            payload: Vec::new(),
            dictionaries,
            numbers,
            rng: Seed(3).rng(),
        })
    }

    /// Blocks in ranges that begin anywhere.
    fn blocks(&mut self) -> Vec<u32> {
        let ranges = PIECE / RANGE;
        let most = (self.pages.count() - RANGE) as usize;
        let firsts: Vec<u32> = (0..ranges).map(|_| self.rng.below(most) as u32).collect();
        firsts.into_iter().flat_map(|first| first..first + RANGE).collect()
    }

    /// What a program does without a store.
    fn read_directly(&mut self, block: u32, page: &mut Page) -> Result<()> {
        match self.store.container().read(block, &mut self.scratch)? {
            Stored::Zeros => page.fill(0),
            Stored::Base(stored) => page.copy_from_slice(stored),
            Stored::Record { mode, dictionary, payload } => {
                let mut known = self.dictionaries.iter();
                let known = known.find(|(number, _)| *number == dictionary).map(|(_, known)| known);
                self.codec.decode(mode, payload, Some(block), known, page)?;
            }
        }
        Ok(())
    }

    fn write_directly(&mut self, block: u32) -> Result<()> {
        let number = self.numbers[block as usize];
        let mut known = self.dictionaries.iter();
        let known = known.find(|(known, _)| Some(*known) == number).map(|(_, known)| known);
        self.payload.clear();
        let page = self.pages.page(block);
        let mode = self.codec.encode(page, Some(block), &self.how, known, &mut self.payload)?.mode;
        let container = self.store.container();
        if mode == Mode::ZERO {
            container.write_zeros(block)?;
        } else {
            let number = number.filter(|_| mode.has_dictionary()).unwrap_or(0);
            container.write(block, mode.byte(), number, &self.payload, &mut self.scratch)?;
        }
        Ok(())
    }

    fn write(&mut self, block: u32) -> Result<()> {
        let dictionary = self.numbers[block as usize];
        let how = Writing { policy: self.how, dictionary, verify: false };
        self.store.write(block, self.pages.page(block), &how, &mut self.workspace)?;
        Ok(())
    }

    fn preads(&self) -> u64 {
        self.store.container().device().preads.get()
    }

    /// Runs one way and counts its calls; microseconds a page: of the processor, or of a clock where the
    /// pages come from the disk.
    fn run(&mut self, way: Way, from: From, blocks: &[u32], found: &mut Found) -> Result<()> {
        let mut pages = vec![[0; PAGE_SIZE]; RANGE as usize];
        let preads = self.preads();
        let mut faults = Vec::new();
        let (mut spent, begun) = (0.0, Instant::now());
        let now = || match from {
            From::Cache => cpu_seconds_of_thread(),
            From::Disk => begun.elapsed().as_secs_f64(),
        };
        for range in blocks.chunks(RANGE as usize) {
            if from == From::Disk {
                rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
            let start = now();
            match way {
                Way::Range => {
                    faults = self.store.read_range(range[0], pages.iter_mut(), &mut self.workspace);
                }
                _ => {
                    for (block, page) in range.iter().zip(&mut pages) {
                        match way {
                            Way::Read => {
                                self.store.read(*block, page, &mut self.workspace)?;
                            }
                            Way::ReadDirectly => self.read_directly(*block, page)?,
                            Way::Write => self.write(*block)?,
                            Way::WriteDirectly => self.write_directly(*block)?,
                            Way::Range => {}
                        }
                    }
                }
            }
            spent += now() - start;
            let is_read = !matches!(way, Way::Write | Way::WriteDirectly);
            let is_wrong = |(block, page): (&u32, &Page)| page != self.pages.page(*block);
            if !faults.is_empty() || is_read && range.iter().zip(&pages).any(is_wrong) {
                return Err(format!("blocks from {} on are not what was written", range[0]).into());
            }
        }
        found.times.push(spent * 1e6 / blocks.len() as f64);
        found.preads += self.preads() - preads;
        found.pages += blocks.len() as u64;
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Read,
    Range,
    ReadDirectly,
    Write,
    WriteDirectly,
}

#[derive(Clone, Copy, PartialEq)]
enum From {
    Cache,
    Disk,
}

#[derive(Default)]
struct Found {
    times: Samples,
    preads: u64,
    pages: u64,
}

/// Pairs of ways, in turn.
pub fn table(pages: &Pages, full: bool) -> Result<Table> {
    let rounds = if full { FULL_ROUNDS } else { QUICK_ROUNDS };
    let about = format!(
        "A container of {} pages of churned tables and their indexes with a dictionary for each, packed page after page, in a file that is in the page cache. \
        Ranges of {RANGE} pages that begin anywhere: `range` reads them in one call of `PageStore::read_range`, `calls` in {RANGE} of `PageStore::read`, `directly` by \
        `Container::read` and `PageCodec::decode` without a store; the same for writing them again. Processor time of the thread, system calls included; `from the disk`: time by the clock, the page cache having forgotten the file \
        before each range. Pieces of {PIECE} \
        pages in turn, each the same for both, {rounds} of each; ratios are taken pair by pair. What was read is compared.",
        pages.count()
    );
    let columns = [
        ("algorithm", Unit::Text),
        ("pages are", Unit::Text),
        ("preads per page", Unit::Ratio),
        ("us per page", Unit::Ratio),
        ("to", Unit::Text),
        ("preads per page", Unit::Ratio),
        ("us per page", Unit::Ratio),
        ("time, ratio", Unit::Ratio),
    ];
    let mut table = Table::new("store", "Pages through a PageStore", &about, &columns);
    for choice in [Choice::new(Algorithm::Zstd, 1)?, Choice::new(Algorithm::Lz4, 1)?] {
        let folder = TempDir::new()?;
        let words: Vec<AtomicU64> =
            (0..Geometry::of(pages.count()).words()).map(|_| AtomicU64::new(0)).collect();
        let mut subject = Subject::new(pages, choice, folder.path(), &words)?;
        for (name, way, other_name, other, from) in [
            ("read by a range", Way::Range, "by calls", Way::Read, From::Cache),
            ("read by a range from the disk", Way::Range, "by calls", Way::Read, From::Disk),
            ("read", Way::Read, "directly", Way::ReadDirectly, From::Cache),
            ("written", Way::Write, "directly", Way::WriteDirectly, From::Cache),
        ] {
            let (ours, theirs) = pair(&mut subject, [way, other], from, rounds)?;
            let ratio = ours.times.over(&theirs.times);
            let per_page = |found: &Found| found.preads as f64 / found.pages as f64;
            table.row([
                choice.to_string().into(),
                name.into(),
                per_page(&ours).into(),
                ours.times.spread(),
                other_name.into(),
                per_page(&theirs).into(),
                theirs.times.spread(),
                ratio.spread(),
            ]);
            let what = format!("{choice}: {name}, to {other_name}");
            if way == Way::Range {
                let speed = theirs.times.over(&ours.times).median();
                let calls = per_page(&theirs) / per_page(&ours);
                let text = format!("{calls:.1}x fewer, {speed:.2}x");
                table.verdict(&what, "fewer system calls, at least 1.2x the speed", text, speed >= 1.2);
            } else {
                let more = ratio.median();
                table.verdict(&what, "at most 1.03", format!("{more:.3}"), more <= 1.03);
            }
        }
    }
    Ok(table)
}

fn pair(
    subject: &mut Subject<'_>,
    [one, other]: [Way; 2],
    from: From,
    rounds: usize,
) -> Result<(Found, Found)> {
    // Once for contexts and caches.
    let blocks = subject.blocks();
    for way in [one, other] {
        subject.run(way, from, &blocks, &mut Found::default())?;
    }
    let (mut ours, mut theirs) = (Found::default(), Found::default());
    for round in 0..rounds {
        let blocks = subject.blocks();
        let turns = if round % 2 == 0 { [one, other] } else { [other, one] };
        for way in turns {
            let found = if way == one { &mut ours } else { &mut theirs };
            subject.run(way, from, &blocks, found)?;
        }
        subject.store.container().commit()?;
    }
    Ok((ours, theirs))
}
