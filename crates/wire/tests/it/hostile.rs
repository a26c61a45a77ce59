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

/// Payloads that make a decoder of 8 MiB, by a header that is not the first thing in them.
fn window_bombs() -> Vec<Vec<u8>> {
    let open = zstd_frame_with_window(&[], 23)[..6].to_vec();
    let empty = zstd_frame_with_window(&[], 10);
    let skippable = [0x53, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 7, 7].to_vec();
    vec![
        open.clone(),
        [&empty[..], &open].concat(),
        [&skippable[..], &open].concat(),
        [&skippable[..], &empty, &skippable, &empty, &open].concat(),
    ]
}

#[test]
fn a_window_is_taken_from_the_budget_wherever_its_header_stands_and_is_split() {
    for dialect in DIALECTS {
        for payload in window_bombs() {
            for cut in 0..=payload.len() {
                for across_frames in [false, true] {
                    // In two frames, or in one that comes in two reads.
                    let parts = match across_frames {
                        true if cut > 0 && cut < payload.len() => {
                            vec![
                                frame(dialect, true, &payload[..cut]),
                                frame(dialect, false, &payload[cut..]),
                            ]
                        }
                        _ => {
                            let whole = frame(dialect, true, &payload);
                            let (head, tail) = whole.split_at(whole.len() - payload.len() + cut);
                            vec![head.to_vec(), tail.to_vec()]
                        }
                    };
                    let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
                    pair.budget.set_limit(4 << 20);
                    let refused = parts.iter().find_map(|part| receive(&mut pair.gateway, part).err());
                    let error = refused.unwrap_or_else(|| panic!("{payload:x?} cut at {cut} passes"));
                    assert_eq!(error.sqlstate(), "53200", "{error}");
                    let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
                    for part in &parts {
                        receive(&mut pair.gateway, part).unwrap();
                    }
                    assert!(pair.budget.used() > 8 << 20, "{payload:x?} cut at {cut} is not counted");
                    drop(pair.gateway);
                    assert_eq!(pair.budget.used(), 0);
                }
            }
        }
    }
}

#[test]
fn an_incomplete_lz4_frame_is_counted_and_no_longer_than_a_block_can_be() {
    for (dialect, code) in [(Dialect::Ack, 0), (Dialect::Restart, 2)] {
        let header = |size: usize| match dialect {
            Dialect::Ack => {
                [&message::message(b'k', &[code])[..], b"m", &(size as u32 + 4).to_be_bytes()].concat()
            }
            Dialect::Restart => [&b"z"[..], &(size as u32 + 5).to_be_bytes(), &[code]].concat(),
        };
        let largest = 65_536 + 65_536 / 255 + 16;
        let mut pair = Pair::new(dialect, "lz4", LinkConfig::default());
        receive(&mut pair.gateway, &[&header(largest)[..], b"x"].concat()).unwrap();
        assert!(pair.budget.used() >= largest as u64, "{} for {largest}", pair.budget.used());
        assert!(pair.gateway.memory_bytes() >= largest);
        let mut pair = Pair::new(dialect, "lz4", LinkConfig::default());
        pair.budget.set_limit(largest as u64 - 1);
        let error = receive(&mut pair.gateway, &[&header(largest)[..], b"x"].concat()).unwrap_err();
        assert_eq!(error.sqlstate(), "53200", "{error}");
        let mut pair = Pair::new(dialect, "lz4", LinkConfig::default());
        let error = receive(&mut pair.gateway, &header(largest + 1)).unwrap_err();
        assert!(matches!(error, Error::Limit { what: "size of an lz4 block", .. }), "{error}");
    }
}

#[test]
fn rows_that_wait_to_be_unpacked_are_counted() {
    // A run of 64 KiB of lines of which half has come.
    let run = [&[1, 1, 0, 0][..], &[b'x'; 32 << 10]].concat();
    let mut pair = Pair::new(Dialect::Ack, "zstd:1", LinkConfig::default());
    receive(&mut pair.gateway, &frame(Dialect::Ack, true, &zstd_frame(&run))).unwrap();
    let used = pair.budget.used();
    let mut empty = Pair::new(Dialect::Ack, "zstd:1", LinkConfig::default());
    receive(&mut empty.gateway, &frame(Dialect::Ack, true, &zstd_frame(&[]))).unwrap();
    assert!(used >= empty.budget.used() + (32 << 10), "{used}, {} without", empty.budget.used());
    let mut other = Pair::new(Dialect::Ack, "zstd:1", LinkConfig::default());
    other.budget.set_limit(empty.budget.used() + 1000);
    let error = receive(&mut other.gateway, &frame(Dialect::Ack, true, &zstd_frame(&run))).unwrap_err();
    assert_eq!(error.sqlstate(), "53200", "{error}");
}

#[test]
fn memory_given_back_by_a_quiet_session_is_taken_again_before_it_is_used() {
    for (algorithms, code) in [("zstd:1", 0), ("lz4", 0), ("zlib", 0)] {
        let mut pair = Pair::new(Dialect::Ack, algorithms, LinkConfig::default());
        receive(&mut pair.gateway, &message::message(b'k', &[code])).unwrap();
        pair.release_idle();
        assert_eq!(pair.budget.used(), 0, "{algorithms}");
        pair.budget.set_limit(1000);
        let payload = zstd_frame(&message::message(b'S', b""));
        let error = receive(&mut pair.gateway, &message::message(b'm', &payload)).unwrap_err();
        assert_eq!(error.sqlstate(), "53200", "{algorithms}: {error}");
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
