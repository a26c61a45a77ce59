//! `pgshrink.compression` in every form in which clients set and read it, and what may reach a client before authentication.

use pgshrink_gateway::config::TargetConfig;
use pgshrink_gateway::{ConnectorConfig, Running, start_connector};
use pgshrink_testkit::Auth;

use crate::harness::{Raw, cluster, connector, field, gateway, impostor, message, port, psql, tags};

/// What this end of the only session sends with.
fn sending(gateway: &Running) -> String {
    gateway.registry().sessions()[0].compression().unwrap().sending
}

/// The same once an answer that the client has read already is accounted for: an end does that behind its turn.
fn settled(raw: &mut Raw, gateway: &Running) -> String {
    ask(raw, "SELECT 1");
    sending(gateway)
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
fn only_what_the_server_has_confirmed_takes_effect() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    let both = || {
        let near = connector.registry().sessions()[0].compression().unwrap().sending;
        assert_eq!(near, sending(&gateway));
        near
    };
    for (sql, answer, expected) in [
        ("BEGIN", "CZ", "zstd:1"),
        ("SELECT 1/0", "EZ", "zstd:1"),
        ("SET pgshrink.compression = 'off'", "EZ", "zstd:1"),
        ("ROLLBACK", "CZ", "zstd:1"),
        ("SELECT 1/0; SET pgshrink.compression = 'off'", "EZ", "zstd:1"),
        ("SELECT 1; SET pgshrink.compression = 'off', 'lz4'; SET x.y = 1", "NTCEZ", "zstd:1"),
        ("SET x.y = 1; SET pgshrink.compression = 'off'; SET", "EZ", "zstd:1"),
        ("CREATE TEMP TABLE t (i int)", "CZ", "zstd:1"),
        (
            "CREATE RULE r AS ON INSERT TO t DO ALSO (SELECT 1; SELECT 2); SET x.y = 1; \
             CREATE FUNCTION pg_temp.f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END; \
             SET pgshrink.compression = 'lz4'",
            "CCCCZ",
            "lz4:1",
        ),
    ] {
        let messages = ask(&mut raw, sql);
        let answered: String = tags(&messages).replace('D', "");
        assert_eq!(answered, answer, "{sql}");
        ask(&mut raw, "SELECT 1");
        assert_eq!(both(), expected, "{sql}");
    }
    // A level above what is allowed is told of in front of ReadyForQuery.
    assert_eq!(tags(&ask(&mut raw, "SET pgshrink.compression = 'zstd:9'; SELECT 1")), "CNTDCZ");
    assert_eq!(settled(&mut raw, &gateway), "zstd:1");
}

#[test]
fn every_spelling_that_the_server_takes_is_followed_or_answered_with_a_notice() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    let long = format!("SET pgshrink.compression = 'off' -- {}", "x".repeat(100_000));
    for (sql, is_followed) in [
        ("SET \"pgshrink\".\"compression\" = 'off'", true),
        ("SET \"PGSHRINK\".compression TO off", true),
        ("SET pgshrink . /* x */ \"compression\"=\"off\"", true),
        ("SET \"pgshrink.compression\" = $$off$$", true),
        ("SET U&\"pgshrink\".compression = 'off'", false),
        ("SET U&\"\\0070gshrink\".compression = 'off'", false),
        (&long, false),
    ] {
        let answered = tags(&ask(&mut raw, sql));
        assert_eq!(answered, if is_followed { "CZ" } else { "NCZ" }, "{sql:.80}");
        assert_eq!(settled(&mut raw, &gateway), if is_followed { "off" } else { "zstd:1" }, "{sql:.80}");
        // The server itself knows it under one name, however it is spelt.
        let shown = value(&ask(&mut raw, "SELECT current_setting('pgshrink' || '.compression')"));
        assert_eq!(shown, "off", "{sql:.80}");
        assert_eq!(tags(&ask(&mut raw, "/* pool */ RESET ALL")), "CZ");
        assert_eq!(settled(&mut raw, &gateway), "zstd:1", "{sql:.80}");
    }
}

#[test]
fn a_prepared_set_takes_effect_each_time_it_is_executed() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    let parse = |name: &str, sql: &str| message(b'P', format!("{name}\0{sql}\0\0\0").as_bytes());
    let run = |name: &str| {
        let bind = message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes());
        [bind, message(b'E', &[0; 5])].concat()
    };
    let sync = message(b'S', b"");
    let mut send = |parts: &[Vec<u8>]| {
        raw.send(&parts.concat());
        let answered = tags(&raw.until(b'Z'));
        (answered, settled(&mut raw, &gateway))
    };
    let says = |answered: &str, sending: &str| (answered.to_owned(), sending.to_owned());
    let off = parse("off", "SET pgshrink.compression = 'off'");
    assert_eq!(
        send(&[off, parse("lz4", "SET pgshrink.compression = lz4"), sync.clone()]),
        says("11Z", "zstd:1")
    );
    for _ in 0..2 {
        assert_eq!(send(&[run("off"), sync.clone()]), says("2CZ", "off"));
        assert_eq!(
            send(&[parse("", "SELECT 1"), run(""), run("lz4"), sync.clone()]),
            says("12DC2CZ", "lz4:1")
        );
    }
    // What stands behind an error in the same series is not run.
    let failing = [parse("", "SELECT 1/0"), run(""), run("off"), sync.clone()];
    assert_eq!(send(&failing), says("1EZ", "lz4:1"));
    assert_eq!(send(&[run("off"), sync.clone()]), says("2CZ", "off"));
    assert_eq!(send(&[message(b'Q', b"DISCARD ALL\0")]), says("CZ", "zstd:1"));
    assert_eq!(send(&[run("off"), sync]), says("EZ", "zstd:1"));
}

#[test]
fn the_setting_is_followed_behind_a_copy() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let mut raw = Raw::login(port(&connector));
    ask(&mut raw, "CREATE TEMP TABLE t (i int)");
    let data = [message(b'd', b"1\n"), message(b'c', b"")].concat();
    raw.query("COPY t FROM STDIN; SET pgshrink.compression = 'off'");
    raw.until(b'G');
    raw.send(&data);
    assert_eq!(tags(&raw.until(b'Z')), "CCZ");
    assert_eq!(settled(&mut raw, &gateway), "off");
    // The server skips the Sync in front of the data.
    let copy = message(b'P', b"\0COPY t FROM STDIN\0\0\0");
    raw.send(&[copy, message(b'B', &[0; 8]), message(b'E', &[0; 5]), message(b'S', b"")].concat());
    raw.until(b'G');
    raw.send(&[data, message(b'S', b"")].concat());
    assert_eq!(tags(&raw.until(b'Z')), "CZ");
    assert_eq!(tags(&ask(&mut raw, "SET pgshrink.compression = 'lz4'")), "CZ");
    assert_eq!(settled(&mut raw, &gateway), "lz4:1");
    ask(&mut raw, "COPY t TO STDOUT; RESET pgshrink.compression");
    assert_eq!(settled(&mut raw, &gateway), "zstd:1");
}

#[test]
fn the_setting_in_the_startup_packet_is_followed_or_answered_with_a_notice() {
    let cluster = cluster(Auth::Trust);
    let gateway = gateway(&cluster);
    let connector = connector(&gateway, "ack", "zstd:1,lz4:1");
    let through = psql(&cluster, &connector).env("PGOPTIONS", "-c geqo=off -c pgshrink.compression=lz4");
    assert_eq!(through.clone().sql("show pgshrink.compression").unwrap(), "lz4:1");
    assert_eq!(through.sql("show geqo").unwrap(), "off");
    // As a server's own settings do, it goes back to what the session began with.
    let mut raw = Raw::connect(port(&connector));
    let options = ("options", "-c pgshrink.compression=lz4");
    raw.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres"), options]));
    raw.until(b'Z');
    for sql in
        ["reset pgshrink.compression", "set pgshrink.compression to default", "reset all", "discard all"]
    {
        ask(&mut raw, "set pgshrink.compression = 'on'");
        assert_eq!(value(&ask(&mut raw, "show pgshrink.compression")), "zstd:1");
        ask(&mut raw, sql);
        assert_eq!(value(&ask(&mut raw, "show pgshrink.compression")), "lz4:1", "{sql}");
    }
    // A session without compression cannot follow it. The rest of the options is the server's.
    let mut plain = Raw::connect(port(&gateway));
    let options = "-c pgshrink.compression=lz4 -c geqo=off";
    plain.send(&Raw::startup(&[("user", "postgres"), ("database", "postgres"), ("options", options)]));
    let messages = plain.until(b'Z');
    let notice = messages.iter().find(|m| m.0 == b'N').unwrap();
    assert!(field(&notice.1, b'M').contains("has no effect"));
    assert_eq!(value(&ask(&mut plain, "show geqo")), "off");
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
