//! What a budget takes away, and what pages besides the sample's add. All on pages that are made here.

use pgshrink_advisor::codecs::copy::CopyText;
use pgshrink_advisor::codecs::pages::{PageSet, Trained};
use pgshrink_advisor::codecs::{self, Budget, Means, wire};
use pgshrink_advisor::heap_page::PageBytes;
use pgshrink_advisor::snapshot::sample::Page;
use pgshrink_advisor::snapshot::{ForkBytes, Sample, Table};
use pgshrink_cfs::dictionary_policy::{SAMPLES_MAX, first_blocks, is_judge};
use pgshrink_cfs::page::Policy;
use pgshrink_testkit::Seed;

use super::engine::{at_rest, off};
use super::hostile;

fn made(count: u32) -> Vec<Page> {
    let mut rng = Seed(20).rng();
    (0..count).map(|block| Page { block, image: hostile::page(&mut rng).0 }).collect()
}

/// A table of so many pages, of which the sample has some.
fn table(pages: u32, sample: Sample) -> Table {
    let bytes = ForkBytes { main: u64::from(pages) * 8192, ..ForkBytes::default() };
    Table { schema: "s".to_owned(), name: "t".to_owned(), bytes, sample: Some(sample), ..Table::default() }
}

/// Of the default algorithm. None: it was not measured.
fn bytes(table: &Table, budget: &mut Budget) -> Option<u64> {
    let found = codecs::measure(&super::pages::snapshot(vec![table.clone()]), budget, &Means::default());
    let relation = found.relations.first()?;
    Some(relation.pages.iter().find(|figure| figure.codec == "zstd:1").unwrap().bytes)
}

fn budget(encodings: u64) -> Budget {
    Budget { relation_pages: 100, compared_pages: 10, encodings, ..Budget::default() }
}

#[test]
fn a_relation_for_which_little_is_left_is_measured_on_fewer_pages_and_never_on_more_than_there_is_left() {
    let table = table(1200, Sample { pages: made(600), ..Sample::default() });
    let all = bytes(&table, &mut budget(500_000)).unwrap();
    // Two encodings of each page are more than this, those of a hundred pages are not.
    let mut little = budget(1_100);
    let fewer = bytes(&table, &mut little).unwrap();
    assert!(fewer != all && off(fewer, all).abs() < 5.0, "{fewer} of a part, {all} of all");
    assert!(little.encodings < 900, "{little:?}");
    // Two encodings of a hundred pages, and one of ten for each method.
    let mut too_little = budget(300);
    assert_eq!((bytes(&table, &mut too_little), too_little.encodings), (None, 300));
}

#[test]
fn pages_on_which_a_server_trains_count_like_others_of_the_sample() {
    let all = made(600);
    let trains: Vec<u64> = first_blocks(600).collect();
    let (training_pages, pages): (Vec<Page>, Vec<Page>) = all
        .iter()
        .step_by(2)
        .chain(&all[400..500])
        .cloned()
        .partition(|page| trains.contains(&page.block.into()));
    let mut together = [&pages[..], &training_pages[..]].concat();
    together.sort_by_key(|page| page.block);
    together.dedup_by_key(|page| page.block);
    let measured = |pages: &[Page], training_pages: &[Page]| {
        let (pages, training_pages) = (pages.to_vec(), training_pages.to_vec());
        bytes(&table(600, Sample { pages, training_pages, ..Sample::default() }), &mut Budget::default())
            .unwrap()
    };
    assert!(training_pages.len() > 50);
    assert_eq!(measured(&pages, &training_pages), measured(&together, &[]));
    assert_ne!(measured(&pages, &training_pages), measured(&pages, &[]));
}

#[test]
fn methods_are_compared_on_pages_that_trained_no_dictionary() {
    const TOTAL: u64 = 3000;
    let image = made(1).remove(0).image;
    let trains: Vec<u64> = first_blocks(TOTAL).collect();
    let trained = (0..SAMPLES_MAX).filter(|rank| !is_judge(*rank)).count();
    let compared = |trains_here: &[u64]| {
        let others = (0..TOTAL).step_by(9).filter(|block| !trains.contains(block));
        let mut blocks: Vec<u64> = others.chain(trains_here.iter().copied()).collect();
        blocks.sort_unstable();
        let page = |block: &u64| Page { block: *block as u32, image: image.clone() };
        let pages: Vec<Page> = blocks.iter().map(page).collect();
        let set = PageSet::of(&pages, TOTAL, usize::MAX);
        let found = Trained::of(&set).compared(usize::MAX);
        let found: Vec<u64> = found.pages().iter().map(|(block, _)| u64::from(*block)).collect();
        (set.len(), found)
    };
    let (count, found) = compared(&trains);
    let rank = |block: &u64| trains.iter().position(|at| at == block);
    assert!(found.iter().filter_map(rank).all(is_judge), "{found:?}");
    assert_eq!(found.len(), count - trained);
    // Where few of those blocks are, it trains on as many others.
    let (count, found) = compared(&trains[..40]);
    assert_eq!(found.len(), count - trained);
}

#[test]
fn what_a_container_keeps_empty_is_counted() {
    let pages = made(300);
    let images: Vec<Box<PageBytes>> =
        pages.iter().map(|page| Box::new(page.image.as_slice().try_into().unwrap())).collect();
    let real = at_rest(&images, Policy::default(), true);
    let said = bytes(&table(300, Sample { pages, ..Sample::default() }), &mut Budget::default()).unwrap();
    assert!(said.abs_diff(real) < 1024, "{said} is {real}");
}

#[test]
fn text_that_is_sent_by_each_algorithm_is_taken_out_of_the_budget_each_time() {
    let mut rng = Seed(21).rng();
    let (image, rows) = hostile::page(&mut rng);
    let mut table = hostile::table(&mut rng, image, rows.len());
    // Runs of one block each, which can be left out.
    let sample = table.sample.as_mut().unwrap();
    sample.blocks = (0..rows.len() as u32).map(|run| run * 2).collect();
    sample.rows.iter_mut().zip(&sample.blocks).for_each(|(place, block)| place.0 = *block);
    let text = |bytes_max: usize| CopyText::of(&table, bytes_max).unwrap().text.len();
    let (all, few) = (text(usize::MAX), text(100));
    assert!(few < all, "{few} of {all}");
    for (others_max, cost) in [(usize::MAX, 3 * all), (100, all + 2 * few)] {
        let mut budget = Budget { copy_bytes: [usize::MAX, others_max], ..Budget::default() };
        let before = budget.copy_bytes_total;
        let (_, figures) = wire::measure(&table, &mut budget, None);
        assert_eq!((figures.len(), before - budget.copy_bytes_total), (3, cost as u64), "{others_max}");
    }
}
