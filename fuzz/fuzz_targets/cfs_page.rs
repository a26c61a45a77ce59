//! Page payloads from anywhere: no panic, a page or an error. The same bytes as a page, as they are and on top of
//! real pages: they come back from every codec.
#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, PageDictionary, Policy, TransformPolicy};
use pgshrink_codec::{Algorithm, Choice};

static DICTIONARY_BYTES: &[u8] = include_bytes!("../../formats/cfs-page/golden/pages.dictionary");
static PAGES: [&[u8; PAGE_SIZE]; 6] = [
    include_bytes!("../../formats/cfs-page/golden/heap-orders-churned.page"),
    include_bytes!("../../formats/cfs-page/golden/heap-prices.page"),
    include_bytes!("../../formats/cfs-page/golden/heap-jsonb.page"),
    include_bytes!("../../formats/cfs-page/golden/btree-posting.page"),
    include_bytes!("../../formats/cfs-page/golden/btree-leaf.page"),
    include_bytes!("../../formats/cfs-page/golden/spgist.page"),
];
const ALGORITHMS: [Algorithm; 6] =
    [Algorithm::Zstd, Algorithm::Lz4, Algorithm::Zlib, Algorithm::Pglz, Algorithm::Snappy, Algorithm::Lzfse];

static DICTIONARY: LazyLock<PageDictionary> = LazyLock::new(|| {
    let choices = ALGORITHMS.map(Choice::from);
    PageDictionary::new(DICTIONARY_BYTES.to_vec(), &choices).unwrap()
});

thread_local! {
    // What it remembers from one input must not matter for the next.
    static CODEC: RefCell<PageCodec> = RefCell::default();
}

fuzz_target!(|data: &[u8]| CODEC.with_borrow_mut(|codec| run(codec, data)));

fn run(codec: &mut PageCodec, data: &[u8]) {
    let [which, mode, data @ ..] = data else { return };
    let mut page = [0; PAGE_SIZE];
    let _ = codec.decode(*mode, data, Some(3), Some(&DICTIONARY), &mut page);

    // A transformed page as such: what no entropy coder stands in front of.
    let length = (data.len() as u16).to_le_bytes();
    let mut snappy = length.to_vec();
    snappy.extend(literals(data));
    let _ = codec.decode(SNAPPY_TRANSFORMED, &snappy, None, None, &mut page);

    // Edits: a place and a byte, three bytes each.
    let mut page =
        if which & 1 == 0 { *PAGES[usize::from(which >> 1) % PAGES.len()] } else { [0; PAGE_SIZE] };
    for edit in data.chunks_exact(3) {
        page[usize::from(u16::from_le_bytes([edit[0], edit[1]])) % PAGE_SIZE] = edit[2];
    }
    let policy = Policy {
        choice: ALGORITHMS[usize::from(*mode) % ALGORITHMS.len()].into(),
        transform: match which >> 4 & 3 {
            0 => TransformPolicy::Auto,
            1 => TransformPolicy::Off,
            _ => TransformPolicy::Always,
        },
    };
    let dictionary = (which & 0x40 != 0).then(|| &*DICTIONARY);
    let mut payload = Vec::new();
    let encoded = codec.encode(&page, Some(7), &policy, dictionary, &mut payload).unwrap();
    assert!(payload.len() <= PAGE_SIZE);
    let mut back = [0x55; PAGE_SIZE];
    codec.decode(encoded.mode.byte(), &payload, Some(7), dictionary, &mut back).unwrap();
    assert!(back == page);
}

const SNAPPY_TRANSFORMED: u8 = 5 | 8;

/// `data` as a Snappy stream of nothing but literals.
fn literals(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut len = data.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    for chunk in data.chunks(60) {
        out.push(((chunk.len() - 1) << 2) as u8);
        out.extend_from_slice(chunk);
    }
    out
}
