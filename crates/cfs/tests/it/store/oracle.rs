//! A model beside a store whose device fails, lies and lets another process act between a look at the map
//! and a read: a page is right, of the time of the call, or there is an error that fits what was done to it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;

/// Pages of the segment at most: three leaves of the map.
const PAGES_MAX: usize = 1300;
/// As a generation: all zeros.
const ZEROS: u32 = u32::MAX;

/// What a device does to reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    None,
    /// Reads fail, one in three.
    Errors,
    /// They end early, one in three.
    Short,
    /// A bit of what they bring is another, one in three.
    Flips,
}

/// A device that makes trouble, and calls before each read.
struct Hostile {
    device: DiskFile,
    trouble: Cell<Trouble>,
    rng: RefCell<Rng>,
    before_read: RefCell<Option<Box<dyn Fn()>>>,
}

impl Hostile {
    fn new(device: DiskFile, seed: u64) -> Hostile {
        let (trouble, rng) = (Cell::new(Trouble::None), RefCell::new(Seed(seed).rng()));
        Hostile { device, trouble, rng, before_read: RefCell::default() }
    }
}

impl Device for Hostile {
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize, DeviceError> {
        let hook = self.before_read.borrow_mut().take();
        if let Some(hook) = hook {
            hook();
            *self.before_read.borrow_mut() = Some(hook);
        }
        let got = self.device.pread(buffer, offset)?;
        let mut rng = self.rng.borrow_mut();
        if self.trouble.get() == Trouble::None || rng.below(3) > 0 || got == 0 {
            return Ok(got);
        }
        match self.trouble.get() {
            Trouble::Errors => Err(DeviceError::Io(5)),
            Trouble::Short => Ok(rng.below(got)),
            _ => {
                buffer[rng.below(got)] ^= 1 << rng.below(8);
                Ok(got)
            }
        }
    }

    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<(), DeviceError> {
        self.device.pwrite(bytes, offset)
    }

    fn fdatasync(&self) -> Result<(), DeviceError> {
        self.device.fdatasync()
    }

    crate::shell::handed_on!();
}

/// What the segment should hold, and did hold since the call began.
#[derive(Default)]
struct Model {
    /// The generation of each page.
    now: Vec<u32>,
    /// What it was at the begin of the call and after each deed of another process.
    since: Vec<Vec<u32>>,
}

impl Model {
    fn expect(&self, block: u32, found: Result<&Page, &Error>, trouble: Trouble) {
        let times = || self.since.iter().map(|pages| pages.get(block as usize));
        match found {
            Ok(found) => {
                let is_right = times().any(|generation| match generation {
                    Some(&ZEROS) => *found == [0; 8192],
                    Some(generation) => *found == page(block, *generation),
                    None => false,
                });
                assert!(is_right, "block {block} is none of {:?}", times().collect::<Vec<_>>());
            }
            Err(Error::Container(pgshrink_cfs::Error::PastEnd { .. })) => {
                assert!(times().any(|generation| generation.is_none()), "block {block}: past the end");
            }
            Err(error) => {
                assert_ne!(trouble, Trouble::None, "block {block}: {error}");
                let is_device = matches!(
                    error,
                    Error::Container(pgshrink_cfs::Error::Device { .. })
                        | Error::Dictionary { source: pgshrink_cfs::Error::Device { .. }, .. }
                );
                assert!(if trouble == Trouble::Errors { is_device } else { error.is_damage() }, "{error}");
            }
        }
    }
}

/// Another process, with the same memory, and the model of what both have written.
struct Other {
    store: Store,
    model: RefCell<Model>,
    rng: RefCell<Rng>,
    generation: Cell<u32>,
    numbers: RefCell<Vec<u16>>,
}

impl Other {
    fn how(&self) -> Writing {
        let rng = &mut *self.rng.borrow_mut();
        let all = [(Algorithm::Zstd, 1), (Algorithm::Lz4, 1), (Algorithm::None, 0), (Algorithm::Zlib, 3)];
        let (algorithm, level) = all[rng.below(all.len())];
        let numbers = self.numbers.borrow();
        let dictionary = numbers.get(rng.below(numbers.len() + 1)).copied();
        Writing { dictionary, verify: rng.chance(20), ..by(algorithm, level) }
    }

    fn range(&self, longest: usize) -> (usize, usize) {
        let rng = &mut *self.rng.borrow_mut();
        let first = rng.below((self.model.borrow().now.len() + 9).min(PAGES_MAX));
        (first, rng.between(1, longest.min(PAGES_MAX - first)))
    }

    /// Writes a range, through whichever store.
    fn write<D: Device>(&self, store: &Store<D>, workspace: &mut Workspace) {
        let (first, count) = self.range(24);
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let pages: Vec<Page> = (first..first + count).map(|block| page(block as u32, generation)).collect();
        store.write_range(first as u32, &pages, &self.how(), workspace).unwrap();
        self.note(first, count, generation);
    }

    fn note(&self, first: usize, count: usize, generation: u32) {
        let model = &mut *self.model.borrow_mut();
        let length = model.now.len().max(first + count);
        model.now.resize(length, ZEROS);
        model.now[first..first + count].fill(generation);
    }

    /// Something that happens to a file under a reader.
    fn act(&self) {
        let container = self.store.container();
        let what = self.rng.borrow_mut().below(100);
        match what {
            0..40 => self.write(&self.store, &mut workspace()),
            40..50 => {
                let (first, count) = self.range(9);
                (first..first + count).for_each(|block| container.write_zeros(block as u32).unwrap());
                self.note(first, count, ZEROS);
            }
            50..60 => {
                let left = {
                    let pages = self.model.borrow().now.len();
                    self.rng.borrow_mut().between(pages * 3 / 4, pages)
                };
                container.truncate(left as u32).unwrap();
                self.model.borrow_mut().now.truncate(left);
            }
            60..75 => drop(container.commit().unwrap()),
            75..90 => {
                container.collect(Budget { bytes: 200 << 10, garbage_percent: 1 }).unwrap();
                container.commit().unwrap();
            }
            90..95 if self.numbers.borrow().len() < 5 => {
                let of = self.rng.borrow_mut().below(200) as u8;
                let number = self.store.add_dictionary(&dictionary(of)).unwrap();
                if !self.numbers.borrow().contains(&number) {
                    self.numbers.borrow_mut().push(number);
                }
            }
            _ => {
                let all = self.numbers.borrow().clone();
                for number in all {
                    // As a worker that writes a relation anew without it.
                    let uses = container.dictionary_uses(number).unwrap();
                    if uses < 200 && container.drop_dictionary(number).unwrap() {
                        self.numbers.borrow_mut().retain(|known| *known != number);
                    }
                }
            }
        }
        let now = self.model.borrow().now.clone();
        self.model.borrow_mut().since.push(now);
    }

    fn begin(&self) {
        let model = &mut *self.model.borrow_mut();
        model.since = vec![model.now.clone()];
    }
}

/// Two processes with one container, of which the first has a device that makes trouble.
fn meet(seed: u64, seal: Option<&'static dyn Seal>) -> (Rc<Other>, Store<Hostile>) {
    let options = Options { seal, ..crate::plan::wide_options(Fault::None, seed) };
    let bench = Bench::new(options);
    let words = bench.words();
    let store = PageStore::new(bench.create_in(1, words)).unwrap();
    let other = Rc::new(Other {
        store,
        model: RefCell::default(),
        rng: RefCell::new(Seed(seed ^ 1).rng()),
        generation: Cell::new(0),
        numbers: RefCell::default(),
    });
    let file = Hostile::new(bench.disk.open(segment::FILE_NAME).unwrap(), seed ^ 2);
    let container = Container::open(file, Alone, words, Recovery::Discard, options).unwrap().0;
    (other, PageStore::new(container).unwrap())
}

fn live(seed: u64, seal: Option<&'static dyn Seal>, budget: usize) -> [u64; 3] {
    let (other, store) = meet(seed, seal);
    let mut rng = Seed(seed ^ 3).rng();
    let mut workspace = Workspace::new(budget).unwrap();
    let mut buffers = vec![[0; 8192]; 64];
    let [mut right, mut failed, mut over] = [0; 3];
    for _ in 0..160 {
        if rng.chance(30) {
            other.act();
        }
        let all = [Trouble::None, Trouble::None, Trouble::Errors, Trouble::Short, Trouble::Flips];
        let trouble = all[rng.below(all.len())];
        let device = store.container().device();
        device.trouble.set(trouble);
        if rng.chance(60) {
            let (other, odds) = (other.clone(), Cell::new(rng.below(4)));
            *device.before_read.borrow_mut() = Some(Box::new(move || {
                if odds.get() == 0 {
                    other.act();
                }
                odds.set(odds.get().wrapping_sub(1));
            }));
        }
        other.begin();
        let pages = other.model.borrow().now.len();
        let (first, count) = (rng.below(pages + 3) as u32, rng.between(1, 64));
        let faults = store.read_range(first, buffers[..count].iter_mut(), &mut workspace);
        device.before_read.borrow_mut().take();
        device.trouble.set(Trouble::None);
        assert!(faults.is_sorted_by_key(|(block, _)| *block));
        let model = other.model.borrow();
        for (block, found) in (first..).zip(&buffers[..count]) {
            let fault = faults.iter().find(|(failed, _)| *failed == block).map(|(_, error)| error);
            if let Some(Error::Budget { budget: named, .. }) = fault {
                assert!(*named == budget as u64 && budget < 4 << 20);
                over += 1;
                continue;
            }
            *if fault.is_some() { &mut failed } else { &mut right } += 1;
            model.expect(block, fault.map_or(Ok(found), Err), trouble);
        }
        drop(model);
        assert!(workspace.memory_size() <= budget);
    }
    // Nothing of it lasts.
    let mut large = super::workspace();
    other.begin();
    for block in 0..other.model.borrow().now.len() as u32 {
        let found = read(&store, block, &mut large);
        other.model.borrow().expect(block, found.as_ref(), Trouble::None);
    }
    [right, failed, over]
}

#[test]
fn p1_a_device_that_fails_and_processes_that_act_between_look_and_read_give_no_wrong_page() {
    let seed = Seed::from_env_or_time();
    let mut rng = seed.rng();
    let mut sums = [0; 3];
    for round in 0..12 {
        let seal = || -> &'static dyn Seal {
            let mut nonce = 0;
            Box::leak(Box::new(TestSeal::new(5, move || {
                nonce += 1;
                nonce
            })))
        };
        let budget = [500 << 10, 1 << 20, 4 << 20, 64 << 20][round / 2 % 4];
        let found = live(rng.bits(), (round % 2 == 0).then(seal), budget);
        (0..3).for_each(|index| sums[index] += found[index]);
    }
    let [right, failed, over] = sums;
    println!("{right} right, {failed} failed, {over} for want of memory");
    assert!(right > 10_000 && failed > 500 && over > 0);
}
