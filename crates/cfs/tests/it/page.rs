//! The page codec: every page comes back, and nothing else does harm.

mod damage;
mod estimates;
mod golden;
mod indexes;
mod inverse;
mod runs;
mod schemas;

use pgshrink_cfs::page::{Encoded, PAGE_SIZE, PageCodec, PageDictionary, Policy, TransformPolicy};
use pgshrink_codec::{Algorithm, Choice};

pub(super) type Page = [u8; PAGE_SIZE];

/// The block that `heap-checksum.page` was at.
pub(super) const BLOCK: u32 = 40;

/// Real pages by name, one of each kind at least, made by PostgreSQL 15.
pub(super) fn real_pages() -> Vec<(String, Page)> {
    let folder = golden_folder();
    let mut pages: Vec<(String, Page)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "page"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_string();
            (name, std::fs::read(&path).unwrap().try_into().unwrap())
        })
        .collect();
    pages.sort();
    assert!(pages.len() >= 20);
    pages
}

pub(super) fn golden_folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/cfs-page/golden")
}

/// Every algorithm at a low and a high level, plain and transformed.
pub(super) fn policies() -> Vec<Policy> {
    let choices = [
        (Algorithm::Zstd, 1),
        (Algorithm::Zstd, -5),
        (Algorithm::Zstd, 9),
        (Algorithm::Lz4, 1),
        (Algorithm::Lz4, 20),
        (Algorithm::Zlib, 6),
        (Algorithm::Pglz, 0),
        (Algorithm::Snappy, 0),
        (Algorithm::Lzfse, 0),
        (Algorithm::None, 0),
    ];
    let choices = choices.map(|(algorithm, level)| Choice::new(algorithm, level).unwrap());
    let with = |transform| choices.map(|choice| Policy { choice, transform });
    [TransformPolicy::Always, TransformPolicy::Auto, TransformPolicy::Off].map(with).concat()
}

/// Encodes, decodes by another codec, and compares.
pub(super) fn there_and_back(
    codec: &mut PageCodec,
    page: &Page,
    block: Option<u32>,
    policy: &Policy,
    dictionary: Option<&PageDictionary>,
) -> (Encoded, Vec<u8>) {
    let mut out = vec![1, 2, 3];
    let encoded = codec.encode(page, block, policy, dictionary, &mut out).unwrap();
    assert_eq!(out[..3], [1, 2, 3], "something before was changed");
    let payload = out.split_off(3);
    assert!(payload.len() <= PAGE_SIZE);
    let mut back = [0x55; PAGE_SIZE];
    codec.decode(encoded.mode.byte(), &payload, block, dictionary, &mut back).unwrap();
    assert!(back == *page, "another page came back from {:?} by {policy:?}", encoded.mode);
    (encoded, payload)
}
