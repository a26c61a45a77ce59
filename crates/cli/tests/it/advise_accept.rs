//! `pgshrink advise --accept`: what a DBA agrees to is in the proposal, and its promise is kept.

use crate::advise::start;
use crate::backup::{ended, refused};
use pgshrink_testkit::{Cluster, Server};
use serde_json::Value;

const TABLE: &str = "
    create table file (id int primary key, hash text not null, note text);
    insert into file select g, encode(sha256(g::text::bytea), 'hex'), 'a note, ' || g from generate_series(1, 30000) g;
    vacuum analyze file";
const ID: &str = "column_type:public.file.hash";

fn report(cluster: &Cluster, words: &[&str]) -> Value {
    let conninfo = cluster.conninfo("postgres");
    serde_json::from_str(&ended(&[&["advise", &conninfo, "--json"], words].concat(), 0)).unwrap()
}

/// Ids of the findings, and of those that are in the first proposal.
fn ids(report: &Value) -> (Vec<&str>, Vec<&str>) {
    let findings = report["findings"].as_array().unwrap();
    let all = findings.iter().filter_map(|finding| finding["id"].as_str()).collect();
    let proposed = report["proposals"][0]["findings"].as_array().into_iter().flatten();
    (all, proposed.filter_map(Value::as_str).collect())
}

#[test]
fn what_is_accepted_is_in_the_proposal_and_its_promise_is_kept() {
    Server::each("accepted findings", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql(TABLE).unwrap();
        let report_without = report(&cluster, &[]);
        let (all, proposed) = ids(&report_without);
        assert!(all.contains(&ID) && !proposed.contains(&ID), "{all:?} {proposed:?}");
        let sum =
            "select md5(string_agg(row(id, encode(hash, 'hex'), note)::text, ',' order by id)) from file";
        let before = cluster.sql(&sum.replace("encode(hash, 'hex')", "hash")).unwrap();
        for words in [["--accept", ID], ["--accept", "column-type"]] {
            let report = report(&cluster, &words);
            assert!(ids(&report).1.contains(&ID), "{words:?}");
        }
        let promised = report(&cluster, &["--accept", ID])["proposals"][0]["bytes"]["disk"]["after"].as_u64();
        let conninfo = cluster.conninfo("postgres");
        let script = ended(&["advise", &conninfo, "--sql", "--accept", ID], 0);
        cluster.sql(&script).unwrap();
        cluster.sql("vacuum file").unwrap();
        assert_eq!(cluster.sql(sum).unwrap(), before);
        let found: u64 =
            cluster.sql("select pg_total_relation_size('file')").unwrap().trim().parse().unwrap();
        assert!(promised.unwrap().abs_diff(found) * 50 <= found, "{promised:?} promised, {found} found");
    });
}

#[test]
fn what_cannot_be_accepted_is_refused_by_name() {
    Server::each("findings that cannot be accepted", &[15], |server| {
        let cluster = start(server);
        cluster.sql(TABLE).unwrap();
        let same = "create table same as select g id, 'always the same words'::text as constant from generate_series(1, 30000) g;
             vacuum analyze same";
        cluster.sql(same).unwrap();
        let conninfo = cluster.conninfo("postgres");
        let of = |id: &str| refused(&["advise", &conninfo, "--accept", id]);
        let unknown = of("column_type:public.file.hush");
        assert!(unknown.contains("file.hush") && unknown.contains("--json"), "{unknown}");
        assert!(of("colour:public.file.hash").contains("column_order"), "rules are listed");
        let own = of("constant_column:public.same.constant");
        assert!(own.contains("has no SQL"), "{own}");
    });
}
