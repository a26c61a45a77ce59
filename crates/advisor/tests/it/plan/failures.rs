//! What a script does when it cannot do its work: nothing. And what no script is made for.

use super::compared::*;
use super::in_place::{request, retype};
use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::plan::{Method, Plan, PlanError, Request, plan};
use pgshrink_testkit::{Cluster, Server};

const TABLE: &str = "create table t (a bool, id bigint primary key, code text);
    insert into t select true, n, n::text from generate_series(1, 100) n; create view v as select id, code from t;";

fn reordered(cluster: &Cluster, name: &str, method: Method) -> Result<Plan, PlanError> {
    let table = table(cluster, name);
    let live = (0..table.columns.len()).rev().filter(|index| !table.columns[*index].is_dropped);
    let order: Vec<usize> = live.collect();
    let request =
        Request { table: &table, edits: &[Edit::Reorder], order: Some(&order), server_version: 150_000 };
    plan(&request, method)
}

/// The script fails with this message, and nothing is changed.
fn assert_fails(cluster: &Cluster, statements: &[String], message: &str) {
    let before = (catalogs(cluster), rows(cluster, "t"));
    let error = cluster.sql(&statements.join("\n")).unwrap_err().to_string();
    assert!(error.contains(message), "{error}");
    assert_same(&before.0, &catalogs(cluster), message);
    assert_eq!(rows(cluster, "t"), before.1);
}

#[test]
fn a_script_that_fails_changes_nothing() {
    Server::each("scripts that fail", &[15, 18], |server| {
        let cluster = cluster(server);
        cluster.sql(TABLE).unwrap();
        let offline = reordered(&cluster, "t", Method::Offline).unwrap();
        let script = &offline.steps[0].statements;
        // A reader holds the table for longer than the script waits.
        let mut reader = cluster
            .psql()
            .arg("-c")
            .arg("begin; select from t; select pg_sleep(30)")
            .command()
            .spawn()
            .unwrap();
        let waits = "select count(*) from pg_locks where relation = 't'::regclass and granted";
        while cluster.sql(waits).unwrap() == "0" {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        assert_fails(&cluster, script, "lock timeout");
        cluster.sql("select pg_terminate_backend(pid) from pg_stat_activity where query ~ 'pg_sleep' and pid <> pg_backend_pid()").unwrap();
        reader.wait().unwrap();
        // A value that does not fit its new type, found by the proof, or by the conversion itself.
        let table = table(&cluster, "t");
        cluster.sql("insert into t values (true, 1000, 'none')").unwrap();
        let mut edit = retype(&table, "code", "integer", "\"code\"::integer");
        for (method, edits) in
            [(Method::InPlace, vec![edit.clone()]), (Method::Offline, vec![Edit::DropDead, edit.clone()])]
        {
            let plan = plan(&request(&table, &edits, server.major), method).unwrap();
            assert_fails(&cluster, &plan.steps[0].statements, "invalid input syntax for type integer");
        }
        if let Edit::Retype(retype) = &mut edit {
            retype.proof = "select count(*) from public.t where code !~ '^[0-9]+$';".to_owned();
        }
        let edits = [edit];
        let proved = plan(&request(&table, &edits, server.major), Method::InPlace).unwrap();
        assert_fails(&cluster, &proved.steps[0].statements, "values of column code do not fit");
        cluster.sql("delete from t where id = 1000").unwrap();
        // Something was added since.
        for (add, remove) in [
            ("create index added on t (code)", "drop index added"),
            ("create view added as select * from v", "drop view added"),
            ("grant select on t to public", "revoke select on t from public"),
            ("create view added as select a from t", "drop view added"),
            ("comment on column t.a is 'x'", "comment on column t.a is null"),
        ] {
            cluster.sql(add).unwrap();
            assert_fails(&cluster, script, "has changed since");
            cluster.sql(remove).unwrap();
        }
        let offline = reordered(&cluster, "t", Method::Offline).unwrap();
        // The name of the old table was taken meanwhile.
        cluster.sql("create table t_old (x int)").unwrap();
        assert_fails(&cluster, &offline.steps[0].statements, "\"t_old\" already exists");
        run_all(&cluster, &reordered(&cluster, "t", Method::Offline).unwrap().steps[..2]);
        assert_eq!(cluster.sql("select count(*) from t_old2").unwrap(), "100", "another name is found");
        assert_fails(&cluster, &offline.steps[0].statements, "has changed since");
        assert_eq!(cluster.sql("drop table t_old2; select count(*) from v").unwrap(), "100");
    });
}

#[test]
fn an_online_rewrite_out_of_order_stops_and_can_be_given_up() {
    Server::each("online rewrites out of order", &[15, 18], |server| {
        let cluster = cluster(server);
        cluster.sql(TABLE).unwrap();
        let before = (catalogs(&cluster), rows(&cluster, "t"));
        let plan = reordered(&cluster, "t", Method::Online).unwrap();
        let step = |title: &str| {
            let found = plan.steps.iter().find(|step| step.title.contains(title));
            found.unwrap_or_else(|| {
                panic!("{title}: {:?}", plan.steps.iter().map(|step| &step.title).collect::<Vec<_>>())
            })
        };
        let fails = |title: &str, message: &str| {
            let error = run(&cluster, step(title)).unwrap_err().to_string();
            assert!(error.contains(message), "{title}: {error}");
        };
        fails("The swap", "does not exist");
        run(&cluster, &plan.steps[0]).unwrap();
        fails("An empty new table", "already exists");
        fails("Rows that changed meanwhile", "not all rows are copied");
        fails("The swap", "was not compared");
        run(&cluster, step("Rows copied")).unwrap();
        run(&cluster, step("Rows copied")).unwrap();
        fails("The swap", "was not compared");
        run_all(&cluster, &plan.undo);
        assert_same(&before.0, &catalogs(&cluster), "given up");
        assert_eq!(rows(&cluster, "t"), before.1);
        // From the start again, with a copy that somebody changed: the comparison finds it.
        run_all(&cluster, &plan.steps[..4]);
        cluster.sql("do $$ begin execute (select format('delete from %s where id = 5', oid::regclass) from pg_class where relname ~ '^pgshrink_.*_new$'); end $$").unwrap();
        fails("compared", "differs from the original");
        run_all(&cluster, &plan.undo);
        run_all(&cluster, &plan.steps);
        assert_eq!(rows(&cluster, "t"), before.1);
    });
}

/// A rewrite of the table after each of these statements is refused for this reason, or done where there is none.
fn assert_refused(cluster: &Cluster, cases: &[(&str, &str)]) {
    for (sql, reason) in cases {
        cluster.sql("drop schema public cascade; create schema public").unwrap();
        cluster
            .sql(
                "create table t (a bool, id bigint generated always as identity primary key, code text, up bigint references t);
                 create view v as select id, code from t",
            )
            .unwrap();
        cluster.sql(sql).unwrap();
        let found = reordered(cluster, "t", Method::Offline);
        if reason.is_empty() {
            run_all(cluster, &found.unwrap().steps);
            continue;
        }
        let Err(PlanError::Refused { reasons, .. }) = &found else { panic!("{sql}: {found:?}") };
        assert!(reasons.iter().any(|found| found.contains(reason)), "{sql}: {reasons:?}");
    }
}

#[test]
fn texts_that_show_the_order_of_columns_are_refused_by_name() {
    Server::each("texts with whole rows", &[15, 18], |server| {
        let cluster = cluster(server);
        let cases = [
            (
                "create table o (k bigint); create view j as select y2 from (t join o on k = id) as j(y1, y2, y3, y4, y5)",
                "j renames the table's columns by position",
            ),
            ("alter table t add constraint whole check (t::text <> 'x')", "constraint whole uses whole rows"),
            (
                "create trigger g before update on t for each row when (old::text like '(t%') execute function
                 suppress_redundant_updates_trigger()",
                "trigger g uses whole rows",
            ),
            (
                "create trigger g before update on t for each row when (old.* is distinct from new.*) execute function
                 suppress_redundant_updates_trigger()",
                "",
            ),
            ("create view h as select md5(x::text) from t x", "h uses whole rows"),
            ("create view h as select count(x) from t x", ""),
            ("create policy p on t using (t::text <> 'x')", "a policy of the table uses whole rows"),
            (
                "create table o (k int); create policy p on o using (exists (select from t where t < row(true, k, 'x', 1)))",
                "uses whole rows",
            ),
            ("create rule r as on insert to t do also notify t", ""),
            (
                "create function h() returns bigint begin atomic select count(*) from t where t::text = 'x'; end",
                "h() uses whole rows",
            ),
        ];
        assert_refused(&cluster, &cases);
    });
}

#[test]
fn what_cannot_be_carried_over_is_refused_by_name() {
    Server::each("refusals", &[15, 18], |server| {
        let cluster = cluster(server);
        let cases = [
            ("create table u (x t)", "column x of table public.u"),
            ("create function f(t) returns int language sql as 'select 1'", "function public.f(public.t)"),
            ("create function f() returns setof t language sql as 'select * from t'", "function public.f()"),
            ("create view w as select t from t", "column t of view public.w"),
            (
                "create table u (x regclass default 't'::regclass)",
                "default value for column x of table public.u",
            ),
            ("create table u (x bigint default nextval('t_id_seq'))", "uses the sequence of an identity"),
            (
                "create materialized view m as select * from v; create function f(m) returns int language sql as 'select 1'",
                "",
            ),
            (
                "create materialized view m as select id from t; create function f(m) returns int language sql as 'select 1'",
                "view \"public\".\"m\" has to be recreated",
            ),
            ("alter table t disable trigger all", "triggers of foreign keys"),
            (
                "create type kind as (a bool, id bigint, code text); drop view v; drop table t; create table t of kind (primary key (id))",
                "type public.kind",
            ),
            ("create domain d as t", "type public.d"),
        ];
        assert_refused(&cluster, &cases);
        cluster
            .sql("drop schema public cascade; create schema public; create table t (a int, id int)")
            .unwrap();
        let found = reordered(&cluster, "t", Method::Online).unwrap_err().to_string();
        assert!(found.contains("no primary key"), "{found}");
        cluster.sql("alter table t add primary key (id); create publication p for all tables").unwrap();
        let found = reordered(&cluster, "t", Method::Online).unwrap_err().to_string();
        assert!(found.contains("publication of all tables"), "{found}");
        run_all(&cluster, &reordered(&cluster, "t", Method::Offline).unwrap().steps);
        assert_eq!(cluster.sql("select relpersistence from pg_class where relname = 't'").unwrap(), "p");
    });
}
