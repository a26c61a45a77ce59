//! A statement that takes long ends soon after a cancel or `statement_timeout`, and the session goes on.

use std::time::{Duration, Instant};

use pgshrink_testkit::wait_until;

use crate::databases::{Database, on_each_major};
use crate::session::Session;

/// `d (id, doc jsonb)`: one document of 200,000 keys, 9 MB, and a small one. The large one takes zstd:19 ten seconds and more.
fn documents(database: &Database) {
    database.sql(
        "create table d as select 1 id, (select jsonb_object_agg('key' || i, md5(i::text)) from generate_series(1, 200000) i) doc
            union all select 2, '{\"a\": 1}';
        create table z (id int, doc zson('slow'));
        select zson_set_codec('slow', 'zstd:19')",
    );
}

/// A session that goes on after an ERROR.
fn patient(database: &Database) -> Session {
    Session::new(database.psql().arg("-v").arg("ON_ERROR_STOP=0"))
}

/// The SQLSTATE that a statement ends with, and how long it took.
fn ends(session: &mut Session, statement: &str) -> (String, Duration) {
    let begin = Instant::now();
    let printed = session.sql(&format!("{statement};\n\\echo :LAST_ERROR_SQLSTATE"));
    (printed.lines().last().unwrap_or_default().to_owned(), begin.elapsed())
}

/// Where it would take a multiple.
const SOON: Duration = Duration::from_secs(6);

#[test]
fn a_timeout_ends_the_encoding_of_a_large_document() {
    on_each_major("statement_timeout while encoding", |database| {
        documents(database);
        let mut session = patient(database);
        let pid = session.sql("select pg_backend_pid()");
        session.sql("set statement_timeout = '1s'");
        for statement in [
            "insert into z select id, doc from d",
            "select length((doc::zson('slow'))::text) from d",
            "create temporary table t (doc zson('slow')); insert into t select doc::text::zson from d",
            "alter table d alter column doc type zson('slow')",
        ] {
            let (sqlstate, time) = ends(&mut session, statement);
            assert_eq!(sqlstate, "57014", "{statement}");
            assert!(time < SOON, "{statement}: {time:?}");
        }
        // The same session and its encoder.
        assert_eq!(session.sql("select count(*) from z"), "0");
        session.sql("set statement_timeout = 0; insert into z select id, doc from d where id = 2");
        session.sql("select zson_set_codec('slow', 'zstd:3'); insert into z select id, doc from d");
        assert_eq!(session.sql("select count(*) from z join d using (id) where z.doc::jsonb <> d.doc"), "0");
        assert_eq!(session.sql("select count(*), pg_backend_pid() from z"), format!("3|{pid}"));
    });
}

#[test]
fn a_cancel_ends_the_encoding_of_a_large_document_and_a_training_on_such() {
    on_each_major("pg_cancel_backend while encoding", |database| {
        documents(database);
        // Documents are held out from training by what is in them: of these it is at least one.
        database.sql("insert into d select i, (select doc || jsonb_build_object('id', i) from d where id = 1) from generate_series(3, 6) i");
        let mut session = patient(database);
        let pid = session.sql("select pg_backend_pid()");
        for statement in ["insert into z select id, doc from d", "select zson_learn('d', 'doc', 'slow')"] {
            session.send(&format!("{statement};\n\\echo :LAST_ERROR_SQLSTATE"));
            let active = format!(
                "select count(*) from pg_stat_activity where pid = {pid} and state = 'active' and now() - query_start > '1s'"
            );
            wait_until(Duration::from_secs(60), "it works", || database.sql(&active) == "1").unwrap();
            let begin = Instant::now();
            database.sql(&format!("select pg_cancel_backend({pid})"));
            let printed = session.wait();
            assert_eq!(printed.lines().last(), Some("57014"), "{statement}");
            assert!(begin.elapsed() < SOON, "{statement}: {:?}", begin.elapsed());
        }
        assert_eq!(session.sql("select pg_backend_pid()"), pid);
        assert_eq!(session.sql("select (doc::zson('slow'))->'a' from d where id = 2"), "1");
    });
}
