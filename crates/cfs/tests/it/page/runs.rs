//! Runs of pages: they come back together, and streams that nobody wrote do no harm.

use pgshrink_cfs::page::{Error, PAGE_SIZE, RunDecoder, RunEncoder, RunStreams};
use pgshrink_testkit::{Rng, Seed};

use super::{BLOCK, Page, real_pages};

/// Streams that outlive their encoder.
#[derive(Clone)]
struct Kept {
    head: Vec<u8>,
    rows: Vec<Vec<u8>>,
    body: Vec<u8>,
    loose: Vec<u8>,
}

impl Kept {
    fn streams(&self) -> RunStreams<'_> {
        let rows = std::array::from_fn(|i| &self.rows[i][..]);
        RunStreams { head: &self.head, rows, body: &self.body, loose: &self.loose }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        [&mut self.head, &mut self.body, &mut self.loose].into_iter().chain(&mut self.rows)
    }
}

fn encode(encoder: &mut RunEncoder, pages: &[Page], first_block: Option<u32>) -> Kept {
    encoder.begin();
    for (page, index) in pages.iter().zip(0..) {
        encoder.push(page, first_block.and_then(|first| first.checked_add(index)));
    }
    let streams = encoder.streams();
    Kept {
        head: streams.head.to_vec(),
        rows: streams.rows.map(<[u8]>::to_vec).to_vec(),
        body: streams.body.to_vec(),
        loose: streams.loose.to_vec(),
    }
}

fn there_and_back(encoder: &mut RunEncoder, pages: &[Page], first_block: Option<u32>) -> Kept {
    let mut kept = encode(encoder, pages, first_block);
    let size: usize = kept.all().map(|stream| stream.len()).sum();
    assert!(size <= pages.len() * RunEncoder::PAGE_BYTES_MAX);
    let mut back = vec![[0x55; PAGE_SIZE]; pages.len()];
    RunDecoder::new().decode(&kept.streams(), first_block, &mut back).unwrap();
    for (index, (page, back)) in pages.iter().zip(&back).enumerate() {
        assert!(page == back, "page {index} of {} came back as another", pages.len());
    }
    kept
}

fn run(rng: &mut Rng, pages: &[(String, Page)], length: usize) -> Vec<Page> {
    let mut run = Vec::new();
    while run.len() < length {
        let (_, page) = rng.pick(pages);
        let mut page = if rng.chance(10) { [0; PAGE_SIZE] } else { *page };
        if rng.chance(30) {
            for _ in 0..rng.between(1, 5) {
                let range = if rng.chance(50) { 400 } else { PAGE_SIZE };
                page[rng.below(range)] ^= 1 << rng.below(8);
            }
        }
        run.extend(std::iter::repeat_n(page, rng.between(1, 3)));
    }
    run.truncate(length);
    run
}

#[test]
fn pages_of_every_kind_come_back_from_one_run() {
    let pages: Vec<Page> = real_pages().into_iter().map(|(_, page)| page).collect();
    let mut encoder = RunEncoder::new();
    for first_block in [None, Some(0), Some(BLOCK), Some(u32::MAX - 3)] {
        let kept = there_and_back(&mut encoder, &pages, first_block);
        assert!(kept.rows.iter().filter(|rows| !rows.is_empty()).count() > 3, "attributes are not apart");
        there_and_back(&mut encoder, &[], first_block);
    }
}

#[test]
fn runs_of_damaged_pages_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    let pages = real_pages();
    let mut encoder = RunEncoder::new();
    for _ in 0..80 {
        let length = rng.between(1, 40);
        let run = run(&mut rng, &pages, length);
        there_and_back(&mut encoder, &run, rng.chance(80).then_some(BLOCK));
    }
}

#[test]
fn noise_comes_back_and_grows_by_three_bytes_a_page() {
    let mut rng = Seed::from_env_or_time().rng();
    let noise: Vec<Page> = (0..20).map(|_| rng.bytes(PAGE_SIZE).try_into().unwrap()).collect();
    let mut kept = there_and_back(&mut RunEncoder::new(), &noise, Some(7));
    let size: usize = kept.all().map(|stream| stream.len()).sum();
    assert!(size <= noise.len() * (PAGE_SIZE + 3), "{size}");
}

#[test]
fn a_checksum_that_verifies_is_left_out_and_needs_its_block() {
    let page = real_pages().into_iter().find(|(name, _)| name == "heap-checksum").unwrap().1;
    let mut encoder = RunEncoder::new();
    let kept = there_and_back(&mut encoder, &[page], Some(BLOCK));
    let elsewhere = there_and_back(&mut encoder, &[page], Some(BLOCK + 1));
    assert_eq!(kept.head.len() + 2, elsewhere.head.len());
    let mut back = [[0; PAGE_SIZE]];
    assert_eq!(RunDecoder::new().decode(&kept.streams(), None, &mut back), Err(Error::BlockMissing));
    RunDecoder::new().decode(&elsewhere.streams(), None, &mut back).unwrap();
    // The second page of a run has the next block's number.
    let kept = there_and_back(&mut encoder, &[[0; PAGE_SIZE], page], Some(BLOCK - 1));
    let mut back = [[0; PAGE_SIZE]; 2];
    let done = RunDecoder::new().decode(&kept.streams(), Some(u32::MAX), &mut back);
    assert_eq!(done, Err(Error::BlockMissing));
}

#[test]
fn streams_of_another_length_are_errors() {
    let pages: Vec<Page> = real_pages().into_iter().map(|(_, page)| page).collect();
    let mut kept = encode(&mut RunEncoder::new(), &pages, Some(BLOCK));
    let count = kept.all().count();
    let mut decoder = RunDecoder::new();
    let mut back = vec![[0; PAGE_SIZE]; pages.len()];
    for stream in 0..count {
        let length = kept.all().nth(stream).unwrap().len();
        for cut in [1, 7, length / 2, length].into_iter().filter(|cut| (1..=length).contains(cut)) {
            let mut short = kept.clone();
            short.all().nth(stream).unwrap().truncate(length - cut);
            let done = decoder.decode(&short.streams(), Some(BLOCK), &mut back);
            assert!(
                matches!(done, Err(Error::Corrupt { .. })),
                "stream {stream}, {cut} bytes less: {done:?}"
            );
        }
        let mut long = kept.clone();
        long.all().nth(stream).unwrap().push(0);
        let done = decoder.decode(&long.streams(), Some(BLOCK), &mut back);
        assert!(matches!(done, Err(Error::Corrupt { .. })), "stream {stream}, a byte more: {done:?}");
    }
    for wrong in [pages.len() - 1, pages.len() + 1] {
        let mut back = vec![[0; PAGE_SIZE]; wrong];
        assert!(decoder.decode(&kept.streams(), Some(BLOCK), &mut back).is_err());
    }
}

#[test]
fn flipped_bits_in_streams_do_not_panic() {
    let mut rng = Seed::from_env_or_time().rng();
    let pages: Vec<Page> = real_pages().into_iter().map(|(_, page)| page).collect();
    let mut kept = encode(&mut RunEncoder::new(), &pages, Some(BLOCK));
    let mut decoder = RunDecoder::new();
    let mut back = vec![[0; PAGE_SIZE]; pages.len()];
    let streams = kept.all().count();
    for _ in 0..3_000 {
        // Mostly heads: they say how everything else is to be read.
        let stream = if rng.chance(70) { 0 } else { rng.below(streams) };
        let bytes = kept.all().nth(stream).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let (at, bit) = (rng.below(bytes.len()), 1 << rng.below(8));
        bytes[at] ^= bit;
        let _ = decoder.decode(&kept.streams(), Some(BLOCK), &mut back);
        kept.all().nth(stream).unwrap()[at] ^= bit;
    }
    decoder.decode(&kept.streams(), Some(BLOCK), &mut back).unwrap();
    assert!(back == pages);
}
