//! Schemas of every size, whose learning may be ended.

use super::super::bytes;
use super::super::jsonb::{Stack, Writer};
use super::super::tests::written;
use super::*;

fn text(writer: &mut Writer<'_>, text: &str) {
    writer.text(text.as_bytes()).unwrap();
}

/// Documents with words, moments, numbers, arrays and objects, and keys that only a few have.
fn documents(count: usize, rare_keys: usize) -> Vec<Vec<u8>> {
    let document = |n: usize| {
        let (mut target, mut open) = ([0; 4096], Stack::default());
        let mut writer = Writer::new(&mut target, &mut open);
        let mut keys = vec!["id".to_owned(), "at".to_owned(), "list".to_owned(), "message".to_owned()];
        keys.extend((0..8).map(|at| format!("rare{:05}", (n * 8 + at) % rare_keys)));
        keys.push("user".to_owned());
        keys.sort_by(|left, right| (left.len(), left).cmp(&(right.len(), right)));
        keys.dedup();
        writer.begin_object(keys.len()).unwrap();
        keys.iter().for_each(|key| text(&mut writer, key));
        for key in &keys {
            match key.as_str() {
                "id" => text(&mut writer, &format!("event-{n}")),
                "at" => text(&mut writer, &format!("2026-11-{:02}T{:02}:00:00Z", n % 28 + 1, n % 24)),
                "list" => {
                    writer.begin_array(2).unwrap();
                    text(&mut writer, ["red", "green", "blue"][n % 3]);
                    writer.null().unwrap();
                    writer.end().unwrap();
                }
                "user" => {
                    writer.begin_object(1).unwrap();
                    text(&mut writer, "name");
                    text(&mut writer, ["Ada", "Bo", "Cy", "Di", "Ed"][n % 5]);
                    writer.end().unwrap();
                }
                "message" => text(&mut writer, &format!("the {} is on node {} of {}", n % 7, n % 13, n / 9)),
                key => text(&mut writer, &format!("{key} has {}", n % 3)),
            }
        }
        writer.end().unwrap();
        let len = writer.len();
        target[..len].to_vec()
    };
    (0..count).map(document).collect()
}

#[test]
fn schemas_fit_into_any_size() {
    let documents = documents(4000, 3000);
    let samples: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    let learned = learned(&samples, false, &mut || Ok(())).unwrap();
    let mut before = 0;
    for bytes_max in [64, 200, 1 << 10, 5 << 10, 20 << 10, 60 << 10, 1 << 20] {
        let schema = learned.schema(bytes_max, &mut || Ok(())).unwrap();
        let stored = bytes::of(&schema);
        assert!(stored.len() <= size(&schema), "{} {}", stored.len(), size(&schema));
        assert!(size(&schema) <= bytes_max, "{} {bytes_max}", size(&schema));
        assert!(bytes::schema(&stored).unwrap().is_some(), "{bytes_max}");
        assert!(size(&schema) >= before, "more room is used");
        before = size(&schema);
    }
    assert!(before > 60 << 10, "{before}");
}

#[test]
fn the_same_samples_give_the_same_schemas() {
    let documents = documents(1000, 500);
    let samples: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    let once = || {
        let learned = learned(&samples, false, &mut || Ok(())).unwrap();
        [1 << 10, 8 << 10, 64 << 10].map(|size| bytes::of(&learned.schema(size, &mut || Ok(())).unwrap()))
    };
    let first = once();
    assert!((0..5).all(|_| once() == first));
}

#[test]
fn whoever_waits_may_end_it_at_every_call() {
    let documents = documents(2000, 300);
    let samples: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    // Ends it at the call of this number, and counts the calls.
    let run = |last: usize| {
        let calls = std::cell::Cell::new(0);
        let mut proceed = || {
            calls.set(calls.get() + 1);
            if calls.get() == last { Err(Error::Interrupted) } else { Ok(()) }
        };
        let found = learned(&samples, false, &mut proceed)
            .and_then(|learned| learned.schema(16 << 10, &mut proceed).map(drop));
        (found, calls.get())
    };
    let (found, calls) = run(usize::MAX);
    assert_eq!(found, Ok(()));
    assert!(calls > 20, "{calls}");
    for last in 1..=calls {
        assert_eq!(run(last), (Err(Error::Interrupted), last));
    }
}

#[test]
fn records_among_other_documents_have_a_shape() {
    let alone = documents(300, 3000);
    let alone: Vec<&[u8]> = alone.iter().map(Vec::as_slice).collect();
    let others: Vec<Vec<u8>> = (0..900)
        .map(|n| {
            written(|writer| {
                writer.begin_array(1).unwrap();
                text(writer, &format!("line {n}"));
                writer.end().unwrap();
            })
        })
        .collect();
    let root = |among: usize| {
        let samples: Vec<&[u8]> =
            alone.iter().copied().chain(others.iter().take(among).map(Vec::as_slice)).collect();
        learned(&samples, false, &mut || Ok(())).unwrap().schema.columns[0].kind.clone()
    };
    assert!(matches!(root(0), Kind::Record(_)));
    assert!(matches!(root(299), Kind::Record(_)), "{:?}", root(299));
    assert!(matches!(root(900), Kind::Array { .. }), "{:?}", root(900));
}

#[test]
fn a_fifth_of_records_is_enough_where_no_other_kind_is_more() {
    let records = documents(200, 3000);
    // Texts and numbers in equal parts.
    let scalars: Vec<Vec<u8>> = (0..1000u16)
        .map(|n| {
            written(|writer| {
                writer.begin_scalar().unwrap();
                let [low, high] = (n + 1).to_le_bytes();
                match n % 2 {
                    0 => writer.number(&[0x20, 0, 0, 0, 0, 0x80, low, high]).unwrap(),
                    _ => text(writer, &format!("line {n}")),
                }
                writer.end().unwrap();
            })
        })
        .collect();
    let is_record = |among: usize| {
        let samples: Vec<&[u8]> = records.iter().chain(&scalars[..among]).map(Vec::as_slice).collect();
        matches!(learned(&samples, false, &mut || Ok(())).unwrap().schema.columns[0].kind, Kind::Record(_))
    };
    assert!(is_record(800) && !is_record(810));
}

#[test]
fn objects_without_a_key_in_common_have_no_kind() {
    let objects: Vec<Vec<u8>> = (0..100)
        .map(|n| {
            written(|writer| {
                writer.begin_object(1).unwrap();
                text(writer, &format!("key {n:03}"));
                writer.null().unwrap();
                writer.end().unwrap();
            })
        })
        .collect();
    let samples: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
    let learned = learned(&samples, false, &mut || Ok(())).unwrap();
    assert!(matches!(learned.schema.columns[0].kind, Kind::Any));
}

#[test]
fn texts_among_records_are_learned_from() {
    let records = documents(300, 3000);
    let lines: Vec<Vec<u8>> = (0..150)
        .map(|n| {
            written(|writer| {
                writer.begin_scalar().unwrap();
                text(writer, &format!("line {n}"));
                writer.end().unwrap();
            })
        })
        .collect();
    let samples: Vec<&[u8]> = records.iter().chain(&lines).map(Vec::as_slice).collect();
    let learned = learned(&samples, false, &mut || Ok(())).unwrap();
    assert!(matches!(learned.schema.columns[0].kind, Kind::Record(_)));
    let is_there = |line: usize| learned.texts.iter().any(|text| *text == format!("line {line}").as_bytes());
    assert!((0..150).all(is_there));
}

#[test]
fn samples_that_are_none_or_say_nothing_have_an_empty_schema() {
    let numeric_without_bytes = [[1, 0, 0, 0x40], [0, 0, 0, 0x10]].concat();
    for samples in [&[][..], &[&b""[..], b"abc"], &[&numeric_without_bytes[..]; 20]] {
        let learned = learned(samples, false, &mut || Ok(())).unwrap();
        let schema = learned.schema(1 << 10, &mut || Ok(())).unwrap();
        assert!(schema.columns.len() <= 2 && schema.keys.is_empty() && schema.phrases.count() == 0);
    }
}
