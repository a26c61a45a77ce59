//! What an error of a server says of the data: that they are damaged, or that this server cannot read them.

use pgshrink_pgclient::protocol::backend::Report;

/// Longest message that is kept, in bytes.
const MESSAGE_BYTES_MAX: usize = 2000;

/// What ran when the error came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// The server's own code and that of types.
    Read,
    /// Functions of indexes too, which find their way by a search path that is not known here.
    Check,
}

/// Whether the data are not to blame.
pub(super) fn is_of_this_server(report: &Report, doing: Doing) -> bool {
    const TEXTS: [&str; 6] = [
        "could not access file",
        "could not load library",
        "incompatible library",
        "could not create locale",
        "could not open collator",
        "database locale is incompatible",
    ];
    if TEXTS.iter().any(|text| report.message.contains(text)) {
        return true;
    }
    // Classes of `src/backend/utils/errcodes.txt`.
    match report.sqlstate.as_bytes() {
        // Lock not available, canceled, an I/O error of the scratch space's disk.
        b"55P03" | b"57014" | b"58030" => true,
        // A relation or column that the catalogs have just named.
        b"42P01" | b"42703" => doing == Doing::Check,
        [b'4', b'2', ..] | [b'0', b'A', ..] | [b'5', b'3' | b'4', ..] | [b'P', b'0', ..] => true,
        [b'2', b'5', ..] | [b'2', b'8', ..] | [b'3', b'8' | b'9', ..] => true,
        _ => false,
    }
}

/// Message and detail.
pub(super) fn message(report: &Report) -> String {
    let mut text = format!("{} (SQLSTATE {})", report.message, report.sqlstate);
    if let Some(detail) = &report.detail {
        text = format!("{text}: {detail}");
    }
    cut(text)
}

/// What is too long loses its end.
pub(super) fn cut(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[test]
fn damage_is_told_from_what_this_server_lacks() {
    let report = |sqlstate: &str, message: &str| Report {
        sqlstate: sqlstate.to_owned(),
        message: message.to_owned(),
        ..Report::default()
    };
    for (sqlstate, message) in [
        ("XX001", "invalid page in block 3 of relation base/5/16384"),
        ("XX002", "index \"i\" is not a btree"),
        ("XX000", "missing chunk number 0 for toast value 1 in pg_toast_1"),
        ("58P01", "could not open file \"base/5/16384\": No such file or directory"),
        ("22021", "invalid byte sequence for encoding \"UTF8\": 0xff"),
    ] {
        assert!(!is_of_this_server(&report(sqlstate, message), Doing::Read), "{message}");
    }
    for (sqlstate, message) in [
        ("58P01", "could not access file \"$libdir/postgis-3\": No such file or directory"),
        ("55P03", "canceling statement due to lock timeout"),
        ("53200", "out of memory"),
        ("54000", "total size of jsonb array elements exceeds the maximum"),
    ] {
        assert!(is_of_this_server(&report(sqlstate, message), Doing::Read), "{message}");
    }
    let gone = report("42P01", "relation \"x\" does not exist");
    assert!(!is_of_this_server(&gone, Doing::Read) && is_of_this_server(&gone, Doing::Check));
}
