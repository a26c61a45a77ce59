//! Real sessions of the restart dialect (a patched psql and a patched server), recorded by a relay.
//!
//! Record: big-endian {u8 direction, u32 connection, f64 seconds, u32 length}, then the bytes.

use std::collections::BTreeMap;

use pgshrink_codec::AlgorithmList;
use pgshrink_wire::capture::{Finding, Reader, Unreadable, Way, record_header};
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::startup::{First, parse_first};
use pgshrink_wire::{Agreed, Dialect, Link, LinkConfig, MemoryBudget, Offer, Role, message};

use crate::pair::{list, receive};

const TO_SERVER: u8 = 0;

/// Bytes of each connection, by direction.
fn streams(name: &str) -> BTreeMap<(u32, u8), Vec<u8>> {
    let path = format!("{}/../../formats/wire/golden/part3_{name}.relay", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut all = BTreeMap::<_, Vec<u8>>::new();
    let mut rest = &file[..];
    while let Some((head, after)) = rest.split_first_chunk::<17>() {
        let connection = u32::from_be_bytes(head[1..5].try_into().unwrap());
        let length = u32::from_be_bytes(head[13..17].try_into().unwrap()) as usize;
        all.entry((connection, head[0])).or_default().extend_from_slice(&after[..length]);
        rest = &after[length..];
    }
    all
}

/// Tags and bodies; what differs from session to session (keys, nonces, names of settings) is left out.
fn messages(mut stream: &[u8]) -> Vec<(char, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(header) = message::header(stream).unwrap() {
        let body = stream[5..header.total()].to_vec();
        stream = &stream[header.total()..];
        if !matches!(header.tag, b'R' | b'K' | b'p' | b'S') {
            all.push((header.tag as char, body));
        }
    }
    assert!(stream.is_empty(), "the stream ends with a whole message");
    all
}

/// Both directions of a session, decoded by this crate's links.
fn decoded(name: &str) -> [Vec<(char, Vec<u8>)>; 2] {
    let streams = streams(name);
    let to_server = &streams[&(1, TO_SERVER)];
    let Some((First::Startup(mut packet), used)) = parse_first(to_server).unwrap() else {
        panic!("no startup packet")
    };
    let everything = list("zstd,lz4,zlib");
    let from_client = match Offer::take(&mut packet) {
        Some(offer) => {
            assert_eq!(offer.dialect, Dialect::Restart);
            let answer = offer.answer(&everything, 23);
            assert_eq!(answer.unknown, Vec::<String>::new());
            let mut gateway = link(Role::Gateway, answer.agreed.unwrap());
            receive(&mut gateway, &to_server[used..]).unwrap()
        }
        None => to_server[used..].to_vec(),
    };
    let raw = &streams[&(1, 1)];
    let status = find_status(raw);
    let from_server = match Agreed::from_status(&everything, &status) {
        Some(agreed) => receive(&mut link(Role::Connector, agreed), raw).unwrap(),
        None => raw.clone(),
    };
    [messages(&from_client), messages(&from_server)]
}

fn link(role: Role, agreed: Agreed) -> Link {
    Link::new(role, agreed, LinkConfig::default().into(), MemoryBudget::default())
}

fn find_status(mut stream: &[u8]) -> String {
    while let Some(header) = message::header(stream).unwrap() {
        if header.tag == b'S' {
            let (name, value) = message::parse_parameter_status(&stream[5..header.total()]).unwrap();
            if name == b"libpq_compression" {
                return String::from_utf8(value.to_vec()).unwrap();
            }
        }
        if header.tag == b'Z' {
            break;
        }
        stream = &stream[header.total()..];
    }
    String::new()
}

#[test]
fn sessions_recorded_with_each_algorithm_decode_to_the_plain_one() {
    let [plain_up, plain_down] = decoded("off");
    assert!(plain_down.len() > 300 && plain_up.len() > 5);
    for name in ["zstd", "lz4", "gzip"] {
        let [up, down] = decoded(name);
        assert!(up == plain_up, "{name}: what the client said");
        assert_eq!(down.len(), plain_down.len(), "{name}");
        for (got, want) in down.iter().zip(&plain_down) {
            assert_eq!(got.0, want.0, "{name}");
            assert!(got.1 == want.1 || got.0 == 'E' || got.0 == 'N', "{name}: {got:?} for {want:?}");
        }
    }
}

/// Who said a message, its tag, and the begin of its body.
type Said = (Way, char, Vec<u8>);

/// What a reader finds in a capture, fed `cut` bytes at a time: tags by direction, and what cannot be read.
fn found(name: &str, cut: usize, skipped: usize) -> (Vec<Said>, Vec<(Way, Unreadable)>) {
    let path = format!("{}/../../formats/wire/golden/part3_{name}.relay", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap();
    let (mut readers, mut said, mut lost) = (BTreeMap::<u32, Reader>::new(), Vec::new(), Vec::new());
    let (mut rest, mut number) = (&file[..], 0);
    while let Some((head, after)) = rest.split_first_chunk() {
        let record = record_header(head).unwrap();
        let (bytes, behind) = after.split_at(record.size as usize);
        rest = behind;
        number += 1;
        if number <= skipped {
            continue;
        }
        for piece in bytes.chunks(cut) {
            readers.entry(record.connection).or_default().feed(record.way, piece, |found| match found {
                Finding::Message(way, header, body) => {
                    said.push((way, header.tag as char, body[..body.len().min(100)].to_vec()));
                }
                Finding::Unreadable(way, why) => lost.push((way, why)),
                Finding::First(_) | Finding::Agreed(_) => {}
            });
        }
    }
    assert!(skipped > 0 || readers.values().all(Reader::is_whole));
    (said, lost)
}

#[test]
fn a_capture_is_read_to_the_same_messages_whatever_it_was_compressed_with() {
    let tags = |found: &[Said], way| -> String {
        found.iter().filter(|m| m.0 == way && m.1 != 'S').map(|m| m.1).collect()
    };
    let (plain, lost) = found("off", usize::MAX, 0);
    assert!(lost.is_empty() && plain.len() > 300);
    for name in ["zstd", "lz4", "gzip"] {
        for cut in [usize::MAX, 7] {
            let (said, lost) = found(name, cut, 0);
            assert_eq!(lost, [], "{name}");
            for way in [Way::ToServer, Way::ToClient] {
                assert_eq!(tags(&said, way), tags(&plain, way), "{name}, {cut} bytes at a time");
            }
        }
        let query = |found: &[Said]| found.iter().find(|m| m.1 == 'Q').unwrap().2.clone();
        assert_eq!(query(&found(name, 1, 0).0), query(&plain));
    }
}

#[test]
fn a_capture_that_begins_inside_a_session_says_that_its_context_is_not_there() {
    for skipped in [1, 2, 10, 20] {
        let (said, lost) = found("zstd", usize::MAX, skipped);
        assert!(said.is_empty());
        assert_eq!(lost.len(), 2, "{lost:?}");
        assert!(lost.iter().all(|l| l.1 == Unreadable::BeginsInside), "{lost:?}");
    }
}

#[test]
fn the_recorded_answer_is_understood() {
    let status = find_status(&streams("zstd")[&(1, 1)]);
    assert_eq!(status, "gzip:level=-1;lz4:level=0;zstd:level=3");
    let all = AlgorithmList::parse("zstd:1,lz4,zlib", WIRE_ALGORITHMS).unwrap();
    assert_eq!(
        Agreed::from_status(&all, &status).unwrap().describe(),
        "send zstd:1,lz4:1,zlib:6 receive zstd:1,lz4:1,zlib:6"
            .replace("send zstd:1,lz4:1,zlib:6 receive ", "")
    );
}
