//! `pgshrink advise` from outside: connections, files, errors, and catalogs of a rich schema.

use crate::backup::{ended, pgshrink, refused};
use pgshrink_advisor::Snapshot;
use pgshrink_advisor::snapshot::sample::Page;
use pgshrink_advisor::snapshot::{Table, TableKind};
use pgshrink_testkit::{Auth, Cluster, Server, ServerBinaries, TempDir};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A server that does not write by itself, so that two looks see the same.
pub(crate) fn start(server: &ServerBinaries) -> Cluster {
    Cluster::builder().server(server).conf("autovacuum", "off").start().unwrap()
}

/// What is seen of a database.
#[track_caller]
pub(crate) fn seen(conninfo: &str, words: &[&str]) -> Snapshot {
    let keep = TempDir::new().unwrap();
    let path = keep.path().join("snapshot.json");
    let path = path.to_str().unwrap();
    let size: &[&str] = if words.contains(&"--min-size") { &[] } else { &["--min-size", "0"] };
    ended(&[&["advise", conninfo, "--save", path], size, words].concat(), 0);
    Snapshot::parse(&fs::read(path).unwrap()).unwrap()
}

/// A table of a snapshot, by its name.
#[track_caller]
pub(crate) fn table<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Table {
    let found = snapshot.tables.iter().find(|table| table.name == name);
    found.unwrap_or_else(|| panic!("no table {name:?} among {}", snapshot.tables.len()))
}

/// Whether something is listed as not seen, and why.
#[track_caller]
pub(crate) fn unseen<'s>(snapshot: &'s Snapshot, what: &str) -> (&'s str, &'s str) {
    let found = snapshot.unseen.iter().find(|unseen| unseen.what.contains(what));
    let found = found.unwrap_or_else(|| panic!("{what:?} is not in {:?}", snapshot.unseen));
    (&found.why, &found.remedy)
}

const SCHEMA: &str = "
    create type colour as enum ('red', 'green');
    create domain short as text check (length(value) < 40);
    create domain shorter as short;
    create type pair as (a int, b text);
    create table parent (id int primary key, name text) partition by range (id);
    create table child_1 partition of parent for values from (0) to (1000);
    create table child_2 partition of parent for values from (1000) to (2000);
    insert into parent select n, md5(n::text) from generate_series(1, 1999) n;
    create table base (id int, note text);
    create table derived (more int) inherits (base);
    insert into base select n, 'base' from generate_series(1, 100) n;
    insert into derived select n, 'derived', n from generate_series(1, 50) n;
    create table kinds (id bigint generated always as identity primary key, c colour, d shorter, p pair,
        a int[], r int4range, b bit(5), vb bit varying, x xml, v tsvector, o oidvector, n name, ch \"char\",
        m money, l pg_lsn, j json, jb jsonb, u uuid, ip inet, cidr cidr, mac macaddr, mac8 macaddr8, i interval,
        tz timetz, f float4, g float8, num numeric(10, 2), ca char(7), by bytea, pt point, pg polygon,
        t text collate \"C\", k int default 17, s int generated always as (k * 2) stored, bo boolean, ts timestamptz,
        mr int4multirange, ht tid, xd xid8);
    insert into kinds (c, d, p, a, r, b, vb, x, v, o, n, ch, m, l, j, jb, u, ip, cidr, mac, mac8, i, tz, f, g, num, ca,
        by, pt, pg, t, bo, ts, mr, ht, xd) select 'red', 'short', row(1, 'two')::pair, '{1,NULL,3}', '[1,5)', '10101', '101',
        '<a/>', 'fat & cat'::text::tsvector, '1 2 3', 'a name', 'q', '12.30', '16/B374D848', '{\"a\": 1}', '{\"a\": 1}',
        '00000000-0000-0000-0000-000000000001', '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03',
        '08:00:2b:01:02:03:04:05', '1 day 02:03:04', '10:00:00+02', 1.5, 0.1, 12.34, 'seven', '\\xdeadbeef', '(1,2)',
        '((0,0),(1,1),(1,0))', 'it''s', true, '2026-01-02 03:04:05+00', '{[1,2)}', '(1,2)', '5'
        from generate_series(1, 300);
    insert into kinds (k) select n from generate_series(1, 100) n;
    create table dropped (a int, b text, c int); insert into dropped select n, 'x', n from generate_series(1, 10) n;
    alter table dropped drop column b;
    create table orders (id int primary key, parent int references parent (id), status text, amount numeric);
    insert into orders select n, n, case when n % 10 = 0 then 'secret' else 'open' end, n * 7 from generate_series(1, 900) n;
    create index orders_open on orders (lower(status), amount) include (parent) where status = 'secret' and amount > 4242;
    create unique index orders_nulls on orders (amount desc nulls last) nulls not distinct;
    create index orders_gin on orders using gin (to_tsvector('simple', status));
    create materialized view mat as select * from orders; create materialized view unpopulated as select 1 with no data;
    create view a_view as select * from orders; create unlogged table unlogged as select 1 as n;
    create foreign data wrapper dummy; create server far foreign data wrapper dummy;
    create foreign table foreigner (a int) server far;
    create table \"odd \"\"name\n'\"\" select\" (\"a \"\"b\n'$1\" int, \"select\" text, \"größe\" text);
    insert into \"odd \"\"name\n'\"\" select\" select n, 'v' || n, 'w' from generate_series(1, 20) n;
    create table nothing (); insert into nothing select from generate_series(1, 7);
    create temporary table temporary (a int);
    analyze;";

/// A cluster with that schema, as far as the server knows the types.
fn rich(server: &ServerBinaries) -> Cluster {
    let cluster = start(server);
    let has_xml = cluster.sql("select '<a/>'::xml").is_ok();
    cluster.sql(&if has_xml { SCHEMA.to_owned() } else { SCHEMA.replace("'<a/>'", "null") }).unwrap();
    cluster
}

#[test]
fn a_rich_schema_is_seen_as_the_catalogs_have_it() {
    Server::each("catalogs of a rich schema", &[15, 16, 18], |server| {
        let cluster = rich(server);
        let snapshot = seen(&cluster.conninfo("postgres"), &[]);
        let find = |name| table(&snapshot, name);
        assert_eq!(snapshot.server.version / 10_000, server.major);
        assert_eq!(snapshot.server.settings["block_size"], "8192");
        assert!(snapshot.server.is_superuser && !snapshot.server.is_standby);
        for name in ["a_view", "temporary", "pg_class"] {
            assert!(snapshot.tables.iter().all(|table| table.name != name), "{name}");
        }
        let total = cluster.sql(
            "select string_agg(c.oid || ' ' || pg_table_size(c.oid) + coalesce((select sum(pg_relation_size(indexrelid))
                from pg_index where indrelid = c.oid), 0), ',' order by c.oid) from pg_class c
             where relkind in ('r', 'm') and relnamespace = 'public'::regnamespace").unwrap();
        let with_rows = snapshot
            .tables
            .iter()
            .filter(|table| matches!(table.kind, TableKind::Table | TableKind::MaterializedView));
        let found: Vec<String> =
            with_rows.map(|table| format!("{} {}", table.oid, table.total_bytes())).collect();
        assert_eq!(found.join(","), total);

        assert_eq!(find("parent").kind, TableKind::Partitioned);
        assert_eq!((find("child_1").parent, find("child_1").is_partition), (find("parent").oid, true));
        assert!(find("base").has_children && find("parent").has_children && !find("derived").has_children);
        assert_eq!(find("base").sample.as_ref().unwrap().rows.len(), 100, "without those of its children");
        assert_eq!(find("foreigner").kind, TableKind::Foreign);
        assert!(find("unpopulated").sample.is_none() && find("mat").sample.is_some());
        assert_eq!(find("nothing").sample.as_ref().unwrap().rows.len(), 7);
        assert!(find("unlogged").is_unlogged);

        columns_are_right(table(&snapshot, "kinds"));
        assert!(find("dropped").columns[1].is_dropped && find("dropped").columns[1].length == -1);
        let odd = find("odd \"name\n'\" select");
        assert_eq!(
            odd.sample.as_ref().unwrap().columns[1].values.as_ref().unwrap()[0].as_deref(),
            Some("v1")
        );

        indexes_are_right(&snapshot);
    });
}

fn columns_are_right(kinds: &Table) {
    let column = |name: &str| kinds.columns.iter().find(|column| column.name == name).unwrap();
    let d = column("d");
    assert_eq!((d.type_id.as_str(), d.base_type_id.as_str(), d.type_kind), ("shorter", "text", 'b'));
    assert_eq!((column("c").type_kind, column("p").type_kind, column("r").type_kind), ('e', 'c', 'r'));
    assert_eq!(column("t").collation.as_deref(), Some("pg_catalog.\"C\""));
    assert_eq!((column("id").identity, column("s").generated), ('a', 's'));
    assert_eq!(column("k").default.as_deref(), Some("17"));
    let text = |name: &str| {
        let at = kinds.columns.iter().position(|column| column.name == name).unwrap();
        kinds.sample.as_ref().unwrap().columns[at].values.as_ref().unwrap()[0].clone().unwrap()
    };
    let expected = [
        ("bo", "t"),
        ("ip", "10.0.0.1"),
        ("ca", "seven  "),
        ("m", "$12.30"),
        ("by", "\\xdeadbeef"),
        ("a", "{1,NULL,3}"),
        ("p", "(1,two)"),
        ("ts", "2026-01-02 03:04:05+00"),
        ("o", "1 2 3"),
        ("t", "it's"),
    ];
    expected.iter().for_each(|(name, value)| assert_eq!(text(name), *value, "{name}"));
}

fn indexes_are_right(snapshot: &Snapshot) {
    let orders = table(snapshot, "orders");
    let index = |name: &str| orders.indexes.iter().find(|index| index.name == name).unwrap();
    let open = index("orders_open");
    assert_eq!((open.key_count, open.columns.len()), (2, 3));
    assert_eq!(open.columns[0].definition, "lower(status)");
    assert!(open.predicate.as_ref().unwrap().contains("'secret'"));
    let sizes = open.columns[0].expression_sizes.as_ref().unwrap();
    assert_eq!(sizes.iter().flatten().collect::<Vec<_>>(), vec![&7; 30], "a header of one byte, in 30 rows");
    let values = open.columns[0].expression_values.as_ref().unwrap();
    assert_eq!(values.len(), sizes.len());
    assert!(values.iter().flatten().all(|value| value == "secret") && values.iter().flatten().count() == 30);
    assert!(open.columns[0].is_deduplicable && !open.columns[1].is_deduplicable);
    assert!(index("orders_nulls").nulls_not_distinct && index("orders_nulls").columns[0].order_flags == 1);
    assert!(index("orders_pkey").is_primary && index("orders_pkey").constraint.is_some());
    assert!(index("orders_gin").columns[0].expression_sizes.is_none());
    assert_eq!(orders.foreign_keys[0].foreign_table, table(snapshot, "parent").oid);
    assert!(orders.columns[2].statistics.as_ref().unwrap().distinct == 2.0);
    assert_eq!(table(snapshot, "parent").indexes[0].referenced_by, 1);
}

#[test]
fn a_saved_snapshot_gives_the_same_and_is_for_its_owner() {
    Server::each("snapshots in files", &[15], |server| {
        let cluster = rich(server);
        let keep = TempDir::new().unwrap();
        let path = |name: &str| keep.path().join(name).to_str().unwrap().to_owned();
        let (plain, small, again) = (path("a.json"), path("a.json.zst"), path("b.json"));
        fs::write(&plain, "something old").unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o666)).unwrap();
        ended(&["advise", &cluster.conninfo("postgres"), "--save", &plain, "--min-size", "0"], 0);
        assert_eq!(fs::metadata(&plain).unwrap().permissions().mode() & 0o777, 0o600);
        let live = ended(&["advise", "--snapshot", &plain, "--save", &small, "--json"], 0);
        let same = ended(&["advise", "--snapshot", &small, "--save", &again, "--json"], 0);
        assert_eq!(without_speeds(&same), without_speeds(&live));
        assert!(fs::read(&plain).unwrap() == fs::read(&again).unwrap());
        assert!(fs::metadata(&small).unwrap().len() * 2 < fs::metadata(&plain).unwrap().len());
        let unpacked = std::process::Command::new("zstd").args(["-dc", &small]).output();
        if let Ok(unpacked) = unpacked {
            assert!(unpacked.stdout == fs::read(&plain).unwrap(), "zstd reads it as well");
        }
        let stripped = path("c.json");
        let mut full = Snapshot::parse(&fs::read(&plain).unwrap()).unwrap();
        for sample in full.tables.iter_mut().filter_map(|table| table.sample.as_mut()) {
            // Larger tables have some.
            sample.training_pages.push(Page { block: 0, image: vec![b's'; 8192] });
        }
        assert!(full.tables.iter().any(|table| table.sample.is_some()));
        fs::write(&plain, full.to_json().unwrap()).unwrap();
        ended(&["advise", "--snapshot", &plain, "--save", &stripped, "--no-values"], 0);
        no_values(&fs::read_to_string(&stripped).unwrap());
        assert_eq!(fs::read_dir(keep.path()).unwrap().count(), 4, "nothing else was left");
    });
}

/// A report without what was measured by a clock.
fn without_speeds(json: &str) -> String {
    json.lines().filter(|line| !line.contains("compress_mb_s")).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn no_values(json: &str) {
    for value in ["secret", "4242", "deadbeef", "fat", "two", "it's", "10.0.0", "image"] {
        assert!(!json.contains(value), "{value}");
    }
    assert!(json.contains("orders_open") && json.contains("$1"));
}

#[test]
fn without_values_no_value_and_no_literal_is_read() {
    Server::each("shapes only", &[15, 18], |server| {
        let cluster = rich(server);
        let keep = TempDir::new().unwrap();
        let path = keep.path().join("snapshot.json");
        let words = ["--no-values", "--min-size", "0", "--save", path.to_str().unwrap()];
        cluster.sql("alter system set log_statement = 'all'; select pg_reload_conf()").unwrap();
        ended(&[&["advise", &cluster.conninfo("postgres")], &words[..]].concat(), 0);
        let json = fs::read_to_string(&path).unwrap();
        no_values(&json);
        let snapshot = Snapshot::parse(json.as_bytes()).unwrap();
        assert!(!snapshot.sampling.has_values);
        assert_eq!(table(&snapshot, "orders").sample.as_ref().unwrap().rows.len(), 900);
        let log = cluster.log().unwrap();
        assert!(
            !log.contains("format('%s'") && !log.contains("pg_read_binary_file(pg_relation"),
            "nothing was asked for"
        );
    });
}

#[test]
fn what_is_no_snapshot_is_refused_with_its_reason() {
    let keep = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = keep.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let of = |path: &str| refused(&["advise", "--snapshot", path]);
    assert!(of(&file("empty", b"")).contains("not a snapshot"));
    assert!(of(&file("text", b"\xff\xfe rubbish")).contains("not a snapshot"));
    assert!(of(&file("other", b"{\"format\": 1}")).contains("not a snapshot"));
    assert!(of(&file("newer", b"{\"format\": 999}")).contains("format 999"));
    assert!(of(&file("zstd", &[0x28, 0xB5, 0x2F, 0xFD, 9, 9, 9])).contains("zstd"));
    assert!(of(keep.path().to_str().unwrap()).contains("directory"));
    assert!(of("/nowhere/at/all").contains("the file does not exist"));
    let output = pgshrink(&["advise", "--snapshot", "/nowhere/at/all", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["error"]["message"].as_str().unwrap().contains("/nowhere/at/all"));
}

#[test]
fn a_connection_that_cannot_be_is_an_error_with_the_next_step() {
    assert!(refused(&["advise", "just-a-word"]).contains("not a connection string"));
    assert!(refused(&["advise", "host=/nowhere dbname=x"]).contains("/nowhere"));
    Server::each("wrong passwords and databases", &[15], |server| {
        let cluster = Cluster::builder().server(server).auth(Auth::Scram).start().unwrap();
        let good = cluster.conninfo("postgres");
        assert!(good.contains("password"));
        let wrong = refused(&["advise", &format!("{good} password=wrong")]);
        assert!(
            wrong.contains("28P01") && wrong.contains("PGPASSFILE") && !wrong.contains("wrong"),
            "{wrong}"
        );
        let missing = refused(&["advise", &cluster.conninfo("nowhere")]);
        assert!(missing.contains("3D000") && missing.contains("dbname="), "{missing}");
        let output = pgshrink(&["advise", &cluster.conninfo("nowhere"), "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["error"]["sqlstate"], "3D000");
        // The environment, as with psql.
        let service = TempDir::new().unwrap();
        let path = service.path().join("services");
        let lines = good.split_whitespace().map(|word| word.replace('\'', "")).collect::<Vec<_>>().join("\n");
        fs::write(&path, format!("[shop]\n{lines}\n")).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let output =
            command.args(["advise"]).env("PGSERVICEFILE", &path).env("PGSERVICE", "shop").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let save = Path::new("/nowhere/at/all.json");
        assert!(refused(&["advise", &good, "--save", save.to_str().unwrap()]).contains("/nowhere"));
    });
}
