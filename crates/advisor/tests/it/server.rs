//! Pages that were computed, beside those of a server.

use pgshrink_advisor::layout::heap::Pages;
use pgshrink_advisor::layout::{Alignment, Column, Shape, Value, order};
use pgshrink_testkit::{Cluster, Rng, Seed, Server};

/// A type, and an expression for a value of it.
const TYPES: [(&str, &str); 17] = [
    ("boolean", "random() < 0.5"),
    ("smallint", "(random() * 30000)::smallint"),
    ("integer", "(random() * 1e9)::int"),
    ("bigint", "(random() * 1e15)::bigint"),
    ("real", "random()::real"),
    ("double precision", "random()"),
    ("date", "date '2026-01-01' + (random() * 999)::int"),
    ("timestamptz", "now() + random() * interval '99 days'"),
    ("timetz", "timetz '10:00:00+02'"),
    ("macaddr", "macaddr '08:00:2b:01:02:03'"),
    ("uuid", "gen_random_uuid()"),
    ("\"char\"", "'x'::\"char\""),
    ("name", "'a name'::name"),
    ("numeric", "(random() * 10 ^ (random() * 20)::int)::numeric(30, 4)"),
    ("char(7)", "'seven'"),
    ("text", "repeat(md5(random()::text), (random() * 6)::int)"),
    ("int[]", "array_fill(7, array[(random() * 9)::int + 1])"),
];

/// Makes a table `t` of random columns, some of which may be NULL, with rows in it. One may be dropped.
fn make(cluster: &Cluster, rng: &mut Rng, fillfactor: u8) {
    let columns: Vec<_> =
        (0..rng.between(1, 14)).map(|n| (n, TYPES[rng.below(TYPES.len())], rng.below(3) == 0)).collect();
    let definitions = columns.iter().map(|(n, (kind, _), _)| format!("c{n} {kind}"));
    let values = columns.iter().map(|(_, (_, value), is_nullable)| match is_nullable {
        true => format!("case when random() < 0.4 then null else {value} end"),
        false => (*value).to_owned(),
    });
    let [definitions, values] =
        [definitions.collect::<Vec<_>>(), values.collect()].map(|list| list.join(", "));
    let rows = rng.between(500, 4_000);
    let not_null = columns.iter().filter(|(_, _, is_nullable)| !is_nullable);
    let not_null =
        not_null.map(|(n, _, _)| format!("alter table t alter c{n} set not null;")).collect::<String>();
    let dropped = if columns.len() > 2 && rng.below(2) == 0 { "alter table t drop c1;" } else { "" };
    cluster
        .sql(&format!(
            "drop table if exists t; create table t ({definitions}) with (fillfactor = {fillfactor});
             insert into t select {values} from generate_series(1, {rows}); {not_null} {dropped} vacuum full t"
        ))
        .unwrap();
}

fn columns(cluster: &Cluster) -> Vec<Column> {
    let sql = "select attname, attlen, attalign, attstorage, attnotnull, attisdropped from pg_attribute
        where attrelid = 't'::regclass and attnum > 0 order by attnum";
    let found = cluster.sql(sql).unwrap();
    let column = |line: &str| {
        let [name, length, alignment, storage, is_not_null, is_dropped] =
            line.split('|').collect::<Vec<_>>().try_into().unwrap();
        Column {
            name: name.to_owned(),
            length: length.parse().ok(),
            alignment: Alignment::of_letter(alignment.as_bytes()[0]).unwrap(),
            is_packable: storage != "p",
            is_not_null: is_not_null == "t",
            is_dropped: is_dropped == "t",
        }
    };
    found.lines().map(column).collect()
}

/// Sizes of all values of `t`, row by row as they lie.
fn rows(cluster: &Cluster, columns: &[Column]) -> Vec<Vec<Value>> {
    let size = |column: &Column| match column.is_dropped {
        true => "null::int, null".to_owned(),
        false if column.length.is_some() => {
            format!("case when {0} is not null then 0 end, null", column.name)
        }
        false => format!("pg_column_size({0}), pg_column_compression({0})", column.name),
    };
    let list = columns.iter().map(size).collect::<Vec<_>>().join(", ");
    let found = cluster.sql(&format!("select {list} from t order by ctid")).unwrap();
    let row = |line: &str| {
        let fields: Vec<_> = line.split('|').collect();
        let value = |(pair, column): (&[&str], &Column)| match (pair[0].parse(), column.length) {
            (Err(_), _) => Value::Null,
            (Ok(_), Some(_)) => Value::Fixed,
            (Ok(size), None) if pair[1].is_empty() => Value::Inline(size),
            (Ok(size), None) => Value::Compressed(size),
        };
        fields.chunks(2).zip(columns).map(value).collect()
    };
    found.lines().map(row).collect()
}

fn pages(shape: Shape<'_>, rows: &[Vec<Value>], fillfactor: u8) -> usize {
    let mut pages = Pages::new(fillfactor);
    rows.iter().for_each(|row| pages.add(shape.row_bytes(row)));
    pages.count()
}

fn pages_of(cluster: &Cluster, table: &str) -> usize {
    cluster.sql(&format!("select pg_relation_size('{table}') / 8192")).unwrap().trim().parse().unwrap()
}

#[test]
fn pages_are_as_many_as_a_server_makes_them_now_and_in_the_best_order() {
    Server::each("pages of the heap", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let mut rng = Seed(u64::from(server.major)).rng();
        let mut saved = 0;
        for _ in 0..20 {
            let fillfactor = [100, 100, 90, 70][rng.below(4)];
            make(&cluster, &mut rng, fillfactor);
            let columns = columns(&cluster);
            let rows = rows(&cluster, &columns);
            let own: Vec<_> = (0..columns.len()).collect();
            let now = pages(Shape { columns: &columns, order: &own }, &rows, fillfactor);
            assert_eq!(now, pages_of(&cluster, "t"), "{columns:?}");
            let best = order::best(&columns, &rows);
            let after = pages(Shape { columns: &columns, order: &best }, &rows, fillfactor);
            let list = best.iter().map(|index| &*columns[*index].name).collect::<Vec<_>>().join(", ");
            cluster
                .sql(&format!(
                    "drop table if exists u; create table u with (fillfactor = {fillfactor})
                     as select {list} from t order by t.ctid; vacuum full u"
                ))
                .unwrap();
            assert_eq!(after, pages_of(&cluster, "u"), "{list}: {columns:?}");
            assert!(after <= now, "{list}: {columns:?}");
            saved += now - after;
        }
        assert!(saved > 0, "some of them had something to save");
    });
}
