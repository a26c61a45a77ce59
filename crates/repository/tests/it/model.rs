//! What every repository does, whatever it is in. Each kind runs these against its own.

use pgshrink_repository::{Error, ObjectName, Repository, WRITER_BYTES_MAX};
use std::io::Write;
use std::sync::Barrier;

pub type Model = fn(&dyn Repository);

/// All of them, by names that are prefixes.
pub const ALL: [(&str, Model); 5] = [
    ("keeps", keeps_objects),
    ("creates", creates_once),
    ("races", lets_one_of_many_create),
    ("large", keeps_large_objects),
    ("unfinished", forgets_unfinished_objects),
];

pub fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn write(repository: &dyn Repository, object: &str, bytes: &[u8]) -> Result<(), Error> {
    let mut writer = repository.writer(&name(object))?;
    writer.write_all(bytes).unwrap();
    writer.finish()
}

fn names(repository: &dyn Repository, below: Option<&str>) -> Vec<String> {
    let below = below.map(name);
    let found = repository.list(below.as_ref(), 1_000).unwrap();
    found.into_iter().map(|found| found.name.to_string()).collect()
}

/// Objects are there as they were written, and listed.
pub fn keeps_objects(repository: &dyn Repository) {
    assert!(names(repository, None).is_empty());
    assert!(repository.top(10).unwrap().is_empty());
    repository.create(&name("one/begun.json"), b"first").unwrap();
    write(repository, "one/packs/00000001.pack", b"payload").unwrap();
    write(repository, "one/packs/00000002.pack", b"").unwrap();
    repository.create(&name("top.json"), b"{}").unwrap();
    repository.create(&name("oneandmore/x"), b"x").unwrap();

    let all =
        ["one/begun.json", "one/packs/00000001.pack", "one/packs/00000002.pack", "oneandmore/x", "top.json"];
    assert_eq!(names(repository, None), all);
    assert_eq!(names(repository, Some("one")), all[..3]);
    assert_eq!(names(repository, Some("one/packs")), all[1..3]);
    assert!(names(repository, Some("two")).is_empty());
    assert_eq!(repository.top(10).unwrap(), ["one", "oneandmore", "top.json"]);
    assert!(matches!(repository.top(2), Err(Error::Limit { limit: 2, .. })));
    assert_eq!(repository.below(&name("one"), 10).unwrap(), ["begun.json", "packs"]);
    assert!(matches!(repository.below(&name("one"), 1), Err(Error::Limit { limit: 1, .. })));
    assert!(repository.below(&name("on"), 10).unwrap().is_empty());
    assert!(matches!(repository.list(None, 4), Err(Error::Limit { limit: 4, .. })));

    let pack = name("one/packs/00000001.pack");
    assert_eq!(repository.size(&pack).unwrap(), 7);
    assert_eq!(repository.read(&pack, 0, 7).unwrap(), b"payload");
    assert_eq!(repository.read(&pack, 3, 4).unwrap(), b"load");
    assert_eq!(repository.read(&pack, 7, 0).unwrap(), b"");
    assert_eq!(repository.size(&name("one/packs/00000002.pack")).unwrap(), 0);
    for (offset, bytes) in [(0, 8), (7, 1), (100, 1)] {
        let error = repository.read(&pack, offset, bytes).unwrap_err();
        let end = offset + bytes as u64;
        assert!(matches!(error, Error::Short { expected, .. } if expected == end), "{error:?}");
    }
    for missing in ["one/packs/00000003.pack", "nothing"] {
        let error = repository.read(&name(missing), 0, 1).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{missing}: {error:?}");
        let error = repository.size(&name(missing)).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{missing}: {error:?}");
    }

    repository.remove(&pack).unwrap();
    repository.remove(&pack).unwrap();
    assert!(matches!(repository.size(&pack), Err(Error::NotFound { .. })));
    for object in names(repository, None) {
        repository.remove(&name(&object)).unwrap();
    }
    assert!(repository.top(10).unwrap().is_empty());
}

/// An object is created once.
pub fn creates_once(repository: &dyn Repository) {
    repository.create(&name("x/begun.json"), b"first").unwrap();
    let error = repository.create(&name("x/begun.json"), b"other").unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "{error:?}");
    assert_eq!(repository.read(&name("x/begun.json"), 0, 5).unwrap(), b"first");
}

/// All at once, again and again: one is told that it was the one, and its bytes are there.
pub fn lets_one_of_many_create(repository: &dyn Repository) {
    for round in 0..20 {
        let object = name(&format!("race/{round}"));
        let barrier = Barrier::new(4);
        let done: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u8)
                .map(|who| {
                    let (object, barrier) = (&object, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        match repository.create(object, &[who; 100]) {
                            Ok(()) => true,
                            Err(Error::Exists { .. }) => false,
                            Err(error) => panic!("{error:?}"),
                        }
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(done.iter().filter(|is_it| **is_it).count(), 1, "{done:?}");
        let who = done.iter().position(|is_it| *is_it).unwrap() as u8;
        assert_eq!(repository.read(&object, 0, 100).unwrap(), [who; 100]);
    }
}

/// Larger than what a writer keeps in memory, in writes of odd sizes.
pub fn keeps_large_objects(repository: &dyn Repository) {
    let bytes: Vec<u8> = (0..WRITER_BYTES_MAX as u32 / 4 + 12_345).flat_map(u32::to_le_bytes).collect();
    let object = name("large/pack");
    let mut writer = repository.writer(&object).unwrap();
    for part in bytes.chunks(1_000_003) {
        writer.write_all(part).unwrap();
    }
    assert!(
        matches!(repository.size(&object), Err(Error::NotFound { .. })),
        "it is not there before its end"
    );
    writer.finish().unwrap();
    assert_eq!(repository.size(&object).unwrap(), bytes.len() as u64);
    assert!(repository.read(&object, 0, bytes.len()).unwrap() == bytes);
    let middle = 9 << 20;
    assert!(repository.read(&object, middle as u64, 777).unwrap() == bytes[middle..middle + 777]);
}

/// What was not finished is not there.
pub fn forgets_unfinished_objects(repository: &dyn Repository) {
    for bytes in [0, 10, 9 << 20] {
        let mut writer = repository.writer(&name("unfinished/pack")).unwrap();
        writer.write_all(&vec![7; bytes]).unwrap();
        drop(writer);
        assert!(names(repository, None).is_empty(), "{bytes} bytes");
    }
}
