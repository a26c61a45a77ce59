//! All pages of a relation, packed by the engine of cfs as `pgshrink cfs pack` does it.

use std::sync::atomic::AtomicU64;

use pgshrink_advisor::heap_page::PageBytes;
use pgshrink_cfs::device::Alone;
use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, Thresholds, first_blocks};
use pgshrink_cfs::page::{Mode, PAGE_SIZE, PageCodec, PageDictionary, Policy};
use pgshrink_cfs::sim::Disk;
use pgshrink_cfs::store::{PageStore, Workspace, Writing};
use pgshrink_cfs::{Birth, Identity, KEY_BYTES, Options, PAGES_MAX, segment};
use pgshrink_testkit::Seed;

/// Bytes of the container, or of the plain file where there is none.
pub fn packed(pages: &[Box<PageBytes>], policy: Policy, has_dictionary: bool) -> u64 {
    written(pages, policy, has_dictionary).0
}

/// As [`packed`], with the parts of extents that a server leaves empty, which had stored the pages before it trained a dictionary.
pub fn at_rest(pages: &[Box<PageBytes>], policy: Policy, has_dictionary: bool) -> u64 {
    match written(pages, policy, has_dictionary) {
        (bytes, None) => bytes,
        (bytes, Some(false)) => bytes + 4096,
        (bytes, Some(true)) => bytes + 8192,
    }
}

/// Bytes, and whether the container has a dictionary. None: it is no container.
fn written(pages: &[Box<PageBytes>], policy: Policy, has_dictionary: bool) -> (u64, Option<bool>) {
    let count = pages.len() as u32;
    if count <= segment::PLAIN_PAGES_MAX {
        return (pages.len() as u64 * PAGE_SIZE as u64, None);
    }
    let options = Options::new(PAGES_MAX);
    let words: Vec<AtomicU64> = (0..options.geometry.words()).map(|_| AtomicU64::new(0)).collect();
    let birth = Birth { id: [1; 16], identity: Identity::default(), key: [0; KEY_BYTES] };
    let disk = Disk::new(1, || ());
    let container = segment::create(&disk, Alone, &words, &birth, options).unwrap();
    let store = PageStore::new(container).unwrap();
    let mut workspace = Workspace::new(Workspace::BUDGET_BYTES).unwrap();
    let mut trainer = DictionaryPolicy::new(Thresholds::default());
    for block in first_blocks(if has_dictionary { count.into() } else { 0 }) {
        trainer.note(block as u32, &pages[block as usize], PAGE_SIZE);
    }
    let mut present: Option<PageDictionary> =
        trainer.trial(&mut PageCodec::new(), &policy, None, count).unwrap();
    let dictionary = present.as_ref().map(|dictionary| store.add_dictionary(dictionary).unwrap());
    let mut how = Writing { policy, dictionary, verify: false };
    for (block, page) in (0..).zip(pages) {
        let stored = store.write(block, page, &how, &mut workspace).unwrap();
        if has_dictionary && stored.mode != Mode::ZERO && trainer.note(block, page, stored.payload_len) {
            let better =
                trainer.trial(&mut PageCodec::new(), &policy, present.as_ref(), count - block).unwrap();
            if let Some(better) = better {
                how.dictionary = Some(store.add_dictionary(&better).unwrap());
                present = Some(better);
            }
        }
        if block % (1 << 14) == (1 << 14) - 1 {
            store.container().commit().unwrap();
        }
    }
    store.container().close().unwrap();
    drop(store);
    (disk.bytes(segment::FILE_NAME).unwrap().len() as u64, Some(present.is_some()))
}

/// By how many per cent a prediction is off.
pub fn off(predicted: u64, real: u64) -> f64 {
    100.0 * (predicted as f64 - real as f64) / real as f64
}

/// Within 5 % of the container, or within 0.5 % of the plain bytes: where cfs leaves two per cent of a table, whether a dictionary is lucky
/// is much of what is left, and nothing of the table.
pub fn is_near(predicted: u64, real: u64, plain: u64) -> bool {
    off(predicted, real).abs() < 5.0 || predicted.abs_diff(real) * 200 < plain
}

/// The seed of samples: that of `PGSHRINK_SEED`, else always the same. A prediction from a sample has a spread, and real containers have one as
/// well: a dictionary that was trained on slightly other pages is up to a twentieth better or worse.
pub fn seed() -> Seed {
    let given = std::env::var("PGSHRINK_SEED").ok().and_then(|text| text.parse().ok());
    Seed(given.unwrap_or(20_261_127))
}
