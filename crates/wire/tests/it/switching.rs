//! Algorithm, level and on/off change on a live session.

use pgshrink_wire::{Dialect, Flush, LinkConfig, message};

use crate::pair::{DIALECTS, OVER, Pair, Random, pump_all, receive, row, server_stream};

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

/// Rows wait at the gateway, the last one in part, when another algorithm is chosen: its frames may be smaller than what waits.
#[test]
fn a_switch_while_rows_wait_cuts_no_message() {
    let seed = 0xc0de;
    let mut random = Random(seed);
    let settings = ["zstd:1", "lz4", "zlib:1", "off"];
    for dialect in DIALECTS {
        let mut pair = Pair::new(dialect, "zstd:1,lz4,zlib:1", LinkConfig::default());
        for turn in 0..400 {
            let (from, to) = match turn {
                0 => ("zstd:1", "lz4"),
                _ => (settings[random.below(4) as usize], settings[random.below(4) as usize]),
            };
            let size = if turn == 0 { 60_000 } else { 1 + random.below(130_000) as usize };
            let (mut whole, step) = (Vec::new(), 1 + random.below(4) * random.below(4000));
            while whole.len() < size {
                let fill = "some text ".repeat(random.below(step) as usize / 10);
                whole.extend([row(&mut random), message::data_row(&[Some(&fill)])].concat());
            }
            let (mut wire, part) = (Vec::new(), row(&mut random));
            let cut = 6 + random.below(part.len() as u64 - 6) as usize;
            pair.gateway.set_compression(from).unwrap();
            pair.gateway.plain_buffer().extend_from_slice(&[&whole[..], &part[..cut]].concat());
            pump_all(&mut pair.gateway, Flush::Idle, &mut wire);
            assert!(turn > 0 || wire.is_empty(), "the rows wait");
            pair.gateway.set_compression(to).unwrap();
            let flush = [Flush::Force, Flush::Idle][turn.min(1) * random.below(2) as usize];
            pump_all(&mut pair.gateway, flush, &mut wire);
            pair.gateway.plain_buffer().extend_from_slice(&part[cut..]);
            pair.gateway.plain_buffer().extend(message::ready_for_query(b'I'));
            pump_all(&mut pair.gateway, Flush::Idle, &mut wire);
            let back = receive(&mut pair.connector, &wire).unwrap();
            let plain = [whole, part, message::ready_for_query(b'I')].concat();
            assert!(back == plain, "turn {turn}: {from} to {to}, {dialect:?}, seed {seed}");
            let stats = pair.gateway.stats().outbound;
            assert!(stats.wire_bytes <= stats.raw_bytes + OVER as u64, "turn {turn}");
        }
    }
}

/// A client that does not read, or whose server says nothing, causes any number of notices.
#[test]
fn notices_that_wait_are_bounded() {
    let limits = pgshrink_wire::Limits { out_max: 300, ..Default::default() };
    let config = LinkConfig { limits, ..Default::default() };
    let mut pair = Pair::new(Dialect::Ack, "zstd:19,lz4", config);
    let parse = message::message(b'P', b"\0SET LOCAL pgshrink.compression=1\0\0\0");
    for level in 1..=19 {
        pair.gateway.set_compression(&format!("zstd:{level}")).unwrap();
        pair.up(&parse.repeat(100), usize::MAX);
    }
    let (mut outputs, mut notices) = (0, 0);
    loop {
        let mut out = Vec::new();
        pair.gateway.pump(Flush::Idle, &mut out).unwrap();
        if out.is_empty() {
            break;
        }
        (outputs, notices) = (outputs + 1, notices + out.windows(7).filter(|w| w == b"SNOTICE").count());
        assert!(out.len() < 900, "{} bytes at once", out.len());
    }
    assert!(notices > 1 && notices <= 8 && outputs > 1, "{notices} notices in {outputs} outputs");
}

/// Simple queries and what a server answers.
struct Talk {
    pair: Pair,
}

impl Talk {
    /// Behind the login.
    fn new(dialect: Dialect) -> Self {
        let mut pair = Pair::new(dialect, "zstd:1,lz4", LinkConfig::default());
        pair.down(&message::ready_for_query(b'I'), usize::MAX);
        Self { pair }
    }

    fn ask(&mut self, sql: &str) {
        let query = message::message(b'Q', format!("{sql}\0").as_bytes());
        assert!(self.pair.up(&query, 5).1 == query, "the server sees it unchanged");
    }

    /// Answers in these commands' names, all at once; tags and text of what the client gets.
    fn answer(&mut self, commands: &[&str]) -> (String, String) {
        let command = |name: &&str| match *name {
            "ERROR" => message::message(b'E', b"\0"),
            name => message::message(b'C', format!("{name}\0").as_bytes()),
        };
        let mut reply: Vec<u8> = commands.iter().flat_map(command).collect();
        reply.extend(message::ready_for_query(b'I'));
        let (_, back) = self.pair.down(&reply, usize::MAX);
        let (mut tags, mut at) = (String::new(), 0);
        while let Ok(Some(found)) = pgshrink_wire::walk::message_at(&back, at) {
            tags.push(found.header.tag as char);
            at += found.header.total();
        }
        (tags, String::from_utf8_lossy(&back).into_owned())
    }

    /// What both ends send with.
    fn in_force(&self) -> String {
        assert_eq!(self.pair.gateway.compression(), self.pair.connector.compression());
        self.pair.gateway.compression()
    }
}

#[test]
fn a_client_switches_both_directions_by_a_placeholder_setting() {
    for dialect in DIALECTS {
        let mut talk = Talk::new(dialect);
        for (value, in_force) in [("off", "off"), ("lz4:3", "lz4:3"), ("on", "zstd:1")] {
            let before = talk.in_force();
            talk.ask(&format!("SET pgshrink.compression = '{value}'"));
            assert_eq!(talk.in_force(), before, "the server has not answered yet");
            assert_eq!(talk.answer(&["SET"]).0, "CZ");
            assert_eq!(talk.in_force(), in_force);
        }
        // The report stands between the answer and ReadyForQuery, even if both come at once.
        talk.ask("SET pgshrink.compression = 'zst:1'");
        let (tags, text) = talk.answer(&["SET"]);
        assert_eq!(tags, "CNZ", "{dialect:?}");
        assert!(
            text.contains("unknown algorithm") && text.contains("The session continues with zstd:1"),
            "{text}"
        );
    }
}

#[test]
fn a_change_that_the_server_did_not_make_is_made_by_neither_end() {
    for dialect in DIALECTS {
        let mut talk = Talk::new(dialect);
        for (sql, answers, in_force) in [
            ("SET pgshrink.compression = 'off'", &["ERROR"][..], "zstd:1"),
            ("SELECT 1; SET pgshrink.compression = 'off'", &["SELECT 1", "ERROR"], "zstd:1"),
            ("SET x = 1; SET pgshrink.compression = 'nonsense'", &["SET", "ERROR"], "zstd:1"),
            ("SET pgshrink.compression = 'lz4'; SELECT 1/0", &["SET", "ERROR"], "lz4:1"),
            ("SET x = 1", &["SET"], "lz4:1"),
        ] {
            talk.ask(sql);
            assert!(!talk.answer(answers).0.contains('N'), "{sql}");
            assert_eq!(talk.in_force(), in_force, "{sql}");
        }
    }
}

#[test]
fn reset_goes_back_to_what_the_startup_packet_said() {
    let mut talk = Talk::new(Dialect::Ack);
    talk.pair.gateway.begin_with("lz4:1");
    talk.pair.connector.begin_with("lz4:1");
    for sql in
        ["RESET pgshrink.compression", "RESET ALL", "SET pgshrink.compression TO DEFAULT", "DISCARD ALL"]
    {
        talk.ask("SET pgshrink.compression = 'on'");
        talk.answer(&["SET"]);
        assert_eq!(talk.in_force(), "zstd:1");
        talk.ask(sql);
        let command = sql.split(' ').next().unwrap();
        assert_eq!(talk.answer(&[if command == "DISCARD" { "DISCARD ALL" } else { command }]).0, "CZ");
        assert_eq!(talk.in_force(), "lz4:1", "{sql}");
    }
}

/// A client that sends SET and SHOW without waiting in between.
#[test]
fn a_show_behind_an_unanswered_set_says_what_will_be_in_force() {
    let mut talk = Talk::new(Dialect::Ack);
    talk.ask("SET pgshrink.compression = 'off'");
    let show = message::message(b'Q', b"SHOW pgshrink.compression\0");
    let (_, asked) = talk.pair.up(&show, usize::MAX);
    let asked = String::from_utf8_lossy(&asked).into_owned();
    assert!(asked.contains("SELECT 'off'::text AS"), "{asked}");
}

#[test]
fn a_text_with_changes_and_other_forms_is_followed_and_gives_a_notice() {
    let mut talk = Talk::new(Dialect::Ack);
    talk.ask("SET pgshrink.compression = 'off'; SHOW pgshrink.compression");
    let (tags, text) = talk.answer(&["SET", "SHOW"]);
    assert_eq!(tags, "CNCZ");
    assert!(text.contains("pgshrink.compression is off in this session"), "{text}");
    talk.ask(&format!("SET pgshrink.compression = 'on' -- {}", "x".repeat(9 << 10)));
    let (tags, text) = talk.answer(&["SET"]);
    assert!(tags == "NCZ" && text.contains("longer than 8 KiB"), "{tags} {text}");
    assert_eq!(talk.in_force(), "off");
}

/// The connector alone sees many changes wait: their answers are under way to it.
#[test]
fn more_changes_than_can_be_kept_end_at_the_same_setting_or_give_a_notice() {
    let set = |value: &str| format!("SET pgshrink.compression = '{value}'");
    let cases = |dialect| {
        let cuts = move |last| [(dialect, last, 7), (dialect, last, usize::MAX)];
        ["SET", "ERROR", "nonsense"].into_iter().flat_map(cuts)
    };
    for (dialect, last, cut) in DIALECTS.into_iter().flat_map(cases) {
        let mut talk = Talk::new(dialect);
        let mut late = Vec::new();
        for at in 0..40 {
            let kind = if at < 20 { "SET" } else { last };
            talk.ask(&set(if kind == "nonsense" { kind } else { ["lz4", "off", "zstd:1"][at % 3] }));
            let reply = match kind {
                "ERROR" => message::message(b'E', b"\0"),
                _ => message::message(b'C', b"SET\0"),
            };
            talk.pair.gateway.plain_buffer().extend([reply, message::ready_for_query(b'I')].concat());
            pump_all(&mut talk.pair.gateway, Flush::Idle, &mut late);
        }
        let mut back = Vec::new();
        for piece in late.chunks(cut) {
            back.extend(receive(&mut talk.pair.connector, piece).unwrap());
        }
        let told = String::from_utf8_lossy(&back).matches("the connector sends with").count();
        let same = talk.pair.gateway.compression() == talk.pair.connector.compression();
        assert_eq!((same, told), if last == "SET" { (true, 0) } else { (false, 1) }, "{dialect:?} {last}");
        talk.ask(&set("lz4"));
        talk.answer(&["SET"]);
        assert_eq!(talk.in_force(), "lz4:1");
    }
}
