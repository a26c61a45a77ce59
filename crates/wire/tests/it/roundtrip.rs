//! Bytes come back unchanged and never cost more than plain.

use pgshrink_wire::{ContextMode, Flush, LinkConfig, MessageTypes, Policy, message};

use crate::pair::{DIALECTS, OVER, Pair, Random, row, server_stream};

fn configs() -> Vec<LinkConfig> {
    let mut all = Vec::new();
    for context in [ContextMode::Preserved, ContextMode::PerTransaction, ContextMode::PerFrame] {
        for types in [MessageTypes::All, MessageTypes::Only(vec![b'D', b'd', b'Q'])] {
            for (frame_size, group_size_min) in [(64 << 10, 64), (4096, 1)] {
                let policy =
                    Policy { context, types: types.clone(), frame_size, group_size_min, ..Policy::default() };
                all.push(LinkConfig { policy, ..LinkConfig::default() });
            }
        }
    }
    all
}

#[test]
fn any_stream_comes_back_and_never_costs_more_than_plain() {
    let seed = std::env::var("PGSHRINK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_0001);
    println!("PGSHRINK_SEED={seed}");
    let mut random = Random(seed);
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4:1", "zlib:1", "zstd:3,lz4,zlib"] {
            for config in configs() {
                let mut pair = Pair::new(dialect, algorithms, config.clone());
                let (mut plain_total, mut wire_total) = (0, 0);
                for _ in 0..3 {
                    let plain = server_stream(&mut random, 2);
                    let cut = 1 + random.below(40_000) as usize;
                    let (wire, back) = pair.down(&plain, cut);
                    let what = format!("{dialect:?} {algorithms} {config:?} cut {cut} seed {seed}");
                    assert!(back == plain, "different bytes: {what}");
                    (plain_total, wire_total) = (plain_total + plain.len(), wire_total + wire.len());
                    assert!(wire_total <= plain_total + OVER, "{wire_total} > {plain_total}: {what}");
                }
                let stats = pair.gateway.stats().outbound;
                assert_eq!(stats.raw_bytes, pair.connector.stats().inbound.raw_bytes);
                assert_eq!(stats.wire_bytes, pair.connector.stats().inbound.wire_bytes);
                assert_eq!(stats.frames, pair.connector.stats().inbound.frames);
                assert!(stats.frames > 0);
            }
        }
    }
}

#[test]
fn the_input_may_be_cut_at_every_byte() {
    let mut random = Random(7);
    let mut plain = message::row_description(&["a"]);
    for _ in 0..30 {
        plain.extend(row(&mut random));
    }
    plain.extend(message::ready_for_query(b'I'));
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4", "zlib"] {
            let mut whole = Pair::new(dialect, algorithms, LinkConfig::default());
            let (wire, _) = whole.down(&plain, usize::MAX);
            for cut in 0..=wire.len() {
                let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
                let mut back = crate::pair::receive(&mut pair.connector, &wire[..cut]).unwrap();
                back.extend(crate::pair::receive(&mut pair.connector, &wire[cut..]).unwrap());
                assert!(back == plain, "{dialect:?} {algorithms} cut at {cut}");
            }
            for cut in [1, 2, 3, 5, 7, 64] {
                let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
                assert!(pair.down(&plain, cut).1 == plain, "{dialect:?} {algorithms} cuts of {cut}");
            }
        }
    }
}

#[test]
fn client_messages_travel_compressed_too() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        let mut plain = Vec::new();
        for i in 0..200 {
            plain.extend(message::message(
                b'Q',
                format!("SELECT abalance FROM pgbench_accounts WHERE aid = {i}\0").as_bytes(),
            ));
        }
        let (wire, back) = pair.up(&plain, 70);
        assert!(back == plain);
        assert!(wire.len() * 5 < plain.len() * 4, "{} of {}", wire.len(), plain.len());
    }
}

#[test]
fn a_long_session_of_noise_ends_within_plain() {
    let mut random = Random(99);
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4:1", "zlib:1"] {
            for context in [ContextMode::Preserved, ContextMode::PerFrame] {
                let config = LinkConfig {
                    policy: Policy { context, group_size_min: 1, ..Policy::default() },
                    ..LinkConfig::default()
                };
                let mut pair = Pair::new(dialect, algorithms, config);
                let (mut plain_total, mut wire_total) = (0, 0);
                for round in 0..400 {
                    let body = if round % 9 == 0 {
                        b"some text that shrinks ".repeat(20)
                    } else {
                        let n = random.below(3000) as usize;
                        random.bytes(n)
                    };
                    let plain = message::message(b'D', &body);
                    let (wire, back) = pair.down(&plain, usize::MAX);
                    assert!(back == plain);
                    plain_total += plain.len();
                    wire_total += wire.len();
                    assert!(
                        wire_total <= plain_total + OVER,
                        "{wire_total} > {plain_total} at {round}: {dialect:?} {algorithms} {context:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_repeating_direction_of_small_replies_ends_below_plain() {
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4:1", "zlib:1"] {
            let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
            let (mut plain_total, mut wire_total) = (0, 0);
            for i in 0..100 {
                let mut plain = message::row_description(&["abalance"]);
                plain.extend(message::data_row(&[Some(&i.to_string())]));
                plain.extend(message::command_complete("SELECT 1"));
                plain.extend(message::ready_for_query(b'I'));
                let (wire, back) = pair.down(&plain, usize::MAX);
                assert!(back == plain);
                (plain_total, wire_total) = (plain_total + plain.len(), wire_total + wire.len());
                assert!(wire_total <= plain_total + OVER, "{wire_total} > {plain_total} at {i}");
            }
            assert!(wire_total * 2 < plain_total, "{dialect:?} {algorithms}: {wire_total} of {plain_total}");
        }
    }
}

#[test]
fn a_huge_message_begun_in_a_frame_stays_within_plain() {
    let mut random = Random(3);
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4:1", "zlib:1"] {
            for head in [300usize, 5_000, 60_000] {
                let mut body = b"abcdefgh ".repeat(head / 9 + 1);
                body.extend(random.bytes(3_000_000));
                let plain = message::message(b'D', &body);
                for cut in [900, 8192, usize::MAX] {
                    let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
                    let (wire, back) = pair.down(&plain, cut);
                    assert!(back == plain);
                    assert!(
                        wire.len() <= plain.len() + OVER,
                        "{} > {}: {dialect:?} {algorithms} head {head} cut {cut}",
                        wire.len(),
                        plain.len()
                    );
                }
            }
        }
    }
}

#[test]
fn what_the_head_of_a_message_saves_covers_the_worst_of_its_rest() {
    let mut random = Random(5);
    let noise = random.bytes(600_000);
    for (algorithms, frame_size) in [
        ("zstd:1", 4 << 10),
        ("zstd:1", 64 << 10),
        ("zstd:3", 256 << 10),
        ("zstd:9", 64 << 10),
        ("zstd:13", 64 << 10),
        ("lz4:1", 64 << 10),
        ("zlib:6", 64 << 10),
    ] {
        let mut head = 64;
        while head < 60_000 {
            head += head / 4;
            for (dialect, context) in
                [(DIALECTS[0], ContextMode::Preserved), (DIALECTS[1], ContextMode::PerFrame)]
            {
                let plain = message::message(b'D', &[&b"abcdefgh ".repeat(head / 9), &noise[..]].concat());
                let policy = Policy { frame_size, context, ..Policy::default() };
                let mut pair = Pair::new(dialect, algorithms, LinkConfig { policy, ..LinkConfig::default() });
                let (wire, back) = pair.down(&plain, usize::MAX);
                assert!(back == plain);
                assert!(
                    wire.len() <= plain.len() + OVER,
                    "{algorithms} {frame_size} {context:?} head {head}"
                );
            }
        }
    }
}

#[test]
fn a_fresh_session_frames_a_large_value_too() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        let mut plain = message::message(b'd', b"");
        plain[1..5].copy_from_slice(&(256u32 << 20).to_be_bytes());
        while plain.len() < 150_000 {
            plain.extend(row(&mut Random(plain.len() as u64)));
        }
        pair.gateway.plain_buffer().extend_from_slice(&plain);
        pair.gateway.pump(Flush::No, &mut Vec::new()).unwrap();
        let sent = pair.gateway.stats().outbound;
        assert!(sent.frames == 1 && sent.wire_bytes < sent.raw_bytes / 2, "{sent:?}");
    }
}
