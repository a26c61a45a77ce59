//! Partitions, parents and children, and tables of odd kinds.

use super::compared::*;
use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::plan::{Method, Request, plan};
use pgshrink_testkit::{Cluster, Server};

pub fn reorder(cluster: &Cluster, name: &str, method: Method) -> Vec<String> {
    let table = table(cluster, name);
    let live = (0..table.columns.len()).rev().filter(|index| !table.columns[*index].is_dropped);
    let order: Vec<usize> = live.collect();
    let request =
        Request { table: &table, edits: &[Edit::Reorder], order: Some(&order), server_version: 150_000 };
    let plan = plan(&request, method).unwrap_or_else(|error| panic!("{name}: {error}"));
    run_all(cluster, &plan.steps);
    plan.warnings
}

#[test]
fn a_partition_is_exchanged_for_a_new_one() {
    Server::each("partitions", &[15, 18], |server| {
        for method in [Method::Offline, Method::Online] {
            let cluster = cluster(server);
            let identity = if server.major >= 17 { "generated always as identity" } else { "not null" };
            cluster
                .sql(&format!(
                    "create table other (x int primary key); insert into other values (1);
                     create function f() returns trigger language plpgsql as $$ begin return new; end $$;
                     create table p (flag bool, id bigint {identity}, gone int, at date not null, text text default 'x' check (text <> ''),
                       x int references other, primary key (id, at)) partition by range (at);
                     create index of_text on p (text); create trigger tr before insert on p for each row execute function f();
                     create table p1 partition of p for values from ('2026-01-01') to ('2026-02-01') with (fillfactor = 70);
                     create table p2 (at date not null, x int, id bigint not null, text text default 'own', flag bool, gone int, constraint p_text_check check (text <> ''));
                     create index odd_name on p2 (text);
                     alter table p attach partition p2 for values from ('2026-02-01') to ('2026-03-01');
                     create table p3 partition of p default;
                     alter table p drop gone; alter table p1 add constraint own check (x < 5); alter table p1 alter text set default 'one';
                     alter table p1 disable trigger tr; create index only_here on p1 (flag);
                     create view v as select * from p1; create view all_of_it as select * from p;
                     create publication pub for table p1;"
                ))
                .unwrap();
            let overriding = if server.major >= 17 { "overriding system value" } else { "" };
            cluster
                .sql(&format!("insert into p (flag, id, at, x) {overriding} select true, n, date '2026-01-01' + n, 1 from generate_series(1, 70) n"))
                .unwrap();
            let relations = ["p", "p1", "p2", "v", "all_of_it"];
            let before = (catalogs(&cluster), relations.map(|relation| rows(&cluster, relation)));
            for partition in ["p1", "p2", "p3"] {
                reorder(&cluster, partition, method);
            }
            assert_same(&before.0, &catalogs(&cluster), &format!("{method:?} on {}", server.major));
            assert_eq!(relations.map(|relation| rows(&cluster, relation)), before.1);
            let found = cluster
                .sql(&format!(
                    "insert into p (flag, id, at, x) {overriding} values (false, 999, '2026-01-05', 1);
                     select tableoid::regclass, text from p where id = 999"
                ))
                .unwrap();
            assert_eq!(found, "p1|x", "rows are routed to the new partition");
        }
    });
}

#[test]
fn rights_that_owners_gave_up_stay_away() {
    Server::each("rights of owners", &[15, 18], |server| {
        for method in [Method::Offline, Method::Online] {
            let cluster = cluster(server);
            let columns = "flag bool, id bigint generated always as identity primary key";
            let tables = ["plain", "partly", "nothing", "public_only", "by_default"];
            for table in tables {
                cluster.sql(&format!("create table {table} ({columns})")).unwrap();
                cluster
                    .sql(&format!("create materialized view {table}_copy as select id from {table}"))
                    .unwrap();
            }
            cluster
                .sql(
                    "revoke update, delete on partly from postgres; revoke all on nothing, nothing_copy, nothing_id_seq from postgres;
                     revoke all on public_only from postgres; grant select on public_only to public;
                     create role reader; grant select on plain to reader; revoke select on plain from reader;
                     alter default privileges grant insert on tables to reader",
                )
                .unwrap();
            let rights = "select string_agg(relname || ' ' || coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::\"char\", relowner))::text, e'\n' order by relname)
                          from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'S', 'm') and relname !~ '_old'";
            let before = cluster.sql(rights).unwrap();
            for table in tables {
                reorder(&cluster, table, method);
            }
            assert_eq!(cluster.sql(rights).unwrap(), before, "{method:?} on {}", server.major);
        }
    });
}

#[test]
fn what_a_script_has_copied_does_not_count_as_new_rows() {
    Server::each("counters", &[15, 18], |server| {
        let cluster = cluster(server);
        cluster.sql("create table t (a bool, id bigint); insert into t select true, n from generate_series(1, 5000) n; vacuum analyze t").unwrap();
        let table = table(&cluster, "t");
        let request =
            Request { table: &table, edits: &[Edit::Reorder], order: Some(&[1, 0]), server_version: 150_000 };
        let script: String = plan(&request, Method::Offline)
            .unwrap()
            .steps
            .iter()
            .map(|step| step.statements.join("\n") + "\n")
            .collect();
        // One session, as psql runs it.
        cluster.sql(&script).unwrap();
        let counted = || {
            cluster
                .sql("select n_live_tup, n_ins_since_vacuum from pg_stat_user_tables where relname = 't'")
                .unwrap()
        };
        // Counters that are left come when the session ends.
        std::thread::sleep(std::time::Duration::from_secs(2));
        assert_eq!(counted(), "5000|0");
    });
}

#[test]
fn parents_and_children_by_inheritance_stay_related() {
    Server::each("inheritance", &[15, 18], |server| {
        for method in [Method::Offline, Method::Online] {
            let cluster = cluster(server);
            cluster
                .sql(
                    "create table top (a bool, id bigint primary key, b int check (b > 0)); create table second (z int);
                     create table middle (own text, primary key (id)) inherits (top, second);
                     create table low (primary key (id)) inherits (middle);
                     insert into top values (true, 1, 1); insert into middle values (true, 2, 2, 7, 'x'); insert into low values (true, 3, 3);",
                )
                .unwrap();
            let relations = ["top", "middle", "low", "second", "only top", "only middle"];
            let links =
                "select inhrelid::regclass, inhparent::regclass, inhseqno from pg_inherits order by 1, 3";
            let before = (cluster.sql(links).unwrap(), relations.map(|relation| rows(&cluster, relation)));
            let warnings = ["middle", "top", "low"].map(|name| reorder(&cluster, name, method));
            assert!(warnings[0].iter().any(|warning| warning.contains("its own")), "{warnings:?}");
            assert_eq!(relations.map(|relation| rows(&cluster, relation)), before.1);
            let after = cluster.sql("select inhrelid::regclass::text, inhparent::regclass::text from pg_inherits order by 1, 2").unwrap();
            let names = |text: &str| {
                let mut names: Vec<String> =
                    text.lines().map(|line| line.split('|').take(2).collect::<Vec<_>>().join("|")).collect();
                names.sort();
                names
            };
            assert_eq!(names(&after), names(&before.0));
            let found =
                cluster.sql("alter table top add late int default 9; select sum(late) from top").unwrap();
            assert_eq!(found, "27", "what the parent gets, its children get");
        }
    });
}

#[test]
fn tables_of_odd_kinds_are_made_again() {
    Server::each("odd tables", &[15, 18], |server| {
        for method in [Method::Offline, Method::Online] {
            let cluster = cluster(server);
            let long = "ä".repeat(31);
            cluster
                .sql(&format!(
                    "create schema \"a.b\"; create domain \"a.b\".\"int\" as int;
                     create table \"a.b\".\"{long}\" (\"done\" bool, \"pgshrink_last\" text, \"Select\" \"a.b\".\"int\" default 5,
                       \"a\"\"'; drop table x; --\n$pgshrink$\" varchar(30) collate \"C\", \"order\" char(3), primary key (\"order\", \"Select\"));
                     create index \"{long}_i\" on \"a.b\".\"{long}\" (\"done\");
                     insert into \"a.b\".\"{long}\" select n % 2 = 0, 'x' || n, n, 'v', n % 7 from generate_series(1, 99) n;
                     comment on table \"a.b\".\"{long}\" is '\\ '' $pgshrink$'; create unlogged table u (b bool, id int primary key);
                     create table \"state\" (\"state\" bool, changes int primary key, done int); insert into state values (true, 1, 2);
                     insert into u select true, n from generate_series(1, 20) n; create table empty (a int primary key, b text);"
                ))
                .unwrap();
            let names =
                [format!("\"a.b\".\"{long}\""), "u".to_owned(), "empty".to_owned(), "state".to_owned()];
            let before = (catalogs(&cluster), names.each_ref().map(|name| rows(&cluster, name)));
            for name in &names {
                reorder(&cluster, name, method);
            }
            assert_same(&before.0, &catalogs(&cluster), &format!("{method:?}"));
            assert_eq!(names.each_ref().map(|name| rows(&cluster, name)), before.1);
        }
    });
}

#[test]
fn a_table_is_named_once_for_its_lock_and_an_order_is_warned_of_only_where_it_changes() {
    Server::each("texts of plans", &[15, 18], |server| {
        let cluster = cluster(server);
        let sql = "create table t (a int primary key, b int unique, c text);
                   create table child (x int references t, y int references t, z int references t (b))";
        cluster.sql(sql).unwrap();
        let table = table(&cluster, "t");
        for (order, is_new) in [([0, 1, 2], false), ([0, 2, 1], true)] {
            for method in [Method::Offline, Method::Online] {
                let request =
                    Request { table: &table, edits: &[], order: Some(&order), server_version: 150_000 };
                let plan = plan(&request, method).unwrap();
                let warns = plan.warnings.iter().any(|warning| warning.contains("SELECT *"));
                assert_eq!(warns, is_new, "{method:?} {order:?}: {:?}", plan.warnings);
                let locks: Vec<&str> = plan.steps.iter().map(|step| step.lock.as_str()).collect();
                let names = "ACCESS EXCLUSIVE on public.t and public.child, ";
                assert!(locks.iter().any(|lock| lock.starts_with(names)), "{locks:?}");
                assert!(locks.iter().all(|lock| lock.matches("public.child").count() <= 1), "{locks:?}");
            }
        }
    });
}
