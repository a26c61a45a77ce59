//! Messages: what is read of them, and what is refused.

use pgshrink_pgclient::protocol::Lsn;
use pgshrink_pgclient::protocol::backend::{
    Authentication, Report, Row, Streamed, backend_key, row_description,
};

fn data_row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(-1, |value| value.len() as i32);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    body
}

fn columns(names: &[&str]) -> Vec<u8> {
    let mut body = (names.len() as u16).to_be_bytes().to_vec();
    for name in names {
        body.extend_from_slice(&[name.as_bytes(), &[0], &[0; 6], &17_u32.to_be_bytes(), &[0; 8]].concat());
    }
    body
}

#[test]
fn a_row_gives_its_values_and_a_cut_or_longer_one_is_refused() {
    let values: [Option<&[u8]>; 4] = [Some(b"ab"), None, Some(b""), Some(&[0, 255])];
    let body = data_row(&values);
    let row = Row::parse(&body).unwrap();
    assert_eq!(row.values().collect::<Vec<_>>(), values);
    assert_eq!(
        (row.len(), row.get(0), row.get(1), row.get(3), row.get(4)),
        (4, values[0], None, values[3], None)
    );
    for cut in 0..body.len() {
        assert!(Row::parse(&body[..cut]).is_err(), "cut at {cut}");
    }
    assert!(Row::parse(&[&body[..], &[0]].concat()).is_err());
}

#[test]
fn lengths_that_lie_are_refused_without_memory_for_them() {
    for length in [-2, i32::MIN, i32::MAX, 5] {
        let body = [&1_u16.to_be_bytes()[..], &length.to_be_bytes(), b"1234"].concat();
        assert!(Row::parse(&body).is_err(), "{length}");
    }
    assert!(Row::parse(&[0xff, 0xff]).is_err());
    assert!(row_description(&[0xff, 0xff, b'a', 0]).is_err());
}

#[test]
fn a_row_description_gives_names_and_types_and_a_cut_one_is_refused() {
    let body = columns(&["a", "", "ü"]);
    let found = row_description(&body).unwrap();
    let found: Vec<_> = found.iter().map(|column| (column.name.as_str(), column.type_oid)).collect();
    assert_eq!(found, [("a", 17), ("", 17), ("ü", 17)]);
    for cut in 0..body.len() {
        assert!(row_description(&body[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn authentication_requests_are_told_apart_and_unknown_ones_have_names() {
    let request = |code: i32, rest: &[u8]| [&code.to_be_bytes()[..], rest].concat();
    let parse = |body: &[u8]| format!("{:?}", Authentication::parse(body));
    assert_eq!(parse(&request(0, b"")), "Ok(Ok)");
    assert_eq!(parse(&request(5, &[1, 2, 3, 4])), "Ok(Md5([1, 2, 3, 4]))");
    let sasl = parse(&request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"));
    assert_eq!(sasl, "Ok(Sasl([\"SCRAM-SHA-256-PLUS\", \"SCRAM-SHA-256\"]))");
    assert!(parse(&request(7, b"")).contains("GSSAPI") && parse(&request(9, b"")).contains("SSPI"));
    assert!(parse(&request(99, b"")).contains("99"));
    assert!(Authentication::parse(&request(5, &[1, 2, 3])).is_err());
    assert!(Authentication::parse(&request(10, b"SCRAM")).is_err());
    assert!(Authentication::parse(&[0, 0, 0]).is_err());
}

#[test]
fn streamed_wal_and_keepalives_are_read_and_cut_ones_refused() {
    let wal = [&b"w"[..], &7_u64.to_be_bytes(), &9_u64.to_be_bytes(), &5_u64.to_be_bytes(), b"xyz"].concat();
    assert!(Streamed::parse(&wal) == Ok(Streamed::Wal { start: 7, end: 9, clock: 5, data: b"xyz" }));
    let keepalive = [&b"k"[..], &9_u64.to_be_bytes(), &5_u64.to_be_bytes(), &[1]].concat();
    assert!(Streamed::parse(&keepalive) == Ok(Streamed::Keepalive { end: 9, clock: 5, reply: true }));
    for cut in 0..25 {
        assert!(Streamed::parse(&wal[..cut]).is_err(), "cut at {cut}");
    }
    for cut in 0..keepalive.len() {
        assert!(Streamed::parse(&keepalive[..cut]).is_err(), "cut at {cut}");
    }
    assert!(Streamed::parse(b"x12345678123456781").is_err());
}

#[test]
fn a_report_is_read_from_whatever_is_there() {
    let report = Report::parse(b"SFEHLER\0VERROR\0C28P01\0Mwrong\0Dmore\0Hdo this\0Xunknown\0\0");
    let expected = "ERROR: wrong (SQLSTATE 28P01)\nDETAIL: more\nHINT: do this";
    assert_eq!(report.to_string(), expected);
    assert_eq!(Report::parse(b"SFEHLER\0Mx").severity, "FEHLER");
    assert_eq!(Report::parse(b""), Report::default());
    let long = [b"M", &[b'a'; 100_000][..], &[0]].concat();
    assert_eq!(Report::parse(&long).message.len(), 8 << 10);
}

#[test]
fn keys_of_other_sizes_than_the_protocol_has_are_refused() {
    assert_eq!(backend_key(&[0, 0, 0, 9, 1, 2, 3, 4]).unwrap(), (9, &[1, 2, 3, 4][..]));
    assert!(backend_key(&[0, 0, 0, 9, 1, 2, 3]).is_err());
    assert!(backend_key(&[0; 261]).is_err());
}

#[test]
fn garbage_is_never_a_panic() {
    let mut state = 1_u64;
    for _ in 0..20_000 {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let body: Vec<u8> =
            (0..next() % 40).map(|_| if next() % 3 == 0 { 0 } else { next() as u8 }).collect();
        let _ = Row::parse(&body).map(|row| row.values().count());
        let _ = row_description(&body);
        let _ = Authentication::parse(&body);
        let _ = Streamed::parse(&body);
        let _ = backend_key(&body);
        let _ = Report::parse(&body);
    }
}

#[test]
fn positions_are_written_as_postgresql_writes_them() {
    let position: Lsn = "16/B374D848".parse().unwrap();
    assert_eq!((position, position.to_string().as_str()), (Lsn(0x16_b374_d848), "16/B374D848"));
    assert_eq!("0/0".parse(), Ok(Lsn(0)));
    assert_eq!("ffffffff/FFFFFFFF".parse(), Ok(Lsn(u64::MAX)));
    for wrong in ["", "/", "1/", "/1", "1", "123456789/0", "+1/0", "1/-1", "0x1/0", "1/2/3", " 1/2"] {
        assert!(wrong.parse::<Lsn>().is_err(), "{wrong:?}");
    }
}
