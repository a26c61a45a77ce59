//! What goes in comes out.

use pgshrink_cfs::page::{
    Error, Kind, Mode, PAGE_SIZE, PageCodec, PageDictionary, Policy, TransformPolicy, checksum, looks_like,
};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_testkit::Seed;

use super::{BLOCK, Page, policies, real_pages, there_and_back};

fn default_policy() -> Policy {
    Policy { choice: Choice::new(Algorithm::Zstd, 1).unwrap(), transform: TransformPolicy::Auto }
}

fn real_page(wanted: &str) -> Page {
    real_pages().into_iter().find(|(name, _)| name == wanted).unwrap().1
}

#[test]
fn real_pages_come_back_from_every_algorithm_with_and_without_dictionary() {
    let pages = real_pages();
    let choices: Vec<Choice> = policies().iter().map(|policy| policy.choice).collect();
    let samples = pages.iter().cycle().take(100).map(|(_, page)| page);
    let bytes = PageDictionary::train(samples, 16 << 10).unwrap();
    let dictionary = PageDictionary::new(bytes, &choices).unwrap();
    let mut codec = PageCodec::new();
    for (_, page) in &pages {
        for policy in policies() {
            for dictionary in [None, Some(&dictionary)] {
                for block in [None, Some(BLOCK)] {
                    there_and_back(&mut codec, page, block, &policy, dictionary);
                }
            }
        }
    }
}

#[test]
fn pages_damaged_anywhere_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut codec = PageCodec::new();
    let policies: Vec<Policy> =
        policies().into_iter().filter(|p| p.transform == TransformPolicy::Always).collect();
    for (_, page) in real_pages() {
        for round in 0..60 {
            let mut page = page;
            // Mostly headers, line pointers and the first bytes of tuples: what the transform believes.
            let tuple = usize::from(u16::from_le_bytes([page[14], page[15]])).min(PAGE_SIZE - 64);
            for _ in 0..rng.below(6) + 1 {
                let at = match rng.below(4) {
                    0 => rng.below(24),
                    1 => rng.below(400),
                    2 => tuple + rng.below(64),
                    _ => rng.below(PAGE_SIZE),
                };
                page[at] =
                    if rng.below(2) == 0 { rng.below(256) as u8 } else { page[at] ^ 1 << rng.below(8) };
            }
            there_and_back(&mut codec, &page, Some(BLOCK), &policies[round % policies.len()], None);
        }
    }
}

#[test]
fn random_bytes_are_stored_raw() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut page = [0; PAGE_SIZE];
    page.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
    for policy in policies() {
        let (encoded, payload) = there_and_back(&mut PageCodec::new(), &page, None, &policy, None);
        assert_eq!(encoded.mode, Mode::RAW);
        assert_eq!(payload.len(), PAGE_SIZE);
    }
}

#[test]
fn random_bytes_behind_a_valid_header_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut codec = PageCodec::new();
    for round in 0..200 {
        let mut page = [0; PAGE_SIZE];
        page.iter_mut().for_each(|byte| *byte = rng.below(256) as u8 & if round % 2 == 0 { 0xff } else { 3 });
        let special = PAGE_SIZE - 8 * rng.below(3);
        let (count, len) = (rng.below(200) + 1, 8 * (rng.below(4) + 1));
        let lower = 24 + 4 * count;
        let upper = special - len * count;
        if upper < lower {
            continue;
        }
        for (at, value) in [(12, lower), (14, upper), (16, special)] {
            page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
        }
        for i in 0..count {
            let word = (special - len * (i + 1)) as u32 | 1 << 15 | ((len - i % 3) as u32) << 17;
            page[24 + 4 * i..28 + 4 * i].copy_from_slice(&word.to_le_bytes());
        }
        there_and_back(&mut codec, &page, None, &default_policy(), None);
    }
}

#[test]
fn a_page_of_zeros_takes_nothing() {
    let (encoded, payload) =
        there_and_back(&mut PageCodec::new(), &[0; PAGE_SIZE], None, &default_policy(), None);
    assert_eq!(encoded.mode, Mode::ZERO);
    assert!(payload.is_empty());
}

#[test]
fn a_checksum_that_verifies_takes_nothing_and_one_that_does_not_comes_back() {
    let mut page = real_page("heap-checksum");
    let sum = u16::from_le_bytes([page[8], page[9]]);
    assert_eq!(checksum(&page, BLOCK), sum, "not what the server computes");
    let mut codec = PageCodec::new();
    let (encoded, payload) = there_and_back(&mut codec, &page, Some(BLOCK), &default_policy(), None);
    assert!(encoded.mode.implies_checksum());
    let mut back = [0; PAGE_SIZE];
    let without = codec.decode(encoded.mode.byte(), &payload, None, None, &mut back);
    assert_eq!(without, Err(Error::BlockMissing));
    let (elsewhere, _) = there_and_back(&mut codec, &page, Some(BLOCK + 1), &default_policy(), None);
    assert!(!elsewhere.mode.implies_checksum());
    page[8] ^= 1;
    let (wrong, _) = there_and_back(&mut codec, &page, Some(BLOCK), &default_policy(), None);
    assert!(!wrong.mode.implies_checksum());
}

#[test]
fn a_hole_that_is_not_zero_is_kept() {
    let mut page = real_page("heap-jsonb");
    let lower = usize::from(u16::from_le_bytes([page[12], page[13]]));
    let mut codec = PageCodec::new();
    let (_, before) = there_and_back(&mut codec, &page, None, &default_policy(), None);
    page[lower + 1] = 7;
    page[lower + 801] = 7;
    let (_, after) = there_and_back(&mut codec, &page, None, &default_policy(), None);
    assert!(after.len() < before.len() + 40, "{} and {}", before.len(), after.len());
}

#[test]
fn transformed_pages_are_much_smaller() {
    let mut codec = PageCodec::new();
    let mut size = |name: &str, transform| {
        let policy = Policy { transform, ..default_policy() };
        there_and_back(&mut codec, &real_page(name), None, &policy, None).1.len()
    };
    for (name, tenths) in [
        ("btree-bulk", 100),
        ("heap-prices", 20),
        ("heap-nulls", 13),
        ("btree-posting", 15),
        ("gist", 22),
        ("spgist", 13),
        ("hash", 15),
        ("btree-leaf", 14),
    ] {
        let (with, without) = (size(name, TransformPolicy::Auto), size(name, TransformPolicy::Off));
        assert!(with * tenths < without * 10, "{name}: {without} bytes became {with}");
    }
}

#[test]
fn lz4_leaves_pages_alone_that_gain_little_for_the_time() {
    let lz4 = |transform| Policy { choice: Choice::new(Algorithm::Lz4, 1).unwrap(), transform };
    let is_rearranged = |codec: &mut PageCodec, name: &str, transform| {
        there_and_back(codec, &real_page(name), None, &lz4(transform), None).0.mode.is_transformed()
    };
    let mut codec = PageCodec::new();
    for _ in 0..200 {
        for (name, wanted) in [("toast", false), ("btree-bulk", true), ("heap-prices", true)] {
            assert_eq!(is_rearranged(&mut codec, name, TransformPolicy::Auto), wanted, "{name}");
            assert!(is_rearranged(&mut codec, name, TransformPolicy::Always), "{name}");
            assert!(!is_rearranged(&mut codec, name, TransformPolicy::Off), "{name}");
        }
    }
    let zstd = there_and_back(&mut codec, &real_page("toast"), None, &default_policy(), None);
    assert!(zstd.0.mode.is_transformed(), "the other algorithms have more time");
}

#[test]
fn lz4_notices_when_pages_begin_to_gain() {
    let policy = Policy { choice: Choice::new(Algorithm::Lz4, 1).unwrap(), ..Policy::default() };
    let prices = real_page("heap-prices");
    // The same page with tuples of noise, which looks the same.
    let mut noise = prices;
    let mut rng = Seed::from_env_or_time().rng();
    let upper = usize::from(u16::from_le_bytes([noise[14], noise[15]]));
    noise[upper..].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
    let first = (u32::from_le_bytes([noise[24], noise[25], noise[26], noise[27]]) & 0x7fff) as usize;
    noise[first + 18..first + 20].copy_from_slice(&prices[first + 18..first + 20]);
    let mut codec = PageCodec::new();
    let mut rearranged = |page, count| {
        let of = |_| there_and_back(&mut codec, page, None, &policy, None).0.mode.is_transformed();
        (0..count).map(of).filter(|is| *is).count()
    };
    assert_eq!(rearranged(&noise, 300), 0);
    let gained = rearranged(&prices, 1000);
    assert!(gained > 500, "{gained}");
}

#[test]
fn pages_look_like_what_they_are() {
    let kinds = [
        ("heap-prices", Kind::Heap),
        ("toast", Kind::Heap),
        ("btree-bulk", Kind::BTree),
        ("btree-posting", Kind::BTreePosting),
        ("hash", Kind::Hash),
        ("gin", Kind::Gin),
        ("gist", Kind::Gist),
        ("spgist", Kind::Spgist),
        ("brin", Kind::Brin),
        ("fsm", Kind::Fsm),
        ("vm", Kind::Vm),
        ("sequence", Kind::Sequence),
    ];
    for (name, kind) in kinds {
        assert_eq!(looks_like(&real_page(name)), kind, "{name}");
    }
    assert_eq!(looks_like(&[0; PAGE_SIZE]), Kind::Zero);
    assert_eq!(looks_like(&[0xff; PAGE_SIZE]), Kind::Other);
}
