//! Findings about indexes, and what happens when their SQL is executed.

use crate::catalog::{self, Part};
use pgshrink_advisor::rules::{Candidate, indexes};
use pgshrink_advisor::snapshot::{Server, Snapshot, Table};
use pgshrink_testkit::{Cluster, Server as Servers};

const DAY_S: i64 = 86_400;

fn snapshot(tables: Vec<Table>) -> Snapshot {
    let server = Server { version: 150_000, ..Server::default() };
    Snapshot { format: 1, taken_s: 200 * DAY_S, server, tables, ..Snapshot::default() }
}

fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    snapshot.tables.iter().flat_map(|table| indexes::candidates(snapshot, table)).collect()
}

fn found(cluster: &Cluster, names: &[&str], part: Part) -> Vec<Candidate> {
    candidates(&snapshot(names.iter().map(|name| catalog::table(cluster, name, part)).collect()))
}

fn ids(found: &[Candidate]) -> Vec<String> {
    let mut ids: Vec<_> = found.iter().map(|candidate| candidate.finding.id.clone()).collect();
    ids.sort();
    ids
}

fn execute(cluster: &Cluster, found: &[Candidate]) {
    for sql in found.iter().flat_map(|candidate| &candidate.finding.sql) {
        cluster.sql(sql).unwrap();
    }
}

fn number(cluster: &Cluster, sql: &str) -> u64 {
    cluster.sql(sql).unwrap().trim().parse().unwrap()
}

/// What must be the same after any change of indexes.
fn guarantees(cluster: &Cluster, table: &str) -> String {
    cluster
        .sql(&format!(
            "select conname, contype, conkey from pg_constraint where conrelid = '{table}'::regclass and contype <> 'u'
                or confrelid = '{table}'::regclass order by 1;
             select distinct indkey, indclass, indcollation, indnullsnotdistinct, pg_get_expr(indpred, indrelid)
                from pg_index where indrelid = '{table}'::regclass and indisunique order by 1, 2;
             select indexrelid::regclass from pg_index where indrelid = '{table}'::regclass and (indisreplident or indisclustered);
             select relreplident from pg_class where oid = '{table}'::regclass"
        ))
        .unwrap()
}

/// Indexes that another one replaces, and many that look like that.
const TWINS: &str = r#"
    create schema "S 1";
    create table "S 1"."T ""x""" (id int8 primary key, a int4 not null, b text, c text collate "C", d timestamptz, r int4range, exclude using gist (r with &&));
    insert into "S 1"."T ""x""" select n, n, md5(n::text), md5(n::text), now(), null from generate_series(1, 20000) n;
    alter table "S 1"."T ""x""" add constraint "uq id" unique (id);
    set search_path = "S 1";
    alter table "T ""x""" add constraint later unique (id, c) deferrable;
    create unique index at_once on "T ""x""" (id, c);
    create unique index same_as_key on "T ""x""" (id);
    create index "plain ""as key" on "T ""x""" (id);
    create index a_1 on "T ""x""" (a);
    create index a_2 on "T ""x""" (a) with (fillfactor = 70);
    create index a_desc on "T ""x""" (a desc);
    create index a_nulls_first on "T ""x""" (a nulls first);
    create index a_part on "T ""x""" (a) where b is not null;
    create index a_part_2 on "T ""x""" (a) where b is not null;
    create index a_other_part on "T ""x""" (a) where b is null;
    create index b_plain on "T ""x""" (b);
    create index b_pattern on "T ""x""" (b text_pattern_ops);
    create index b_c on "T ""x""" (b collate "C");
    create index c_plain on "T ""x""" (c);
    create index b_hash on "T ""x""" using hash (b);
    create index b_lower on "T ""x""" (lower(b));
    create index b_lower_2 on "T ""x""" (lower(b));
    create index b_upper on "T ""x""" (upper(b));
    create index d_only on "T ""x""" (d);
    create index d_id on "T ""x""" (d, id);
    create index d_id_a on "T ""x""" (d, id) include (a);
    create unique index d_id_unique on "T ""x""" (d, id, a);
    create index range_1 on "T ""x""" using gist (r);
    create index b_hash_2 on "T ""x""" using hash (b);
    create index b_hash_full on "T ""x""" using hash (b) with (fillfactor = 100);
    create index range_multi on "T ""x""" using gist (r, (int4range(a, a + 1)));
    "#;

#[test]
fn indexes_that_others_replace_go_and_all_guarantees_stay() {
    Servers::each("duplicate indexes", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql(TWINS).unwrap();
        let table = r#""S 1"."T ""x""""#;
        let before = guarantees(&cluster, table);
        let found = found(&cluster, &[table], Part::Whole);
        let name = |kind: &str, index: &str| format!("{kind}:S 1.T \"x\".{index}");
        let mut expected = vec![
            name("duplicate_index", "same_as_key"),
            name("duplicate_index", "plain \"as key"),
            name("duplicate_index", "uq id"),
            name("duplicate_index", "later"),
            name("duplicate_index", "a_2"),
            name("duplicate_index", "a_part_2"),
            name("duplicate_index", "b_lower_2"),
            name("duplicate_index", "b_hash_2"),
            name("prefix_index", "d_only"),
            name("prefix_index", "d_id"),
            name("prefix_index", "d_id_a"),
        ];
        expected.sort();
        assert_eq!(ids(&found), expected);
        let size = format!("select pg_indexes_size('{table}')");
        let (now, saved): (u64, i64) =
            (number(&cluster, &size), found.iter().map(|found| found.finding.bytes.disk.saved()).sum());
        execute(&cluster, &found);
        assert_eq!(number(&cluster, &size) as i64, now as i64 - saved);
        assert_eq!(guarantees(&cluster, table), before);
        assert_eq!(ids(&self::found(&cluster, &[table], Part::Whole)), Vec::<String>::new());
    });
}

#[test]
fn an_index_that_something_else_needs_is_left_alone() {
    Servers::each("needed indexes", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql(
                "create table parent (a int not null, b int not null unique, c int not null, d int not null);
                 insert into parent select n, n, n, n from generate_series(1, 20000) n;
                 create unique index ident on parent (a);
                 create unique index ident_2 on parent (a);
                 alter table parent replica identity using index ident_2;
                 create index clus on parent (c);
                 create index clus_2 on parent (c);
                 cluster parent using clus;
                 create unique index d_1 on parent (d);
                 alter table parent add unique using index d_1;
                 create table child (d int references parent (d), b int references parent (b));
                 alter table parent add constraint d_2 unique (d);
                 insert into child select n, n from generate_series(1, 20000) n;
                 create index child_d on child (d);
                 create index child_b on child (b);",
            )
            .unwrap();
        let before = guarantees(&cluster, "parent");
        let mut tables = vec![
            catalog::table(&cluster, "parent", Part::Whole),
            catalog::table(&cluster, "child", Part::Whole),
        ];
        // Nothing was read in half a year.
        tables.iter_mut().flat_map(|table| &mut table.indexes).for_each(|index| index.scans = Some(0));
        let mut snapshot = snapshot(tables);
        snapshot.server.counting_since_s = Some(0);
        let found = candidates(&snapshot);
        // The foreign key of d may be bound to either of the two; the other one can go.
        let bound = cluster
            .sql("select conindid::regclass from pg_constraint where contype = 'f' and confkey = '{4}'")
            .unwrap();
        let free = if bound.trim() == "d_1" { "d_2" } else { "d_1" };
        let mut expected = vec![
            "duplicate_index:public.parent.ident".to_owned(),
            "duplicate_index:public.parent.clus_2".to_owned(),
            format!("duplicate_index:public.parent.{free}"),
        ];
        expected.sort();
        assert_eq!(ids(&found), expected);
        execute(&cluster, &found);
        assert_eq!(guarantees(&cluster, "parent"), before);
    });
}

#[test]
fn of_partitions_only_the_parents_index_is_dropped() {
    Servers::each("indexes of partitions", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql(
                "create table p (a int, b int) partition by range (a);
                 create table p1 partition of p for values from (0) to (10000);
                 create table p2 partition of p for values from (10000) to (100000) partition by range (a);
                 create table p3 partition of p2 for values from (10000) to (100000);
                 insert into p select n, n from generate_series(1, 20000) n;
                 create index p_b on p (b);
                 create index p_b_2 on p (b);
                 create index p_a on p (a);
                 create index p1_own on p1 (b);",
            )
            .unwrap();
        let names = ["p", "p1", "p2", "p3"];
        let tables =
            || names.iter().map(|name| catalog::table(&cluster, name, Part::Whole)).collect::<Vec<_>>();
        let found = candidates(&snapshot(tables()));
        assert_eq!(ids(&found), ["duplicate_index:public.p.p_b_2", "duplicate_index:public.p1.p1_own"]);
        let size = "select sum(pg_indexes_size(relid)) from pg_partition_tree('p')";
        let now = number(&cluster, size) as i64;
        let saved: i64 = found.iter().map(|found| found.finding.bytes.disk.saved()).sum();
        execute(&cluster, &found);
        assert_eq!(number(&cluster, size) as i64, now - saved);
        // Unused: the parts' counters count.
        let mut tables = tables();
        let parts = tables.iter_mut().flat_map(|table| &mut table.indexes);
        parts.filter(|index| index.parent != 0).for_each(|index| index.scans = Some(0));
        let read = |tables: &mut Vec<Table>, scans| {
            let all = tables.iter_mut().flat_map(|table| &mut table.indexes);
            all.filter(|index| index.name == "p3_b_idx").for_each(|index| index.scans = Some(scans));
        };
        read(&mut tables, 1);
        let mut snapshot = snapshot(tables);
        snapshot.server.counting_since_s = Some(0);
        assert_eq!(ids(&candidates(&snapshot)), ["unused_index:public.p.p_a"]);
        read(&mut snapshot.tables, 0);
        let found = candidates(&snapshot);
        assert_eq!(ids(&found), ["unused_index:public.p.p_a", "unused_index:public.p.p_b"]);
        let proof = found[0].finding.proof.as_ref().unwrap();
        assert_eq!(cluster.sql(proof).unwrap().trim(), "0");
        execute(&cluster, &found);
        assert_eq!(number(&cluster, size), 0);
    });
}

#[test]
fn what_a_failed_build_left_is_dropped() {
    Servers::each("invalid indexes", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql("create table t (a int); insert into t select n % 10 from generate_series(1, 20000) n")
            .unwrap();
        cluster.sql("create unique index concurrently failed on t (a)").unwrap_err();
        let found = found(&cluster, &["t"], Part::Whole);
        assert_eq!(ids(&found), ["invalid_index:public.t.failed"]);
        assert_eq!(cluster.sql(found[0].finding.proof.as_ref().unwrap()).unwrap().trim(), "0");
        execute(&cluster, &found);
        assert_eq!(number(&cluster, "select count(*) from pg_index where indrelid = 't'::regclass"), 0);
    });
}

#[test]
fn an_index_is_unused_only_after_a_week_of_counting() {
    Servers::each("unused indexes", &[15], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql("create table t (a int, b int unique); insert into t select n, n from generate_series(1, 20000) n;
                  create index a_idx on t (a)")
            .unwrap();
        let mut table = catalog::table(&cluster, "t", Part::Whole);
        table.indexes.iter_mut().for_each(|index| index.scans = Some(0));
        let mut snapshot = snapshot(vec![table]);
        assert_eq!(candidates(&snapshot).len(), 0, "nobody knows since when");
        for (days, is_standby, expected) in
            [(6, false, None), (8, false, Some(false)), (100, false, Some(true)), (100, true, Some(false))]
        {
            snapshot.server.counting_since_s = Some(snapshot.taken_s - days * DAY_S);
            snapshot.server.is_standby = is_standby;
            let found = candidates(&snapshot);
            assert_eq!(found.first().map(|found| found.is_recommended), expected, "{days} days");
            let says_primary = found.iter().all(|found| found.finding.cost.contains("primary") == is_standby);
            assert!(says_primary, "{found:?}");
        }
        snapshot.tables[0].indexes.iter_mut().for_each(|index| index.scans = None);
        assert_eq!(candidates(&snapshot).len(), 0, "not counted");
        snapshot.tables[0].indexes.iter_mut().for_each(|index| index.scans = Some(0));
        snapshot.tables[0].extension = Some("e".to_owned());
        assert_eq!(candidates(&snapshot).len(), 0, "of an extension");
    });
}

/// What indexes that were made smaller have, beside what the findings said, in thousandths.
fn check_sizes(cluster: &Cluster, found: &[Candidate], allowed: u64) {
    execute(cluster, found);
    for candidate in found {
        let name = candidate.finding.object.part.as_ref().unwrap();
        let after = number(cluster, &format!("select pg_relation_size('{name}')"));
        let said = candidate.finding.bytes.disk.after;
        let error = after.abs_diff(said) * 1000 / after;
        assert!(error <= allowed || after.abs_diff(said) <= 8192, "{name}: {after}, {said} was said");
        let now = candidate.finding.bytes.disk.now;
        assert!(after < now, "{name}: {now} before, {after} after");
    }
}

#[test]
fn bloated_indexes_become_as_small_as_was_said_and_full_ones_are_left_alone() {
    Servers::each("index bloat", &[15, 18], |server| {
        let part = if server.major == 15 { Part::Whole } else { Part::OneIn(5) };
        let cluster = Cluster::builder().server(server).conf("autovacuum", "off").start().unwrap();
        cluster
            .sql(
                "create table t (id int8 primary key, k int4, w text, r int4range);
                 insert into t select n, n % 3000, md5(n::text), null from generate_series(1, 300000) n;
                 create index t_k on t (k); create index t_w on t (w); create index t_lower on t (lower(w));
                 create index t_gist on t using gist (r);
                 delete from t where hashint8(id) % 5 <> 0;
                 create index t_fresh on t (id, w);
                 vacuum analyze t;",
            )
            .unwrap();
        let found = found(&cluster, &["t"], part);
        let expected = ["t_k", "t_lower", "t_pkey", "t_w"].map(|name| format!("index_bloat:public.t.{name}"));
        // Rows that were deleted left blocks with few rows: duplicates are few in the sample.
        assert_eq!(ids(&found), expected);
        check_sizes(&cluster, &found, if part == Part::Whole { 0 } else { 50 });
        assert_eq!(ids(&self::found(&cluster, &["t"], part)), Vec::<String>::new(), "{part:?}");
    });
}

#[test]
fn mostly_null_keys_are_left_out_and_queries_find_the_same() {
    Servers::each("partial indexes", &[15, 18], |server| {
        let part = if server.major == 15 { Part::Whole } else { Part::OneIn(5) };
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql(
                "create table t (id int8 primary key, n int4, u uuid, few int4, k int4, w int4 unique);
                 insert into t select n, case when n % 20 = 0 then n end, case when n % 4 = 0 then gen_random_uuid() end,
                    case when n % 3 = 0 then n end, case when n % 5 <> 0 then n end, case when n % 10 = 0 then n end
                    from generate_series(1, 100000) n;
                 create index t_n on t (n) with (fillfactor = 80);
                 create unique index t_u on t (u) include (id);
                 create unique index t_few on t (few) nulls not distinct where few > 3;
                 create index t_k on t (k);
                 create index t_part on t (n, id) where id > 5;
                 analyze t;",
            )
            .unwrap();
        let found = found(&cluster, &["t"], part);
        assert_eq!(ids(&found), ["partial_index:public.t.t_n", "partial_index:public.t.t_u"]);
        assert_eq!(found.iter().map(|found| found.is_recommended).collect::<Vec<_>>(), [true, false]);
        check_sizes(&cluster, &found, if part == Part::Whole { 0 } else { 50 });
        let plan = cluster.sql("set enable_seqscan = off; explain select * from t where n = 40").unwrap();
        assert!(plan.contains("t_n"), "{plan}");
        cluster.sql("insert into t (id, u) select -1, u from t where u is not null limit 1").unwrap_err();
        cluster.sql("insert into t (id, u) values (-2, null), (-3, null)").unwrap();
        assert_eq!(ids(&self::found(&cluster, &["t"], part)), Vec::<String>::new(), "{part:?}");
    });
}

#[test]
fn columns_behind_the_keys_take_less_room() {
    Servers::each("INCLUDE columns", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql(
                "create table t (id int4 not null, f bool not null, big int8 not null, g bool not null, v int4 not null, n int4, w text);
                 insert into t select n, true, n, false, n, n, md5(n::text) from generate_series(1, 60000) n;
                 create unique index t_id on t (id);
                 create index t_id_v on t (id, v);
                 create index t_id_n on t (id) include (n);
                 create index t_padded on t (big) include (f, v, g);
                 create index t_tight on t (w) include (f, v);
                 create index t_keys on t (f, big, g);",
            )
            .unwrap();
        let found = found(&cluster, &["t"], Part::Whole);
        assert_eq!(ids(&found), ["free_include:public.t.t_id_v", "include_order:public.t.t_padded"]);
        let merged = found.iter().find(|found| found.finding.id.starts_with("free")).unwrap();
        assert_eq!(merged.finding.bytes.disk.after, 0, "the padding is free");
        let size = "select pg_indexes_size('t')";
        let now = number(&cluster, size) as i64;
        let saved: i64 = found.iter().map(|found| found.finding.bytes.disk.saved()).sum();
        execute(&cluster, &found);
        assert_eq!(number(&cluster, size) as i64, now - saved);
        cluster.sql("insert into t select * from t limit 1").unwrap_err();
        let plan = cluster
            .sql("vacuum analyze t; set enable_seqscan = off; explain select v from t where id = 40")
            .unwrap();
        assert!(plan.contains("Index Only Scan using t_id "), "{plan}");
        assert_eq!(ids(&self::found(&cluster, &["t"], Part::Whole)), Vec::<String>::new());
    });
}
