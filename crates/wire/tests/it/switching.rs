//! Algorithm, level and on/off change on a live session.

use pgshrink_wire::{Dialect, LinkConfig, message};

use crate::pair::{DIALECTS, OVER, Pair, Random, row, server_stream};

#[test]
fn every_message_may_be_followed_by_another_algorithm_or_level() {
    let seed = 0xfeed;
    let mut random = Random(seed);
    let settings = ["zstd:1", "off", "zstd:3", "lz4", "zlib:1", "lz4:9", "zlib:6", "on"];
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:3,lz4,zlib:9", LinkConfig::default());
        let (mut plain_total, mut wire_total) = (0, 0);
        for _ in 0..300 {
            let setting = settings[random.below(settings.len() as u64) as usize];
            pair.gateway.set_compression(setting).unwrap();
            let plain = if random.below(4) == 0 {
                server_stream(&mut random, 1)
            } else {
                (0..20).flat_map(|_| row(&mut random)).collect()
            };
            let (wire, back) = pair.down(&plain, 1 + random.below(9000) as usize);
            assert!(back == plain, "after {setting}, seed {seed}");
            plain_total += plain.len();
            wire_total += wire.len();
            assert!(wire_total <= plain_total + OVER);
        }
    }
}

/// A method is named with its first frame. One whose frames do not pay is never named, and the peer's decoder is still in the
/// middle of the stream before.
#[test]
fn a_switch_that_sent_no_frame_leaves_the_running_stream_as_it_was() {
    let mut random = Random(5);
    let noise = message::message(b'd', b"q8#Zk2!vR7@mX4$wL9^tB1&yN6*cJ3(pH5)sD0-fG");
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1,lz4,zlib:1", LinkConfig::default());
        let mut silent = 0;
        let rows = |random: &mut Random| (0..20).flat_map(|_| row(random)).collect::<Vec<u8>>();
        for (from, by_way_of) in
            [("zstd:1", "lz4"), ("lz4", "zstd:1"), ("zlib:1", "lz4"), ("zstd:1", "zlib:1")]
        {
            for way in [&[by_way_of][..], &["off", by_way_of], &[by_way_of, from, by_way_of]] {
                pair.gateway.set_compression(from).unwrap();
                let plain = rows(&mut random);
                assert!(pair.down(&plain, usize::MAX).1 == plain, "{from}");
                let frames = pair.gateway.stats().outbound.frames;
                for step in way {
                    pair.gateway.set_compression(step).unwrap();
                    assert!(pair.down(&noise, usize::MAX).1 == noise);
                }
                silent += u32::from(pair.gateway.stats().outbound.frames == frames);
                pair.gateway.set_compression(from).unwrap();
                let plain = rows(&mut random);
                assert!(pair.down(&plain, usize::MAX).1 == plain, "{from} after {way:?}");
            }
        }
        // A context may be primed now and then by a frame that does not pay yet.
        assert!(silent > 0, "{silent} switches sent no frame");
    }
}

#[test]
fn lz4_blocks_of_the_ack_dialect_stay_small_right_after_a_switch() {
    let mut random = Random(3);
    let mut pair = Pair::new(Dialect::Ack, "zstd:1,lz4", LinkConfig::default());
    let rows = |random: &mut Random| (0..1500).flat_map(|_| row(random)).collect::<Vec<u8>>();
    pair.down(&rows(&mut random), usize::MAX);
    pair.gateway.set_compression("lz4").unwrap();
    let before = pair.gateway.stats().outbound.frames;
    let plain = rows(&mut random);
    assert!(plain.len() > 32 << 10, "{}", plain.len());
    assert!(pair.down(&plain, usize::MAX).1 == plain);
    let frames = pair.gateway.stats().outbound.frames - before;
    assert!(frames as usize >= plain.len().div_ceil(16 << 10), "{frames} frames of {} bytes", plain.len());
}

#[test]
fn a_client_switches_both_directions_by_a_placeholder_setting() {
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1,lz4", LinkConfig::default());
        let set = |value: &str| {
            message::message(b'Q', format!("SET pgshrink.compression = '{value}'\0").as_bytes())
        };
        for (value, in_force) in [("off", "off"), ("lz4:3", "lz4:3"), ("on", "zstd:1")] {
            let statement = set(value);
            assert!(pair.up(&statement, 5).1 == statement, "the server sees it unchanged");
            assert_eq!(
                (pair.gateway.compression(), pair.connector.compression()),
                (in_force.into(), in_force.into())
            );
        }
        let statement = set("zst:1");
        pair.up(&statement, usize::MAX);
        let reply = message::ready_for_query(b'I');
        let (_, back) = pair.down(&reply, usize::MAX);
        let text = String::from_utf8_lossy(&back).into_owned();
        assert!(
            text.contains("unknown algorithm") && text.contains("The session goes on with zstd:1"),
            "{text}"
        );
        assert!(back.ends_with(&reply));
    }
}
