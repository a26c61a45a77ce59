//! What a peer may not do.

use pgshrink_wire::{Dialect, Error, Limits, LinkConfig, message};

use crate::pair::{DIALECTS, Pair, Random, receive, row};

fn frame(dialect: Dialect, first: bool, payload: &[u8]) -> Vec<u8> {
    match (dialect, first) {
        (Dialect::Ack, true) => [message::message(b'k', &[0]), message::message(b'm', payload)].concat(),
        (Dialect::Ack, false) => message::message(b'm', payload),
        (Dialect::Restart, _) => message::message(b'z', &[&[if first { 3 } else { 0 }], payload].concat()),
    }
}

fn refused(dialect: Dialect, wire: &[u8]) -> Error {
    let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
    receive(&mut pair.gateway, wire).expect_err("must be refused")
}

#[test]
fn unknown_indexes_are_named() {
    let error = refused(Dialect::Ack, &message::message(b'k', &[7]));
    assert_eq!((error.sqlstate(), error.to_string().contains("method 7")), ("08P01", true), "{error}");
    let error = refused(Dialect::Restart, &message::message(b'z', &[9, 1, 2]));
    assert!(error.to_string().contains("method 9"), "{error}");
    let error = refused(Dialect::Restart, &message::message(b'z', &[0, 1, 2]));
    assert!(error.to_string().contains("restart byte"), "{error}");
    assert!(
        refused(Dialect::Ack, &message::message(b'm', b"x")).to_string().contains("SetCompressionMethod")
    );
    assert!(refused(Dialect::Restart, &message::message(b'z', b"")).to_string().contains("empty"));
    assert!(refused(Dialect::Ack, &message::message(b'k', b"xx")).to_string().contains("length"));
}

#[test]
fn an_oversize_wrapper_is_refused_by_its_header_alone() {
    for (dialect, tag) in [(Dialect::Ack, b'm'), (Dialect::Restart, b'z')] {
        let mut wire = if dialect == Dialect::Ack { message::message(b'k', &[0]) } else { Vec::new() };
        wire.push(tag);
        wire.extend_from_slice(&0x3000_0000u32.to_be_bytes());
        assert!(matches!(refused(dialect, &wire), Error::Limit { what: "compressed frame size", .. }));
    }
}

#[test]
fn a_bomb_is_stopped_at_the_cap_and_never_held_whole() {
    let zeros = message::message(b'd', &vec![0; 64 << 20]);
    let payload = zstd_frame(&zeros);
    assert!(payload.len() < 64 << 10);
    for dialect in DIALECTS {
        let limits = Limits { frame_raw_max: 1 << 20, ..Limits::default() };
        let mut pair =
            Pair::new(dialect, "zstd:1", LinkConfig { limits: limits.clone(), ..LinkConfig::default() });
        let wire = frame(dialect, true, &payload);
        let (mut input, mut total) = (&wire[..], 0);
        let error = loop {
            let mut out = Vec::new();
            match pair.gateway.handle_wire(input, &mut out) {
                Ok(used) => input = &input[used..],
                Err(error) => break error,
            }
            assert!(out.len() <= limits.out_max + 16, "bounded output");
            total += out.len();
        };
        assert!(total <= limits.frame_raw_max);
        assert!(matches!(error, Error::Limit { what: "expansion of a compressed frame", .. }), "{error}");
    }
}

#[test]
fn nested_frames_and_plain_messages_inside_framed_ones_are_refused() {
    for dialect in DIALECTS {
        let inner = frame(dialect, false, b"anything");
        let wire = frame(dialect, true, &zstd_frame(&inner));
        assert!(refused(dialect, &wire).to_string().contains("nested"));
        let half = &message::message(b'Q', b"select 1\0")[..7];
        let mut wire = frame(dialect, true, &zstd_frame(half));
        wire.extend(message::message(b'S', b""));
        assert!(refused(dialect, &wire).to_string().contains("rest of a message"));
    }
}

#[test]
fn a_large_window_needs_room_in_the_budget() {
    let payload = zstd_frame_with_window(&[1; 100], 23);
    for dialect in DIALECTS {
        let wire = frame(dialect, true, &payload);
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        pair.budget.set_limit(4 << 20);
        let error = receive(&mut pair.gateway, &wire).expect_err("8 MiB do not fit");
        assert_eq!(error.sqlstate(), "53200");
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        assert!(receive(&mut pair.gateway, &wire).is_ok() || !wire.is_empty());
        let limits = Limits { window_log_max: 20, ..Limits::default() };
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig { limits, ..LinkConfig::default() });
        assert!(receive(&mut pair.gateway, &wire).is_err());
    }
}

#[test]
fn damaged_frames_never_pass_as_whole_messages_nor_panic() {
    let mut random = Random(0xdead);
    let plain: Vec<u8> = (0..60).flat_map(|_| row(&mut random)).collect();
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4", "zlib"] {
            let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
            let (wire, _) = pair.down(&plain, usize::MAX);
            for at in 0..wire.len() {
                for bit in [0, 3, 7] {
                    let mut damaged = wire.clone();
                    damaged[at] ^= 1 << bit;
                    let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
                    if let Ok(back) = receive(&mut pair.connector, &damaged) {
                        assert!(back.len() <= LinkConfig::default().limits.frame_raw_max);
                    }
                }
            }
        }
    }
}

/// A single-segment-free zstd frame with raw and RLE blocks, written by hand so that the test needs no encoder.
fn zstd_frame(content: &[u8]) -> Vec<u8> {
    zstd_frame_with_window(content, 17)
}

fn zstd_frame_with_window(content: &[u8], window_log: u8) -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (window_log - 10) << 3];
    let mut at = 0;
    while at < content.len() {
        let run = content[at..].iter().take(128 << 10).take_while(|b| **b == content[at]).count();
        let (kind, size, body): (u32, usize, &[u8]) = if run > 64 {
            (1, run, &content[at..at + 1])
        } else {
            let n = (content.len() - at).min(64);
            (0, n, &content[at..at + n])
        };
        let header = (size as u32) << 3 | kind << 1;
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(body);
        at += size;
    }
    out.extend_from_slice(&[1, 0, 0]);
    out
}
