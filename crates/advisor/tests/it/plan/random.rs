//! Random tables with random belongings, rewritten in both ways, and compared.

use super::compared::*;
use super::related::reorder;
use pgshrink_advisor::plan::Method;
use pgshrink_testkit::{Rng, Seed, Server};

const TYPES: [(&str, &str); 14] = [
    ("boolean", "n % 2 = 0"),
    ("smallint", "n"),
    ("integer", "n"),
    ("bigint", "n"),
    ("numeric(9,2)", "n / 3.0"),
    ("float8", "n / 3.0::float8"),
    ("date", "date '2026-01-01' + n"),
    ("timestamptz", "timestamptz '2026-01-01 00:00:00+00' + n * interval '1 min'"),
    ("interval", "n * interval '1 hour'"),
    ("uuid", "md5(n::text)::uuid"),
    ("\"char\"", "'x'::\"char\""),
    ("varchar(70)", "md5(n::text)"),
    ("text", "repeat(md5(n::text), n % 90)"),
    ("jsonb", "jsonb_build_object('n', n)"),
];
const NAMES: [&str; 10] =
    ["a", "B", "id", "select", "with space", "q\"uote", "new\nline", "ü", "state", "$pgshrink$"];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Makes table `t`, two others, and what belongs to it.
fn schema(rng: &mut Rng) -> String {
    let count = rng.between(2, NAMES.len());
    let columns: Vec<(String, (&str, &str))> =
        NAMES[..count].iter().map(|name| (quoted(name), *rng.pick(&TYPES))).collect();
    let mut definitions =
        vec![format!("key bigint{}", if rng.chance(50) { " generated always as identity" } else { "" })];
    for (name, (kind, _)) in &columns {
        let not_null = if rng.chance(30) { " not null" } else { "" };
        let default = if rng.chance(20) { " default (null)".to_owned() } else { String::new() };
        definitions.push(format!("{name} {kind}{default}{not_null}"));
        if rng.chance(20) {
            definitions.push(format!("dead_{} int", definitions.len()));
        }
    }
    definitions.push("primary key (key)".to_owned());
    let list = columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(", ");
    let values = columns.iter().map(|(_, (_, value))| *value).collect::<Vec<_>>().join(", ");
    let overriding = if definitions[0].contains("identity") { "overriding system value" } else { "" };
    let options = if rng.chance(40) { " with (fillfactor = 77, toast_tuple_target = 512)" } else { "" };
    let mut sql = vec![
        "create table other (id bigint primary key)".to_owned(),
        format!("create table t ({}){options}", definitions.join(", ")),
        format!("insert into t (key, {list}) {overriding} select n, {values} from generate_series(1, 300) n"),
        "insert into other select generate_series(1, 300)".to_owned(),
        "create table child (id int, t_key bigint references t on delete cascade)".to_owned(),
        "insert into child values (1, 1), (2, 2)".to_owned(),
        "create function f() returns trigger language plpgsql as $$ begin return new; end $$".to_owned(),
    ];
    for n in 0..rng.between(1, 12) {
        let (name, (kind, _)) = rng.pick(&columns).clone();
        let second = rng.pick(&columns).0.clone();
        sql.push(belonging(rng, n, (&name, kind), &second));
    }
    for definition in definitions.iter().filter(|text| text.starts_with("dead_")) {
        sql.push(format!("alter table t drop {}", definition.split(' ').next().unwrap_or_default()));
    }
    sql.join(";\n") + ";"
}

/// Something that belongs to the table, or uses it.
fn belonging(rng: &mut Rng, n: usize, (name, kind): (&str, &str), second: &str) -> String {
    match rng.below(20) {
        0 if kind != "jsonb" => format!("create index i{n} on t ({name} desc nulls last) include (key) with (fillfactor = 60)"),
        1 => format!("create index i{n} on t (({name} is null)) where {second} is not null"),
        2 => format!("create unique index i{n} on t (key, ({name}::text))"),
        3 => format!("alter table t add constraint c{n} check ({name} is not null or key > 0)"),
        4 => format!("alter table t add constraint c{n} check ({name} is null) not valid"),
        5 => format!("alter table t add constraint f{n} foreign key (key) references other on delete cascade deferrable"),
        6 => format!("create view v{n} as select {name}, key from t where {second} is not null"),
        7 => format!("create view v{n} (x, y) as select t1.{name}, t2.key from t t1 join t t2 using (key)"),
        8 => format!("create view positional{n} as select x.p, x.q, t.{name} as r from t as x(p, q) join t on t.key = x.p"),
        9 => format!("create materialized view m{n} as select {name}, key from t; create index on m{n} (key); create view w{n} as select key from m{n}"),
        10 => format!("create trigger g{n} before update of {name} on t for each row execute function f(); alter table t disable trigger g{n}"),
        11 => format!("create rule r{n} as on delete to t where old.{name} is null do instead nothing"),
        12 => format!("create policy p{n} on t using ({name} is not null or key > 0); alter table t enable row level security"),
        13 => format!("grant select ({name}), update ({second}) on t to public; grant insert on t to public"),
        14 => format!("comment on column t.{name} is 'it''s \\ {n}'; comment on table t is 'n {n}'"),
        15 if name != second && kind != "jsonb" => format!("create statistics s{n} on key, {name} from t"),
        16 => format!("create publication p{n} for table t (key, {name}) where (key > 3)"),
        17 => "alter table t replica identity full".to_owned(),
        18 => format!("alter table t alter {name} set statistics {n}; alter table t cluster on t_pkey"),
        _ => format!(
            "create function fn{n}() returns bigint language sql begin atomic select count({name}) from t; end;
             create rule e{n} as on insert to child do also update t set {name} = t.{name} where key = new.id"
        ),
    }
}

#[test]
fn random_tables_are_the_same_after_a_rewrite() {
    let seed = Seed(2026);
    Server::each("random tables", &[15, 18], |server| {
        let cluster = cluster(server);
        let mut rng = seed.rng();
        let mut compared = 0;
        for round in 0..14 {
            cluster.sql("drop schema public cascade; create schema public; set client_min_messages = error; do $$ declare p text; begin for p in select pubname from pg_publication loop execute 'drop publication ' || p; end loop; end $$").unwrap();
            let sql = schema(&mut rng);
            // A random combination may be one that the server does not want.
            if cluster.sql(&format!("begin; {sql} commit;")).is_err() {
                continue;
            }
            let views = cluster.sql("select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'v', 'm') order by 1").unwrap();
            let all = |views: &str| views.lines().map(|view| rows(&cluster, view)).collect::<Vec<_>>();
            let before = (catalogs(&cluster), all(&views));
            let method = if round % 2 == 0 { Method::Offline } else { Method::Online };
            reorder(&cluster, "t", method);
            let what = format!("round {round} of {seed:?}, {method:?} on {}:\n{sql}", server.major);
            assert_eq!(all(&views), before.1, "{what}");
            assert_same(&before.0, &catalogs(&cluster), &what);
            compared += 1;
        }
        assert!(compared >= 7, "{compared} of 14: most random tables can be made");
    });
}
