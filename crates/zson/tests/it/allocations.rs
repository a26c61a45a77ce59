//! In the steady state rows cost no allocation.

use pgshrink_testkit::allocations::{self, Counting};
use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::{Decoder, Encoder, Memo};

use crate::fixtures::{choice, object, reading, trained, writing};

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
        let before = allocations::count();
        assert_eq!(round(), warm, "{text}: contexts grow");
        assert_eq!(allocations::count() - before, 0, "{text}");
    }
}
