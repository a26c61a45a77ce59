//! `SET pgshrink.compression` sent many times without waiting for answers, through both ends to a real server.

use std::io::Write;
use std::time::Duration;

use pgshrink_gateway::Running;
use pgshrink_testkit::{Auth, wait_until};

use crate::harness::{Raw, cluster, connector, field, gateway, message, port};

/// Messages that go in one piece, and what the changes in them lead to; `None` where one changes nothing.
struct Unit {
    bytes: Vec<u8>,
    ready: usize,
    made: Vec<Option<&'static str>>,
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

/// Parse, Bind and Execute of an unnamed statement.
fn run(sql: &str) -> Vec<u8> {
    let parse = message(b'P', format!("\0{sql}\0\0\0").as_bytes());
    [parse, message(b'B', &[0; 8]), message(b'E', &[0; 5])].concat()
}

fn simple(sql: &str, made: Option<&'static str>) -> Unit {
    Unit { bytes: query(sql), ready: 1, made: vec![made] }
}

/// Every form in turn, in simple queries and in the extended protocol.
fn unit(at: usize) -> Unit {
    let (value, text) = [("off", "off"), ("lz4", "lz4:1"), ("zstd:1", "zstd:1")][at % 3];
    let set = format!("SET pgshrink.compression = '{value}'");
    let sync = message(b'S', b"");
    let extended = |parts: &[&str], made| {
        let parts: Vec<u8> = parts.iter().flat_map(|sql| run(sql)).collect();
        Unit { bytes: [&parts[..], &sync].concat(), ready: 1, made }
    };
    match at % 10 {
        0 | 1 => simple(&set, Some(text)),
        2 => simple(&format!("SELECT 1/0; {set}"), None),
        3 => simple(&format!("{set}; SELECT 1/0"), Some(text)),
        4 => {
            let bytes = ["BEGIN", "SELECT 1/0", &set, "ROLLBACK"].map(query).concat();
            Unit { bytes, ready: 4, made: vec![None] }
        }
        5 => extended(&[&set], vec![Some(text)]),
        6 => extended(&["SELECT 1/0", &set], vec![None]),
        7 => extended(&["SELECT 1", &set, "SET x.y = 1", &set], vec![Some(text); 2]),
        8 => simple("RESET pgshrink.compression", Some("zstd:1")),
        _ => simple("SET pgshrink.compression = 'nonsense'", None),
    }
}

fn sending(running: &Running) -> String {
    running.registry().sessions()[0].compression().unwrap().sending
}

/// Sends all, `step` bytes at a time, while it reads; returns what the client is told.
fn converse(raw: &mut Raw, units: &[Unit], step: usize) -> Vec<String> {
    let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.bytes.clone()).collect();
    let ready: usize = units.iter().map(|unit| unit.ready).sum();
    let mut writer = raw.0.try_clone().unwrap();
    let mut messages = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| bytes.chunks(step).for_each(|piece| writer.write_all(piece).unwrap()));
        (0..ready).for_each(|_| messages.extend(raw.until(b'Z')));
    });
    // An end takes an answer over behind the turn in which the client gets it.
    for _ in 0..2 {
        raw.query("SELECT 1");
        messages.extend(raw.until(b'Z'));
    }
    messages.iter().filter(|(tag, _)| *tag == b'N').map(|(_, body)| field(body, b'M')).collect()
}

#[test]
fn hundreds_of_changes_sent_without_waiting_end_at_the_same_setting_or_are_told_of() {
    let cluster = cluster(Auth::Trust);
    let nothing = |sql: &'static str| (0..40).map(move |_| simple(sql, None)).collect::<Vec<_>>();
    for dialect in ["ack", "restart"] {
        let gateway = gateway(&cluster);
        let connector = connector(&gateway, dialect, "zstd:1,lz4:1");
        let ends = [("gateway", &gateway), ("connector", &connector)];
        let tails =
            ["", "SELECT 1/0; SET pgshrink.compression = 'off'", "SET pgshrink.compression = 'nonsense'"];
        for (count, tail, step) in [21, 300]
            .into_iter()
            .flat_map(|count| tails.map(|tail| (count, tail)))
            .flat_map(|(count, tail)| [7, 1 << 20].map(|step| (count, tail, step)))
        {
            let mut units: Vec<Unit> = (0..count).map(unit).collect();
            units.extend(if tail.is_empty() { vec![] } else { nothing(tail) });
            let made: Vec<_> = units.iter().rev().flat_map(|unit| unit.made.iter().rev().copied()).collect();
            let last = made.iter().flatten().next().copied().unwrap();
            let mut raw = Raw::login(port(&connector));
            let told = converse(&mut raw, &units, step);
            for (end, running) in ends {
                let says = format!("the {end} sends with pgshrink.compression = ");
                let said: Vec<_> = told.iter().filter_map(|text| text.strip_prefix(&says)).collect();
                let own = sending(running);
                let case =
                    format!("{end} of {dialect}, {count} and {tail:?}, {step}: {own}, {last}, {told:?}");
                assert!(own == last || !tail.is_empty() && !said.is_empty(), "{case}");
                assert!(said.last().is_none_or(|said| *said == format!("{own} in this session")), "{case}");
            }
            drop(raw);
            let is_gone = || ends.iter().all(|(_, running)| running.registry().is_empty());
            wait_until(Duration::from_secs(60), "the session to end", is_gone).unwrap();
        }
    }
}
