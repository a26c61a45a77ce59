//! What is compressed, what is held, and what is released.

use pgshrink_wire::{ContextMode, Dialect, Flush, Held, LinkConfig, MessageTypes, Policy, message};

use crate::pair::{DIALECTS, Pair, Random, pump_all, receive, row};

fn rows(n: usize) -> Vec<u8> {
    let mut random = Random(11);
    (0..n).flat_map(|_| row(&mut random)).collect()
}

#[test]
fn whole_messages_never_wait_and_rows_wait_only_for_the_rest_of_one() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        let plain = rows(50);
        let mut wire = Vec::new();
        // Half a row behind whole ones: the source must still be sending.
        pair.gateway.plain_buffer().extend_from_slice(&plain[..plain.len() - 10]);
        assert_eq!(pair.gateway.pump(Flush::Idle, &mut wire).unwrap().held, Held::PartOfMessage);
        assert!(wire.is_empty());
        assert_eq!(pair.gateway.pump(Flush::Force, &mut wire).unwrap().held, Held::Nothing);
        assert!(!wire.is_empty());
        // A notice among the rows may not wait at all.
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        let mut urgent = plain.clone();
        urgent.extend(message::message(b'N', b"SNOTICE\0\0"));
        urgent.extend_from_slice(&plain[..20]);
        pair.gateway.plain_buffer().extend_from_slice(&urgent);
        wire.clear();
        assert_eq!(pair.gateway.pump(Flush::Idle, &mut wire).unwrap().held, Held::Nothing);
        let back = receive(&mut pair.connector, &wire).unwrap();
        assert!(back.len() >= plain.len() + 10, "everything whole has arrived");
    }
}

#[test]
fn small_replies_pass_at_once_and_small_groups_stay_plain() {
    let mut pair = Pair::new(DIALECTS[0], "zstd:1", LinkConfig::default());
    let ready = message::ready_for_query(b'I');
    let (wire, back) = pair.down(&ready, usize::MAX);
    assert_eq!((&wire, &back), (&ready, &ready));
    assert_eq!(pair.gateway.stats().outbound.frames, 0);
}

#[test]
fn the_minimum_belongs_to_the_group_and_not_to_the_row() {
    // Rows of 40 to 57 bytes: a minimum per message would leave them plain.
    let plain: Vec<u8> = (0..500)
        .flat_map(|i| message::message(b'd', format!("AAPL\t2016-01-{i:02}\t{i}.25\n").as_bytes()))
        .collect();
    let mut pair = Pair::new(DIALECTS[0], "zstd:1", LinkConfig::default());
    let (wire, back) = pair.down(&plain, usize::MAX);
    assert!(back == plain);
    assert!(wire.len() * 3 < plain.len(), "{} of {}", wire.len(), plain.len());
}

#[test]
fn only_configured_types_ride_in_frames() {
    let config = LinkConfig {
        policy: Policy { types: MessageTypes::Only(vec![b'D']), ..Policy::default() },
        ..LinkConfig::default()
    };
    let mut pair = Pair::new(DIALECTS[1], "zstd:1", config);
    let error = message::message(b'E', &b"Mthe same text over and over ".repeat(30));
    let (wire, back) = pair.down(&error, usize::MAX);
    assert_eq!((wire.len(), back), (error.len(), error));
    let data = rows(100);
    assert!(pair.down(&data, usize::MAX).0.len() < data.len() / 2);
}

#[test]
fn noise_makes_a_direction_give_up_and_text_brings_it_back() {
    let mut random = Random(5);
    let config =
        LinkConfig { policy: Policy { group_size_min: 1, ..Policy::default() }, ..LinkConfig::default() };
    let mut pair = Pair::new(DIALECTS[0], "lz4", config);
    for _ in 0..150 {
        let noise = message::message(b'D', &random.bytes(500));
        pair.down(&noise, usize::MAX);
    }
    assert!(pair.gateway.is_given_up());
    let tried = pair.gateway.stats().outbound;
    let text = message::message(b'D', &b"again and again ".repeat(40));
    for _ in 0..100 {
        pair.down(&text, usize::MAX);
    }
    assert!(!pair.gateway.is_given_up());
    assert!(pair.gateway.stats().outbound.frames > tried.frames + 20);
}

#[test]
fn frames_of_the_reset_mode_can_be_read_on_their_own() {
    let config = LinkConfig {
        policy: Policy { context: ContextMode::PerFrame, ..Policy::default() },
        ..LinkConfig::default()
    };
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4"] {
            let mut pair = Pair::new(dialect, algorithms, config.clone());
            let (first, _) = pair.down(&rows(100), usize::MAX);
            let (second, back) = pair.down(&rows(90), usize::MAX);
            // A reader that joins late: it knows the method, not the history.
            let mut late = Pair::new(dialect, algorithms, config.clone());
            let method: &[u8] = if dialect == DIALECTS[0] { &first[..6] } else { &[] };
            let mut seen = receive(&mut late.connector, method).unwrap();
            seen.extend(receive(&mut late.connector, &second).unwrap());
            assert!(seen == back, "{dialect:?} {algorithms}");
        }
    }
}

#[test]
fn a_transaction_ends_the_context_in_that_mode_only() {
    let mut one = rows(100);
    one.extend(message::ready_for_query(b'I'));
    let size = |context| {
        let config = LinkConfig { policy: Policy { context, ..Policy::default() }, ..LinkConfig::default() };
        let mut pair = Pair::new(DIALECTS[1], "zstd:1", config);
        let first = pair.down(&one, usize::MAX).0.len();
        let second = pair.down(&one, usize::MAX).0.len();
        (first, second)
    };
    let (first, second) = size(ContextMode::PerTransaction);
    assert_eq!(first, second, "nothing is remembered");
    let (first, second) = size(ContextMode::Preserved);
    assert!(second * 4 < first, "the second result repeats the first: {second} of {first}");
}

#[test]
fn a_quiet_session_gives_its_memory_back_and_goes_on() {
    for dialect in DIALECTS {
        for algorithms in ["zstd:1", "lz4", "zlib"] {
            let mut pair = Pair::new(dialect, algorithms, LinkConfig::default());
            let plain = rows(2000);
            assert!(pair.down(&plain, 8192).1 == plain);
            pair.release_idle();
            assert!(
                pair.gateway.memory_bytes() < 64 << 10,
                "{dialect:?} {algorithms}: {} bytes",
                pair.gateway.memory_bytes()
            );
            if dialect == Dialect::Ack && algorithms == "zstd:1" {
                // The sender has said that its window is not needed any more.
                pair.connector.release_idle(&mut Vec::new());
                let bytes = pair.connector.memory_bytes();
                assert!(bytes < 64 << 10, "receiver: {bytes} bytes");
            }
            assert!(pair.down(&plain, 8192).1 == plain, "{dialect:?} {algorithms}");
        }
    }
}

#[test]
fn without_memory_a_sender_goes_on_plain() {
    let mut pair = Pair::new(DIALECTS[0], "zstd:1", LinkConfig::default());
    pair.budget.set_limit(1000);
    let plain = rows(100);
    let mut wire = Vec::new();
    pair.gateway.plain_buffer().extend_from_slice(&plain);
    pump_all(&mut pair.gateway, Flush::Idle, &mut wire);
    assert!(wire == plain);
}

#[test]
fn a_full_buffer_can_always_go_whatever_the_frame_size() {
    // 67: a Query that must be seen whole stands across the end of the buffer.
    for filler in [40, 67] {
        for frame_size in [1 << 10, 128 << 10, 200_000, 1 << 20] {
            let policy = Policy { frame_size, ..Policy::default() };
            let mut pair = Pair::new(Dialect::Ack, "zstd:1", LinkConfig { policy, ..LinkConfig::default() });
            let query = message::message(b'Q', &[&b"select "[..], &vec![b'x'; filler]].concat());
            let plain = query.repeat(40_000);
            let (mut rest, mut wire) = (&plain[..], Vec::new());
            while !rest.is_empty() {
                let n = rest.len().min(pair.connector.plain_room());
                assert!(n > 0, "stuck with frames of {frame_size}, {} bytes to go", rest.len());
                pair.connector.plain_buffer().extend_from_slice(&rest[..n]);
                rest = &rest[n..];
                // The source always has more: nothing but a full buffer makes the link send.
                while pair.connector.pump(Flush::No, &mut wire).unwrap().held == Held::OutputFull {
                    wire.clear();
                }
            }
        }
    }
}

#[test]
fn a_value_longer_than_a_frame_waits_for_its_first_frame_and_nothing_before_it_does() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1", LinkConfig::default());
        let mut value = message::message(b'D', b"");
        value[1..5].copy_from_slice(&(64u32 << 20).to_be_bytes());
        value.extend(rows(2000));
        let header = message::message(b'T', &[0; 30]);
        let mut wire = Vec::new();
        // As a server writes: eight kilobytes at a time.
        pair.gateway.plain_buffer().extend_from_slice(&[&header[..], &value[..8000]].concat());
        assert_eq!(pair.gateway.pump(Flush::Idle, &mut wire).unwrap().held, Held::PartOfMessage);
        assert_eq!(receive(&mut pair.connector, &wire).unwrap(), header);
        wire.clear();
        assert_eq!(pair.gateway.pump(Flush::Force, &mut wire).unwrap().held, Held::Nothing);
        assert!(wire.is_empty());
        let mut given = 8000;
        while given < 130_000 {
            pair.gateway.plain_buffer().extend_from_slice(&value[given % 20_000..][..8000]);
            pair.gateway.pump(Flush::Idle, &mut wire).unwrap();
            given += 8000;
        }
        assert!(!wire.is_empty() && wire.len() < 40_000, "{}", wire.len());
        let back = receive(&mut pair.connector, &wire).unwrap();
        assert_eq!(back.len(), pair.gateway.stats().outbound.raw_bytes as usize - header.len());
        // Its source ends in the middle: what is there goes.
        pair.gateway.pump(Flush::End, &mut wire).unwrap();
        assert_eq!(pair.gateway.stats().outbound.raw_bytes as usize, header.len() + given);
    }
}
