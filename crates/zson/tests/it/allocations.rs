//! In the steady state rows cost no allocation.

use pgshrink_testkit::allocations::{self, Counting};
use pgshrink_testkit::seed::Seed;
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::shapes::{Scratch, Step};
use pgshrink_zson::{Codec, Decoder, Encoder, Memo};

use crate::fixtures::{choice, object, reading, shaped_short, trained, writing};
use crate::records::{article, measurement, order, paragraphs};

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

#[test]
fn documents_of_shapes_and_their_values_allocate_nothing_per_row() {
    let mut rng = Seed(12).rng();
    let mut documents: Vec<Vec<u8>> = (0..400).map(|_| measurement(&mut rng).document()).collect();
    // Some for which zstd is tried, and some that it takes.
    documents.extend((0..50).map(|_| order(&mut rng).document()));
    documents.extend((0..20).map(|_| article(&mut rng, 3000).document()));
    documents.extend((0..20).map(|_| paragraphs(&mut rng, 60).document()));
    let (with, back) = (writing(1, shaped_short(), Codec::shapes()), reading(1, shaped_short()));
    let (mut encoder, mut decoder, mut scratch) = (Encoder::new(), Decoder::new(), Scratch::default());
    let (mut datum, mut text) = (Vec::with_capacity(256 << 10), Vec::with_capacity(64 << 10));
    let mut target = vec![0; 256 << 10];
    let mut round = || {
        let mut methods = [0, 0];
        for document in &documents {
            datum.clear();
            encoder.encode(with.choice(), Some(&with), document, &mut datum).unwrap();
            let Stored::Current(header) = parse(&datum).unwrap() else { panic!() };
            decoder.decode(&header, Some(&back), &mut target[..header.raw_len()]).unwrap();
            assert_eq!(&target[..header.raw_len()], document);
            let Some(view) = back.view(&header).unwrap() else {
                methods[0] += 1;
                continue;
            };
            methods[1] += 1;
            let root = view.root().unwrap();
            for key in ["sensor", "at", "celsius", "history", "hash", "customer", "items", "title", "body"] {
                let Some(value) = view.next(root, Step::Key(key.as_bytes())).unwrap() else { continue };
                text.clear();
                view.text(value, &mut text, &mut scratch).unwrap();
                view.document(value, &mut target, &mut scratch).unwrap();
            }
        }
        (methods, encoder.memory_size(), decoder.memory_size())
    };
    let warm = round();
    assert!(warm.0[0] > 0 && warm.0[1] > 300, "{warm:?}");
    round();
    let before = allocations::count();
    assert_eq!(round(), warm, "contexts grow");
    assert_eq!(allocations::count() - before, 0);
}
