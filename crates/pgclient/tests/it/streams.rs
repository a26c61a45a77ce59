//! Replication connections to real servers.

use crate::session::{MAJORS, open, value, with};
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::Connection;
use pgshrink_pgclient::protocol::Lsn;
use pgshrink_pgclient::replication::{
    self, Start, Status, WalEvent, create_temporary_slot, identify_system, read_slot, show, start_physical,
    timeline_history,
};
use pgshrink_testkit::relay::{Direction, Endpoint, Shape};
use pgshrink_testkit::{Cluster, Relay, Server};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_millis(100);

fn walsender(cluster: &Cluster) -> Connection {
    open(&with(&cluster.conninfo("postgres"), "replication", "true")).unwrap()
}

/// Takes WAL until it reaches a position.
fn stream_until(connection: &mut Connection, start: &Start<'_>, until: Lsn, wait: Duration) -> Vec<u8> {
    let mut stream = start_physical(connection, start).unwrap();
    let (mut wal, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(60));
    let mut stopped = false;
    loop {
        assert!(Instant::now() < deadline, "no end of WAL");
        let at = Lsn(start.position.0 + wal.len() as u64);
        match stream.next(wait).unwrap() {
            Some(WalEvent::Wal { start, data, .. }) => {
                assert_eq!(start, at);
                wal.extend_from_slice(data);
            }
            Some(WalEvent::End { next }) => {
                assert_eq!(next, None);
                return wal;
            }
            Some(WalEvent::Keepalive { .. }) | None => {}
        }
        stream.report(&Status { written: at, flushed: at, ..Status::default() }).unwrap();
        if at >= until && !stopped {
            stream.stop().unwrap();
            stopped = true;
        }
    }
}

#[test]
fn a_replication_connection_answers_its_commands() {
    Server::each("replication commands", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let mut connection = walsender(&cluster);
        let system = identify_system(&mut connection).unwrap();
        let expected = cluster.sql("select system_identifier from pg_control_system()").unwrap();
        assert_eq!((system.identifier.to_string(), system.timeline), (expected, 1));
        assert!(system.position > Lsn(0));
        assert_eq!(show(&mut connection, "wal_segment_size").unwrap(), "16MB");
        assert!(matches!(show(&mut connection, "x; DROP"), Err(Error::InvalidValue { .. })));
        assert_eq!(show(&mut connection, "no_such_parameter").unwrap_err().sqlstate(), Some("42704"));
        assert_eq!(read_slot(&mut connection, "pgshrink_test").unwrap(), None);
        create_temporary_slot(&mut connection, "pgshrink_test").unwrap();
        let slot = read_slot(&mut connection, "pgshrink_test").unwrap().unwrap();
        assert!(slot.restart.unwrap() <= system.position && slot.timeline == Some(1), "{slot:?}");
        let shown = "select temporary, slot_type from pg_replication_slots where slot_name = 'pgshrink_test'";
        assert_eq!(cluster.sql(shown).unwrap(), "t|physical");
        let again = create_temporary_slot(&mut connection, "pgshrink_test").unwrap_err();
        assert_eq!(again.sqlstate(), Some("42710"));
        assert!(timeline_history(&mut connection, 2).is_err());
        assert_eq!(identify_system(&mut connection).unwrap().timeline, 1);
    });
}

#[test]
fn a_base_backup_comes_whole_with_its_wal_beside_it() {
    Server::each("BASE_BACKUP", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql("create table t as select n, md5(n::text) from generate_series(1, 100000) n").unwrap();
        let mut wal = walsender(&cluster);
        create_temporary_slot(&mut wal, "beside").unwrap();
        let system = identify_system(&mut wal).unwrap();

        let mut data = walsender(&cluster);
        let mut copy =
            data.copy_out("BASE_BACKUP (LABEL 'test', CHECKPOINT 'fast', MANIFEST 'yes')").unwrap();
        let before = copy.before();
        let begin: Lsn = before[0].text(0, 0).unwrap().parse().unwrap();
        assert_eq!((before.len(), before[1].row_count()), (2, 1));
        let (mut kinds, mut tar_size, mut manifest) = (Vec::new(), 0, Vec::new());
        while let Some(payload) = copy.next().unwrap() {
            let (&kind, rest) = payload.split_first().unwrap();
            match kind {
                b'd' if kinds.last() == Some(&b'm') => manifest.extend_from_slice(rest),
                b'd' => tar_size += rest.len() as u64,
                _ => kinds.push(kind),
            }
        }
        let after = copy.finish().unwrap();
        let end: Lsn = after.iter().find_map(|table| table.text(0, 0)).unwrap().parse().unwrap();
        assert_eq!((kinds.first(), kinds.last()), (Some(&b'n'), Some(&b'm')));
        let manifest = String::from_utf8(manifest).unwrap();
        assert!(
            manifest.starts_with("{ \"PostgreSQL-Backup-Manifest-Version\"") && manifest.contains("Checksum")
        );
        let database_size: u64 =
            cluster.sql("select sum(pg_database_size(oid)) from pg_database").unwrap().parse().unwrap();
        assert!(
            (database_size..database_size + (64 << 20)).contains(&tar_size),
            "{tar_size}, {database_size}"
        );
        assert!(begin >= Lsn(system.position.0 & !0xff_ffff) && end > begin);

        let start =
            Start { slot: Some("beside"), position: Lsn(begin.0 & !0xff_ffff), timeline: system.timeline };
        let received = stream_until(&mut wal, &start, end, WAIT);
        assert!(start.position.0 + received.len() as u64 >= end.0);
        let segment = format!("{:08X}{:08X}{:08X}", 1, start.position.0 >> 32, start.position.0 >> 24 & 0xff);
        let on_disk = std::fs::read(cluster.data_dir().join("pg_wal").join(segment)).unwrap();
        let same = received.len().min(on_disk.len()).min((end.0 - start.position.0) as usize);
        assert!(received[..same] == on_disk[..same]);
        // The stream has ended and the session goes on.
        assert_eq!(identify_system(&mut wal).unwrap().identifier, system.identifier);
        assert_eq!(identify_system(&mut data).unwrap().identifier, system.identifier);
    });
}

#[test]
fn the_end_of_a_timeline_names_the_next_one_and_its_history() {
    Server::each("timelines", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let standby = cluster.standby().start().unwrap();
        let mut connection = walsender(&cluster);
        let position = Lsn(identify_system(&mut connection).unwrap().position.0 & !0xff_ffff);
        standby.promote().unwrap();
        let mut connection = walsender(&standby);
        let mut stream =
            start_physical(&mut connection, &Start { slot: None, position, timeline: 1 }).unwrap();
        let (mut size, deadline) = (0, Instant::now() + Duration::from_secs(60));
        let (timeline, begin) = loop {
            assert!(Instant::now() < deadline, "no end of the timeline");
            match stream.next(WAIT).unwrap() {
                Some(WalEvent::Wal { data, .. }) => size += data.len() as u64,
                Some(WalEvent::End { next }) => break next.unwrap(),
                _ => {}
            }
        };
        assert_eq!((timeline, begin), (2, Lsn(position.0 + size)));
        let history = timeline_history(&mut connection, 2).unwrap();
        assert_eq!(history.file_name, "00000002.history");
        assert!(String::from_utf8(history.content).unwrap().starts_with(&format!("1\t{begin}")));
        // The very end of the old timeline is answered without a stream.
        let start = Start { slot: None, position: begin, timeline: 1 };
        let mut stream = start_physical(&mut connection, &start).unwrap();
        assert_eq!(stream.next(WAIT).unwrap(), Some(WalEvent::End { next: Some((2, begin)) }));
        let absent = Start { slot: Some("no_such_slot"), position: begin, timeline: 2 };
        assert_eq!(start_physical(&mut connection, &absent).unwrap_err().sqlstate(), Some("42704"));
    });
}

#[test]
fn a_quiet_stream_returns_in_time_and_answers_when_asked() {
    let cluster = Cluster::builder().start().unwrap();
    let mut connection = walsender(&cluster);
    let position = identify_system(&mut connection).unwrap().position;
    let start = Start { slot: None, position: Lsn(position.0 & !0xff_ffff), timeline: 1 };
    let mut stream = start_physical(&mut connection, &start).unwrap();
    while let Some(event) = stream.next(Duration::from_secs(1)).unwrap() {
        assert!(!matches!(event, WalEvent::End { .. }));
    }
    let before = Instant::now();
    assert_eq!(stream.next(Duration::from_millis(300)).unwrap(), None);
    assert!((Duration::from_millis(250)..Duration::from_secs(5)).contains(&before.elapsed()));
    stream.report(&Status { written: position, reply_wanted: true, ..Status::default() }).unwrap();
    let answered = stream.next(Duration::from_secs(20)).unwrap();
    assert!(matches!(answered, Some(WalEvent::Keepalive { .. })), "{answered:?}");
    let written = cluster.sql("select write_lsn from pg_stat_replication").unwrap();
    assert_eq!(written.parse::<Lsn>().unwrap(), position);
    cluster.stop(pgshrink_testkit::Stop::Immediate).unwrap();
    let error = loop {
        match stream.next(Duration::from_secs(20)) {
            Ok(event) => assert!(event.is_some(), "silence instead of an error"),
            Err(error) => break error,
        }
    };
    assert!(
        error.sqlstate().is_some() || matches!(error, Error::Closed { .. } | Error::Lost { .. }),
        "{error:?}"
    );
}

#[test]
fn waits_that_end_in_the_middle_of_messages_and_tls_records_lose_nothing() {
    let cluster = Cluster::builder().tls(true).start().unwrap();
    let mut connection = walsender(&cluster);
    let begin = Lsn(identify_system(&mut connection).unwrap().position.0 & !0xff_ffff);
    cluster.sql("create table t as select md5(n::text) from generate_series(1, 30000) n").unwrap();
    let end = identify_system(&mut connection).unwrap().position;
    let relay = Relay::to(Endpoint::local(cluster.port())).start().unwrap();
    let slow = Shape { piece_size_max: Some(4_000), bytes_per_second: Some(3_000_000), ..Shape::default() };
    relay.shape(Direction::ToClient, slow);
    let mut received = Vec::new();
    for mode in ["disable", "require"] {
        let conninfo = cluster.conninfo_at("127.0.0.1", relay.port(), "postgres");
        let mut far = open(&format!("{} sslmode={mode}", with(&conninfo, "replication", "true"))).unwrap();
        assert_eq!(far.is_encrypted(), mode == "require");
        let start = Start { slot: None, position: begin, timeline: 1 };
        let mut wal = stream_until(&mut far, &start, end, Duration::from_millis(1));
        wal.truncate((end.0 - begin.0) as usize);
        received.push(wal);
    }
    let segment = format!("{:08X}{:08X}{:08X}", 1, begin.0 >> 32, begin.0 >> 24 & 0xff);
    let on_disk = std::fs::read(cluster.data_dir().join("pg_wal").join(segment)).unwrap();
    let same = on_disk.len().min((end.0 - begin.0) as usize);
    for wal in received {
        assert!(wal.len() as u64 == end.0 - begin.0 && wal[..same] == on_disk[..same]);
    }
}

#[test]
fn a_logical_replication_connection_takes_queries_too() {
    let cluster = Cluster::builder().start().unwrap();
    let mut connection = open(&with(&cluster.conninfo("postgres"), "replication", "database")).unwrap();
    assert_eq!(value(&mut connection, "select current_database()"), "postgres");
    assert_eq!(replication::identify_system(&mut connection).unwrap().timeline, 1);
}
