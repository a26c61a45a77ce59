//! `pgshrink.compression` in every form in which clients set and read it, and what may reach a client before authentication.

use std::io::{Read, Write};
use std::net::TcpListener;

use pgshrink_gateway::config::TargetConfig;
use pgshrink_gateway::{ConnectorConfig, Running, start_connector};
use pgshrink_testkit::Auth;

use crate::harness::{Raw, cluster, connector, field, gateway, message, port, psql, tags};

/// What this end of the only session sends with.
fn sending(gateway: &Running) -> String {
    gateway.registry().sessions()[0].compression().unwrap().sending
}

fn ask(raw: &mut Raw, sql: &str) -> Vec<(u8, Vec<u8>)> {
    raw.query(sql);
    raw.until(b'Z')
}

/// The only value of the only row.
fn value(messages: &[(u8, Vec<u8>)]) -> String {
    let row = messages.iter().find(|m| m.0 == b'D').unwrap();
    String::from_utf8_lossy(&row.1[6..]).into_owned()
}

#[test]
fn the_setting_is_followed_behind_comments_and_among_statements() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    for (sql, expected) in [
        ("/* a driver's comment */ SET pgshrink.compression = 'off'", "off"),
        ("BEGIN; SET pgshrink.compression = 'lz4'; COMMIT", "lz4:1"),
        ("select 1; -- and then\nRESET pgshrink.compression", "zstd:1"),
    ] {
        assert!(!tags(&ask(&mut raw, sql)).contains('N'), "{sql}");
        ask(&mut raw, "select 1");
        assert_eq!(sending(&gateway), expected, "{sql}");
    }
}

#[test]
fn show_reports_what_is_in_effect_and_other_forms_are_answered_with_a_notice() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    let mut shown = |before: &str, reported: &str| {
        let messages = ask(&mut raw, before);
        let reports: Vec<_> = messages.iter().filter(|m| m.0 == b'N').collect();
        assert_eq!(reports.len(), usize::from(!reported.is_empty()), "{before}");
        reports.iter().for_each(|report| assert!(field(&report.1, b'M').contains(reported), "{before}"));
        value(&ask(&mut raw, "SHOW pgshrink.compression"))
    };
    // The server would say zstd:9, nonsense and lz4.
    let held = "pgshrink.compression is zstd:1 in this session";
    assert_eq!(shown("SET pgshrink.compression = 'zstd:9'", held), "zstd:1");
    assert_eq!(shown("SET pgshrink.compression = 'nonsense'", "nonsense"), "zstd:1");
    assert_eq!(shown("SET pgshrink.compression = 'lz4:1'", ""), "lz4:1");
    assert_eq!(shown("RESET pgshrink.compression", ""), "zstd:1");
    ask(&mut raw, "BEGIN");
    ask(&mut raw, "SET pgshrink.compression = 'off'");
    ask(&mut raw, "ROLLBACK");
    assert_eq!(value(&ask(&mut raw, "show pgshrink.compression;")), "off");
    for sql in [
        "SELECT set_config('pgshrink.compression', 'lz4', false)",
        "BEGIN; SET LOCAL pgshrink.compression = 'lz4'; COMMIT",
        "SELECT 1; SHOW pgshrink.compression",
    ] {
        let messages = ask(&mut raw, sql);
        let notice = messages.iter().find(|m| m.0 == b'N').unwrap_or_else(|| panic!("no notice: {sql}"));
        assert_eq!(field(&notice.1, b'M'), "pgshrink.compression is off in this session", "{sql}");
        assert_eq!(sending(&gateway), "off", "{sql}");
    }
    // The extended protocol, as drivers use it: Parse, Bind, Describe, Execute, Sync.
    let parse = message(b'P', b"\0SHOW pgshrink.compression\0\0\0");
    let rest = [message(b'B', &[0; 8]), message(b'D', b"P\0"), message(b'E', &[0; 5]), message(b'S', b"")];
    raw.send(&[parse, rest.concat()].concat());
    assert_eq!(value(&raw.until(b'Z')), "off");
}

#[test]
fn the_setting_in_the_startup_packet_is_followed_or_answered_with_a_notice() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let through = psql(&cluster, &connector).env("PGOPTIONS", "-c geqo=off -c pgshrink.compression=lz4");
    assert_eq!(through.clone().sql("show pgshrink.compression").unwrap(), "lz4:1");
    assert_eq!(through.sql("show geqo").unwrap(), "off");
    // A session without compression cannot follow it. The rest of the options is the server's.
    let mut plain = Raw::connect(port(&gateway));
    let options = "-c pgshrink.compression=lz4 -c geqo=off";
    plain.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres"), ("options", options)]));
    let messages = plain.until(b'Z');
    let notice = messages.iter().find(|m| m.0 == b'N').unwrap();
    assert!(field(&notice.1, b'M').contains("has no effect"));
    assert_eq!(value(&ask(&mut plain, "show geqo")), "off");
}

/// A server that answers each startup packet with these bytes.
fn impostor(answer: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&answer);
            // Until the other end has closed.
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    port
}

#[test]
fn nothing_of_compression_reaches_a_client_before_authentication() {
    let frame = message(b'z', b"\x03garbage");
    let ack = message(b'z', b"zstd:1\0");
    for (compression, answer) in [
        ("zstd:1", [ack.clone(), frame.clone()].concat()),
        ("zstd:1", [ack, message(b'm', b"garbage")].concat()),
        ("off", frame.clone()),
    ] {
        let connector = start_connector(ConnectorConfig {
            listen: vec!["127.0.0.1:0".into()],
            targets: vec![TargetConfig::new("127.0.0.1", impostor(answer))],
            compression: compression.into(),
            ..Default::default()
        });
        let connector = connector.unwrap();
        let mut raw = Raw::connect(port(&connector));
        raw.send(&Raw::startup(&[("user", "postgres")]));
        let (tag, error) = raw.message().unwrap();
        assert_eq!((tag, field(&error, b'C')), (b'E', "08P01".to_string()), "{compression}");
        assert!(field(&error, b'M').contains("before authentication"));
        assert!(raw.ends());
    }
}
