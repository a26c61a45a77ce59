//! A standby that compresses what its plain primary sends, and the way back.

use std::time::Duration;

use pgshrink_testkit::{Cluster, wait_until};

use super::writers::{TABLES, WRITTEN, while_they_pay};
use super::{PATIENCE, end_of_log, forms, leftovers, on_each_major, sql_of, sum};

/// Sets `cfs.node_compression` of a running standby.
fn set_node(standby: &Cluster, setting: &str) {
    standby.set_conf("cfs.node_compression", setting).unwrap();
    standby.reload().unwrap();
}

/// All tables have one form there; others are waited for.
#[track_caller]
fn wait_for_form(standby: &Cluster, form: &str) {
    let is_there = || WRITTEN.iter().all(|table| forms(standby, table) == form);
    wait_until(PATIENCE, "the standby's tables to have their form", is_there).unwrap_or_else(|error| {
        let found: Vec<String> = WRITTEN.iter().map(|table| forms(standby, table)).collect();
        let progress = sql_of(standby, "select * from cfs_progress");
        panic!("{error}: {form}: {found:?}\n{progress}\n{}", end_of_log(standby))
    });
}

/// Waits until a standby has replayed all that the primary has written.
#[track_caller]
fn catch_up(primary: &Cluster, standby: &Cluster) {
    let here = sql_of(primary, "select pg_current_wal_flush_lsn()");
    let query = format!("select pg_last_wal_replay_lsn() >= '{here}'");
    wait_until(PATIENCE, "the standby", || standby.sql(&query).is_ok_and(|said| said == "t"))
        .unwrap_or_else(|error| panic!("{error}\n{}", end_of_log(standby)));
}

/// Nobody writes: the same rows at the same LSN, by heap and by index.
#[track_caller]
fn are_equal(primary: &Cluster, standby: &Cluster) {
    catch_up(primary, standby);
    for table in WRITTEN {
        assert_eq!(sql_of(standby, &sum(table)), sql_of(primary, &sum(table)), "{table}");
    }
    let by_index = "set enable_seqscan = off; set enable_bitmapscan = off;
        select sum(hashtext(id || ' ' || balance)::bigint * n) from (select id, balance, row_number() over () n
        from (select id, balance from account order by balance, id) a) b";
    assert_eq!(sql_of(standby, by_index), sql_of(primary, by_index));
}

#[test]
fn a_standby_compresses_itself_while_it_follows_is_promoted_amid_it_and_goes_all_the_way_back() {
    on_each_major("a standby of a plain primary", |live| {
        let primary = &live.cluster;
        live.sql(TABLES);
        let standby = primary.standby().start().unwrap();
        let upstream = standby.conninfo("postgres");
        let cascading = primary.standby().name("second").stream_from(&upstream).start().unwrap();
        while_they_pay(live, 2, || {
            set_node(&standby, "zstd:1");
            wait_for_form(&standby, "compressed");
            live.sql("checkpoint");
            standby.sql("checkpoint").unwrap();
            // To and fro while it replays.
            set_node(&standby, "none");
            std::thread::sleep(Duration::from_millis(300));
            set_node(&standby, "lz4");
            live.sql("vacuum payment; vacuum account");
        });
        wait_for_form(&standby, "compressed");
        are_equal(primary, &standby);
        are_equal(primary, &cascading);
        WRITTEN.iter().for_each(|table| assert_eq!(forms(&cascading, table), "plain"));
        WRITTEN.iter().for_each(|table| assert_eq!(forms(primary, table), "plain"));
        // It is killed, and follows on.
        standby.kill().unwrap();
        live.sql("call pay(500)");
        standby.start().unwrap();
        are_equal(primary, &standby);
        // Promoted on its way back.
        standby.set_conf("cfs.convert_rate", "4MB").unwrap();
        set_node(&standby, "none");
        let moves = "select count(*) from cfs_progress where pages_done > 0";
        wait_until(PATIENCE, "pages to move back", || sql_of(&standby, moves) != "0")
            .unwrap_or_else(|error| panic!("{error}\n{}", end_of_log(&standby)));
        let expected = WRITTEN.map(|table| live.sql(&sum(table)));
        catch_up(primary, &standby);
        standby.promote().unwrap();
        assert_eq!(WRITTEN.map(|table| sql_of(&standby, &sum(table))), expected);
        sql_of(&standby, "call pay(500)");
        standby.set_conf("cfs.convert_rate", "0").unwrap();
        standby.reload().unwrap();
        wait_for_form(&standby, "plain");
        sql_of(&standby, "call pay(100); checkpoint");
        let sums = "select (select sum(balance) from account) = (select sum(amount) from payment)";
        assert_eq!(sql_of(&standby, sums), "t");
        // The one behind it follows to the new timeline.
        are_equal(&standby, &cascading);
        for cluster in [&standby, &cascading] {
            assert_eq!(leftovers(&cluster.data_dir()), Vec::<std::path::PathBuf>::new());
            let log = cluster.log().unwrap();
            assert!(!log.contains("PANIC") && !log.contains("invalid page"), "{}", end_of_log(cluster));
        }
        // Nothing is a container any more: it starts without the library.
        standby.set_conf("shared_preload_libraries", "").unwrap();
        standby.restart().unwrap();
        assert_eq!(sql_of(&standby, sums), "t");
    });
}
