//! Labels and tablespace maps of real servers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use pgshrink_backup::label::{
    BackupFrom, BackupLabel, BackupMethod, parse_tablespace_map, write_tablespace_map,
};
use pgshrink_backup::{Timeline, WalSegmentSize};
use pgshrink_testkit::{Cluster, Server, TempDir};

#[test]
fn a_servers_label_and_map_are_read_and_written_again_byte_for_byte() {
    Server::each("labels", &Server::chosen(&[15, 18]), |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let home = TempDir::owned_by(cluster.owner()).unwrap();
        // The map escapes newlines, carriage returns and backslashes.
        let mut location = home.path().as_os_str().to_owned().into_vec();
        location.extend_from_slice(b"/new\nline\rback\\slash");
        let made = OsString::from_vec(location.clone());
        std::fs::create_dir(&made).unwrap();
        std::os::unix::fs::chown(&made, Some(cluster.owner().uid), Some(cluster.owner().gid)).unwrap();
        let quoted = String::from_utf8(location.clone()).unwrap();
        cluster.sql(&format!("create tablespace far location '{quoted}'")).unwrap();
        let oid = cluster.sql("select oid from pg_tablespace where spcname = 'far'").unwrap();

        let rows = cluster
            .sql(
                "select pg_backup_start('it''s a \\ label, h\u{fc}lle', true); \
                 select encode(convert_to(labelfile, 'UTF8'), 'hex') || ' ' \
                     || encode(convert_to(spcmapfile, 'UTF8'), 'hex') || ' ' || lsn from pg_backup_stop(false)",
            )
            .unwrap();
        let [label, map, stop] = rows.lines().last().unwrap().split(' ').collect::<Vec<_>>()[..] else {
            panic!("{rows}")
        };
        let (file, map) = (unhex(label), unhex(map));
        let label = BackupLabel::parse(&file).unwrap();
        assert_eq!(label.label, "it's a \\ label, h\u{fc}lle".as_bytes());
        assert_eq!((label.method, label.from), (BackupMethod::Streamed, BackupFrom::Primary));
        assert_eq!((label.start_timeline, label.incremental_from), (Timeline::FIRST, None));
        assert!(label.checkpoint > label.start && stop.parse().is_ok_and(|stop| label.start < stop));
        label.check_segment_size(WalSegmentSize::DEFAULT).unwrap();
        assert_eq!(label.write().unwrap(), file);

        let spaces = parse_tablespace_map(&map).unwrap();
        assert_eq!((spaces.len(), spaces[0].oid.to_string()), (1, oid));
        assert_eq!(spaces[0].location, location);
        assert_eq!(write_tablespace_map(&spaces).unwrap(), map);
    });
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
