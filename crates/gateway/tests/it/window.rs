//! `window_log = "auto"` on event data, with the memory limit that every process begins with.

use std::sync::Arc;

use pgshrink_codec::{Algorithm, AlgorithmList, Choice, block};
use pgshrink_testkit::{corpora, skipped};
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::{
    Agreed, Dialect, Flush, Link, LinkConfig, MemoryBudget, Offer, Policy, Role, WindowLog, message,
};

/// Of the corpus' beginning, so that the test stays short; all of it gains more.
const TEXT_SIZE: usize = 64 << 20;

#[test]
fn windows_events_are_15_percent_below_zstd_1_within_the_default_memory_limit() {
    let corpus = match corpora::find("windows_events") {
        Ok(corpus) => corpus,
        Err(missing) => return skipped("window_log = auto on windows_events", &missing),
    };
    let (text, messages) = copy(&corpus.prefix(TEXT_SIZE).unwrap());
    let mut yardstick = Vec::new();
    let choice = Choice::new(Algorithm::Zstd, 1).unwrap();
    block::Compressor::new().compress(choice, &text, &mut yardstick).unwrap();

    let list = AlgorithmList::parse("zstd:1", WIRE_ALGORITHMS).unwrap();
    let (gateways, connectors) = (MemoryBudget::default(), MemoryBudget::default());
    let offer = Offer::new(Dialect::Ack, &list).invite_window(connectors.window_log_invited());
    let answer = offer.answer(&list, gateways.window_log_invited());
    let mine = Agreed::from_ack(&list, &answer.ack.unwrap()[5..]).unwrap().unwrap();
    let policy = Policy { window_log: WindowLog::Auto, ..Policy::default() };
    let config = Arc::new(LinkConfig { policy, ..LinkConfig::default() });
    let mut gateway = Link::new(Role::Gateway, answer.agreed.unwrap(), config.clone(), gateways.clone());
    let mut connector = Link::new(Role::Connector, mine, config, connectors.clone());

    let (mut wire, mut out, mut sent, mut arrived) = (Vec::new(), Vec::new(), 0, 0);
    for piece in messages.chunks(8 << 10) {
        gateway.plain_buffer().extend_from_slice(piece);
        gateway.pump(Flush::Idle, &mut wire).unwrap();
        sent += wire.len();
        let mut rest = &wire[..];
        while !rest.is_empty() || connector.wants_output_room() {
            let used = connector.handle_wire(rest, &mut out).unwrap();
            rest = &rest[used..];
            assert!(messages[arrived..].starts_with(&out), "at {arrived}");
            arrived += out.len();
            out.clear();
        }
        wire.clear();
        // As many sessions as a process invites to the window fit, with as much again for their other direction.
        for budget in [&gateways, &connectors] {
            assert!(budget.used() <= budget.limit() / 128, "{} held", budget.used());
        }
    }
    let percent = 100.0 * sent as f64 / yardstick.len() as f64;
    println!("{sent} bytes, {percent:.2} % of zstd -1, {} and {} held", gateways.used(), connectors.used());
    assert!(arrived * 100 > messages.len() * 99, "{arrived} of {}", messages.len());
    assert!(percent <= 85.0, "{percent:.2} % of {}", yardstick.len());
}

/// Lines of a text column as COPY writes them, alone and as messages.
fn copy(documents: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut text, mut messages) = (Vec::new(), Vec::new());
    for line in documents.split_inclusive(|byte| *byte == b'\n') {
        let start = text.len();
        for byte in line {
            text.extend_from_slice(if *byte == b'\\' { b"\\\\" } else { std::slice::from_ref(byte) });
        }
        messages.extend(message::message(message::tag::COPY_DATA, &text[start..]));
    }
    (text, messages)
}
