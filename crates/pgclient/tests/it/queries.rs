//! Queries, COPY and pipelines on real servers.

use crate::session::{MAJORS, open, open_with, options, start_with_tls, value, with};
use pgshrink_pgclient::Error;
use pgshrink_pgclient::connection::{
    Connection, Event, Limits, Pipeline, REQUEST_BYTES_MAX, Reply, Statement,
};
use pgshrink_testkit::relay::{Cut, Direction, Endpoint, Shape};
use pgshrink_testkit::{Auth, Cluster, Relay, Server, Stop, wait_until};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn several_results_come_in_order_and_an_error_leaves_the_session_usable() {
    let cluster = Cluster::builder().start().unwrap();
    let mut connection = open(&cluster.conninfo("postgres")).unwrap();
    let notices = Arc::new(Mutex::new(Vec::new()));
    let kept = notices.clone();
    connection.on_notice(move |notice| kept.lock().unwrap().push(notice.message.clone()));

    let tables =
        connection.simple_query("select 1 as one, null as two; create temp table t (); ; select 'ü'");
    let tables = tables.unwrap();
    let tags: Vec<_> = tables.iter().map(|table| table.tag.as_str()).collect();
    assert_eq!(tags, ["SELECT 1", "CREATE TABLE", "SELECT 1"]);
    assert_eq!(
        (tables[0].text(0, 0), tables[0].text(0, 1), tables[2].text(0, 0)),
        (Some("1"), None, Some("ü"))
    );
    assert_eq!((tables[0].column("two"), tables[0].row_count(), tables[1].row_count()), (Some(1), 1, 0));

    let error = connection.simple_query("select 1; select 1 / 0").unwrap_err();
    assert_eq!(error.sqlstate(), Some("22012"));
    assert!(error.to_string().contains("division by zero"), "{error}");
    connection.simple_query("do $$ begin raise notice 'heard'; end $$").unwrap();
    assert_eq!(*notices.lock().unwrap(), ["heard"]);
    assert_eq!(value(&mut connection, "select 2"), "2");
    assert!(connection.simple_query("").unwrap()[0].tag.is_empty());
    assert!(matches!(connection.simple_query("select '\0'"), Err(Error::ZeroByte { .. })));
    connection.simple_query("set time zone 'Asia/Tokyo'").unwrap();
    assert_eq!(connection.parameter("TimeZone"), Some("Asia/Tokyo"));
}

#[test]
fn parameters_are_values_and_never_a_part_of_the_statement() {
    Server::each("parameters", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let mut connection = open(&cluster.conninfo("postgres")).unwrap();
        let nasty = "it's \"quoted\"; drop table t; -- ü";
        let sql = "select $1::text as said, $2::int + 1, $3::text";
        let table = connection.query_params(sql, &[Some(nasty), Some("41"), None]).unwrap();
        assert_eq!((table.text(0, 0), table.text(0, 1), table.bytes(0, 2)), (Some(nasty), Some("42"), None));
        assert_eq!((table.column("said"), table.tag.as_str()), (Some(0), "SELECT 1"));
        assert_eq!(connection.query_params("create temp table u (a int)", &[]).unwrap().tag, "CREATE TABLE");
        let refused = connection.query_params("copy u from stdin", &[]).unwrap_err();
        assert!(matches!(refused, Error::NotSupported { .. }), "{refused:?}");
        let error = connection.query_params("select $1::int", &[Some("x")]).unwrap_err();
        assert_eq!(error.sqlstate(), Some("22P02"));
        let two = connection.query_params("select 1; select 2", &[]).unwrap_err();
        assert_eq!(two.sqlstate(), Some("42601"));
        assert_eq!(value(&mut connection, "select 1"), "1");
        let backup = "select pg_backup_start($1, $2)";
        let started = connection.query_params(backup, &[Some("a label"), Some("true")]).unwrap();
        assert!(started.text(0, 0).unwrap().parse::<pgshrink_pgclient::protocol::Lsn>().is_ok());
        let label = connection.simple_query("select labelfile from pg_backup_stop(false)").unwrap();
        assert!(label[0].text(0, 0).unwrap().contains("LABEL: a label"));
    });
}

#[test]
fn an_answer_that_was_not_read_keeps_other_commands_out() {
    let cluster = Cluster::builder().start().unwrap();
    let mut connection = open(&cluster.conninfo("postgres")).unwrap();
    let mut results = connection.query("select generate_series(1, 3)").unwrap();
    assert!(matches!(results.next().unwrap(), Some(Event::Columns(_))));
    assert!(matches!(connection.query("select 1"), Err(Error::Busy { .. })));
    assert!(matches!(connection.pipeline(), Err(Error::Busy { .. })));
}

#[test]
fn rows_and_messages_over_their_limits_are_refused() {
    let cluster = Cluster::builder().start().unwrap();
    let limits = Limits { message_size_max: 10_000, copy_data_size_max: 5_000, result_size_max: 50_000 };
    let open = || {
        let mut options = options();
        options.limits = limits;
        open_with(&cluster.conninfo("postgres"), &options).unwrap()
    };
    let mut connection = open();
    assert!(connection.simple_query("select repeat('x', 9900)").is_ok());
    assert!(connection.copy_out("copy (select repeat('x', 4999)) to stdout").unwrap().finish().is_ok());
    for (sql, what) in [
        ("select repeat('x', 10000)", "message"),
        ("select repeat('x', 1000) from generate_series(1, 50)", "result"),
        ("select null from generate_series(1, 10000)", "result"),
        (&"select;".repeat(10000), "result"),
    ] {
        let mut connection = open();
        let error = connection.simple_query(sql).unwrap_err();
        assert!(matches!(&error, Error::Limit { what: found, .. } if *found == what), "{sql}: {error}");
        assert!(matches!(connection.query("select 1"), Err(Error::Closed { .. })));
    }
    let mut connection = open();
    let mut copy = connection.copy_out("copy (select repeat('x', 5000)) to stdout").unwrap();
    assert!(matches!(copy.next(), Err(Error::Limit { what: "CopyData message", .. })));
}

#[test]
fn copy_gives_every_byte_and_what_comes_after_it() {
    Server::each("COPY", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let mut connection = open(&cluster.conninfo("postgres")).unwrap();
        let rows = "select n, repeat(chr(97 + n % 26), n % 3000) from generate_series(1, 20000) n";
        let mut copy = connection.copy_out(&format!("select 7; copy ({rows}) to stdout; select 8")).unwrap();
        assert_eq!(copy.before()[0].text(0, 0), Some("7"));
        let mut number = 0;
        while let Some(line) = copy.next().unwrap() {
            number += 1;
            let letter = ((97 + number % 26) as u8 as char).to_string();
            let expected = format!("{number}\t{}\n", letter.repeat(number % 3000));
            assert!(line == expected.as_bytes(), "line {number}");
        }
        let after = copy.finish().unwrap();
        assert_eq!(number, 20000);
        assert_eq!((after[0].tag.as_str(), after[1].text(0, 0)), ("COPY 20000", Some("8")));
        assert!(!connection.copy_out("select 1").unwrap().has_data());
        assert!(connection.copy_out("copy nowhere to stdout").is_err());
        assert_eq!(value(&mut connection, "select 1"), "1");
        let refused = connection.simple_query("create temp table t (a int); copy t from stdin").unwrap_err();
        assert!(matches!(refused, Error::NotSupported { .. }), "{refused:?}");
        assert_eq!(value(&mut connection, "select 1"), "1");
    });
}

const READ: &str = "select pg_read_binary_file($1, $2, $3)";

/// Reads parts of a file, as many requests ahead as fit.
fn read_file(connection: &mut Connection, path: &str, size: usize, part: usize) -> Vec<u8> {
    let statement = connection.prepare(READ).unwrap();
    let mut pipeline = connection.pipeline().unwrap();
    let (mut asked, mut found) = (0, Vec::new());
    loop {
        asked = ask(&mut pipeline, &statement, (path, part), (asked, size));
        match pipeline.next().unwrap() {
            Some(Reply::Row(row)) => found.extend_from_slice(row.get(0).unwrap()),
            Some(Reply::Complete(tag)) => assert_eq!(tag, "SELECT 1"),
            Some(Reply::Failed(report)) => panic!("{report}"),
            None => return found,
        }
    }
}

fn ask(
    pipeline: &mut Pipeline<'_>,
    statement: &Statement,
    (path, part): (&str, usize),
    (mut asked, size): (usize, usize),
) -> usize {
    while asked < size {
        let (offset, length) = (asked.to_string(), part.to_string());
        let parameters = [Some(path.as_bytes()), Some(offset.as_bytes()), Some(length.as_bytes())];
        if !pipeline.has_room(&parameters) {
            break;
        }
        pipeline.request(statement, &parameters).unwrap();
        asked += part;
    }
    asked
}

#[test]
fn a_pipeline_reads_files_whole_and_the_latency_of_the_link_once() {
    Server::each("pipelines", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql("create table t as select n, md5(n::text) from generate_series(1, 60000) n").unwrap();
        cluster.sql("checkpoint").unwrap();
        let path = cluster.sql("select pg_relation_filepath('t')").unwrap();
        let expected = std::fs::read(cluster.data_dir().join(&path)).unwrap();
        let mut near = open(&cluster.conninfo("postgres")).unwrap();
        let found = read_file(&mut near, &path, expected.len(), 300_000);
        assert!(found == expected, "{} of {} bytes", found.len(), expected.len());

        let relay = Relay::to(Endpoint::local(cluster.port()));
        let delay = Duration::from_millis(50);
        let relay = relay.shape(Shape { delay, ..Shape::default() }).start().unwrap();
        let mut far = open(&cluster.conninfo_at("127.0.0.1", relay.port(), "postgres")).unwrap();
        let before = Instant::now();
        let requests = 100;
        let part = expected.len().div_ceil(requests);
        assert!(read_file(&mut far, &path, expected.len(), part) == expected);
        let one_by_one = delay * 2 * requests as u32;
        assert!(before.elapsed() < one_by_one / 3, "{:?} of {one_by_one:?}", before.elapsed());
    });
}

#[test]
fn bulk_data_is_the_same_over_tls() {
    let cluster = Cluster::builder().tls(true).start().unwrap();
    cluster.sql("create table t as select n, md5(n::text) from generate_series(1, 60000) n").unwrap();
    cluster.sql("checkpoint").unwrap();
    let path = cluster.sql("select pg_relation_filepath('t')").unwrap();
    let expected = std::fs::read(cluster.data_dir().join(&path)).unwrap();
    let mut connection = open(&with(&cluster.conninfo("postgres"), "sslmode", "require")).unwrap();
    assert!(connection.is_encrypted());
    for part in [700_000, 10_001] {
        assert!(read_file(&mut connection, &path, expected.len(), part) == expected, "in parts of {part}");
    }
}

#[test]
fn an_error_in_a_pipeline_is_the_answer_to_its_request_only() {
    let cluster = Cluster::builder().start().unwrap();
    let mut connection = open(&cluster.conninfo("postgres")).unwrap();
    assert!(connection.prepare("select nothing from nowhere").is_err());
    let statement = connection.prepare(READ).unwrap();
    let mut pipeline = connection.pipeline().unwrap();
    let paths: [Option<&[u8]>; 4] = [Some(b"PG_VERSION"), Some(b"no_such_file"), None, Some(b"PG_VERSION")];
    for path in paths {
        pipeline.request(&statement, &[path, Some(b"0"), Some(b"2")]).unwrap();
    }
    assert_eq!(pipeline.pending(), 4);
    let mut seen = Vec::new();
    while let Some(reply) = pipeline.next().unwrap() {
        seen.push(match reply {
            Reply::Row(row) => format!("{:?}", row.get(0).map(String::from_utf8_lossy)),
            Reply::Complete(tag) => tag,
            Reply::Failed(report) => report.sqlstate.clone(),
        });
    }
    assert_eq!(seen, ["Some(\"15\")", "SELECT 1", "58P01", "None", "SELECT 1", "Some(\"15\")", "SELECT 1"]);
    let long = vec![b'a'; REQUEST_BYTES_MAX];
    let too_long = pipeline.request(&statement, &[Some(&long), None, None]);
    assert!(matches!(too_long, Err(Error::RequestLimit { .. })));
    assert_eq!(value(&mut connection, "select 1"), "1");
}

#[test]
fn executions_of_one_request_are_one_transaction_and_end_with_the_first_error() {
    Server::each("several executions", &MAJORS, |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql("create table t (n int)").unwrap();
        let mut connection = open(&cluster.conninfo("postgres")).unwrap();
        let mut ready = |sql: &str| connection.prepare(sql).unwrap();
        let [begin, lock, commit] =
            ["begin", "lock table t in access exclusive mode", "commit"].map(&mut ready);
        let locks =
            ready("select mode from pg_locks where relation = 't'::regclass and pid = pg_backend_pid()");
        let [insert, divide] = ["insert into t values (1)", "select 1 / $1::int"].map(&mut ready);
        let mut pipeline = connection.pipeline().unwrap();
        pipeline.request_all(&[(&begin, &[]), (&lock, &[]), (&locks, &[])]).unwrap();
        pipeline.request(&commit, &[]).unwrap();
        pipeline.request_all(&[(&insert, &[]), (&divide, &[Some(b"0")]), (&insert, &[])]).unwrap();
        pipeline.request_all(&[(&begin, &[]), (&divide, &[Some(b"0")]), (&insert, &[])]).unwrap();
        pipeline.request(&commit, &[]).unwrap();
        pipeline.request_all(&[(&insert, &[]), (&insert, &[])]).unwrap();
        assert_eq!(pipeline.pending(), 6);
        let mut seen = Vec::new();
        while let Some(reply) = pipeline.next().unwrap() {
            seen.push(match reply {
                Reply::Row(row) => String::from_utf8_lossy(row.get(0).unwrap()).into_owned(),
                Reply::Complete(tag) => tag,
                Reply::Failed(report) => report.sqlstate.clone(),
            });
        }
        let locked = ["AccessExclusiveLock", "SELECT 1", "COMMIT"];
        assert_eq!(seen, [&locked[..], &["22012", "22012", "ROLLBACK", "INSERT 0 1"]].concat());
        assert_eq!(value(&mut connection, "select count(*) from t"), "2");
    });
}

#[test]
fn a_server_that_stops_in_the_middle_of_copy_is_an_error_at_once() {
    Server::each("a stopped server", &MAJORS, |server| {
        for how in [Stop::Immediate, Stop::Fast] {
            let cluster = Cluster::builder().server(server).start().unwrap();
            let mut connection = open(&cluster.conninfo("postgres")).unwrap();
            let endless =
                "copy (select repeat('x', 5000) from (select generate_series(1, 100000000)) s) to stdout";
            let mut copy = connection.copy_out(endless).unwrap();
            for _ in 0..100 {
                assert_eq!(copy.next().unwrap().unwrap().len(), 5001);
            }
            let (error, took) = std::thread::scope(|scope| {
                let stopping = scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(200));
                    let before = Instant::now();
                    cluster.stop(how).unwrap();
                    before
                });
                let error = loop {
                    match copy.next() {
                        Ok(payload) => assert!(payload.is_some()),
                        Err(error) => break error,
                    }
                };
                let ended = Instant::now();
                (error, ended.saturating_duration_since(stopping.join().unwrap()))
            });
            let said = matches!(error.sqlstate(), Some("57P01" | "57P02"));
            let cut = matches!(error, Error::Closed { .. } | Error::Lost { .. });
            assert!(said || cut, "{how:?}: {error:?}");
            println!("{how:?}: {took:?}, {error}");
            assert!(took < Duration::from_secs(10), "{how:?}: {took:?}");
            assert!(copy.next().is_err());
        }
    });
}

#[test]
fn a_connection_that_is_cut_is_an_error_at_once() {
    let cluster = Cluster::builder().start().unwrap();
    for cut in [Cut::Reset, Cut::Close] {
        let relay = Relay::to(Endpoint::local(cluster.port())).start().unwrap();
        let mut connection = open(&cluster.conninfo_at("127.0.0.1", relay.port(), "postgres")).unwrap();
        relay.cut_after(Direction::ToClient, 3_000_000, cut);
        let endless =
            "copy (select repeat('x', 5000) from (select generate_series(1, 100000000)) s) to stdout";
        let mut copy = connection.copy_out(endless).unwrap();
        let before = Instant::now();
        let error = loop {
            if let Err(error) = copy.next() {
                break error;
            }
        };
        assert!(matches!(error, Error::Closed { .. } | Error::Lost { .. }), "{cut:?}: {error:?}");
        assert!(before.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_network_that_goes_silent_is_a_timeout() {
    let cluster = Cluster::builder().start().unwrap();
    let relay = Relay::to(Endpoint::local(cluster.port())).start().unwrap();
    let mut connection = open(&cluster.conninfo_at("127.0.0.1", relay.port(), "postgres")).unwrap();
    connection.set_read_timeout(Some(Duration::from_millis(700)));
    assert_eq!(value(&mut connection, "select pg_sleep(0.2), 1"), "");
    relay.shape(Direction::ToClient, Shape { delay: Duration::from_secs(3600), ..Shape::default() });
    let before = Instant::now();
    let error = connection.simple_query("select 1").unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!((Duration::from_millis(600)..Duration::from_secs(15)).contains(&before.elapsed()));
    assert!(matches!(connection.simple_query("select 1"), Err(Error::Closed { .. })));
}

#[test]
fn a_cancel_request_ends_what_runs_over_tls_as_well() {
    Server::each("cancel", &MAJORS, |server| {
        for tls in [false, true] {
            let builder = Cluster::builder().server(server).auth(Auth::Scram).tls(tls);
            let Some(cluster) = start_with_tls("cancel", builder) else { continue };
            let mode = if tls { "require" } else { "disable" };
            let mut connection = open(&with(&cluster.conninfo("postgres"), "sslmode", mode)).unwrap();
            let cancel = connection.cancel_handle().unwrap();
            let error = std::thread::scope(|scope| {
                let running = scope.spawn(|| connection.simple_query("select pg_sleep(600)").unwrap_err());
                let sleeping = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
                wait_until(Duration::from_secs(20), "the query to run", || {
                    cluster.sql(sleeping).is_ok_and(|count| count == "1")
                })
                .unwrap();
                cancel.cancel().unwrap();
                running.join().unwrap()
            });
            assert_eq!(error.sqlstate(), Some("57014"), "{error}");
            assert_eq!(value(&mut connection, "select 1"), "1");
        }
    });
}

#[test]
fn another_thread_can_close_a_session_that_waits() {
    let cluster = Cluster::builder().start().unwrap();
    let mut connection = open(&cluster.conninfo("postgres")).unwrap();
    let closer = connection.closer().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| connection.simple_query("select pg_sleep(600)"));
        std::thread::sleep(Duration::from_millis(200));
        closer.close();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Closed { .. })));
    });
}

#[test]
fn a_dropped_connection_says_goodbye() {
    let cluster = Cluster::builder().conf("log_disconnections", "on").start().unwrap();
    let connection = open(&with(&cluster.conninfo("postgres"), "application_name", "leaving")).unwrap();
    let shown = format!("{connection:?}");
    assert!(shown.contains("127.0.0.1") && shown.contains("Ready"), "{shown}");
    drop(connection);
    cluster.wait_for_log(Duration::from_secs(20), "disconnection: session time").unwrap();
    assert!(!cluster.log_contains("unexpected EOF"));
}

#[test]
fn a_session_that_was_ended_meanwhile_says_why() {
    let cluster = Cluster::builder().start().unwrap();
    for conninfo in [cluster.conninfo("postgres"), cluster.conninfo_unix("postgres")] {
        let mut connection = open(&conninfo).unwrap();
        let process = connection.process_id().unwrap();
        assert_eq!(cluster.sql(&format!("select pg_terminate_backend({process}, 20000)")).unwrap(), "t");
        let error = connection.simple_query("select 1").unwrap_err();
        assert_eq!(error.sqlstate(), Some("57P01"), "{error:?}");
        assert!(matches!(connection.simple_query("select 1"), Err(Error::Closed { .. })));
    }
}
