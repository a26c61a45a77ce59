//! Chunk payloads from anywhere: no panic, a chunk of the promised size or an error. The same bytes as a chunk, as they
//! are and on top of real pages: they come back.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use pgshrink_backup::chunk::{CHUNK_BYTES_MAX, ChunkDecoder, ChunkEncoder, Codec, Content, Habit, Level};

const PAGE_SIZE: usize = 8192;
static PAGES: [&[u8; PAGE_SIZE]; 6] = [
    include_bytes!("../../formats/cfs-page/golden/heap-orders-churned.page"),
    include_bytes!("../../formats/cfs-page/golden/heap-prices.page"),
    include_bytes!("../../formats/cfs-page/golden/heap-text.page"),
    include_bytes!("../../formats/cfs-page/golden/btree-posting.page"),
    include_bytes!("../../formats/cfs-page/golden/gin-entries.page"),
    include_bytes!("../../formats/cfs-page/golden/heap-checksum.page"),
];

struct Chunks {
    encoder: ChunkEncoder,
    decoder: ChunkDecoder,
    habit: Habit,
}

thread_local! {
    // What they remember from one input must not matter for the next.
    static CHUNKS: RefCell<Chunks> = RefCell::new(Chunks {
        encoder: ChunkEncoder::new(Level::default()),
        decoder: ChunkDecoder::new(),
        habit: Habit::default(),
    });
}

fuzz_target!(|data: &[u8]| CHUNKS.with_borrow_mut(|chunks| run(chunks, data)));

fn run(chunks: &mut Chunks, data: &[u8]) {
    let [which, count, data @ ..] = data else { return };
    let count = usize::from(count % 6) + 1;
    let content = match which & 3 {
        0 => Content::Plain,
        1 => Content::Pages { first_block: u32::MAX - 1 },
        _ => Content::Pages { first_block: 39 },
    };
    let mut back = Vec::new();
    for raw_len in [0, count * PAGE_SIZE, data.len(), CHUNK_BYTES_MAX] {
        for codec in [Codec::Raw, Codec::Zstd, Codec::Columns] {
            back.clear();
            let done = chunks.decoder.decode(codec, data, content, raw_len, &mut back);
            assert_eq!(back.len(), if done.is_ok() { raw_len } else { 0 });
        }
    }

    // The streams as such: what no entropy coder stands in front of.
    back.clear();
    let payload =
        [&data[..data.len().min(STREAM_LENGTHS)], &raw_frame(&data[data.len().min(STREAM_LENGTHS)..])]
            .concat();
    let _ = chunks.decoder.decode(Codec::Columns, &payload, content, count * PAGE_SIZE, &mut back);

    round_trip(chunks, data, content);
    // Edits: a place and a byte, four bytes each.
    let mut raw: Vec<u8> =
        (0..count).flat_map(|i| *PAGES[(usize::from(which >> 2) + i) % PAGES.len()]).collect();
    for edit in data.as_chunks::<4>().0 {
        let at = u32::from_le_bytes([edit[0], edit[1], edit[2], 0]) as usize % raw.len();
        raw[at] = edit[3];
    }
    round_trip(chunks, &raw, content);
}

/// Bytes of `data` that are taken for a payload's lengths.
const STREAM_LENGTHS: usize = 8;

/// `data` as a frame of zstd that is one raw block (RFC 8878, 3.1.1).
fn raw_frame(data: &[u8]) -> Vec<u8> {
    let header = ((data.len() as u32) << 3 | 1).to_le_bytes();
    [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x58][..], &header[..3], data].concat()
}

fn round_trip(chunks: &mut Chunks, raw: &[u8], content: Content) {
    let (mut payload, mut back) = (Vec::new(), Vec::new());
    let codec = chunks.encoder.encode(raw, content, &mut chunks.habit, &mut payload).unwrap();
    assert!(payload.len() <= raw.len());
    chunks.decoder.decode(codec, &payload, content, raw.len(), &mut back).unwrap();
    assert!(back == raw);
}
