//! A backend that may have no more memory reports that, and serves on.

use pgshrink_testkit::{Cluster, run};

use crate::databases::{Database, on_each_major};
use crate::session::Session;

/// Three documents of 14 MB, and a hundred small ones.
fn large(database: &Database) {
    database.sql(
        "create table big (id int, doc zson('big'));
        insert into big select i, (select jsonb_object_agg('key ' || n, md5((n * i)::text)) from generate_series(1, 230000) n) from generate_series(1, 3) i;
        insert into big select i, jsonb_build_object('id', i, 'name', md5(i::text)) from generate_series(4, 100) i",
    );
}

/// Shows what the server logged of a crash.
struct Crashes<'a>(&'a Cluster);

impl Drop for Crashes<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.0.log().unwrap_or_default();
            let of_crash = |line: &&str| {
                ["terminated by", "was running", "allocation"].iter().any(|what| line.contains(what))
            };
            log.lines().filter(of_crash).for_each(|line| println!("{line}"));
        }
    }
}

/// What becomes of a statement when the backend may have so much more than it has.
fn with_more_memory(session: &mut Session, cluster: &Cluster, more_mb: u64, statement: &str) -> String {
    let pid = session.sql("select pg_backend_pid()");
    let pages: u64 =
        session.sql("select split_part(pg_read_file('/proc/self/statm'), ' ', 1)").parse().unwrap();
    let limit = |bytes: &str| {
        let mut prlimit = cluster.owner().command("prlimit");
        run::output(prlimit.args(["--pid", &pid, &format!("--as={bytes}:")])).unwrap();
    };
    limit(&(pages * 4096 + (more_mb << 20)).to_string());
    let outcome = session.sql(&format!("select outcome($outcome${statement}$outcome$)"));
    limit("unlimited");
    outcome
}

const OUTCOME: &str = "create function outcome(statement text) returns text language plpgsql as $$
    begin execute statement; return 'done'; exception when others then return sqlstate; end $$";

#[test]
fn a_lack_of_memory_is_an_error() {
    on_each_major("memory limits", |database| {
        large(database);
        database.sql(OUTCOME);
        let all = "select count(doc->'name'), sum(hashtextextended(doc::text, 0)) from big";
        let before = database.sql(all);
        let _crashes = Crashes(database.cluster);
        let mut session = Session::new(database.psql().arg("-v").arg("ON_ERROR_STOP=0"));
        session.sql("set client_min_messages = error; select count(doc->'name') from big where id > 3; select zson_learn('nowhere', 'doc')");
        let mut failed = 0;
        for statement in [
            "select zson_learn('big', 'doc')",
            "select zson_learn('{{big,doc}}', 100000000)",
            "select * from zson_estimate('big', 'doc')",
            "select length((doc || '{\"a\": 1}')::text) from big",
            "select zson_reencode(jsonb_build_array(doc, 1)::zson, 'big') from big",
            "select cardinality(zson_extract_strings(doc)) from big",
        ] {
            // Not until it succeeds: training on all of it takes its time and is tested elsewhere.
            let mut outcomes = Vec::new();
            for more_mb in (4..=76).step_by(12) {
                outcomes.push(with_more_memory(&mut session, database.cluster, more_mb, statement));
                if outcomes.last().is_some_and(|outcome| outcome == "done") {
                    break;
                }
            }
            let expected = |outcome: &String| outcome == "53200" || outcome == "done";
            assert!(outcomes.iter().all(expected), "{statement}: {outcomes:?}");
            failed += usize::from(outcomes.iter().any(|outcome| outcome == "53200"));
        }
        // What is left of the statement before may be enough for the next.
        assert!(failed >= 4, "only {failed} statements lacked memory");
        // The server itself copies the text more than once; then it is refused as a name.
        let long = "zson_reencode(doc, repeat('x', 30000000)) from big";
        assert_eq!(with_more_memory(&mut session, database.cluster, 150, &format!("select {long}")), "42622");
        // The same process, whose memory is as good as before.
        assert!(before.starts_with("97|"), "{before}");
        assert_eq!(session.sql(all), before);
    });
}
