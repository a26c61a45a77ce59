//! Index pages: what their keys and row pointers are made of takes the bits it has to, and comes back.

use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, Policy};
use pgshrink_testkit::{Rng, Seed};

use super::{BLOCK, Page, policies, real_pages, there_and_back};

const SPECIAL: usize = PAGE_SIZE - 16;

/// A B-tree leaf of these keys in this order, row pointers anywhere in a table of `blocks` blocks of 100
/// rows.
fn leaf(rng: &mut Rng, keys: &[Vec<u8>], blocks: usize) -> Page {
    let mut page = [0; PAGE_SIZE];
    let mut at = SPECIAL;
    for (i, key) in keys.iter().enumerate() {
        let size = (8 + key.len()).next_multiple_of(8);
        at -= size;
        page[at + 2..at + 4].copy_from_slice(&(rng.below(blocks) as u16).to_le_bytes());
        page[at + 4..at + 6].copy_from_slice(&(rng.below(100) as u16 + 1).to_le_bytes());
        page[at + 6..at + 8].copy_from_slice(&(size as u16).to_le_bytes());
        page[at + 8..at + 8 + key.len()].copy_from_slice(key);
        let pointer = (at | 1 << 15 | size << 17) as u32;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&pointer.to_le_bytes());
    }
    let ends = [24 + 4 * keys.len(), at, SPECIAL, PAGE_SIZE | 4].map(|end| (end as u16).to_le_bytes());
    page[12..20].copy_from_slice(ends.as_flattened());
    page
}

fn sorted(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable();
    keys
}

/// Bytes of its payload by the default, once it came back from every policy.
fn payload_bytes(page: &Page) -> usize {
    let mut codec = PageCodec::new();
    for policy in policies() {
        there_and_back(&mut codec, page, Some(BLOCK), &policy, None);
    }
    there_and_back(&mut codec, page, Some(BLOCK), &Policy::default(), None).1.len()
}

const ROWS: usize = 150;
/// Bits of a row pointer into 4000 blocks of 100 rows.
const POINTER_BITS: usize = 19;

#[test]
fn sorted_keys_take_the_bits_of_their_gaps() {
    let mut rng = Seed::from_env_or_time().rng();
    let keys = sorted((0..ROWS).map(|_| rng.below(600_000) as u64).collect());
    let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_le_bytes().to_vec()).collect();
    let bytes = payload_bytes(&leaf(&mut rng, &keys, 4000));
    assert!(bytes < ROWS * (POINTER_BITS + 14) / 8 + 80, "{bytes}");
}

#[test]
fn hashes_in_order_take_no_more_than_their_bytes() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut keys: Vec<Vec<u8>> = (0..ROWS).map(|_| [vec![0x17, 0x2a], rng.bytes(14)].concat()).collect();
    keys.sort_unstable();
    let bytes = payload_bytes(&leaf(&mut rng, &keys, 4000));
    assert!(bytes < ROWS * (12 + 2) + ROWS * POINTER_BITS / 8 + 100, "{bytes}");
}

#[test]
fn times_of_hours_take_the_bits_of_their_gaps() {
    let mut rng = Seed::from_env_or_time().rng();
    let slot = 576_000_000;
    let begin = 780_000_000_000_000u64;
    let keys: Vec<u64> = (0..ROWS as u64).map(|i| begin + i * slot + rng.bits() % slot).collect();
    let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_le_bytes().to_vec()).collect();
    let bytes = payload_bytes(&leaf(&mut rng, &keys, 4000));
    assert!(bytes < ROWS * (POINTER_BITS + 32) / 8 + 80, "{bytes}");
}

#[test]
fn points_stored_as_boxes_are_stored_once() {
    let mut rng = Seed::from_env_or_time().rng();
    let keys = |rng: &mut Rng, twice: bool| -> Vec<Vec<u8>> {
        let point = |rng: &mut Rng| [0; 2].map(|_| (rng.below(3_000_000) as f64 / 1e6).to_le_bytes());
        (0..ROWS)
            .map(|_| {
                let low = point(rng);
                let high = if twice { low } else { point(rng) };
                [low, high].concat().concat()
            })
            .collect()
    };
    let boxes = keys(&mut rng, false);
    let points = keys(&mut rng, true);
    let boxes = payload_bytes(&leaf(&mut rng, &boxes, 4000));
    let points = payload_bytes(&leaf(&mut rng, &points, 4000));
    assert!(points + ROWS * 5 < boxes, "{points} and {boxes}");
}

#[test]
fn what_deletions_leave_behind_costs_little() {
    let mut rng = Seed::from_env_or_time().rng();
    let keys: Vec<Vec<u8>> = (0..ROWS as u64).map(|i| (i * 1_000_003).to_le_bytes().to_vec()).collect();
    let mut page = leaf(&mut rng, &keys, 4000);
    let before = payload_bytes(&page);
    // The last third of the line pointers goes, and its tuples stay where they were.
    let kept = ROWS * 2 / 3;
    page[12..14].copy_from_slice(&(24 + 4 * kept as u16).to_le_bytes());
    page[14..16].copy_from_slice(&((SPECIAL - 16 * kept) as u16).to_le_bytes());
    // And the last tuple was moved up step by step, as deleting one by one does.
    let last: [u8; 16] = page[SPECIAL - 16 * kept..][..16].try_into().unwrap();
    for i in kept..ROWS {
        page[SPECIAL - 16 * (i + 1)..][..16].copy_from_slice(&last);
    }
    let after = payload_bytes(&page);
    assert!(after < before * 2 / 3 + 80, "{after} after {before}");
}

/// Bytes of the default's payload of a golden page.
fn golden_bytes(name: &str) -> usize {
    let page = real_pages().into_iter().find(|(page, _)| page == name).unwrap().1;
    payload_bytes(&page)
}

#[test]
fn entries_of_gin_indexes_take_the_bits_of_their_keys_and_rows() {
    // 136 hashes in order, 12 bits each with their gaps; rows in 2864 blocks of up to 110; lists of 243
    // bytes.
    let bytes = golden_bytes("gin-entries");
    assert!(bytes < 136 * (14 + 12 + 6) / 8 + 243 + 130, "{bytes}");
}

#[test]
fn rows_beside_each_other_in_few_blocks_take_few_bits() {
    // 189 points, two coordinates of 25 and 22 bits; most rows in few blocks of up to 81.
    let bytes = golden_bytes("spgist-points");
    assert!(bytes < 189 * (25 + 22 + 18) / 8 + 100, "{bytes}");
}
