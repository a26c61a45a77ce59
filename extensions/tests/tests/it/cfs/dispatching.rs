//! Which files a dispatcher asks to convert: those of tables whose setting says so, and never a catalog's.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pgshrink_testkit::{Cluster, Server, ServerBinaries, wait_until};

use super::{MAJORS, set, sql};

/// What a dispatcher asked for, by its line in the log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Asked {
    what: String,
    path: String,
    relation: u32,
}

/// A cluster whose log tells what dispatchers ask for.
fn telling(server: &ServerBinaries) -> Cluster {
    Cluster::builder()
        .server(server)
        .conf("shared_preload_libraries", "cfs")
        .conf("allow_in_place_tablespaces", "on")
        .conf("log_min_messages", "debug1")
        .conf("cfs.naptime", "1")
        .conf("autovacuum", "off")
        .start()
        .unwrap()
}

fn on_each_major(test: &str, mut run: impl FnMut(&Cluster)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&telling(server)));
}

/// All that was asked for.
fn asked(cluster: &Cluster) -> BTreeSet<Asked> {
    let log = cluster.log().unwrap();
    let asked = log.lines().filter_map(|line| {
        let (what, rest) = line.split_once("cfs dispatcher: ")?.1.split_once(" \"")?;
        let (path, rest) = rest.split_once("\" of relation ")?;
        let relation = rest.split_once(':')?.0.parse().ok()?;
        Some(Asked { what: what.to_owned(), path: path.to_owned(), relation })
    });
    asked.collect()
}

#[track_caller]
fn wait_for(cluster: &Cluster, what: &str, is_there: impl Fn(&BTreeSet<Asked>) -> bool) {
    let waited = wait_until(Duration::from_secs(30), what, || is_there(&asked(cluster)));
    waited.unwrap_or_else(|error| panic!("{error}\n{:?}\n{}", asked(cluster), cluster.log().unwrap()));
}

/// Paths of relations' first files.
fn paths(cluster: &Cluster, database: &str, query: &str) -> BTreeSet<String> {
    let query = format!("select pg_relation_filepath(oid) from pg_class where {query}");
    cluster.psql().database(database).sql(&query).unwrap().lines().map(str::to_owned).collect()
}

fn asked_paths(cluster: &Cluster) -> BTreeSet<String> {
    asked(cluster).into_iter().map(|asked| asked.path).collect()
}

const ROWS: &str = "
    create table t (i int primary key, big text);
    alter table t alter big set storage external;
    create unlogged table u (i int primary key);
    create table few (i int);
    create temp table passing (i int);
    create materialized view m as select generate_series(1, 9000) i;
    create table p (i int) partition by range (i);
    create table low partition of p for values from (0) to (5000);
    create table high partition of p for values from (5000) to (10000);
    create index on p (i);
    insert into t select i, repeat(md5(i::text), 200) from generate_series(1, 3000) i;
    insert into u select generate_series(1, 9000);
    insert into few values (1);
    insert into passing select generate_series(1, 9000);
    insert into p select generate_series(0, 9999);
";

#[test]
fn a_table_is_asked_for_with_its_index_and_toast_and_nothing_else_is() {
    on_each_major("one table", |cluster| {
        sql(cluster, &format!("create extension cfs; {ROWS}"));
        assert!(asked(cluster).is_empty());
        sql(cluster, "select cfs_compress_relation('t')");
        let t =
            "oid in ('t'::regclass, 't_pkey'::regclass) or relname ~ ('^pg_toast_' || 't'::regclass::oid)";
        let expected = paths(cluster, "postgres", t);
        assert_eq!(expected.len(), 4);
        wait_for(cluster, "the table's files", |_| asked_paths(cluster) == expected);
        // Partitions follow their table, each with its indexes.
        sql(cluster, "select cfs_set('p', 'lz4'), cfs_set('high', 'none')");
        let low = paths(cluster, "postgres", "relname like 'low%'");
        assert_eq!(low.len(), 2);
        wait_for(cluster, "the partition", |_| low.is_subset(&asked_paths(cluster)));
        // A new file of the table, after the label.
        sql(cluster, "vacuum full t");
        let rewritten = paths(cluster, "postgres", "oid = 't'::regclass");
        wait_for(cluster, "the new file", |_| rewritten.is_subset(&asked_paths(cluster)));
        let all = asked_paths(cluster);
        let others =
            paths(cluster, "postgres", "relname in ('u', 'u_pkey', 'few', 'm', 'high', 'high_i_idx')");
        assert!(all.is_disjoint(&others), "{all:?} {others:?}");
        assert!(asked(cluster).iter().all(|asked| asked.what == "compress"), "{:?}", asked(cluster));
    });
}

#[test]
fn all_of_a_database_is_asked_for_and_never_a_catalog_also_after_catalogs_were_rewritten() {
    on_each_major("a database", |cluster| {
        // In a database without the extension.
        sql(cluster, "create extension cfs; create database d; select cfs_compress_database('d')");
        let d = || cluster.psql().database("d");
        d().sql(ROWS).unwrap();
        let user = "oid >= 16384 and relpersistence in ('p', 'u') and relkind in ('r', 'i', 'm', 't')
            and pg_relation_size(oid) > 4 * 8192";
        let expected = paths(cluster, "d", user);
        assert!(expected.len() >= 9, "{expected:?}");
        wait_for(cluster, "the database's files", |_| asked_paths(cluster) == expected);
        // Catalogs get files with new numbers, above those of tables.
        let mut catalogs = BTreeSet::new();
        for _ in 0..3 {
            d().sql("vacuum full; create table later as select generate_series(1, 9000) i").unwrap();
            catalogs.extend(paths(cluster, "d", "oid < 16384 and pg_relation_filenode(oid) is not null"));
            let later = paths(cluster, "d", "relname = 'later'");
            wait_for(cluster, "a table that is made later", |_| later.is_subset(&asked_paths(cluster)));
            d().sql("drop table later").unwrap();
        }
        let numbers: Vec<u32> =
            catalogs.iter().filter_map(|path| path.rsplit('/').next()?.parse().ok()).collect();
        assert!(numbers.iter().filter(|number| **number > 16384).count() > 50, "{numbers:?}");
        for asked in asked(cluster) {
            assert!(asked.relation >= 16384, "{asked:?}");
            let main = asked.path.split("_fsm").next().unwrap().to_owned();
            assert!(!catalogs.contains(&main), "{asked:?}");
        }
        // Other databases are left alone.
        let own = sql(cluster, "select oid from pg_database where datname = 'd'");
        assert!(asked_paths(cluster).iter().all(|path| path.starts_with(&format!("base/{own}/"))));
    });
}

#[test]
fn a_database_whose_default_tablespace_is_compressed_keeps_its_catalogs_plain() {
    on_each_major("a compressed default tablespace", |cluster| {
        sql(cluster, "create tablespace fast location '' with (compression = 'zstd:1')");
        sql(cluster, "create database d tablespace fast");
        cluster.psql().database("d").sql(ROWS).unwrap();
        cluster.psql().database("d").sql("vacuum full").unwrap();
        let t = paths(cluster, "d", "relname = 't'");
        wait_for(cluster, "the table", |_| t.is_subset(&asked_paths(cluster)));
        std::thread::sleep(Duration::from_secs(2));
        let catalogs = paths(cluster, "d", "oid < 16384 and pg_relation_filenode(oid) is not null");
        assert!(asked_paths(cluster).is_disjoint(&catalogs));
        assert!(asked(cluster).iter().all(|asked| asked.relation >= 16384));
    });
}

#[test]
fn a_pause_and_a_lock_are_respected_and_nobody_waits_for_a_dispatcher() {
    on_each_major("pauses and locks", |cluster| {
        sql(cluster, &format!("create extension cfs; {ROWS}"));
        set(cluster, "alter system set cfs.convert = off");
        sql(cluster, "select cfs_compress_relation('u')");
        std::thread::sleep(Duration::from_secs(2));
        assert!(asked(cluster).is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| sql(cluster, "begin; lock table u; select pg_sleep(4); commit"));
            std::thread::sleep(Duration::from_millis(500));
            set(cluster, "alter system reset cfs.convert");
            sql(cluster, "select cfs_compress_relation('m')");
            let m = paths(cluster, "postgres", "relname = 'm'");
            wait_for(cluster, "the other table", |_| m.is_subset(&asked_paths(cluster)));
            let locks = "select count(*) from pg_locks where not granted";
            assert_eq!(sql(cluster, locks), "0");
            let u = paths(cluster, "postgres", "relname = 'u'");
            assert!(u.is_disjoint(&asked_paths(cluster)), "a locked relation was asked for");
            wait_for(cluster, "what was locked", |_| u.is_subset(&asked_paths(cluster)));
        });
    });
}

#[test]
fn databases_are_copied_and_dropped_while_dispatchers_look_at_them() {
    on_each_major("copies of a database", |cluster| {
        with_tables_in_d(cluster);
        for round in 0..4 {
            // Every label is a reason to look.
            sql(cluster, "select cfs_compress_database('d', 'zstd:2')");
            sql(
                cluster,
                &format!(
                    "create database copy{round} template d; select cfs_compress_database('copy{round}')"
                ),
            );
            std::thread::sleep(Duration::from_millis(300));
            sql(cluster, &format!("drop database copy{round}"));
        }
        sql(cluster, "drop database d");
        let workers = "select count(*) from pg_stat_activity where backend_type = 'cfs dispatcher'";
        wait_until(Duration::from_secs(10), "the last dispatcher", || sql(cluster, workers) == "0").unwrap();
    });
}

/// Runs `run` while a dispatcher waits in database `d`: for a lock of a session there, which ends when it is told to.
fn with_held_dispatcher(cluster: &Cluster, run: impl FnOnce(&dyn Fn())) {
    let psql = cluster.psql().database("d");
    let go_on = || {
        let ended = "select count(pg_terminate_backend(pid)) from pg_stat_activity where query like '%pg_sleep(100)%' \
                     and pid <> pg_backend_pid()";
        sql(cluster, ended);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| psql.sql("begin; lock table pg_seclabel; select pg_sleep(100)"));
        let held = "select count(*) from pg_stat_activity a join pg_locks l using (pid) \
                    where backend_type = 'cfs dispatcher' and datname = 'd' and not granted";
        let waited = wait_until(Duration::from_secs(60), "a dispatcher that waits", || {
            sql(cluster, "select cfs_compress_database('d', 'zstd:2'), cfs_compress_database('d', 'lz4')");
            sql(cluster, held) == "1"
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            waited.unwrap();
            run(&go_on);
        }));
        go_on();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn with_tables_in_d(cluster: &Cluster) {
    sql(cluster, "create extension cfs; create database d; select cfs_compress_database('d', 'lz4')");
    let tables = "do $$ begin for n in 1..300 loop execute format('create table t%s as select generate_series(1, 3000) i', n); \
                  end loop; end $$";
    cluster.psql().database("d").sql(tables).unwrap();
}

#[test]
fn statements_wait_for_a_slow_dispatcher_for_longer_than_the_server_waits_for_others() {
    Server::each_with_extensions("statements that need a database for themselves", &MAJORS[..1], |server| {
        let cluster = &telling(server);
        with_tables_in_d(cluster);
        sql(cluster, "create tablespace other location ''");
        let statements = [
            "create database copy template d",
            "alter database d set tablespace other",
            "alter database d rename to e",
            "drop database d",
        ];
        for statement in statements {
            with_held_dispatcher(cluster, |go_on| {
                std::thread::scope(|scope| {
                    let waits = scope.spawn(|| cluster.psql().sql(statement));
                    std::thread::sleep(Duration::from_secs(7));
                    let is_over = waits.is_finished();
                    go_on();
                    let done = waits.join().unwrap();
                    assert!(!is_over, "{statement}: {done:?}");
                    done.unwrap_or_else(|error| panic!("{statement}: {error}"));
                });
            });
            if statement.contains("rename") {
                sql(cluster, "alter database e rename to d");
            }
        }
    });
}

#[test]
fn who_waits_for_a_dispatcher_can_be_cancelled_and_who_may_not_wait_does_not() {
    on_each_major("statements that wait for a dispatcher", |cluster| {
        with_tables_in_d(cluster);
        sql(cluster, "create role somebody login");
        sql(cluster, "create database one; create database two");
        with_held_dispatcher(cluster, |_| {
            for statement in
                ["drop database d", "create database copy template d", "alter database d rename to e"]
            {
                let begun = Instant::now();
                let error = cluster.psql().user("somebody").sql(statement).unwrap_err().to_string();
                assert!(error.contains("must be owner") || error.contains("permission denied"), "{error}");
                assert!(begun.elapsed() < Duration::from_secs(4), "{statement}: {:?}", begun.elapsed());
                let error =
                    cluster.psql().sql(&format!("set statement_timeout = 500; {statement}")).unwrap_err();
                assert!(error.to_string().contains("statement timeout"), "{statement}: {error}");
            }
        });
        // Nobody needs it any more, so dispatchers come again.
        let paths = paths(cluster, "d", "relname = 't300'");
        wait_for(cluster, "the last table", |_| paths.is_subset(&asked_paths(cluster)));
        // The second and the third have a lock that a dispatcher would wait for.
        let begun = Instant::now();
        sql(
            cluster,
            "begin; alter database one rename to three; alter database two rename to one; select pg_sleep(3); \
             alter database three rename to two; select pg_sleep(3); alter database two rename to three; commit",
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_dispatcher_leaves_a_database_that_a_statement_needs_before_it_asks_for_anything() {
    on_each_major("a dispatcher that is to leave", |cluster| {
        with_tables_in_d(cluster);
        with_held_dispatcher(cluster, |go_on| {
            let before = asked(cluster);
            std::thread::scope(|scope| {
                let dropped = scope.spawn(|| cluster.psql().sql("drop database d"));
                let waits = "select count(*) from pg_stat_activity where query = 'drop database d' and wait_event = 'Extension'";
                let waited = wait_until(Duration::from_secs(10), "who waits", || sql(cluster, waits) == "1");
                go_on();
                waited.unwrap();
                dropped.join().unwrap().unwrap();
            });
            assert_eq!(asked(cluster), before);
        });
    });
}

#[test]
fn a_standby_compresses_by_its_own_setting_and_follows_labels_without_it() {
    Server::each_with_extensions("a standby's own setting", &MAJORS, |server| {
        let primary = telling(server);
        sql(&primary, &format!("create extension cfs; {ROWS}"));
        let standby = primary.standby().conf("cfs.node_compression", "zstd:2").start().unwrap();
        let all = paths(&primary, "postgres", "relname in ('t', 't_pkey', 'm', 'low', 'high')");
        wait_for(&standby, "the standby's files", |_| all.is_subset(&asked_paths(&standby)));
        assert!(asked(&primary).is_empty());
        assert!(asked(&standby).iter().all(|asked| asked.relation >= 16384));
        // A label that arrives by WAL, where the node has no setting.
        set(&standby, "alter system set cfs.node_compression = ''");
        sql(
            &primary,
            "create table late as select generate_series(1, 9000) i; select cfs_compress_relation('late')",
        );
        let late = paths(&primary, "postgres", "relname = 'late'");
        wait_for(&standby, "the labelled table", |_| late.is_subset(&asked_paths(&standby)));
        assert!(
            !standby.log_contains("FATAL") && !standby.log_contains("PANIC"),
            "{}",
            standby.log().unwrap()
        );
    });
}
