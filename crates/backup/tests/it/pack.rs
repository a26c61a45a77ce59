//! Packs: what was written is read again, and nothing else is.

use pgshrink_backup::BackupPath;
use pgshrink_backup::pack::{
    ATTEMPT_PACKS_MAX, ATTEMPTS_MAX, Area, BackupId, Blake3, CHUNK_BYTES_MAX, CHUNKS_MAX, ChunkFacts, Ending,
    Error, Footer, Full, HEADER_BYTES, PAYLOAD_BYTES_MAX, PackNumber, PackWriter, PackedFile, Permissions,
    Sha256, TRAILER_BYTES, Trailer, check_header,
};
use pgshrink_testkit::{Rng, Seed};

const ID: BackupId = BackupId(*b"sixteen bytes ok");
const NUMBER: PackNumber = PackNumber(7);

/// A whole object, and what should be read from it.
struct Written {
    bytes: Vec<u8>,
    files: Vec<PackedFile>,
    chunks: Vec<(usize, ChunkFacts, Vec<u8>)>,
    footer: Sha256,
}

fn path(text: &str) -> BackupPath {
    BackupPath::new(text.as_bytes()).unwrap()
}

fn data(name: &str) -> PackedFile {
    PackedFile::new(Area::Data, path(name))
}

fn facts(rng: &mut Rng) -> ChunkFacts {
    ChunkFacts {
        offset: rng.below(1 << 40) as u64,
        raw_bytes: rng.between(40, CHUNK_BYTES_MAX as usize) as u32,
        blake3: Blake3(std::array::from_fn(|_| rng.bits() as u8)),
        raw_checksum: rng.bits() as u32,
        codec: rng.bits() as u8,
    }
}

/// A pack of so many chunks of a few files.
fn write(rng: &mut Rng, chunks: usize) -> Written {
    let mut writer = PackWriter::new(ID, NUMBER);
    let mut bytes = writer.header().to_vec();
    let (mut files, mut written): (Vec<PackedFile>, Vec<_>) = (Vec::new(), Vec::new());
    for _ in 0..chunks {
        let area = if rng.below(4) == 0 { Area::Configuration } else { Area::Data };
        let mut file = PackedFile::new(area, path(&format!("base/5/{}", rng.below(6))));
        let permissions = Permissions { is_for_group: rng.below(2) == 0, is_executable: rng.below(2) == 0 };
        file.permissions = (rng.below(3) > 0).then_some(permissions);
        let payload: Vec<u8> = (0..rng.between(1, 40)).map(|_| rng.bits() as u8).collect();
        let facts = facts(rng);
        writer.add(&file, &facts, &payload).unwrap();
        bytes.extend_from_slice(&payload);
        let index = files
            .iter()
            .position(|known| known.area == file.area && known.path == file.path)
            .unwrap_or_else(|| {
                files.push(file);
                files.len() - 1
            });
        written.push((index, facts, payload));
    }
    assert_eq!(writer.bytes() as usize, bytes.len());
    let Ending { bytes: ending, footer } = writer.finish();
    bytes.extend_from_slice(&ending);
    Written { bytes, files, chunks: written, footer }
}

/// Everything that a reader checks before it takes a payload.
fn read(bytes: &[u8]) -> Result<Footer, Error> {
    let cut = Error::Damaged { part: pgshrink_backup::pack::Part::Trailer, what: "cut" };
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(|| cut.clone())?;
    let trailer = bytes.last_chunk::<TRAILER_BYTES>().ok_or(cut)?;
    check_header(header, ID, NUMBER)?;
    let trailer = Trailer::read(trailer, bytes.len() as u64, ID, NUMBER)?;
    let from = trailer.footer_at as usize;
    Footer::read(&bytes[from..from + trailer.footer_bytes as usize], &trailer)
}

#[test]
fn what_was_written_is_read_again() {
    let mut rng = Seed::from_env_or_time().rng();
    for chunks in [0, 1, 2, 50, 3_000] {
        let written = write(&mut rng, chunks);
        let footer = read(&written.bytes).unwrap();
        assert_eq!((&footer.files, footer.sha256), (&written.files, written.footer));
        assert_eq!(footer.chunks.len(), chunks);
        for (chunk, (file, facts, payload)) in footer.chunks.iter().zip(&written.chunks) {
            assert_eq!((chunk.file, &chunk.facts), (*file, facts));
            let at = chunk.at as usize;
            let found = &written.bytes[at..at + chunk.stored_bytes as usize];
            assert!(found == payload && chunk.is_payload(found));
            let mut flipped = found.to_vec();
            flipped[0] ^= 1;
            assert!(!chunk.is_payload(&flipped) && !chunk.is_payload(&found[1..]));
        }
    }
}

#[test]
fn a_file_of_no_bytes_is_named() {
    let mut writer = PackWriter::new(ID, NUMBER);
    assert!(writer.is_empty());
    writer.add_empty(&PackedFile::new(Area::Configuration, path("conf.d/empty.conf"))).unwrap();
    assert!(!writer.is_empty());
    let mut bytes = writer.header().to_vec();
    bytes.extend_from_slice(&writer.finish().bytes);
    let footer = read(&bytes).unwrap();
    assert_eq!(footer.files[0].path.as_bytes(), b"conf.d/empty.conf");
    assert!(footer.chunks.is_empty());
}

#[test]
fn every_flipped_bit_outside_of_payloads_is_found() {
    let mut rng = Seed(3).rng();
    let written = write(&mut rng, 5);
    let payloads =
        HEADER_BYTES..HEADER_BYTES + written.chunks.iter().map(|(_, _, bytes)| bytes.len()).sum::<usize>();
    for at in (0..written.bytes.len()).filter(|at| !payloads.contains(at)) {
        for bit in 0..8 {
            let mut bytes = written.bytes.clone();
            bytes[at] ^= 1 << bit;
            assert!(read(&bytes).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_pack_that_was_cut_or_has_more_bytes_is_refused() {
    let written = write(&mut Seed(4).rng(), 3);
    for length in 0..written.bytes.len() {
        assert!(read(&written.bytes[..length]).is_err(), "{length} bytes");
    }
    let mut longer = written.bytes.clone();
    longer.insert(HEADER_BYTES, 0);
    assert!(read(&longer).is_err());
    // Between footer and trailer, where no checksum covers it.
    let mut longer = written.bytes.clone();
    longer.insert(longer.len() - TRAILER_BYTES, 0);
    assert!(matches!(read(&longer), Err(Error::Damaged { .. })));
}

#[test]
fn a_pack_of_another_backup_or_place_is_refused() {
    let written = write(&mut Seed(5).rng(), 1);
    let header = written.bytes.first_chunk().unwrap();
    let trailer = written.bytes.last_chunk().unwrap();
    let size = written.bytes.len() as u64;
    for (id, number) in [(BackupId([1; 16]), NUMBER), (ID, PackNumber(8))] {
        let error = check_header(header, id, number).unwrap_err();
        assert!(matches!(error, Error::Other { .. }), "{error}");
        let error = Trailer::read(trailer, size, id, number).unwrap_err();
        assert!(matches!(error, Error::Other { .. }), "{error}");
    }
}

/// A pack whose header or trailer was changed by somebody who knows how to make checksums.
fn with_new_checksum(bytes: &mut [u8], start: usize) {
    let checksum = crc32c::crc32c(&bytes[start..start + 60]);
    bytes[start + 60..start + 64].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn newer_versions_and_features_are_unsupported_and_not_damaged() {
    let written = write(&mut Seed(6).rng(), 1);
    let end = written.bytes.len() - TRAILER_BYTES;
    for start in [0, end] {
        for (at, what) in [(8, "version"), (10, "features")] {
            let mut bytes = written.bytes.clone();
            bytes[start + at] += 1;
            with_new_checksum(&mut bytes, start);
            let error = read(&bytes).unwrap_err();
            assert!(matches!(error, Error::Unsupported { what: found, .. } if found == what), "{error}");
        }
        // Of builds before the first release.
        let mut bytes = written.bytes.clone();
        bytes[start + 8] = 1;
        with_new_checksum(&mut bytes, start);
        assert!(matches!(read(&bytes), Err(Error::Unsupported { what: "version", found: 1 })));
        let mut bytes = written.bytes.clone();
        bytes[start + 8] = 0;
        with_new_checksum(&mut bytes, start);
        assert!(matches!(read(&bytes), Err(Error::Damaged { .. })));
        // The last reserved bytes.
        let mut bytes = written.bytes.clone();
        bytes[start + 59] = 1;
        with_new_checksum(&mut bytes, start);
        assert!(matches!(read(&bytes), Err(Error::Damaged { .. })));
    }
}

/// Changes the footer of a pack, and its checksums with it.
fn with_footer(written: &Written, change: impl FnOnce(&mut Vec<u8>)) -> Result<Footer, Error> {
    let size = written.bytes.len();
    let trailer = written.bytes.last_chunk().unwrap();
    let trailer = Trailer::read(trailer, size as u64, ID, NUMBER).unwrap();
    let from = trailer.footer_at as usize;
    let mut footer = written.bytes[from..from + trailer.footer_bytes as usize].to_vec();
    change(&mut footer);
    let mut bytes = written.bytes[..from].to_vec();
    bytes.extend_from_slice(&footer);
    bytes.extend_from_slice(&written.bytes[size - TRAILER_BYTES..]);
    let start = bytes.len() - TRAILER_BYTES;
    bytes[start + 40..start + 44].copy_from_slice(&(footer.len() as u32).to_le_bytes());
    bytes[start + 44..start + 48].copy_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
    with_new_checksum(&mut bytes, start);
    read(&bytes)
}

/// A pack of two chunks of one file `x`: the footer is 4 + 4 + 1 bytes of files, 4 of a count, and chunks of 72 bytes.
fn two_chunks() -> Written {
    let mut rng = Seed(7).rng();
    let mut writer = PackWriter::new(ID, NUMBER);
    let mut bytes = writer.header().to_vec();
    let mut chunks = Vec::new();
    for payload in [b"one", b"two"] {
        let facts = facts(&mut rng);
        writer.add(&data("x"), &facts, payload).unwrap();
        bytes.extend_from_slice(payload);
        chunks.push((0, facts, payload.to_vec()));
    }
    let Ending { bytes: ending, footer } = writer.finish();
    bytes.extend_from_slice(&ending);
    Written { bytes, files: vec![data("x")], chunks, footer }
}

#[test]
fn what_a_footer_says_wrongly_is_named() {
    const CHUNK: usize = 13;
    let written = two_chunks();
    assert!(with_footer(&written, |_| {}).is_ok());
    let set = |at: usize, value: u8| with_footer(&written, move |footer| footer[at] = value);
    for (what, found) in [
        ("more files than there are", set(0, 2)),
        ("a million files", set(2, 16)),
        ("an area that nobody knows", set(4, 3)),
        ("unknown permission bits", set(5, 8 | 1)),
        ("permissions without their mark", set(5, 2)),
        ("a path that is longer than the footer", set(7, 200)),
        ("one chunk instead of two", set(9, 1)),
        ("three chunks instead of two", set(9, 3)),
        ("an offset beyond any file", set(CHUNK + 39, 0x80)),
        ("a file that is not in the list", set(CHUNK + 40, 1)),
        ("a payload elsewhere", set(CHUNK + 44, 65)),
        ("a payload of no bytes", set(CHUNK + 48, 0)),
        ("a payload that is longer", set(CHUNK + 48, 4)),
        ("a last payload that ends before the footer", set(CHUNK + 72 + 48, 2)),
        ("a chunk of 4 GB", set(CHUNK + 55, 0xff)),
        ("reserved bytes of a chunk", set(CHUNK + 71, 1)),
    ] {
        let error = found.expect_err(what);
        let is_named = matches!(error, Error::Damaged { .. } | Error::Chunk { .. } | Error::Path { .. });
        assert!(is_named, "{what}: {error:?}");
    }
    // Chunk 1 has a payload of three bytes.
    let raw_bytes = |bytes: u32| {
        with_footer(&written, |footer| {
            footer[CHUNK + 72 + 52..CHUNK + 72 + 56].copy_from_slice(&bytes.to_le_bytes());
        })
    };
    assert!(raw_bytes(3).is_ok());
    let longer = raw_bytes(2);
    assert!(matches!(longer, Err(Error::Chunk { chunk: 1, what }) if what.contains("longer")), "{longer:?}");
    let error = set(8, b'.').unwrap_err();
    assert!(matches!(error, Error::Path { file: 0, .. }), "{error:?}");
    let twice = with_footer(&written, |footer| {
        footer[0] = 2;
        let file = footer[4..9].to_vec();
        footer.splice(9..9, file);
    });
    assert!(matches!(twice, Err(Error::Damaged { what: "a file is named twice", .. })), "{twice:?}");
    let behind = with_footer(&written, |footer| footer.push(0));
    assert!(behind.is_err());
}

#[test]
fn a_footer_above_the_limit_is_refused_before_it_is_read() {
    let mut bytes = write(&mut Seed(8).rng(), 1).bytes;
    let start = bytes.len() - TRAILER_BYTES;
    bytes[start + 43] = 0x10;
    with_new_checksum(&mut bytes, start);
    let size = bytes.len() as u64;
    let found = Trailer::read(bytes.last_chunk().unwrap(), size, ID, NUMBER);
    assert!(matches!(found, Err(Error::Limit { .. })), "{found:?}");
}

#[test]
fn a_full_pack_takes_no_more_and_stays_as_it_is() {
    let mut rng = Seed(9).rng();
    let facts = facts(&mut rng);
    let payload = vec![0; PAYLOAD_BYTES_MAX as usize / 4];
    let mut writer = PackWriter::new(ID, NUMBER);
    for _ in 0..3 {
        writer.add(&data("a"), &facts, &payload).unwrap();
    }
    let before = writer.bytes();
    let longer = vec![0; payload.len() + 1];
    assert_eq!(writer.add(&data("b"), &facts, &longer), Err(Full));
    assert_eq!(writer.bytes(), before);
    writer.add(&data("b"), &facts, &payload).unwrap();
    assert_eq!(writer.add(&data("b"), &facts, b"x"), Err(Full));

    // As many chunks as a reader takes.
    let mut writer = PackWriter::new(ID, NUMBER);
    let taken = (0..).take_while(|_| writer.add(&data("a"), &facts, b"x").is_ok()).count();
    assert_eq!(taken, CHUNKS_MAX);
    let mut bytes = [&writer.header()[..], &[b'x'; CHUNKS_MAX]].concat();
    bytes.extend_from_slice(&writer.finish().bytes);
    assert_eq!(read(&bytes).unwrap().chunks.len(), CHUNKS_MAX);

    // Paths that fill the footer.
    let mut writer = PackWriter::new(ID, NUMBER);
    let long = |number: usize| data(&format!("{}/{number:08}", "x".repeat(1_000)));
    let taken = (0..).take_while(|&number| writer.add_empty(&long(number)).is_ok()).count();
    assert!((16_000..17_000).contains(&taken), "{taken}");
    let mut bytes = writer.header().to_vec();
    bytes.extend_from_slice(&writer.finish().bytes);
    assert_eq!(read(&bytes).unwrap().files.len(), taken);
}

#[test]
fn random_bytes_as_a_footer_are_an_error_or_a_footer() {
    let mut rng = Seed::from_env_or_time().rng();
    let written = two_chunks();
    for _ in 0..20_000 {
        let _ = with_footer(&written, |footer| {
            for _ in 0..rng.between(1, 4) {
                let at = rng.below(footer.len());
                footer[at] = rng.bits() as u8;
            }
            if rng.below(3) == 0 {
                let cut = rng.below(footer.len());
                footer.truncate(cut.max(8));
            }
        });
    }
}

#[test]
fn numbers_of_packs_are_names_and_those_of_attempts_differ() {
    let first = PackNumber::new(0, 0).unwrap();
    assert_eq!((first, first.object_name().as_str()), (PackNumber(1), "packs/00000001.pack"));
    let resumed = PackNumber::new(1, 0).unwrap();
    assert_eq!(resumed.object_name(), "packs/00100001.pack");
    let last = PackNumber::new(ATTEMPTS_MAX - 1, ATTEMPT_PACKS_MAX - 1).unwrap();
    assert_eq!(last.object_name(), "packs/ffffffff.pack");
    for number in [first, resumed, last] {
        assert_eq!(PackNumber::of_object_name(&number.object_name()), Some(number));
    }
    assert_eq!(PackNumber::new(0, ATTEMPT_PACKS_MAX), None);
    assert_eq!(PackNumber::new(ATTEMPTS_MAX, 0), None);
    for name in [
        "packs/1.pack",
        "packs/0000000A.pack",
        "packs/+0000001.pack",
        "packs/00000000.pack",
        "packs/00100000.pack",
        "00000001.pack",
    ] {
        assert_eq!(PackNumber::of_object_name(name), None, "{name}");
    }
}
