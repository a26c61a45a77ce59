//! `backup.json`: what was written is read again, and nothing else is.

use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::pack::{BackupId, PackNumber, Sha256};
use pgshrink_backup::record::{
    Configuration, ConfigurationFile, ConfigurationRole, DIRECTORIES_MAX, PackRecord, RECORD_BYTES_MAX,
    Record, TablespaceRecord, WAL_FILES_MAX, WalFileRecord,
};
use pgshrink_backup::{BackupPath, Error, Lsn, Timeline};

fn pack(number: u32, unused: &[u32]) -> PackRecord {
    let number = PackNumber(number);
    PackRecord { number, bytes: 67_000_000, footer_sha256: Sha256([7; 32]), unused: unused.to_vec() }
}

fn record() -> Record {
    Record {
        id: BackupId(*b"sixteen bytes ok"),
        label: "nightly \"full\" ü".to_owned(),
        server_version: 150_020,
        system_identifier: SystemIdentifier(u64::MAX - 1),
        wal_segment_bytes: 16 << 20,
        start_lsn: Lsn(0x1_0200_0028),
        start_timeline: Timeline::FIRST,
        stop_lsn: Lsn(0x1_0300_0100),
        stop_timeline: Timeline::new(2).unwrap(),
        start_time: "2026-11-25 14:39:20 GMT".parse().unwrap(),
        stop_time: "2026-11-25 14:45:00 GMT".parse().unwrap(),
        chunk_bytes: 512 << 10,
        group_access: false,
        tablespaces: vec![
            TablespaceRecord { oid: 16_384, location: "/srv/fast".to_owned() },
            TablespaceRecord { oid: 16_385, location: "/srv/with blank".to_owned() },
        ],
        directories: ["base", "base/5", "pg_wal"]
            .map(|path| BackupPath::new(path.as_bytes()).unwrap())
            .to_vec(),
        wal: ["000000020000000100000002", "000000020000000100000003", "00000002.history"]
            .map(|name| WalFileRecord { path: format!("pg_wal/{name}").parse().unwrap(), bytes: 16 << 20 })
            .to_vec(),
        files: 1_000,
        raw_bytes: u64::MAX,
        packs: vec![pack(1, &[]), pack(2, &[0, 4, 65_535]), pack(0x0010_0001, &[])],
        manifest_sha256: Sha256([8; 32]),
        parent: None,
        configuration: None,
    }
}

fn file(path: &str, role: ConfigurationRole, bytes: u64) -> ConfigurationFile {
    ConfigurationFile { path: path.to_owned(), role, bytes, sha256: Sha256([9; 32]) }
}

/// As Debian has it.
fn with_configuration() -> Record {
    let configuration = Configuration {
        data_directory: "/var/lib/postgresql/15/main".to_owned(),
        config_file: "/etc/postgresql/15/main/postgresql.conf".to_owned(),
        files: vec![
            file("/etc/postgresql/15/main/postgresql.conf", ConfigurationRole::Config, 29_000),
            file("/etc/postgresql/15/main/pg_hba.conf", ConfigurationRole::Hba, 0),
            file("/etc/postgresql/15/main/ü.conf", ConfigurationRole::Included, 4 << 20),
        ],
        directories: vec!["/etc/postgresql/15/main/conf.d".to_owned()],
        absent: vec!["/etc/ssl/private/server.key".to_owned()],
    };
    Record { configuration: Some(configuration), ..record() }
}

#[test]
fn what_was_written_is_read_again() {
    let with_parent = Record { parent: Some("20261124T143000Z".to_owned()), ..record() };
    let empty = Record { tablespaces: vec![], directories: vec![], packs: vec![], ..record() };
    let for_group = Record { group_access: true, ..record() };
    for record in [record(), with_parent, empty, for_group, with_configuration()] {
        let bytes = record.write().unwrap();
        assert_eq!(Record::read(&bytes).unwrap(), record);
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

#[test]
fn its_text_is_what_the_format_says() {
    let text = String::from_utf8(record().write().unwrap()).unwrap();
    let start = r#"{"format":"pgshrink backup","version":1,"record":{"id":"7369787465656e206279746573206f6b","label":"#;
    assert!(text.starts_with(start), "{text}");
    for part in [
        r#""system_identifier":"18446744073709551614""#,
        r#""start_lsn":"1/2000028""#,
        r#""stop_timeline":"2""#,
        r#""stop_time":"2026-11-25 14:45:00 GMT""#,
        r#""tablespaces":[{"oid":16384,"location":"/srv/fast"}"#,
        r#""directories":["base","base/5","pg_wal"]"#,
        r#""packs":[{"number":1,"bytes":67000000,"footer_sha256":"0707"#,
        r#"0707","unused":[0,4,65535]},{"number":1048577,"#,
        r#""parent":null"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("group_access"));
    let text = String::from_utf8(Record { group_access: true, ..record() }.write().unwrap()).unwrap();
    assert!(text.contains(r#""chunk_bytes":524288,"group_access":true,"tablespaces""#), "{text}");
}

#[test]
fn a_record_without_configuration_is_as_it_was_before_there_was_any() {
    let text = |record: Record| String::from_utf8(record.write().unwrap()).unwrap();
    assert!(!text(record()).contains("configuration"));
    let text = text(with_configuration());
    for part in [
        r#""parent":null,"configuration":{"data_directory":"/var/lib/postgresql/15/main","config_file":"/etc/p"#,
        r#""files":[{"path":"/etc/postgresql/15/main/postgresql.conf","role":"config","bytes":29000,"sha256":"09"#,
        r#"main/pg_hba.conf","role":"hba","bytes":0,"#,
        r#"0909"}],"directories":["/etc/postgresql/15/main/conf.d"],"absent":["/etc/ssl/private/server.key"]}"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn configuration_that_leads_elsewhere_is_refused() {
    let changed = |change: &dyn Fn(&mut Configuration)| {
        let mut record = with_configuration();
        record.configuration.as_mut().map(change).unwrap();
        record.write()
    };
    assert!(changed(&|_| ()).is_ok());
    let path = |path: &str| {
        let path = path.to_owned();
        move |found: &mut Configuration| found.files[2].path.clone_from(&path)
    };
    let long = format!("/{}", "x".repeat(1024));
    for bad in [
        "etc/x",
        "",
        "/",
        "/etc/../../x",
        "/..",
        "/etc//x",
        "/etc/./x",
        "/etc/x/",
        "/a\0b",
        &long,
        "/etc/postgresql/15/main/pg_hba.conf",
        "/etc/postgresql/15/main/pg_hba.conf/below",
        "/etc/postgresql/15/main/conf.d",
        "/etc/postgresql/15",
        "/var/lib/postgresql/15/main/postgresql.conf",
        "/var/lib/postgresql/15/main",
    ] {
        let error = changed(&path(bad)).expect_err(bad).to_string();
        assert!(error.contains("backup.json"), "{bad}: {error}");
    }
    let changes: [&dyn Fn(&mut Configuration); 8] = [
        &|found: &mut Configuration| found.directories.push("x".to_owned()),
        &|found: &mut Configuration| found.absent.push("/a/../b".to_owned()),
        &|found: &mut Configuration| found.data_directory = "data".to_owned(),
        &|found: &mut Configuration| found.config_file = "../x".to_owned(),
        &|found: &mut Configuration| found.files[2].role = ConfigurationRole::Hba,
        &|found: &mut Configuration| found.files[2].bytes = (4 << 20) + 1,
        &|found: &mut Configuration| found.files[2].bytes = u64::MAX,
        &|found: &mut Configuration| {
            let more = |n: u32| file(&format!("/etc/{n}"), ConfigurationRole::Included, 4 << 20);
            found.files.extend((0..4).map(more));
        },
    ];
    for change in changes {
        assert!(matches!(changed(change), Err(Error::Malformed { .. })));
    }
    let files = |count: usize| {
        changed(&|found| {
            let more = |n: usize| file(&format!("/etc/{n}"), ConfigurationRole::Included, 1);
            found.files.extend((0..count).map(more));
        })
    };
    assert!(files(253).is_ok());
    assert!(matches!(files(254), Err(Error::Limit { allowed: 256, .. })));
    let names = |count: usize| (0..count).map(|n| format!("/srv/{n}")).collect::<Vec<_>>();
    assert!(matches!(changed(&|found| found.directories = names(257)), Err(Error::Limit { .. })));
    assert!(matches!(changed(&|found| found.absent = names(257)), Err(Error::Limit { .. })));
}

#[test]
fn packs_are_in_order_and_so_are_chunks_that_are_not_used() {
    let refused = [
        vec![pack(0, &[])],
        vec![pack(0x0010_0000, &[])],
        vec![pack(2, &[]), pack(1, &[])],
        vec![pack(1, &[]), pack(1, &[])],
        vec![pack(1, &[3, 2])],
        vec![pack(1, &[3, 3])],
        vec![pack(1, &[65_536])],
    ];
    for packs in refused {
        assert!(Record { packs: packs.clone(), ..record() }.write().is_err(), "{packs:?}");
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = record().write().unwrap();
    for at in 0..bytes.len() {
        assert!(at == bytes.len() - 1 || Record::read(&bytes[..at]).is_err(), "{at} bytes");
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // A newline may become another blank, and a digit of the SHA-256 another case.
            let same = Record::read(&flipped).is_ok_and(|found| found == record());
            let harmless = bytes[at] == b'\n' || bytes[at].is_ascii_alphabetic() && bit == 5;
            assert!(Record::read(&flipped).is_err() || same && harmless, "bit {bit} of byte {at}");
        }
    }
}

/// A record as somebody else would write it: with the right SHA-256.
fn read_text(record: &str, version: u32) -> Result<Record, Error> {
    use sha2::Digest;
    let sha256 = Sha256(sha2::Sha256::digest(record).into());
    let text = format!(
        r#"{{"format":"pgshrink backup","version":{version},"record":{record},"sha256":"{sha256}"}}"#
    );
    Record::read(text.as_bytes())
}

fn inner() -> String {
    let text = String::from_utf8(record().write().unwrap()).unwrap();
    let from = text.find(r#"{"id""#).unwrap();
    let to = text.rfind(r#","sha256""#).unwrap();
    text[from..to].to_owned()
}

#[test]
fn a_newer_version_is_unsupported_and_not_damaged() {
    assert_eq!(read_text(&inner(), 1).unwrap(), record());
    assert!(matches!(read_text(&inner(), 0), Err(Error::Malformed { .. })));
    assert!(matches!(read_text(r#"{"other":1}"#, 2), Err(Error::Unsupported { .. })));
    let without = br#"{"format":"pgshrink backup","version":2,"something":1}"#;
    assert!(matches!(Record::read(without), Err(Error::Unsupported { .. })));
}

#[test]
fn what_a_restore_must_not_believe_is_refused() {
    for (from, to) in [
        (r#""base/5""#, r#""../5""#),
        (r#""base/5""#, r#""/base""#),
        (r#""oid":16385"#, r#""oid":16384"#),
        (r#""oid":16385"#, r#""oid":0"#),
        (r#""/srv/fast""#, r#""srv/fast""#),
        (r#""chunk_bytes":524288"#, r#""chunk_bytes":1048577"#),
        (r#""chunk_bytes":524288"#, r#""chunk_bytes":131071"#),
        (r#""wal_segment_bytes":16777216"#, r#""wal_segment_bytes":3"#),
        (r#""stop_lsn":"1/3000100""#, r#""stop_lsn":"1/100""#),
        (r#""stop_timeline":"2""#, r#""stop_timeline":"0""#),
        (r#""label""#, r#""lable""#),
        (r#""pg_wal/00000002."#, r#""base/00000002."#),
        (r#""pg_wal/00000002."#, r#""pg_wal/x/00000002."#),
        (r#""pg_wal/000000020000000100000002"#, r#""pg_wal/000000020000000100000004"#),
        (r#""pg_wal/000000020000000100000003"#, r#""pg_wal/000000020000000100000004"#),
        (r#""parent":null"#, r#""parent":null,"more":1"#),
    ] {
        let text = inner();
        assert!(text.contains(from), "{from}");
        let error = read_text(&text.replace(from, to), 1).expect_err(to).to_string();
        assert!(
            ["backup.json", "segment", "WAL of the backup"].iter().any(|what| error.contains(what)),
            "{to}: {error}"
        );
    }
    for text in ["", "{}", "[]", "null", r#"{"format":"other","version":1}"#] {
        assert!(Record::read(text.as_bytes()).is_err(), "{text}");
    }
    assert!(matches!(Record::read(&vec![b' '; RECORD_BYTES_MAX + 1]), Err(Error::Limit { .. })));
}

#[test]
fn packs_have_no_more_bytes_together_than_can_be_counted() {
    let text = inner().replacen(r#""bytes":67000000"#, &format!(r#""bytes":{}"#, u64::MAX), 1);
    assert!(text.contains(&u64::MAX.to_string()));
    let error = read_text(&text, 1).unwrap_err().to_string();
    assert!(error.contains("backup.json"), "{error}");
}

#[test]
fn more_directories_than_a_cluster_has_are_refused() {
    let with = |count: usize| inner().replacen(r#"["base","#, &format!("[{}", r#""a","#.repeat(count)), 1);
    // Two more stand behind them.
    assert_eq!(read_text(&with(DIRECTORIES_MAX - 2), 1).unwrap().directories.len(), DIRECTORIES_MAX);
    let error = read_text(&with(DIRECTORIES_MAX - 1), 1).unwrap_err().to_string();
    assert!(error.contains("1048576"), "{error}");
}

/// Each takes memory of its own, so they are counted while they are read and not afterwards.
#[test]
fn files_of_wal_are_counted_before_they_take_memory() {
    let entry = r#"{"path":"pg_wal/000000020000000100000002","bytes":16777216},"#;
    let with = |count: usize| inner().replace(r#""wal":["#, &format!(r#""wal":[{}"#, entry.repeat(count)));
    assert!(read_text(&with(WAL_FILES_MAX - 3), 1).is_ok());
    let refused = read_text(&with(WAL_FILES_MAX - 2), 1).unwrap_err().to_string();
    assert!(refused.contains("invalid length 262145"), "{refused}");
    let wal = vec![record().wal[0].clone(); WAL_FILES_MAX + 1];
    assert!(Record { wal, ..record() }.write().is_err());
}
