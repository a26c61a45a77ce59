//! Any bytes as the messages of BASE_BACKUP, as options of compression, labels, maps and names of files: no
//! panic; messages are taken in the server's order only; what is accepted comes back from its writer. Byte 0
//! picks what was asked for; the rest is messages, each behind a byte with its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_backup::BackupPath;
use pgshrink_backup::base_backup::{Compression, CompressionAlgorithm, Event, Message, Sequence, Tablespace};
use pgshrink_backup::files::FileKind;
use pgshrink_backup::label::{BackupLabel, parse_tablespace_map, write_tablespace_map};

fuzz_target!(|data: &[u8]| {
    let [pick, rest @ ..] = data else { return };
    messages(*pick, rest);
    if let Ok(label) = BackupLabel::parse(rest) {
        assert_eq!(BackupLabel::parse(&label.write().unwrap()), Ok(label));
    }
    if let Ok(map) = parse_tablespace_map(rest) {
        assert_eq!(parse_tablespace_map(&write_tablespace_map(&map).unwrap()), Ok(map));
    }
    if let Ok(path) = BackupPath::new(rest)
        && let FileKind::Relation(file) = FileKind::of(&path)
    {
        assert!(file.first_block() / 131_072 == file.segment);
    }
    if let Ok(Ok(compression)) = std::str::from_utf8(rest).map(str::parse::<Compression>) {
        assert_eq!(compression.to_string().parse(), Ok(compression));
    }
});

fn messages(pick: u8, mut rest: &[u8]) {
    let compression = CompressionAlgorithm::ALL[usize::from(pick & 3)];
    let manifest = pick & 4 == 4;
    let space = Tablespace { space: Some((16384, b"/a".to_vec())), size_bytes: None };
    let base = Tablespace { space: None, size_bytes: None };
    let mut sequence = Sequence::new(vec![space, base], compression, manifest).unwrap();
    let (mut archives, mut manifests) = (0, 0);
    while let [length, more @ ..] = rest {
        let (content, next) = more.split_at(usize::from(*length).min(more.len()));
        rest = next;
        let decoded = Message::decode(content);
        let Ok(event) = sequence.handle(content) else { return };
        match event {
            Event::ArchiveBegins(index) => {
                assert_eq!((index, manifests), (archives, 0));
                archives += 1;
            }
            Event::ArchiveData(bytes) => {
                assert!(archives > 0 && manifests == 0 && decoded == Ok(Message::Data(bytes)));
            }
            Event::ManifestBegins => {
                assert!(archives == 2 && manifest);
                manifests += 1;
            }
            Event::ManifestData(bytes) => assert!(manifests == 1 && bytes.len() < content.len()),
            Event::Progress(bytes) => assert_eq!(decoded, Ok(Message::Progress(bytes))),
        }
    }
    let whole = archives == 2 && manifests == usize::from(manifest);
    assert_eq!(sequence.finish().is_ok(), whole);
}
