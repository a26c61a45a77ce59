//! When dictionaries are trained: pages of phrases, the same ones for a while, then others.

use pgshrink_cfs::dictionary_policy::{DictionaryPolicy, Thresholds};
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, PageDictionary, Policy};
use pgshrink_testkit::seed::{Rng, Seed};

const SMALL: Thresholds = Thresholds {
    first_pages: 64,
    window_pages: 100,
    worse_percent: 5,
    windows_max: 8,
    gain_percent: 2,
    dictionary_bytes: 16 << 10,
};

/// A relation's writer, as a server would be one.
struct Writer {
    rng: Rng,
    codec: PageCodec,
    policy: DictionaryPolicy,
    present: Option<PageDictionary>,
    block: u32,
}

impl Writer {
    fn new() -> Writer {
        let (rng, codec, policy) = (Seed(5).rng(), PageCodec::new(), DictionaryPolicy::new(SMALL));
        Writer { rng, codec, policy, present: None, block: 0 }
    }

    /// A page of 200 phrases out of 400 of a language; language 0 is noise.
    fn page(&mut self, language: u64) -> [u8; PAGE_SIZE] {
        let mut page = [0; PAGE_SIZE];
        for cell in page.chunks_exact_mut(40) {
            let phrase = self.rng.below(400) as u64;
            let text = if language == 0 {
                self.rng.bytes(32)
            } else {
                Seed(language << 20 | phrase).rng().bytes(32)
            };
            cell[..32].copy_from_slice(&text);
        }
        page
    }

    /// Writes pages until a trial is due, at most so many; at how many it was.
    fn write(&mut self, language: u64, pages: u32) -> Option<u32> {
        for count in 1..=pages {
            let page = self.page(language);
            let mut payload = Vec::new();
            let how = Policy::default();
            self.codec.encode(&page, Some(self.block), &how, self.present.as_ref(), &mut payload).unwrap();
            self.block += 1;
            if self.policy.note(self.block - 1, &page, payload.len()) {
                return Some(count);
            }
        }
        None
    }

    fn trial(&mut self, pages_to_come: u32) -> bool {
        let how = Policy::default();
        let found = self.policy.trial(&mut self.codec, &how, self.present.as_ref(), pages_to_come).unwrap();
        let won = found.is_some();
        self.present = found.or(self.present.take());
        won
    }
}

#[test]
fn the_first_dictionary_comes_after_the_first_pages_and_stays_while_it_serves() {
    let mut writer = Writer::new();
    assert_eq!(writer.write(1, 1000), Some(64));
    assert_eq!(writer.write(1, 1), Some(1), "due until it is run");
    assert!(writer.trial(10_000));
    // A look in any case after eight windows: more samples may make a better one once, not again and again.
    let mut adopted = 0;
    for _ in 0..4 {
        assert!(writer.write(1, 2000).is_some_and(|pages| pages >= 800));
        adopted += u32::from(writer.trial(10_000));
    }
    assert!(adopted <= 1, "{adopted}");
}

#[test]
fn pages_of_another_kind_bring_another_dictionary() {
    let mut writer = Writer::new();
    writer.write(1, 64);
    assert!(writer.trial(10_000));
    assert_eq!(writer.write(1, 300), None);
    let due = writer.write(2, 1000).unwrap();
    assert!(due <= 200, "noticed within two windows, not after {due} pages");
    let before = writer.present.as_ref().map(|dictionary| *dictionary.hash());
    assert!(writer.trial(10_000));
    assert_ne!(writer.present.as_ref().map(|dictionary| *dictionary.hash()), before);
    assert_eq!(writer.write(2, 700), None);
}

#[test]
fn noise_brings_none_and_is_asked_about_ever_more_seldom() {
    let mut writer = Writer::new();
    assert_eq!(writer.write(0, 1000), Some(64));
    assert!(!writer.trial(1 << 20));
    let mut between = Vec::new();
    for _ in 0..6 {
        between.push(writer.write(0, 20_000).unwrap());
        assert!(!writer.trial(1 << 20));
    }
    assert_eq!(between, [800, 800, 800, 1600, 3200, 6400]);
    assert_eq!(writer.write(0, 6400), Some(6400), "never more seldom than every 64 windows");
}

#[test]
fn a_dictionary_must_earn_its_own_bytes() {
    let mut writer = Writer::new();
    writer.write(1, 64);
    assert!(!writer.trial(3));
    let mut writer = Writer::new();
    writer.write(1, 64);
    assert!(writer.trial(300));
}
