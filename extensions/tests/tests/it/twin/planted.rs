//! What the comparison is there to notice, planted in our server behind its back.

use pgshrink_testkit::{Cluster, Server, Stop};

use super::check;
use super::run::Run;
use super::variant::Variant;

const TABLE: &str =
    "create table t0 (id bigint primary key using index tablespace fast, k int, w text, d text)
    tablespace fast;
    insert into t0 select i, i % 97, 'word ' || i % 1000, null from generate_series(1, 20000) i; checkpoint";

/// A run whose servers have one table, and say the same of it.
fn with_table(test: impl Fn(&mut Run)) {
    Server::each_with_extensions("bugs planted beside a twin server", &[15], |server| {
        let mut run = Run::new(server, 1, &Variant::of(1));
        for cluster in [&run.twins.ours, &run.twins.twin] {
            cluster.sql(TABLE).unwrap();
        }
        assert_eq!(everything(&mut run), Ok(()));
        test(&mut run);
    });
}

fn everything(run: &mut Run) -> Result<(), String> {
    check::compare(&run.twins)?;
    check::sizes(&run.twins)?;
    check::examine(&run.twins.ours)?;
    run.look()
}

fn container(ours: &Cluster, run: &Run) -> std::path::PathBuf {
    let path = ours.sql("select pg_relation_filepath('t0')").unwrap();
    let below = path.splitn(3, '/').nth(2).unwrap();
    run.location.join(below).join("segment.pgshrink")
}

#[test]
fn a_row_that_only_one_server_has_is_noticed() {
    with_table(|run| {
        run.twins.ours.sql("delete from t0 where id = 7777").unwrap();
        let said = everything(run).unwrap_err();
        assert!(said.contains("contents") && said.contains("t0|19999|"), "{said}");
    });
}

#[test]
fn a_container_that_is_older_than_it_should_be_is_noticed() {
    with_table(|run| {
        let ours = &run.twins.ours;
        let file = container(ours, run);
        ours.stop(Stop::Fast).unwrap();
        let old = std::fs::read(&file).unwrap();
        ours.start().unwrap();
        for cluster in [&run.twins.ours, &run.twins.twin] {
            cluster.sql("update t0 set k = k + 1 where id % 50 = 7; checkpoint").unwrap();
        }
        ours.stop(Stop::Fast).unwrap();
        std::fs::write(&file, old).unwrap();
        ours.start().unwrap();
        let said = everything(run).unwrap_err();
        assert!(said.contains("t0"), "{said}");
    });
}

#[test]
fn a_file_of_no_relation_is_noticed() {
    with_table(|run| {
        let place = container(&run.twins.ours, run);
        let database = place.parent().and_then(|relation| relation.parent()).unwrap();
        std::fs::create_dir(database.join("999999")).unwrap();
        let said = everything(run).unwrap_err();
        assert!(said.contains("/999999 is in the tablespace and belongs to no relation"), "{said}");
    });
}

#[test]
fn a_transaction_that_is_there_without_its_commit_is_noticed() {
    with_table(|run| {
        let twins = run.twins.clone();
        let pair = &mut run.pairs[0];
        pair.begin(&twins, "").unwrap();
        pair.both("delete from t0 where id < 100").unwrap();
        // Only ours commits.
        pair.ours.ask("commit").unwrap();
        twins.ours.kill().unwrap();
        twins.ours.start().unwrap();
        let said = format!("{:?}", pair.resolve(&twins).unwrap_err());
        assert!(said.contains("what was never committed is there"), "{said}");
    });
}
