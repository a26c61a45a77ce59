//! Columns that change in place, with all that uses them.

use super::compared::*;
use pgshrink_advisor::edit::{Edit, Recompression, Retype};
use pgshrink_advisor::layout;
use pgshrink_advisor::plan::{Method, PlanError, Request, in_place, plan};
use pgshrink_advisor::snapshot::Table;
use pgshrink_testkit::{Cluster, Server};

pub fn retype(table: &Table, column: &str, type_name: &str, using: &str) -> Edit {
    let column = table.columns.iter().position(|known| known.name == column).unwrap();
    Edit::Retype(Retype {
        column,
        type_name: type_name.to_owned(),
        prepare: Vec::new(),
        first: Vec::new(),
        using: using.to_owned(),
        layout: layout::Column {
            name: String::new(),
            length: None,
            alignment: layout::Alignment::Char,
            is_packable: false,
            is_not_null: false,
            is_dropped: false,
        },
        images: Vec::new(),
        proof: String::new(),
    })
}

pub fn request<'a>(table: &'a Table, edits: &'a [Edit], major: u32) -> Request<'a> {
    Request { table, edits, order: None, server_version: major * 10_000 }
}

/// The dump without what was to change.
fn without<'d>(lines: &'d [String], column: &str) -> Vec<&'d String> {
    lines.iter().filter(|line| !line.contains(column)).collect()
}

const SCHEMA: &str = "
create role reader; create role definer;
create table t (id bigint primary key, code text default 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' not null, small bigint default 7,
  body text compression pglz, note varchar(20) collate \"C\") with (fillfactor = 80);
insert into t select n, gen_random_uuid()::text, n % 100, repeat(md5(n::text), n % 200), 'note ' || n from generate_series(1, 500) n;
create index on t (code); create unique index of_two on t (small, id) include (note);
alter table t add constraint small_check check (small < 1000);
create view v1 as select id, code, small from t where note <> ''; create view v2 as select code from v1; create view v3 as select id from t;
create materialized view m as select count(code) as codes, small from t group by small; create index on m (small);
create view on_m as select codes from m;
alter view v1 owner to definer; grant all on t to definer; grant select on v1 to reader; grant select (code) on v2 to reader; comment on view v2 is 'two';
alter view v2 set (security_barrier = true); alter view v1 alter small set default 3;
create rule r as on insert to v2 do instead insert into t (id, code) values (-1, new.code);
create function f() returns trigger language plpgsql as $$ begin return new; end $$;
create trigger instead instead of update on v1 for each row execute function f();
create trigger own before update of code on t for each row when (old.code <> 'x') execute function f();
comment on trigger own on t is 'own'; alter table t disable trigger own;
create rule keep as on delete to t where old.small = 5 do instead nothing;
alter table t enable row level security; create policy p on t for select to reader, definer using (small > 3); comment on policy p on t is 'p';
create statistics s on small, note from t;
create publication pub for table t (id, small) where (small > 1);
";

#[test]
fn types_change_in_place_and_what_uses_them_is_there_again() {
    Server::each("columns changed in place", &[15, 18], |server| {
        let cluster = cluster(server);
        cluster.sql(SCHEMA).unwrap();
        let table = table(&cluster, "t");
        let body = table.columns.iter().position(|column| column.name == "body").unwrap();
        let compression = Recompression {
            column: body,
            compression: None,
            storage: Some("external".to_owned()),
            compressed: Vec::new(),
            raw: Vec::new(),
        };
        let edits = [
            retype(&table, "small", "integer", "\"small\"::integer"),
            Edit::Recompress(compression),
            Edit::Fillfactor(100),
        ];
        let relations = ["t", "v1", "v2", "v3", "m", "on_m"];
        let before = (catalogs(&cluster), relations.map(|relation| rows(&cluster, relation)));
        let plan = plan(&request(&table, &edits, server.major), Method::InPlace).unwrap();
        run_all(&cluster, &plan.steps);
        assert_eq!(relations.map(|relation| rows(&cluster, relation)), before.1);
        let after = catalogs(&cluster);
        // What has the column's type in its text is different.
        let is_changed = |line: &&&String| {
            [
                "|small|",
                "|body|",
                "class|public|t|",
                "small_check",
                "MATERIALIZED",
                "policy|",
                "publication|",
                "own|",
                "keep",
            ]
            .iter()
            .any(|part| line.contains(part))
        };
        let same = |lines: &[String]| -> Vec<String> {
            without(lines, "small")
                .iter()
                .filter(|line| !is_changed(line))
                .map(|line| (*line).clone())
                .collect()
        };
        assert_same(&same(&before.0), &same(&after), "everything else");
        assert_eq!(before.0.len(), after.len(), "as many of everything");
        assert_changed(&cluster);
        let again = run(&cluster, &plan.steps[0]).unwrap_err().to_string();
        assert!(again.contains("has changed since"), "{again}");
    });
}

/// The new types, and that what was made again works.
fn assert_changed(cluster: &Cluster) {
    let value = |sql: &str| cluster.sql(sql).unwrap();
    assert_eq!(
        value(
            "select format_type(atttypid, -1) from pg_attribute where attrelid = 't'::regclass and attname = 'small'"
        ),
        "integer"
    );
    assert_eq!(value("select count(*) from t where pg_column_compression(body) is not null"), "0");
    assert_eq!(value("select reloptions from pg_class where oid = 't'::regclass"), "{fillfactor=100}");
    assert_eq!(
        value("select obj_description(oid) || tgenabled::text from pg_trigger where tgname = 'own'"),
        "ownD"
    );
    assert_eq!(
        value("insert into v2 values ('b'); select small from t where id = -1"),
        "7",
        "rule and default"
    );
    assert_eq!(value("set role reader; select count(*) from v1"), "480");
}

#[test]
fn keys_change_on_both_sides_of_a_foreign_key_together() {
    Server::each("keys changed in place", &[15, 18], |server| {
        let cluster = cluster(server);
        cluster
            .sql(
                "create table parent (id text primary key default gen_random_uuid()::text);
                 create table child (n int, parent_id text constraint fk references parent on delete cascade deferrable);
                 comment on constraint fk on child is 'kept';
                 insert into parent select from generate_series(1, 100); insert into child select 1, id from parent;",
            )
            .unwrap();
        let (parent, child) = (table(&cluster, "parent"), table(&cluster, "child"));
        let of_parent = [retype(&parent, "id", "uuid", "\"id\"::uuid")];
        let of_child = [retype(&child, "parent_id", "uuid", "\"parent_id\"::uuid")];
        let alone = plan(&request(&parent, &of_parent, server.major), Method::InPlace);
        assert!(
            matches!(&alone, Err(PlanError::Refused { reasons, .. }) if reasons[0].contains("fk")),
            "{alone:?}"
        );
        let (before, constraints) = (rows(&cluster, "child"), constraints(&cluster));
        let both = [request(&parent, &of_parent, server.major), request(&child, &of_child, server.major)];
        run_all(&cluster, &in_place(&both).unwrap().steps);
        assert_eq!(rows(&cluster, "child"), before);
        assert_eq!(self::constraints(&cluster), constraints);
        let found = cluster
            .sql("insert into parent default values; delete from parent; select count(*) from child")
            .unwrap();
        assert_eq!(found, "0", "the default makes keys, and children go with their parents");
    });
}

fn constraints(cluster: &Cluster) -> String {
    cluster
        .sql("select conname, conrelid::regclass, pg_get_constraintdef(oid), obj_description(oid) from pg_constraint where conrelid <> 0 order by 1")
        .unwrap()
}
