//! Encrypted objects: as plain ones to who has the key, and nothing to others.

use super::memory::Memory;
use super::model::{self, name};
use pgshrink_repository::{Error, KeyId, Location, Repository, SealKey, Variables, sealed};
use pgshrink_testkit::{Rng, S3, Seed, TempDir, skipped};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const BLOCK: usize = 64 << 10;
const HEADER: usize = 96;
const TAG: usize = 16;

fn key(number: u8) -> SealKey {
    SealKey::new(KeyId([number; 16]), [number; 32].into())
}

fn with_keys(inner: &Arc<dyn Repository>, numbers: &[u8]) -> Arc<dyn Repository> {
    sealed(Arc::clone(inner), "somewhere", numbers.iter().map(|number| key(*number)).collect())
}

/// A repository in memory, and the same one with key 1.
fn fresh() -> (Arc<Memory>, Arc<dyn Repository>) {
    let memory = Arc::new(Memory::default());
    let inner: Arc<dyn Repository> = Arc::clone(&memory) as _;
    let repository = with_keys(&inner, &[1]);
    (memory, repository)
}

fn numbers(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

fn all(repository: &dyn Repository, object: &str) -> Result<Vec<u8>, Error> {
    let size = repository.size(&name(object))?;
    repository.read(&name(object), 0, size as usize)
}

/// Any of the errors that are made of changed bytes.
fn is_refused(read: Result<Vec<u8>, Error>) -> bool {
    matches!(
        read,
        Err(Error::Damaged { ref name, .. } | Error::NotSealed { ref name }) if name.as_str().starts_with("one/")
    )
}

/// What every repository does, over a directory and over S3.
#[test]
fn encrypted_repositories_keep_objects_as_plain_ones_do() {
    let folder = TempDir::new().unwrap();
    for (below, test) in model::ALL {
        let place = Location::Directory(folder.path().join(below)).create(&Variables::default()).unwrap();
        test(&*with_keys(&place, &[1]));
    }
    if let Err(missing) = S3::find() {
        return skipped("sealed::encrypted_repositories on S3", &missing);
    }
    let s3 = S3::start().unwrap();
    let variables: Variables = s3.variables("secret").into_iter().collect();
    // This server lets several create an object at once.
    for (below, test) in model::ALL.into_iter().filter(|(below, _)| *below != "races") {
        let location = Location::parse(&format!("s3://backups/{below}")).unwrap();
        test(&*with_keys(&location.open(&variables).unwrap(), &[1]));
    }
}

#[test]
fn every_size_around_blocks_comes_back_however_it_is_written_and_read() {
    let (memory, repository) = fresh();
    for around in [0, BLOCK, 2 * BLOCK, 3 * BLOCK] {
        for size in around.saturating_sub(2)..=around + 2 {
            let plain = numbers(size);
            for (object, part) in [("one/odd", 4_099), ("one/blocks", BLOCK), ("one/whole", size.max(1))] {
                let mut writer = repository.writer(&name(object)).unwrap();
                plain.chunks(part).for_each(|part| writer.write_all(part).unwrap());
                writer.finish().unwrap();
                assert!(all(&*repository, object).unwrap() == plain, "{size} bytes, {object}");
                assert_eq!(memory.get(object).len(), HEADER + size + TAG * size.div_ceil(BLOCK).max(1));
                memory.put(object, None);
            }
            repository.create(&name("one/created"), &plain).unwrap();
            for (offset, bytes) in [(0, 1), (BLOCK - 1, 2), (BLOCK, BLOCK), (size / 2, size / 3), (size, 0)] {
                let read = repository.read(&name("one/created"), offset as u64, bytes);
                match plain.get(offset..offset + bytes) {
                    Some(part) => assert!(read.unwrap() == part, "{bytes} bytes at {offset} of {size}"),
                    None => assert!(matches!(
                        read.unwrap_err(),
                        Error::Short { expected, found, .. }
                            if expected == (offset + bytes) as u64 && found == size as u64
                    )),
                }
            }
            memory.put("one/created", None);
        }
    }
}

#[test]
fn each_flipped_bit_of_an_object_is_found() {
    let (memory, repository) = fresh();
    for plain in [&b""[..], b"a page"] {
        repository.create(&name("one/object"), plain).unwrap();
        let stored = memory.get("one/object");
        assert!(plain.is_empty() || !stored.windows(plain.len()).any(|part| part == plain));
        for bit in 0..8 * stored.len() {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            memory.put("one/object", Some(flipped));
            assert!(is_refused(all(&*repository, "one/object")), "bit {bit} of {plain:?}");
        }
        memory.put("one/object", Some(stored));
        assert_eq!(all(&*repository, "one/object").unwrap(), plain);
        memory.put("one/object", None);
    }
}

#[test]
fn an_object_that_was_cut_or_made_longer_is_found_at_every_length() {
    let (memory, repository) = fresh();
    let plain = numbers(300);
    repository.create(&name("one/object"), &plain).unwrap();
    let stored = memory.get("one/object");
    for length in 0..stored.len() {
        memory.put("one/object", Some(stored[..length].to_vec()));
        assert!(is_refused(all(&*repository, "one/object")), "{length}");
        // Who has read it before, and knows how large it was.
        assert!(repository.read(&name("one/object"), 0, 300).is_err());
    }
    memory.put("one/object", Some([&stored[..], b"x"].concat()));
    assert!(is_refused(all(&*repository, "one/object")));

    // At the ends of blocks, where every block that is left is as it was.
    memory.put("one/object", None);
    repository.create(&name("one/object"), &numbers(3 * BLOCK)).unwrap();
    let stored = memory.get("one/object");
    let block = |at: usize| HEADER + at * (BLOCK + TAG);
    for length in [block(1), block(2), block(2) - 1, block(2) + 1, block(2) + TAG, block(2) + TAG + 1] {
        memory.put("one/object", Some(stored[..length].to_vec()));
        assert!(is_refused(all(&*repository, "one/object")), "{length}");
    }
    // Blocks in another order, or twice.
    let swapped =
        [&stored[..block(0)], &stored[block(1)..block(2)], &stored[block(0)..block(1)], &stored[block(2)..]];
    let twice = [&stored[..block(1)], &stored[block(0)..block(1)], &stored[block(2)..]];
    for changed in [swapped.concat(), twice.concat()] {
        memory.put("one/object", Some(changed));
        assert!(is_refused(all(&*repository, "one/object")));
    }
    memory.put("one/object", Some(stored));
    assert!(all(&*repository, "one/object").unwrap() == numbers(3 * BLOCK));
}

#[test]
fn an_object_opens_under_its_own_name_only() {
    let (memory, repository) = fresh();
    repository.create(&name("one/first"), b"same size").unwrap();
    repository.create(&name("one/other"), b"same text").unwrap();
    let (first, other) = (memory.get("one/first"), memory.get("one/other"));
    memory.put("one/first", Some(other.clone()));
    memory.put("one/other", Some(first.clone()));
    assert!(is_refused(all(&*repository, "one/first")) && is_refused(all(&*repository, "one/other")));
    // The header of one and the blocks of the other.
    memory.put("one/first", Some([&first[..HEADER], &other[HEADER..]].concat()));
    assert!(is_refused(all(&*repository, "one/first")));
    memory.put("one/first", Some(first));
    assert_eq!(all(&*repository, "one/first").unwrap(), b"same size");
}

#[test]
fn the_same_bytes_under_the_same_name_are_never_stored_alike() {
    let (memory, repository) = fresh();
    let mut salts = Vec::new();
    for _ in 0..20 {
        repository.create(&name("one/object"), b"the same").unwrap();
        let stored = memory.get("one/object");
        salts.push((stored[32..64].to_vec(), stored[HEADER..].to_vec()));
        memory.put("one/object", None);
    }
    let count = salts.len();
    salts.sort();
    salts.dedup_by(|one, other| one.0 == other.0 || one.1 == other.1);
    assert_eq!(salts.len(), count);
}

#[test]
fn another_key_no_key_and_plain_objects_are_refused_by_name() {
    let (memory, repository) = fresh();
    repository.create(&name("one/object"), b"secret").unwrap();
    memory.put("one/plain", Some(b"{\"plain\": \"and longer than a header and a tag are, so that its size says nothing of it, as it were\"}".to_vec()));
    memory.put("one/short", Some(b"{}".to_vec()));
    let inner: Arc<dyn Repository> = Arc::clone(&memory) as _;
    for keys in [&[2][..], &[2, 3], &[]] {
        let error = all(&*with_keys(&inner, keys), "one/object").unwrap_err();
        let Error::Locked { name, needed, given } = &error else { panic!("{error:?}") };
        assert_eq!((name.as_str(), needed), ("one/object", &KeyId([1; 16])));
        assert_eq!(given, &keys.iter().map(|key| KeyId([*key; 16])).collect::<Vec<_>>());
        let text = error.to_string();
        assert!(text.contains("01010101010101010101010101010101"), "{text}");
        assert_eq!(text.contains("no key was given"), keys.is_empty(), "{text}");
        assert_eq!(text.contains("02020202"), !keys.is_empty(), "{text}");
    }
    // The right id and another key: not what the object says.
    let forged = SealKey::new(KeyId([1; 16]), [9; 32].into());
    assert!(is_refused(all(&*sealed(Arc::clone(&inner), "somewhere", vec![forged]), "one/object")));
    for plain in ["one/plain", "one/short"] {
        let error = all(&*repository, plain).unwrap_err();
        assert!(matches!(&error, Error::NotSealed { name } if name.as_str() == plain), "{error:?}");
        assert!(all(&*with_keys(&inner, &[]), plain).is_ok());
    }
    // Old objects with the old key, while new ones have a new one.
    let both = with_keys(&inner, &[2, 1]);
    both.create(&name("one/new"), b"new").unwrap();
    assert_eq!(all(&*both, "one/object").unwrap(), b"secret");
    assert_eq!(all(&*with_keys(&inner, &[2]), "one/new").unwrap(), b"new");
    assert!(matches!(all(&*repository, "one/new"), Err(Error::Locked { .. })));
}

#[test]
fn an_object_that_was_replaced_is_opened_again() {
    let (memory, repository) = fresh();
    repository.create(&name("one/object"), b"first").unwrap();
    assert_eq!(all(&*repository, "one/object").unwrap(), b"first");
    memory.put("one/object", None);
    let inner: Arc<dyn Repository> = memory as _;
    with_keys(&inner, &[1]).create(&name("one/object"), b"longer than the first").unwrap();
    assert_eq!(all(&*repository, "one/object").unwrap(), b"longer than the first");
    // More objects than are remembered.
    for round in 0..2 {
        for number in 0..150 {
            let object = format!("one/{number}");
            if round == 0 {
                repository.create(&name(&object), object.as_bytes()).unwrap();
            }
            assert_eq!(all(&*repository, &object).unwrap(), object.as_bytes());
        }
    }
}

/// Random operations on an encrypted repository and on a map.
#[test]
fn an_encrypted_repository_does_what_a_map_does() {
    let mut rng = Seed::from_env_or_time().rng();
    let (memory, repository) = fresh();
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for _ in 0..2_000 {
        let object = format!("one/{}", rng.below(6));
        match rng.below(6) {
            0 => {
                let plain = drawn(&mut rng);
                let created = repository.create(&name(&object), &plain).is_ok();
                assert_eq!(created, !model.contains_key(&object));
                model.entry(object).or_insert(plain);
            }
            1 if !model.contains_key(&object) => {
                let plain = drawn(&mut rng);
                let mut writer = repository.writer(&name(&object)).unwrap();
                let mut rest = &plain[..];
                while !rest.is_empty() {
                    let (part, behind) = rest.split_at(1 + rng.below(rest.len()));
                    writer.write_all(part).unwrap();
                    rest = behind;
                }
                if rng.below(4) > 0 {
                    writer.finish().unwrap();
                    model.insert(object, plain);
                }
            }
            2 => {
                repository.remove(&name(&object)).unwrap();
                model.remove(&object);
            }
            3 => {
                let found = repository.list(None, 100).unwrap();
                let found: Vec<_> =
                    found.into_iter().map(|found| (found.name.to_string(), found.bytes)).collect();
                let expected: Vec<_> =
                    model.iter().map(|(name, plain)| (name.clone(), plain.len() as u64)).collect();
                assert_eq!(found, expected);
            }
            _ => {
                let Some(plain) = model.get(&object) else {
                    assert!(matches!(repository.size(&name(&object)), Err(Error::NotFound { .. })));
                    continue;
                };
                assert_eq!(repository.size(&name(&object)).unwrap(), plain.len() as u64);
                let offset = rng.below(plain.len() + 1);
                let bytes = rng.below(plain.len() - offset + 1);
                let read = repository.read(&name(&object), offset as u64, bytes).unwrap();
                assert!(read == plain[offset..offset + bytes], "{bytes} bytes at {offset} of {object}");
            }
        }
    }
    for plain in model.values().filter(|plain| plain.len() >= 32) {
        assert!(!memory.any(|stored| stored.windows(32).any(|part| part == &plain[..32])));
    }
}

fn drawn(rng: &mut Rng) -> Vec<u8> {
    let size = match rng.below(3) {
        0 => rng.below(200),
        1 => (1 + rng.below(3)) * BLOCK + rng.below(3) - 1,
        _ => rng.below(4 * BLOCK),
    };
    let first = rng.bits();
    (0..size as u64).map(|at| (first.wrapping_add(at).wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

/// Files of `formats/backup-sealed`, by the key of the bytes 0 to 31.
fn golden(folder: &str, test: impl Fn(&str, &dyn Repository)) {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/backup-sealed").join(folder);
    let id = 0x0f52_6a8b_f3a3_bd7d_f650_8800_2585_f174_u128.to_be_bytes();
    let mut count = 0;
    for entry in fs::read_dir(checkout).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let memory = Arc::new(Memory::default());
        let object = if folder == "golden" { kind.as_str() } else { "text" };
        memory.put(&format!("one/{object}"), Some(fs::read(&path).unwrap()));
        let key = SealKey::new(KeyId(id), std::array::from_fn(|at| at as u8).into());
        test(&kind, &*sealed(memory, "somewhere", vec![key]));
        count += 1;
    }
    assert!(count >= 3, "{count} files");
}

#[test]
fn golden_objects_open() {
    golden("golden", |kind, repository| {
        let expected = match kind {
            "empty" => Vec::new(),
            "text" => b"a marker that is found nowhere\n".to_vec(),
            "boundary" => numbers(BLOCK + 1),
            other => panic!("{other} is not expected"),
        };
        assert!(all(repository, &format!("one/{kind}")).unwrap() == expected, "{kind}");
    });
}

#[test]
fn golden_errors_are_errors_of_their_kind() {
    golden("golden-errors", |kind, repository| {
        let error = all(repository, "one/text").unwrap_err();
        let found = match error {
            Error::Damaged { .. } => "damaged",
            Error::Locked { .. } => "locked",
            Error::NotSealed { .. } => "not-sealed",
            Error::Unsupported { .. } => "unsupported",
            _ => "another",
        };
        assert!(kind.starts_with(found), "{kind}: {error:?}");
    });
}
