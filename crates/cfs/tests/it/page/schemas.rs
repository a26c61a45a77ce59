//! Pages of many relations through one codec, which tries what it learned from one on the next.

use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, Policy};
use pgshrink_testkit::Seed;

use super::{Page, there_and_back};

const HEADER: usize = 24;

/// An attribute of a tuple, as PostgreSQL lays it out.
enum Value {
    Fixed(Vec<u8>, usize),
    /// With a header of one byte; never aligned.
    Short(Vec<u8>),
    /// With a header of four bytes.
    Long(Vec<u8>),
}

/// A heap page of tuples without NULLs.
fn heap_page(tuples: &[Vec<Value>]) -> Page {
    let mut page = [0; PAGE_SIZE];
    let (mut lower, mut upper) = (24, PAGE_SIZE);
    for values in tuples {
        let mut data = vec![0; HEADER];
        for value in values {
            match value {
                Value::Fixed(bytes, alignment) => {
                    data.resize(data.len().next_multiple_of(*alignment), 0);
                    data.extend(bytes);
                }
                Value::Short(bytes) => {
                    data.push(((bytes.len() + 1) << 1 | 1) as u8);
                    data.extend(bytes);
                }
                Value::Long(bytes) => {
                    data.resize(data.len().next_multiple_of(4), 0);
                    data.extend((((bytes.len() + 4) as u32) << 2).to_le_bytes());
                    data.extend(bytes);
                }
            }
        }
        let room = data.len().next_multiple_of(8);
        if lower + 4 + room > upper {
            break;
        }
        upper -= room;
        data[18..20].copy_from_slice(&(values.len() as u16).to_le_bytes());
        data[20..22].copy_from_slice(&0x0902u16.to_le_bytes());
        data[22] = HEADER as u8;
        page[upper..upper + data.len()].copy_from_slice(&data);
        let line = upper as u32 | 1 << 15 | (data.len() as u32) << 17;
        page[lower..lower + 4].copy_from_slice(&line.to_le_bytes());
        lower += 4;
    }
    let word = |page: &mut Page, at: usize, value: usize| {
        page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    };
    word(&mut page, 12, lower);
    word(&mut page, 14, upper);
    word(&mut page, 16, PAGE_SIZE);
    word(&mut page, 18, PAGE_SIZE | 4);
    page
}

#[test]
fn a_short_text_behind_padding_is_not_written_by_what_was_learned_of_another_relation() {
    // (integer, text, boolean, text), of varying lengths.
    let text = |len: usize| Value::Short((0..len).map(|at| b'a' + at as u8).collect());
    let number = |value: u32| Value::Fixed(value.to_le_bytes().to_vec(), 4);
    let learned: Vec<_> = (0..60u32)
        .map(|i| {
            let flag = Value::Fixed(vec![(i % 2) as u8], 1);
            vec![number(i * 7919 + 70_000), text(3 + i as usize % 9), flag, text(5 + i as usize % 11)]
        })
        .collect();
    // (integer, integer, integer, character(84)), as pgbench's accounts: 11 is the header of a text of five bytes,
    // and before the characters lie two bytes that would be padding.
    let accounts: Vec<_> = (0..60u32)
        .map(|i| vec![number(1_000_000 + i), number(11), number(0), Value::Short(vec![b' '; 84])])
        .collect();
    let mut codec = PageCodec::new();
    for page in [heap_page(&learned), heap_page(&accounts), heap_page(&learned)] {
        there_and_back(&mut codec, &page, None, &Policy::default(), None);
    }
}

#[test]
fn pages_of_random_relations_come_back_through_one_codec() {
    let mut rng = Seed::from_env_or_time().rng();
    let mut codec = PageCodec::new();
    let relations: Vec<Vec<usize>> =
        (0..40).map(|_| (0..rng.between(1, 5)).map(|_| rng.below(7)).collect()).collect();
    for _ in 0..3000 {
        let kinds = rng.pick(&relations).clone();
        // Small values: what looks like a header, like padding, like another width.
        let small = rng.between(1, 40);
        let bytes = |rng: &mut pgshrink_testkit::Rng, len: usize| -> Vec<u8> {
            (0..len).map(|_| if rng.chance(60) { 0 } else { rng.below(small) as u8 }).collect()
        };
        let tuples: Vec<Vec<Value>> = (0..rng.between(3, 120))
            .map(|_| {
                let value = |rng: &mut pgshrink_testkit::Rng, kind: usize| match kind {
                    0 => Value::Fixed(bytes(rng, 1), 1),
                    1 => Value::Fixed(bytes(rng, 2), 2),
                    2 => Value::Fixed(bytes(rng, 4), 4),
                    3 => Value::Fixed(bytes(rng, 8), 8),
                    4 => Value::Long((0..rng.between(123, 140)).map(|i| i as u8).collect()),
                    _ => {
                        let len = rng.below(6);
                        Value::Short(bytes(rng, len))
                    }
                };
                kinds.iter().map(|kind| value(&mut rng, *kind)).collect()
            })
            .collect();
        there_and_back(&mut codec, &heap_page(&tuples), None, &Policy::default(), None);
    }
}

#[test]
fn a_table_that_cannot_be_learned_does_not_keep_others_from_being_learned() {
    // No type has three bytes.
    let odd: Vec<_> = (0..200u8).map(|i| vec![Value::Fixed(vec![i, 7, 9], 1)]).collect();
    let number = |value: u32| Value::Fixed(value.to_le_bytes().to_vec(), 4);
    let text = |i: u32| Value::Short(format!("row {}", i * i % 977).into_bytes());
    let plain: Vec<_> = (0..200u32).map(|i| vec![number(i), text(i), number(i * 31 % 1009)]).collect();
    let (odd, plain) = (heap_page(&odd), heap_page(&plain));
    let bytes = |codec: &mut PageCodec, page: &Page| {
        let mut payload = Vec::new();
        codec.encode(page, None, &Policy::default(), None, &mut payload).unwrap();
        payload.len()
    };
    let alone = bytes(&mut PageCodec::new(), &plain);
    let mut codec = PageCodec::new();
    for _ in 0..300 {
        bytes(&mut codec, &odd);
    }
    assert_eq!(bytes(&mut codec, &plain), alone);
}
