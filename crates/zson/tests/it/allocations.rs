//! In the steady state rows cost no allocation.
// A global allocator is unsafe by its nature.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::{Decoder, Encoder, Memo};

use crate::fixtures::{choice, object, reading, trained, writing};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed to the system's allocator as it comes.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn encoding_and_reading_through_the_memo_allocate_nothing_per_row() {
    let mut rng = Seed(11).rng();
    let documents: Vec<Vec<u8>> = (0..400).map(|_| object(&mut rng, 12)).collect();
    for text in ["zstd:3", "lz4"] {
        let (with, back) = (writing(1, trained(), choice(text)), reading(1, trained()));
        let (mut encoder, mut decoder, mut memo) = (Encoder::new(), Decoder::new(), Memo::new(1 << 20));
        let mut datum = Vec::with_capacity(64 << 10);
        let mut round = || {
            for document in &documents {
                datum.clear();
                encoder.encode(with.choice(), Some(&with), document, &mut datum).unwrap();
                let Stored::Current(header) = parse(&datum).unwrap() else { panic!() };
                assert!(memo.get(&datum).is_none_or(|kept| kept.document() == document));
                let kept = memo
                    .insert(&datum, header.raw_len(), |target| decoder.decode(&header, Some(&back), target))
                    .unwrap();
                assert_eq!(kept.document(), document);
            }
            (encoder.memory_size(), decoder.memory_size(), memo.memory_size())
        };
        let warm = round();
        round();
        let before = ALLOCATIONS.get();
        assert_eq!(round(), warm, "{text}: contexts grow");
        assert_eq!(ALLOCATIONS.get() - before, 0, "{text}");
    }
}
