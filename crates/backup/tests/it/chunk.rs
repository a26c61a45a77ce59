//! Chunks: they come back, and payloads that nobody encoded do no harm.

mod damage;
mod golden;
mod inverse;

use pgshrink_backup::chunk::{ChunkDecoder, ChunkEncoder, ChunkError, Codec, Content, Habit, Level};
use pgshrink_testkit::Rng;

const PAGE_SIZE: usize = 8192;

/// The block that `heap-checksum.page` was at.
const BLOCK: u32 = 40;

/// Real pages by name, in the order of their names, one of each kind at least, made by PostgreSQL 15.
fn real_pages() -> Vec<(String, Vec<u8>)> {
    let folder = formats().join("cfs-page/golden");
    let mut pages: Vec<(String, Vec<u8>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "page"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_string(), std::fs::read(path).unwrap()))
        .collect();
    pages.sort();
    assert!(pages.len() >= 20);
    pages
}

fn formats() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats")
}

/// A page that is `rows` by a schema of two integers and two texts, as a table that was loaded has them.
fn heap_page(block: usize, rng: &mut Rng) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    let (mut lower, mut upper) = (24, PAGE_SIZE);
    for row in 0.. {
        let mut tuple = vec![0; 24];
        tuple[0] = 77;
        tuple[12..16].copy_from_slice(&(block as u32).rotate_left(16).to_le_bytes());
        tuple[16..18].copy_from_slice(&(row as u16 + 1).to_le_bytes());
        tuple[18] = 4;
        tuple[20..22].copy_from_slice(&0x0902u16.to_le_bytes());
        tuple[22] = 24;
        tuple.extend_from_slice(&(block as u32 * 100 + row).to_le_bytes());
        tuple.extend_from_slice(&(rng.below(1000) as u32).to_le_bytes());
        for text in [rng.bytes(6).iter().map(|byte| b'0' + byte % 10).collect(), rng.text(20)] {
            tuple.push((text.len() as u8 + 1) << 1 | 1);
            tuple.extend_from_slice(&text);
        }
        let (len, place) = (tuple.len(), upper - tuple.len().next_multiple_of(8));
        if lower + 4 > place {
            break;
        }
        page[place..place + len].copy_from_slice(&tuple);
        let pointer = place as u32 | 1 << 15 | (len as u32) << 17;
        page[lower..lower + 4].copy_from_slice(&pointer.to_le_bytes());
        (lower, upper) = (lower + 4, place);
    }
    page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    page[16..18].copy_from_slice(&(PAGE_SIZE as u16).to_le_bytes());
    page[18..20].copy_from_slice(&(PAGE_SIZE as u16 | 4).to_le_bytes());
    page
}

fn heap(pages: usize, rng: &mut Rng) -> Vec<u8> {
    (0..pages).flat_map(|block| heap_page(block, rng)).collect()
}

fn pages(first_block: u32) -> Content {
    Content::Pages { first_block }
}

/// Encodes, decodes by another context, and compares. Both find something in the vectors that must stay.
fn there_and_back(
    encoder: &mut ChunkEncoder,
    raw: &[u8],
    content: Content,
    habit: &mut Habit,
) -> (Codec, Vec<u8>) {
    let mut out = b"earlier".to_vec();
    let codec = encoder.encode(raw, content, habit, &mut out).unwrap();
    let payload = out.split_off(7);
    assert_eq!(out, b"earlier");
    assert!(payload.len() <= raw.len());
    assert!(decode(codec, &payload, content, raw.len()).unwrap() == raw, "{codec:?} of {}", raw.len());
    (codec, payload)
}

fn decode(codec: Codec, payload: &[u8], content: Content, raw_len: usize) -> Result<Vec<u8>, ChunkError> {
    let mut out = b"earlier".to_vec();
    let done = ChunkDecoder::new().decode(codec, payload, content, raw_len, &mut out);
    assert_eq!(&out[..7], b"earlier");
    assert!(done.is_ok() || out.len() == 7, "bytes left behind by an error");
    done.map(|()| out.split_off(7))
}

fn encoder() -> ChunkEncoder {
    ChunkEncoder::new(Level::default())
}
