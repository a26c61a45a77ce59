//! Sizes that were computed, beside those of tables that servers really built anew.

use crate::table::{number, read, server};
use pgshrink_advisor::arrangement::{Arrangement, Source};
use pgshrink_advisor::edit::{Edit, Retype};
use pgshrink_advisor::layout;
use pgshrink_advisor::simulate::{Simulation, Sizes, Way};
use pgshrink_advisor::snapshot::{Column, Table};
use pgshrink_testkit::{Cluster, Rng, Seed, Server};

/// A type, and an expression for a value of it.
const TYPES: [(&str, &str); 20] = [
    ("boolean", "random() < 0.5"),
    ("smallint", "(random() * 30000)::smallint"),
    ("integer", "(random() * 1e9)::int"),
    ("bigint", "(random() * 1e15)::bigint"),
    ("double precision", "random()"),
    ("date", "date '2026-01-01' + (random() * 999)::int"),
    ("timetz", "timetz '10:00:00+02'"),
    ("macaddr", "macaddr '08:00:2b:01:02:03'"),
    ("uuid", "gen_random_uuid()"),
    ("name", "'a name'::name"),
    ("numeric", "(random() * 10 ^ (random() * 20)::int)::numeric(30, 4)"),
    ("char(7)", "'seven'"),
    ("text", "repeat(md5(random()::text), (random() * 6)::int)"),
    ("int[]", "array_fill(7, array[(random() * 9)::int + 1])"),
    // What compresses, what does not, and what does so in some rows.
    ("text", "repeat(md5((g % 50)::text), (random() * 300)::int)"),
    (
        "text",
        "(select string_agg(md5((random() + n + g)::text), '') from generate_series(1, (random() * 90)::int) n)",
    ),
    (
        "text",
        "case when random() < 0.1 then (select string_agg(md5((random() + n + g)::text), '')
        from generate_series(1, 300) n) || repeat('x', 3000) else 'short' end",
    ),
    ("bytea", "decode(repeat(md5(random()::text), (random() * 80)::int), 'hex')"),
    ("jsonb", "jsonb_build_object('a', random(), 'b', repeat('y', (random() * 200)::int))"),
    ("varchar(20)", "left(md5(random()::text), (random() * 20)::int)"),
];

/// Makes a table `t` of random columns and settings, with rows in it, of which some may be deleted: true.
fn make(cluster: &Cluster, rng: &mut Rng, rows: usize) -> bool {
    let has_lz4 = cluster.sql("set default_toast_compression = lz4").is_ok();
    let columns: Vec<_> = (0..rng.between(1, 12)).map(|n| (n, TYPES[rng.below(TYPES.len())])).collect();
    let mut after = String::new();
    for (n, (kind, _)) in &columns {
        if rng.chance(30) {
            after += &format!("alter table t alter c{n} set not null;");
        }
        if ["text", "bytea", "jsonb"].contains(kind) && rng.chance(60) {
            let storage = rng.pick(&["extended", "external", "main", "plain"]);
            // A long value of a plain column does not fit into a page.
            let storage = if *storage == "plain" { "extended" } else { storage };
            after += &format!("alter table t alter c{n} set storage {storage};");
            if has_lz4 && rng.chance(50) {
                after += &format!("alter table t alter c{n} set compression lz4;");
            }
        }
    }
    let definitions = columns.iter().map(|(n, (kind, _))| format!("c{n} {kind}")).collect::<Vec<_>>();
    let is_nullable = |n: &usize| !after.contains(&format!("alter c{n} set not null"));
    let values = columns.iter().map(|(n, (_, value))| match is_nullable(n) && n % 2 == 0 {
        true => format!("case when random() < 0.3 then null else {value} end"),
        false => (*value).to_owned(),
    });
    let values = values.collect::<Vec<_>>().join(", ");
    let fillfactor = rng.pick(&[100, 100, 90, 60]);
    // The server's random numbers come from the seed too.
    let seed = rng.below(1_000_000) as f64 / 1e6;
    let target = rng.pick(&["", "", ", toast_tuple_target = 500", ", toast_tuple_target = 5000"]);
    let mut end = String::new();
    if columns.len() > 2 && rng.chance(50) {
        end += "alter table t drop c1;";
    }
    if rng.chance(30) {
        end += "alter table t add later int default 7; alter table t add late text default 'a default';";
        end += "insert into t select * from t limit 100;";
    }
    let is_holey = rng.chance(50);
    if is_holey {
        end += "delete from t where random() < 0.4;";
    }
    cluster
        .sql(&format!(
            "select setseed({seed}); drop table if exists t, u; create table t ({}) with (fillfactor = {fillfactor}{target}); {after}
             insert into t select {values} from generate_series(1, {rows}) g; {end}",
            definitions.join(", ")
        ))
        .unwrap();
    cluster.sql("vacuum t").unwrap();
    is_holey
}

/// Makes `u` of the columns that an arrangement has, and fills it from `t`.
fn make_anew(cluster: &Cluster, table: &Table, edits: &[&Edit]) {
    let arrangement = Arrangement::of(table, edits);
    let kept = arrangement.columns.iter().map(|stored| match stored.source {
        Source::Kept(index) => &table.columns[index],
        _ => panic!("all columns are kept"),
    });
    let kept: Vec<_> = kept.filter(|column| !column.is_dropped).collect();
    let (mut definitions, mut names, mut storages) = (Vec::new(), Vec::new(), String::new());
    for column in kept {
        let not_null = if column.is_not_null { "not null" } else { "" };
        definitions.push(format!("{} {} {not_null}", column.name, column.type_name));
        names.push(column.name.as_str());
        let storage = [('p', "plain"), ('e', "external"), ('m', "main"), ('x', "extended")];
        let (_, storage) = storage.iter().find(|(letter, _)| *letter == column.storage).unwrap();
        storages += &format!("alter table u alter {} set storage {storage};", column.name);
        if column.compression == 'l' {
            storages += &format!("alter table u alter {} set compression lz4;", column.name);
        }
    }
    let (definitions, names) = (definitions.join(", "), names.join(", "));
    let options = match table.options.is_empty() {
        true => String::new(),
        false => format!("with ({})", table.options.join(", ")),
    };
    cluster
        .sql(&format!(
            "drop table if exists u; create table u ({definitions}) {options}; {storages}
             insert into u ({names}) select {names} from t;"
        ))
        .unwrap();
    cluster.sql("vacuum u").unwrap();
}

/// The real sizes.
fn sizes(cluster: &Cluster, name: &str) -> Sizes {
    let table = read(cluster, name, Some(Vec::new()));
    let sizes = Sizes::now(&table);
    let total = number(cluster, &format!("select pg_total_relation_size('{name}')"));
    assert_eq!(sizes.total(), total);
    sizes
}

/// Whether it is known how well all values compress: arrays and documents in a row may be compressed when others have left it.
fn is_known(table: &Table) -> bool {
    let texts = ["text", "varchar", "bpchar", "bytea", "numeric"];
    let mut kept = table.columns.iter().filter(|column| !column.is_dropped && column.length < 0);
    table.toast.is_none_or(|toast| toast.bytes.main == 0)
        || kept.all(|column| texts.contains(&&*column.base_type_id))
}

/// All files but the TOAST table's index are as large as computed, and that one nearly.
fn assert_exact(computed: &Sizes, real: &Sizes, what: &str) {
    let difference = computed.toast_index.abs_diff(real.toast_index);
    let is_exact = computed.heap == real.heap && computed.toast == real.toast;
    assert!(is_exact && difference <= 8192.max(real.toast_index / 20), "{what}:\n{computed:?}\n{real:?}");
}

/// In one line a column.
fn described(table: &Table) -> String {
    let column = |column: &Column| {
        format!("\n {} {} {} {}", column.name, column.type_name, column.storage, column.compression)
    };
    format!("{:?}{}", table.options, table.columns.iter().map(column).collect::<String>())
}

#[test]
fn files_of_a_table_that_was_seen_as_a_whole_are_as_large_as_computed() {
    Server::each("files of rebuilt tables", &[15, 18], |binaries| {
        let cluster = Cluster::builder().server(binaries).conf("autovacuum", "off").start().unwrap();
        // Some seeds find TOAST indexes that are larger than computed: 985324503758862778 on PostgreSQL 15.
        let seed =
            std::env::var("PGSHRINK_SEED").ok().and_then(|text| text.parse().ok()).map_or(Seed(7), Seed);
        let mut rng = seed.rng();
        let server = server(&cluster);
        for round in 0..8 {
            let rows = *rng.pick(&[0, 1, 30, 600, 3_000]);
            make(&cluster, &mut rng, rows);
            let table = read(&cluster, "t", None);
            let simulation = Simulation::of(&server, &table).unwrap();
            let name = format!("round {round} {seed:?} {}", described(&table));
            let check = |computed: &Sizes, real: &Sizes, what: &str| match is_known(&table) {
                true => assert_exact(computed, real, what),
                false => {
                    let (computed, real) = (computed.total() as f64, real.total() as f64);
                    assert!((computed / real - 1.0).abs() <= 0.02, "{what}: {computed} {real}");
                }
            };
            for edits in [vec![&Edit::DropDead], vec![&Edit::Reorder]] {
                make_anew(&cluster, &table, &edits);
                check(&simulation.rebuilt(&edits), &sizes(&cluster, "u"), &format!("{edits:?} {name}"));
            }
            cluster.sql("vacuum full t").unwrap();
            cluster.sql("vacuum t").unwrap();
            let computed = simulation.as_it_is(Way::VacuumFull);
            check(&computed, &sizes(&cluster, "t"), &format!("VACUUM FULL {name}"));
        }
    });
}

/// Every so many blocks, from any of the first ones on.
fn every(rng: &mut Rng, pages: u64, stride: usize) -> Vec<u32> {
    (rng.below(stride)..pages as usize).step_by(stride).map(|block| block as u32).collect()
}

#[test]
fn a_tenth_of_the_blocks_gives_the_size_within_two_per_cent() {
    Server::each("sampled tables", &[15, 18], |binaries| {
        let cluster = Cluster::builder().server(binaries).conf("autovacuum", "off").start().unwrap();
        let mut rng = Seed(u64::from(binaries.major)).rng();
        let server = server(&cluster);
        let (mut worst, mut dense) = (0.0f64, 0);
        for round in 0..5 {
            let is_holey = make(&cluster, &mut rng, 15_000);
            let pages = number(&cluster, "select pg_relation_size('t') / 8192");
            let blocks = every(&mut rng, pages, 10);
            let table = read(&cluster, "t", Some(blocks));
            let simulation = Simulation::of(&server, &table).unwrap();
            for edits in [vec![&Edit::DropDead], vec![&Edit::Reorder]] {
                make_anew(&cluster, &table, &edits);
                let (computed, real) = (simulation.rebuilt(&edits).total(), sizes(&cluster, "u").total());
                let error = (computed as f64 / real as f64 - 1.0).abs();
                let name = format!("round {round} {edits:?} {computed} {real} {}", described(&table));
                println!("{error:.4} {name}\n{:?}\n{:?}", simulation.rebuilt(&edits), sizes(&cluster, "u"));
                // What is left after rows were deleted at random is known only as well as what was seen of it: of 40 blocks or so, with
                // some values outside.
                let tolerance = match (is_holey, table.toast.is_some_and(|toast| toast.bytes.main > 0)) {
                    (false, _) => 0.02,
                    (true, false) => 0.05,
                    (true, true) => 0.25,
                };
                assert!(error <= tolerance, "{error}: {name}");
                worst = worst.max(error);
                dense += usize::from(!is_holey);
            }
        }
        println!("worst {worst:.4}");
        assert!(dense > 0, "some of the tables have no bloat");
    });
}

#[test]
fn a_table_that_alter_table_writes_anew_is_as_large_as_computed() {
    Server::each("tables that were altered", &[15, 18], |binaries| {
        // Default memory, so that it extends by as much as it likes.
        let builder = Cluster::builder().server(binaries).conf("autovacuum", "off");
        let cluster = builder.conf("shared_buffers", "128MB").start().unwrap();
        let server = server(&cluster);
        // Pages before and behind the places where a server extends a table by 64 pages.
        for rows in [1, 5_000, 60_000, 130_000] {
            let sql = format!(
                "drop table if exists t; create table t (a bigint not null, b text, gone int, c int);
                 insert into t select g, case when g % 3 = 0 then repeat('x', g % 40) end, 1, g
                 from generate_series(1, {rows}) g; alter table t drop gone"
            );
            cluster.sql(&sql).unwrap();
            let table = read(&cluster, "t", None);
            let images = table.sample.as_ref().unwrap().rows.iter().map(|_| Some(vec![0; 4])).collect();
            let retype = Retype {
                column: 0,
                type_name: "integer".to_owned(),
                prepare: Vec::new(),
                first: Vec::new(),
                using: "a::integer".to_owned(),
                layout: layout::Column {
                    name: "a".to_owned(),
                    length: Some(4),
                    alignment: layout::Alignment::Int,
                    is_packable: false,
                    is_not_null: true,
                    is_dropped: false,
                },
                images,
                proof: String::new(),
            };
            let edit = Edit::Retype(retype);
            let simulation = Simulation::of(&server, &table).unwrap();
            let computed = simulation.rebuilt(&[&edit]);
            cluster.sql("alter table t alter a type integer").unwrap();
            cluster.sql("vacuum t").unwrap();
            assert_exact(&computed, &sizes(&cluster, "t"), &format!("{rows} rows"));
        }
    });
}
