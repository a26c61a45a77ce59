//! Payloads of earlier versions decode for ever. `PAGE_GOLDEN=write` adds those that are missing, and changes
//! none.

use pgshrink_cfs::page::{Mode, PAGE_SIZE, PageCodec, PageDictionary};
use pgshrink_codec::Choice;

use super::{BLOCK, golden_folder, policies, real_pages, there_and_back};

const DICTIONARY: &str = "pages.dictionary";

#[test]
fn golden_payloads_decode() {
    if std::env::var("PAGE_GOLDEN").is_ok_and(|value| value == "write") {
        write_missing();
    }
    let folder = golden_folder();
    let bytes = std::fs::read(folder.join(DICTIONARY)).unwrap();
    let dictionary = PageDictionary::new(bytes, &[]).unwrap();
    let pages = real_pages();
    let mut codec = PageCodec::new();
    let mut modes = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        // <page>.<mode in hexadecimal>
        let Some(mode) = path.extension().and_then(|e| u8::from_str_radix(e.to_str()?, 16).ok()) else {
            continue;
        };
        let name = path.file_stem().unwrap().to_str().unwrap();
        let page = &pages.iter().find(|(page, _)| page == name).unwrap().1;
        let mut back = [0; PAGE_SIZE];
        let payload = std::fs::read(&path).unwrap();
        codec.decode(mode, &payload, Some(BLOCK), Some(&dictionary), &mut back).unwrap();
        assert!(back == *page, "{}", path.display());
        modes.insert(mode);
    }
    // Every algorithm, plain and transformed; zstd and LZ4 with a dictionary too; a checksum left out.
    let wanted = [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 0x12, 0x14, 0x1a, 0x1c, 0x4c, 0x5c];
    assert!(wanted.iter().all(|mode| modes.contains(mode)), "{modes:x?}");
}

/// Writes the payloads of every page by the default, and of some pages in every mode.
fn write_missing() {
    let folder = golden_folder();
    let pages = real_pages();
    let choices: Vec<Choice> = policies().iter().map(|policy| policy.choice).collect();
    let path = folder.join(DICTIONARY);
    if !path.exists() {
        let samples = pages.iter().cycle().take(100).map(|(_, page)| page);
        std::fs::write(&path, PageDictionary::train(samples, 4 << 10).unwrap()).unwrap();
    }
    let dictionary = PageDictionary::new(std::fs::read(&path).unwrap(), &choices).unwrap();
    let mut codec = PageCodec::new();
    for (i, policy) in policies().iter().enumerate() {
        for (name, page) in &pages {
            for dictionary in [None, Some(&dictionary)] {
                let everything = ["btree-hashes", "btree-posting", "heap-checksum", "heap-prices"]
                    .contains(&name.as_str());
                if i != 0 && !everything {
                    continue;
                }
                let (encoded, payload) = there_and_back(&mut codec, page, Some(BLOCK), policy, dictionary);
                let path = folder.join(format!("{name}.{:02x}", encoded.mode.byte()));
                if encoded.mode != Mode::RAW && !path.exists() {
                    std::fs::write(path, payload).unwrap();
                }
            }
        }
    }
}
