//! What Miri can run of the crate (`tools/miri`): no C, no kernel; small, as it is slow there. A container's
//! life in one thread, every rearranged page by codecs written in Rust, decoders over damaged bytes.

use pgshrink_cfs::page::{PAGE_SIZE, PageCodec, Policy, TransformPolicy};
use pgshrink_cfs::{Budget, segment};
use pgshrink_codec::Algorithm;
use pgshrink_testkit::seed::Seed;

use crate::fixture::{Bench, content, read, write};

fn golden(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats");
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn pure_pages_are_rearranged_and_come_back() {
    let (mut codec, mut back) = (PageCodec::new(), [0; PAGE_SIZE]);
    for name in ["heap-orders-churned", "heap-nulls", "btree-posting", "brin", "spgist", "toast"] {
        let page: [u8; PAGE_SIZE] = golden(&format!("cfs-page/golden/{name}.page")).try_into().unwrap();
        for algorithm in [Algorithm::Snappy, Algorithm::Pglz] {
            let how = Policy { choice: algorithm.into(), transform: TransformPolicy::Auto };
            let mut payload = Vec::new();
            let encoded = codec.encode(&page, Some(40), &how, None, &mut payload).unwrap();
            codec.decode(encoded.mode.byte(), &payload, Some(40), None, &mut back).unwrap();
            assert!(back == page, "{name}");
            // Cut and flipped: an error or a page.
            for end in [0, 1, 2, 3, payload.len() / 2] {
                let _ = codec.decode(encoded.mode.byte(), &payload[..end], Some(40), None, &mut back);
            }
            for at in [2, 3, 5, 9, payload.len() / 3] {
                payload[at] ^= 0x41;
                let _ = codec.decode(encoded.mode.byte(), &payload, Some(40), None, &mut back);
            }
        }
    }
}

#[test]
fn pure_container_is_written_committed_collected_cut_and_opened_again() {
    let bench = Bench::small();
    let container = bench.create(1);
    for generation in 0..4 {
        (0..24).for_each(|block| write(&container, block, generation));
        container.commit().unwrap();
    }
    let number = container.add_dictionary([1; 16], b"content").unwrap();
    container.collect(Budget { bytes: 1 << 20, garbage_percent: 0 }).unwrap();
    container.truncate(20).unwrap();
    container.write_zeros(3).unwrap();
    assert!(container.drop_dictionary(number).unwrap());
    container.close().unwrap();
    let (container, _) = bench.open().unwrap();
    for block in 0..20 {
        let expected = if block == 3 { Vec::new() } else { content(block, 3) };
        assert_eq!(read(&container, block).unwrap(), expected);
    }
    let (salvaged, report) = bench.salvage().unwrap();
    assert!(report.map_is_whole && salvaged.pages() == 20);
    let file = pgshrink_cfs::Folder::open(&bench.disk, segment::FILE_NAME).unwrap();
    assert_eq!(segment::peek_pages(&file), 20);
}

#[test]
fn pure_decoders_take_damaged_bytes() {
    let whole = golden("cfs/golden/leaves.cfs");
    let mut rng = Seed(7).rng();
    for _ in 0..if cfg!(miri) { 60 } else { 2000 } {
        let from = rng.below(whole.len() / 16) * 16;
        let mut bytes = whole[from..(from + rng.below(700)).min(whole.len())].to_vec();
        for _ in 0..rng.below(3) {
            if let Some(byte) = bytes.get_mut(rng.below(700)) {
                *byte ^= 1 << rng.below(8);
            }
        }
        pgshrink_cfs::decoders::all(&bytes);
        pgshrink_cfs::decoders::all(bytes.get(16..).unwrap_or_default());
    }
}
