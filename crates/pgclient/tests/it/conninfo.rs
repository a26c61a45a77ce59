//! Both syntaxes: what they mean, and how they are edited.

use crate::world::text;
use pgshrink_pgclient::conninfo::{Conninfo, is_recognized, is_uri, quoted};

fn read(string: &str) -> String {
    match Conninfo::parse(string.as_bytes()) {
        Ok(info) => {
            let shown = |s: &pgshrink_pgclient::conninfo::Setting| {
                format!("{}=<{}>", text(&s.keyword), text(&s.value))
            };
            info.settings().iter().map(shown).collect::<Vec<_>>().join(" ")
        }
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn keyword_value_strings_mean_what_they_mean_to_libpq() {
    let table = [
        ("", ""),
        ("  \t\n", ""),
        ("host=a port=1", "host=<a> port=<1>"),
        ("  host = a   port\t=\n1 ", "host=<a> port=<1>"),
        ("host=''", "host=<>"),
        ("host= port=1", "host=<port=1>"),
        ("host=", "host=<>"),
        (r"password='it\'s \\ here'", r"password=<it's \ here>"),
        (r"password=it\'s\ me", "password=<it's me>"),
        (r"password=a\", "password=<a>"),
        (r"password=a\\", r"password=<a\>"),
        ("user='a'host=b", "user=<a> host=<b>"),
        ("user=a'b'", "user=<a'b'>"),
        ("options='-c geqo=off'", "options=<-c geqo=off>"),
        ("host=a host=b", "host=<a> host=<b>"),
        ("compression=zstd:1,lz4 future_thing=1", "compression=<zstd:1,lz4> future_thing=<1>"),
        ("requiressl=1", "sslmode=<require>"),
        ("requiressl=0", "sslmode=<prefer>"),
        ("dbname=postgresql://h/d", "dbname=<postgresql://h/d>"),
        ("=x", "=<x>"),
        ("user=ann\u{b}host=b", "user=<ann> host=<b>"),
    ];
    for (string, meaning) in table {
        assert_eq!(read(string), meaning, "{string:?}");
    }
}

#[test]
fn uris_mean_what_they_mean_to_libpq() {
    let table = [
        (
            "postgresql://u:secret@host:12345/db",
            "user=<u> password=<secret> host=<host> port=<12345> dbname=<db>",
        ),
        ("postgres://", ""),
        ("postgres:///", ""),
        ("postgres:///db", "dbname=<db>"),
        ("postgresql://u@", "user=<u>"),
        ("postgres://@host", "host=<host>"),
        ("postgres://host:/", "host=<host>"),
        ("postgres://:12345/", "port=<12345>"),
        ("postgresql://%68ost/", "host=<host>"),
        ("postgresql://host?", "host=<host>"),
        ("postgresql://host/db?user=u&port=1", "host=<host> dbname=<db> user=<u> port=<1>"),
        ("postgresql://host/db?u%73er=x", "host=<host> dbname=<db> user=<x>"),
        ("postgresql://[::1]:12345/db", "host=<::1> port=<12345> dbname=<db>"),
        ("postgresql://[200z::1]", "host=<200z::1>"),
        ("postgresql://a:1,[::1]:2,c/db", "host=<a,::1,c> port=<1,2,> dbname=<db>"),
        ("postgresql://a,b/db", "host=<a,b> port=<,> dbname=<db>"),
        ("postgresql://,/db", "host=<,> port=<,> dbname=<db>"),
        ("postgres://a%2Cb", "host=<a,b>"),
        ("postgres://u@/?host=/no/such", "user=<u> host=</no/such>"),
        ("postgres://%2Fvar%2Frun/d", "host=</var/run> dbname=<d>"),
        ("postgres://h?ssl=true", "host=<h> sslmode=<require>"),
        ("postgres://h?ssl=false", "host=<h> ssl=<false>"),
        ("postgres://h?requiressl=1", "host=<h> sslmode=<require>"),
        ("postgres://h?a=b&", "host=<h> a=<b>"),
        ("postgres://h?x=a@b", "user=<h?x=a> host=<b>"),
        ("postgres://u:p:q@h", "user=<u> password=<p:q> host=<h>"),
        ("postgres://h/d/e", "host=<h> dbname=<d/e>"),
        ("postgres:// h /d", "host=<h> dbname=<d>"),
        ("postgres://h?application_name=a+b", "host=<h> application_name=<a+b>"),
    ];
    for (string, meaning) in table {
        assert_eq!(read(string), meaning, "{string:?}");
    }
}

#[test]
fn errors_begin_as_libpqs_do() {
    let table = [
        ("host", "missing \"=\" after \"host\" in connection info string"),
        ("host a=1", "missing \"=\" after \"host\" in connection info string"),
        ("postgre://", "missing \"=\" after \"postgre://\" in connection info string"),
        ("POSTGRES://h", "missing \"=\" after \"POSTGRES://h\" in connection info string"),
        ("user='a", "unterminated quoted string in connection info string"),
        (r"user='a\'", "unterminated quoted string in connection info string"),
        (
            "postgres://[::1",
            "end of string reached when looking for matching \"]\" in IPv6 host address in URI: \"postgres://[::1\"",
        ),
        ("postgres://[]", "IPv6 host address may not be empty in URI: \"postgres://[]\""),
        (
            "postgres://[::1]z",
            "unexpected character \"z\" at position 17 in URI (expected \":\" or \"/\"): \"postgres://[::1]z\"",
        ),
        ("postgresql://host?zzz", "missing key/value separator \"=\" in URI query parameter: \"zzz\""),
        ("postgresql://host?a=1&&b=2", "missing key/value separator \"=\" in URI query parameter: \"\""),
        ("postgresql://host?&", "missing key/value separator \"=\" in URI query parameter: \"\""),
        ("postgresql://host?k=k=v", "extra key/value separator \"=\" in URI query parameter: \"k\""),
        ("postgres://host?dbname=%XXfoo", "invalid percent-encoded token: \"%XXfoo\""),
        ("postgresql://a%00b", "forbidden value %00 in percent-encoded value: \"a%00b\""),
        ("postgresql://%", "invalid percent-encoded token: \"%\""),
        ("postgresql://%1", "invalid percent-encoded token: \"%1\""),
    ];
    for (string, message) in table {
        let read = read(string);
        assert!(read.starts_with(&format!("error: {message}")), "{string:?} gave {read}");
    }
}

#[test]
fn strict_parsing_refuses_what_no_libpq_knows() {
    let strict =
        |string: &str| Conninfo::parse_strict(string.as_bytes()).map(drop).map_err(|e| e.to_string());
    assert_eq!(strict("host=a zzz=1"), Err("invalid connection option \"zzz\"".to_owned()));
    assert_eq!(strict("postgres://h?uzer="), Err("invalid URI query parameter: \"uzer\"".to_owned()));
    assert_eq!(strict("host=a compression=lz4 sslnegotiation=direct servicefile=x"), Ok(()));
}

#[test]
fn messages_and_debug_output_do_not_show_passwords() {
    for string in
        ["password=my hunter2 x", "postgres://u:hunter2@[h", "postgres://u:%hunter2@h", "password=hunter2"]
    {
        let shown = match Conninfo::parse(string.as_bytes()) {
            Ok(info) => format!("{info:?}"),
            Err(error) => error.to_string(),
        };
        assert!(!shown.contains("hunter2"), "{string:?} gave {shown}");
    }
}

#[test]
fn a_string_that_was_not_edited_stays_as_it_was() {
    for string in ["  a = 'b'c=d\\ ", "postgres://u@h:1,/d?x=%41&", "a=b\\", "", "postgres://?"] {
        let mut info = Conninfo::parse(string.as_bytes()).unwrap();
        assert!(!info.remove("compression"));
        assert_eq!(text(&info.text()), string);
    }
}

#[test]
fn removing_a_keyword_leaves_the_rest_as_it_was() {
    let table = [
        ("host=a compression=zstd:1 port=1", "host=a port=1"),
        ("compression=zstd:1 host=a", "host=a"),
        ("host=a  compression = 'zstd:1'", "host=a"),
        ("a=x compression='z'b=1", "a=x b=1"),
        ("a='x'compression='z'b='1'", "a='x' b='1'"),
        ("compression=x compression=y", ""),
        (r"compression=z password=a\", "password=a"),
        ("postgres://h/d?compression=lz4", "postgres://h/d"),
        ("postgres://h/d?a=%41&compression=lz4&b=%2f", "postgres://h/d?a=%41&b=%2f"),
        ("postgres://h/d?compress%69on=lz4&b=1&", "postgres://h/d?b=1"),
    ];
    for (string, rest) in table {
        let mut info = Conninfo::parse(string.as_bytes()).unwrap();
        assert!(info.remove("compression"), "{string:?}");
        assert_eq!(text(&info.text()), rest, "{string:?}");
    }
}

#[test]
fn setting_a_host_keeps_ports_and_everything_else() {
    let table = [
        ("host=a,b port=1,2 user='x y'", "port=1,2 user='x y' host=/s/0,/s/1"),
        ("", "host=/s/0,/s/1"),
        (r"password=a\", "password=a host=/s/0,/s/1"),
        ("user='x'", "user='x' host=/s/0,/s/1"),
        ("postgres://u:p@a:1,b:2/d?x=1", "postgres://u:p@/d?x=1&port=1,2&host=/s/0,/s/1"),
        ("postgres://u@a:1,b:2/d?port=7", "postgres://u@/d?port=7&host=/s/0,/s/1"),
        ("postgres://a", "postgres:///?host=/s/0,/s/1"),
        ("postgres://a/d?host=b&host=c", "postgres:///d?host=/s/0,/s/1"),
        ("postgres://[::1]:5/", "postgres:///?port=5&host=/s/0,/s/1"),
    ];
    for (string, edited) in table {
        let mut info = Conninfo::parse(string.as_bytes()).unwrap();
        info.set("host", b"/s/0,/s/1");
        assert_eq!(text(&info.text()), edited, "{string:?}");
        let again = Conninfo::parse(&info.text()).unwrap();
        assert_eq!(again.get("host").as_deref(), Some(&b"/s/0,/s/1"[..]));
        assert_eq!(again.get("port"), Conninfo::parse(string.as_bytes()).unwrap().get("port"));
    }
}

#[test]
fn every_value_survives_being_set() {
    for value in ["", " ", "'", "\\", "a b", "a'b\\c", "/x:1,@?&=%", "\u{e9}\u{1F600}", "\t\n\u{b}"] {
        for string in ["user=a", "postgres://u@h/d?x=1"] {
            let mut info = Conninfo::parse(string.as_bytes()).unwrap();
            info.set("hostaddr", value.as_bytes());
            let again = Conninfo::parse(&info.text()).unwrap();
            assert_eq!(again.get("hostaddr").map(|v| text(&v)), Some(value.to_owned()), "{string} {value:?}");
        }
    }
    let latin1 = b"password=\xe9";
    let mut info = Conninfo::parse(latin1).unwrap();
    info.set("host", b"/s");
    assert_eq!(info.text(), b"password=\xe9 host=/s");
    assert_eq!(quoted(b"a"), b"a");
}

#[test]
fn credentials_and_parts_of_a_uri_can_be_removed() {
    let edit = |string: &str, keyword: &str| {
        let mut info = Conninfo::parse(string.as_bytes()).unwrap();
        info.remove(keyword);
        text(&info.text())
    };
    assert_eq!(edit("postgres://u:p@h/d", "password"), "postgres://u@h/d");
    assert_eq!(edit("postgres://u:p@h/d", "user"), "postgres://:p@h/d");
    assert_eq!(edit("postgres://u@h/d", "user"), "postgres://h/d");
    assert_eq!(edit("postgres://u@h:1/d", "port"), "postgres://u@/d?host=h");
    assert_eq!(edit("postgres://u@h:1/d", "dbname"), "postgres://u@h:1");
}

#[test]
fn connection_strings_are_told_from_database_names() {
    assert!(is_recognized(b"host=a") && is_recognized(b"postgres://") && is_recognized(b"a=b"));
    assert!(!is_recognized(b"mydb") && !is_recognized(b"") && !is_recognized(b"http://x"));
    assert!(is_uri(b"postgresql://x") && !is_uri(b"postgresql:/x") && !is_uri(b" postgres://"));
}
