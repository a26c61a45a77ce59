//! Manifests without a server: every split, random ones, damaged ones, hostile ones.

use pgshrink_backup::checksum::Hasher;
use pgshrink_backup::manifest::{
    FileEntry, Finished, Item, PathEncoding, Reader, STRING_BYTES_MAX, SystemIdentifier, WalRange, Writer,
};
use pgshrink_backup::{BackupPath, Checksum, ChecksumAlgorithm, Error, Lsn, ServerTime, Timeline};
use pgshrink_testkit::{Rng, Seed};

/// Reads a whole manifest that comes in these pieces.
pub fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<(Vec<Item>, Finished), Error> {
    let (mut reader, mut items) = (Reader::new(), Vec::new());
    for mut piece in pieces {
        while let Some(item) = reader.next(&mut piece)? {
            items.push(item);
        }
        assert!(piece.is_empty());
    }
    Ok((items, reader.finish()?))
}

fn read_whole(bytes: &[u8]) -> Result<(Vec<Item>, Finished), Error> {
    read(std::iter::once(bytes))
}

/// With the right checksum behind these lines.
fn with_checksum(lines: &str) -> Vec<u8> {
    let mut hasher = Hasher::new(ChecksumAlgorithm::Sha256);
    hasher.update(lines.as_bytes());
    format!("{lines}\"Manifest-Checksum\": \"{}\"}}\n", hasher.finish()).into_bytes()
}

/// A manifest of version 1 with these elements of `Files` and `WAL-Ranges`.
fn of(files: &str, ranges: &str) -> Vec<u8> {
    with_checksum(&format!(
        "{{ \"PostgreSQL-Backup-Manifest-Version\": 1,\n\"Files\": [{files}],\n\"WAL-Ranges\": [{ranges}],\n"
    ))
}

/// What PostgreSQL 18 writes for a backup with two files; the time and the sizes are made up.
const SMALL: &str = concat!(
    "{ \"PostgreSQL-Backup-Manifest-Version\": 2,\n",
    "\"System-Identifier\": 7512345678901234567,\n",
    "\"Files\": [\n",
    "{ \"Path\": \"backup_label\", \"Size\": 227, \"Last-Modified\": \"2026-11-25 14:39:20 GMT\", ",
    "\"Checksum-Algorithm\": \"CRC32C\", \"Checksum\": \"1c291ca3\" },\n",
    "{ \"Encoded-Path\": \"636166e9\", \"Size\": 0, \"Last-Modified\": \"1970-01-01 00:00:00 GMT\" }\n",
    "],\n",
    "\"WAL-Ranges\": [\n",
    "{ \"Timeline\": 2, \"Start-LSN\": \"0/3000000\", \"End-LSN\": \"0/3000120\" },\n",
    "{ \"Timeline\": 1, \"Start-LSN\": \"0/2000028\", \"End-LSN\": \"0/3000000\" }\n",
    "],\n",
);

fn small_items() -> Vec<Item> {
    let lsn = |text: &str| text.parse::<Lsn>().unwrap();
    let range = |timeline, start, end| {
        let timeline = Timeline::new(timeline).unwrap();
        Item::WalRange(WalRange { timeline, start: lsn(start), end: lsn(end) })
    };
    vec![
        Item::File(FileEntry {
            path: BackupPath::new(b"backup_label").unwrap(),
            size: 227,
            last_modified: Some("2026-11-25 14:39:20 GMT".parse().unwrap()),
            checksum: Checksum::from_hex(ChecksumAlgorithm::Crc32c, b"1c291ca3").unwrap(),
        }),
        Item::File(FileEntry {
            path: BackupPath::new(b"caf\xe9").unwrap(),
            size: 0,
            last_modified: Some(ServerTime::from_unix_seconds(0).unwrap()),
            checksum: Checksum::NONE,
        }),
        range(2, "0/3000000", "0/3000120"),
        range(1, "0/2000028", "0/3000000"),
    ]
}

pub fn write(system: Option<SystemIdentifier>, encoding: PathEncoding, items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(system, encoding, &mut bytes);
    let mut ranges = Vec::new();
    for item in items {
        match item {
            Item::File(entry) => writer.file(entry, &mut bytes),
            Item::WalRange(range) => ranges.push(*range),
        }
    }
    writer.end(&ranges, &mut bytes);
    bytes
}

#[test]
fn a_manifest_is_read_whatever_pieces_it_comes_in() {
    let bytes = with_checksum(SMALL);
    for cut in 0..=bytes.len() {
        let (items, finished) = read([&bytes[..cut], &bytes[cut..]].into_iter()).unwrap();
        assert_eq!(items, small_items());
        let system = Some(SystemIdentifier(7_512_345_678_901_234_567));
        assert_eq!((finished.version, finished.system, finished.files), (2, system, 2));
    }
    for size in 1..40 {
        assert_eq!(read(bytes.chunks(size)).unwrap().0, small_items());
    }
}

#[test]
fn a_manifest_is_written_as_the_server_writes_it() {
    let system = Some(SystemIdentifier(7_512_345_678_901_234_567));
    assert_eq!(write(system, PathEncoding::AsNeeded, &small_items()), with_checksum(SMALL));
}

#[test]
fn a_manifest_that_is_cut_off_anywhere_is_refused() {
    let bytes = with_checksum(SMALL);
    for length in 0..bytes.len() {
        assert!(read_whole(&bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let bytes = with_checksum(SMALL);
    let good = read_whole(&bytes).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            match read_whole(&damaged) {
                Err(_) => {}
                // Digits of the last line's checksum may become upper case.
                Ok(read) => {
                    assert!(read == good && damaged.eq_ignore_ascii_case(&bytes), "byte {at}, bit {bit}")
                }
            }
        }
    }
}

#[test]
fn any_order_of_fields_and_any_white_space_are_read() {
    let lines = "\t{\"PostgreSQL-Backup-Manifest-Version\":\r\n\"1\" , \"WAL-Ranges\":[ { \"End-LSN\":\"0/2\",\"Timeline\":\"7\"\n\
                 ,\"Start-LSN\":\"0/1\"}],\"Files\":[ {\"Checksum\":\"\",\"Size\":\"3\",\"Path\":\"a\\u00e9\\/\\\"\\ud83d\\ude00\"} ]\n,\n";
    let (items, finished) = read_whole(&with_checksum(lines)).unwrap();
    let Item::File(file) = &items[1] else { panic!("{items:?}") };
    assert_eq!((file.path.as_str(), file.size, file.last_modified), (Some("aé/\"\u{1f600}"), 3, None));
    assert_eq!((finished.version, finished.system, items.len()), (1, None, 2));
}

#[test]
fn random_manifests_come_back() {
    let mut rng = Seed::from_env_or_time().rng();
    for _ in 0..200 {
        let system = rng.chance(50).then(|| SystemIdentifier(rng.bits()));
        let encoding = *rng.pick(&[PathEncoding::AsNeeded, PathEncoding::Always]);
        let mut items: Vec<Item> = (0..rng.below(20)).map(|_| Item::File(random_file(&mut rng))).collect();
        for _ in 0..rng.below(4) {
            let (start, bytes) = (Lsn(rng.bits() >> 1), rng.bits() >> 40);
            let timeline = Timeline::new(rng.bits() as u32 | 1).unwrap();
            items.push(Item::WalRange(WalRange { timeline, start, end: start.checked_add(bytes).unwrap() }));
        }
        let bytes = write(system, encoding, &items);
        let (back, finished) = read(bytes.chunks(rng.between(1, 100))).unwrap();
        assert_eq!((&back, finished.system), (&items, system));
        assert_eq!(write(system, encoding, &back), bytes);
    }
}

fn random_file(rng: &mut Rng) -> FileEntry {
    let path = loop {
        let length = rng.between(1, 40);
        let mut path = rng.bytes(length);
        if rng.chance(70) {
            path.iter_mut()
                .for_each(|byte| *byte = b"abc/\"\\\n\r\t\x01\x1f\x7f\x08\x0c "[usize::from(*byte) % 15]);
        }
        if let Ok(path) = BackupPath::new(&path) {
            break path;
        }
    };
    let algorithm = *rng.pick(&ChecksumAlgorithm::ALL);
    let checksum = Checksum::new(algorithm, &rng.bytes(algorithm.size_bytes())).unwrap();
    let seconds = ServerTime::MIN.unix_seconds() + (rng.bits() >> 26) as i64;
    let last_modified = rng.chance(90).then(|| ServerTime::from_unix_seconds(seconds).unwrap());
    FileEntry { path, size: rng.bits() >> rng.below(64), last_modified, checksum }
}

/// The place and the text of a refusal.
fn refusal(manifest: &[u8]) -> (u64, String) {
    match read_whole(manifest) {
        Err(Error::Manifest { line, expected, found, .. }) => (line, format!("{expected}; {found}")),
        Err(other) => (0, other.to_string()),
        Ok(read) => panic!("accepted: {read:?}"),
    }
}

#[test]
fn what_is_wrong_with_an_element_is_named_with_its_line() {
    let file = |fields: &str| refusal(&of(&format!("\n{{ {fields} }}"), ""));
    let cases = [
        ("\"Size\": 1", "one of the fields Path and Encoded-Path; the end of the element"),
        (
            "\"Path\": \"a\", \"Encoded-Path\": \"61\", \"Size\": 1",
            "one of the fields Path and Encoded-Path; \"a\"",
        ),
        ("\"Path\": \"a\"", "the field Size; the end of the element"),
        ("\"Encoded-Path\": \"616\", \"Size\": 1", "a path in pairs of hexadecimal digits; \"616\""),
        ("\"Path\": \"a\", \"Size\": -1", "a size in bytes; \"-1\""),
        ("\"Path\": \"a\", \"Size\": 1.5", "a size in bytes; \"1.5\""),
        ("\"Path\": \"a\", \"Size\": true", "a size in bytes; \"true\""),
        ("\"Path\": \"a\", \"Size\": 18446744073709551616", "a size in bytes; \"18446744073709551616\""),
        ("\"Path\": \"a\", \"Size\": 1, \"Last-Modified\": \"now\"", "YYYY-MM-DD HH:MM:SS GMT; \"now\""),
        ("\"Path\": \"a\", \"Size\": 1, \"Checksum\": \"00\"", "the algorithm's size; \"1 bytes for NONE\""),
        (
            "\"Path\": \"a\", \"Size\": 1, \"Checksum-Algorithm\": \"MD5\"",
            "NONE, CRC32C, SHA224, SHA256, SHA384 or SHA512; \"MD5\"",
        ),
        (
            "\"Path\": \"a\", \"Size\": 1, \"Checksum-Algorithm\": \"CRC32C\"",
            "the algorithm's size; \"0 bytes for CRC32C\"",
        ),
        ("\"Path\": [\"a\"]", "a string or a number; \"[\""),
        ("\"Path\": {}", "a string or a number; \"{\""),
        ("\"Path\" \"a\"", "`:`; the string \"a\""),
        ("\"Path\": \"a\" \"Size\"", "`,` or `}`; the string \"Size\""),
        ("\"Path\": \"a\",", "the name of a field; \"}\""),
        ("\"Path\": \"\\ud800x\"", "a backslash that begins the second half of a surrogate pair; \"x\""),
        ("\"Path\": \"\\udc00\"", "a character; code 0xdc00"),
        ("\"Path\": \"\\u0000\"", "a character; code 0x0000"),
        ("\"Path\": \"\\x\"", "one of \"\\/bfnrtu; \"x\""),
    ];
    for (fields, expected) in cases {
        assert_eq!(file(fields), (3, expected.to_owned()), "{fields}");
    }
    for (fields, name) in [("\"Path\": \"a\", \"Path\": \"b\"", "Path"), ("\"path\": \"a\"", "path")] {
        assert!(file(fields).1.ends_with(&format!(", once; \"{name}\"")), "{fields}");
    }
    assert_eq!(
        refusal(&of("", "{ \"Timeline\": 0, \"Start-LSN\": \"0/2\", \"End-LSN\": \"0/3\" }")),
        (3, "a number from 1 to 4294967295; \"0\"".to_owned())
    );
    assert_eq!(
        refusal(&of("", "{ \"Timeline\": 1, \"Start-LSN\": \"0/4\", \"End-LSN\": \"0/3\" }")),
        (3, "an End-LSN not before Start-LSN; 0/4 to 0/3".to_owned())
    );
}

#[test]
fn paths_out_of_the_backup_are_refused_in_both_spellings() {
    for path in ["/etc/passwd", "../x", "base/../../x", "a//b", "./a", "", "a/"] {
        let digits: String = path.bytes().map(|byte| format!("{byte:02x}")).collect();
        for field in [format!("\"Path\": \"{path}\""), format!("\"Encoded-Path\": \"{digits}\"")] {
            let read = read_whole(&of(&format!("{{ {field}, \"Size\": 1 }}"), ""));
            assert!(matches!(read, Err(Error::UnsafePath { .. })), "{field}: {read:?}");
        }
    }
    let read = read_whole(&of("{ \"Encoded-Path\": \"610062\", \"Size\": 1 }", ""));
    assert!(matches!(read, Err(Error::UnsafePath { .. })));
}

#[test]
fn what_is_wrong_with_the_whole_is_named() {
    let version = "{ \"PostgreSQL-Backup-Manifest-Version\": ";
    let cases: [(Vec<u8>, &str); 9] = [
        (b"[]".to_vec(), "`{`; \"[\""),
        (b"{}".to_vec(), "the name of a field; \"}\""),
        (b"{ \"Files\": [] }".to_vec(), "the field PostgreSQL-Backup-Manifest-Version; \"Files\""),
        (format!("{version}1, \"Files\": 1 }}").into(), "a list; \"1\""),
        (format!("{version}1 }}").into(), "`,` and the field Manifest-Checksum at the end; \"}\""),
        (format!("{version}1,\n\"Manifest-Checksum\": \"00\"}}\n").into(), "64 hexadecimal digits; \"00\""),
        ([&with_checksum(&format!("{version}1,\n"))[..], b"{"].concat(), "nothing more; \"{\""),
        (
            with_checksum(&format!("{version}1,")),
            "at least two lines, the last one ended by a newline; the end",
        ),
        (
            with_checksum(&format!("{version}1,\n")).trim_ascii_end().to_vec(),
            "at least two lines, the last one ended by a newline; the end",
        ),
    ];
    for (manifest, expected) in cases {
        assert_eq!(refusal(&manifest).1, expected, "{}", String::from_utf8_lossy(&manifest));
    }
    let unknown = read_whole(format!("{version}3,").as_bytes());
    assert!(matches!(&unknown, Err(Error::Unsupported { found, .. }) if found == "3"), "{unknown:?}");
    let twice = with_checksum(&format!("{version}1,\n\"Files\": [], \"Files\": [],\n"));
    assert!(refusal(&twice).1.ends_with(", once; \"Files\""));
}

#[test]
fn a_path_that_is_not_utf8_has_to_be_encoded() {
    let mut manifest = of("{ \"Path\": \"caf!\", \"Size\": 1 }", "");
    let at = manifest.iter().position(|byte| *byte == b'!').unwrap();
    manifest[at] = 0xe9;
    assert_eq!(refusal(&manifest), (2, "UTF-8; \"caf\\xe9\"".to_owned()));
}

#[test]
fn a_changed_size_is_found_by_the_checksum_of_the_whole() {
    let changed = String::from_utf8(with_checksum(SMALL)).unwrap().replace("\"Size\": 227", "\"Size\": 228");
    assert!(matches!(read_whole(changed.as_bytes()), Err(Error::ManifestChecksum { .. })));
}

#[test]
fn hostile_lengths_and_depths_end_before_they_take_memory() {
    let long = "x".repeat(STRING_BYTES_MAX + 1);
    let (_, why) = refusal(&of(&format!("{{ \"Path\": \"{long}\""), ""));
    assert_eq!(why, "a string of at most 2048 bytes; a string of more than 2048 bytes");
    let (_, why) = refusal(&of(&format!("{{ \"Path\": \"a\", \"Size\": {}", "1".repeat(33)), ""));
    assert_eq!(why, "a number; a number of more than 32 bytes");
    let (_, why) = refusal(&of(&"[".repeat(1 << 20), ""));
    assert_eq!(why, "`{` or `]`; \"[\"");
    // A string without an end, in many pieces.
    let mut reader = Reader::new();
    let mut start = &b"{ \"PostgreSQL-Backup-Manifest-Version\": \""[..];
    assert_eq!(reader.next(&mut start), Ok(None));
    let refused = (0..1000).find_map(|_| reader.next(&mut &[b'9'; 100][..]).err());
    assert!(matches!(refused, Some(Error::Manifest { .. })));
}

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let held = pgshrink_testkit::allocations::held_bytes;
    let before = held();
    let mut reader = Reader::new();
    let mut start = &b"{ \"PostgreSQL-Backup-Manifest-Version\": 1, \"Files\": ["[..];
    assert_eq!(reader.next(&mut start), Ok(None));
    let mut read = 0;
    for number in 0..20_000 {
        let comma = if number == 0 { "" } else { "," };
        let entry = format!("{comma}\n{{ \"Path\": \"base/5/{number}\", \"Size\": {number} }}");
        let mut piece = entry.as_bytes();
        while let Some(item) = reader.next(&mut piece).unwrap() {
            assert!(matches!(item, Item::File(file) if file.size == number));
            read += 1;
        }
        drop(entry);
        assert!(held() - before < 4096, "{} bytes held after {read} files", held() - before);
    }
    assert_eq!(read, 20_000);
}
