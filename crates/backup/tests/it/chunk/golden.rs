//! Payloads of earlier versions decode for ever. `CHUNK_GOLDEN=write` adds those that are missing, and changes
//! none.

use std::path::PathBuf;

use pgshrink_backup::chunk::{Codec, Content, Habit};

use super::{BLOCK, PAGE_SIZE, decode, encoder, formats, pages, real_pages, there_and_back};

/// Chunks that are made of the golden pages of `cfs-page`, in this order: their pages by name, where `zeros` is
/// a page of zeros, and their content. The pages of "checksum" are at blocks 39 and 40.
const CHUNKS: [(&str, &[&str], Content); 5] = [
    ("kinds", &[], Content::Pages { first_block: 0 }),
    ("checksum", &["zeros", "heap-checksum"], Content::Pages { first_block: BLOCK - 1 }),
    (
        "heap",
        &["heap-prices", "zeros", "heap-text", "heap-prices", "heap-jsonb"],
        Content::Pages { first_block: 7 },
    ),
    ("zeros", &["zeros", "zeros", "zeros", "zeros"], Content::Pages { first_block: 0 }),
    ("plain", &["heap-prices", "btree-leaf"], Content::Plain),
];

/// The chunk's bytes. Of no pages: one of each.
fn raw(names: &[&str]) -> Vec<u8> {
    let real = real_pages();
    if names.is_empty() {
        // Pages that are added later are not part of it.
        const KINDS: &[&str] = &[
            "brin",
            "btree-bulk",
            "btree-hashes",
            "btree-leaf",
            "btree-meta",
            "btree-posting",
            "btree-text",
            "btree-times",
            "fsm",
            "gin-entries",
            "gin-lists",
            "gin",
            "gist-points",
            "gist",
            "hash",
            "heap-checksum",
            "heap-jsonb",
            "heap-nulls",
            "heap-orders-churned",
            "heap-prices",
            "heap-text",
            "sequence",
            "spgist-points",
            "spgist",
            "toast",
            "vm",
        ];
        return raw(KINDS);
    }
    let page = |name: &&str| match *name {
        "zeros" => vec![0; PAGE_SIZE],
        name => real.iter().find(|(real, _)| real == name).unwrap().1.clone(),
    };
    names.iter().flat_map(page).collect()
}

fn folder() -> PathBuf {
    formats().join("backup-chunk/golden")
}

#[test]
fn golden_chunks_decode() {
    if std::env::var("CHUNK_GOLDEN").is_ok_and(|value| value == "write") {
        write_missing();
    }
    let mut met = std::collections::HashSet::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        // <chunk>.<codec>
        let codec = Codec::from_byte(path.extension().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let (_, names, content) = CHUNKS.iter().find(|(chunk, ..)| *chunk == name).unwrap();
        let raw = raw(names);
        let payload = std::fs::read(&path).unwrap();
        assert!(decode(codec, &payload, *content, raw.len()).unwrap() == raw, "{}", path.display());
        met.insert((name.to_string(), codec));
    }
    assert!(met.len() >= CHUNKS.len(), "{met:?}");
    // A checksum that was left out is of its block.
    let payload = std::fs::read(folder().join("checksum.3")).unwrap();
    let raw = raw(CHUNKS[1].1);
    assert!(decode(Codec::Columns, &payload, pages(0), raw.len()).unwrap() != raw);
    let of = |codec: Codec| met.iter().any(|(_, met)| *met == codec);
    assert!(of(Codec::Columns) && of(Codec::Zstd));
}

fn write_missing() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, names, content) in CHUNKS {
        let (codec, payload) = there_and_back(&mut encoder(), &raw(names), content, &mut Habit::default());
        let path = folder().join(format!("{name}.{}", codec.byte()));
        if !path.exists() {
            std::fs::write(path, payload).unwrap();
        }
    }
}
