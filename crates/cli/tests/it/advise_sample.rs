//! What is sampled, beside what the server says of the same rows.

use crate::advise::{seen, start, table, unseen};
use crate::advise_attacks::at_message;
use pgshrink_advisor::snapshot::sample::{Page, Place};
use pgshrink_advisor::snapshot::{Sample, Table};
use pgshrink_cfs::dictionary_policy::first_blocks;
use pgshrink_testkit::{Cluster, Server, TempDir};
use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::thread;

/// Rows of all lengths, some of whose values are compressed or outside, and some of which are updated and deleted.
const MIXED: &str = "
    create table mixed (id int, b text, a bigint, c text, d text, e bytea);
    alter table mixed alter d set storage external, alter e set storage main;
    insert into mixed select n, case when n % 3 = 0 then null else repeat('x', n % 5000) end, n,
        (select string_agg(md5((n * k)::text), '') from generate_series(1, n % 120) k),
        repeat(md5(n::text), n % 90), decode(repeat(md5(n::text), n % 40), 'hex')
        from generate_series(1, 6000) n;
    delete from mixed where id % 7 = 0; update mixed set a = a + 1 where id % 5 = 0;
    alter table mixed add column late text default 'a late default', add column later int default 7, add column empty text;
    insert into mixed select n, 'new', n, 'new', 'new', '\\x00', 'written', 8, 'full' from generate_series(1, 500) n;
    vacuum mixed; checkpoint;";

fn sample(table: &Table) -> &Sample {
    table.sample.as_ref().unwrap()
}

/// One line per row: its place, and for each column what `value` makes of it.
fn listed(table: &Table, value: impl Fn(usize, usize) -> String) -> String {
    let line = |(row, place): (usize, &pgshrink_advisor::snapshot::sample::RowPlace)| {
        let columns = (0..table.columns.len()).filter(|at| !table.columns[*at].is_dropped);
        let values: Vec<String> = columns.map(|at| value(at, row)).collect();
        format!("({},{})|{}", place.0, place.1, values.join("|"))
    };
    sample(table).rows.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// The same from the server, of the blocks of the sample, with this expression for each column.
fn expected(cluster: &Cluster, table: &Table, expression: impl Fn(&str) -> String) -> String {
    let columns = table.columns.iter().filter(|column| !column.is_dropped);
    let list: Vec<String> = columns.map(|column| expression(&column.name)).collect();
    let blocks: Vec<String> = sample(table).blocks.iter().map(u32::to_string).collect();
    let sql = format!(
        "select ctid, {} from only {} where (ctid::text::point)[0]::int = any ('{{{}}}'::int[]) order by ctid",
        list.join(", "),
        table.name,
        blocks.join(",")
    );
    cluster.sql(&sql).unwrap()
}

#[test]
fn sampled_sizes_and_values_are_those_of_the_server() {
    Server::each("sizes and values of a sample", &[15, 16, 18], |server| {
        let cluster = start(server);
        cluster.sql(MIXED).unwrap();
        let snapshot = seen(&cluster.conninfo("postgres"), &["--sample-size", "6MB"]);
        let mixed = table(&snapshot, "mixed");
        let blocks = mixed.bytes.main / 8192;
        let count = sample(mixed).blocks.len() as u64;
        assert!(count > 20 && count < blocks && !sample(mixed).is_whole, "{count} of {blocks}");
        let sizes = listed(mixed, |at, row| sample(mixed).columns[at].sizes[row].to_string());
        let now = expected(&cluster, mixed, |name| format!("coalesce(pg_column_size({name}), 0)"));
        assert!(sizes == now, "sizes");
        let value = |at: usize, row: usize| {
            let values = sample(mixed).columns[at].values.as_ref().unwrap();
            values[row].as_ref().map_or(String::new(), |value| value.len().to_string())
        };
        let now = expected(&cluster, mixed, |name| format!("length({name}::text)"));
        assert!(listed(mixed, value) == now, "values");
        // Evenly spread: each quarter has its share.
        for quarter in 0..4 {
            let here = sample(mixed).blocks.iter().filter(|block| u64::from(**block) * 4 / blocks == quarter);
            assert!(here.count() as u64 * 8 > count, "{quarter}");
        }
    });
}

/// `i`, `p`, `l`, `e`, `ep`, `el`, `n`, `m`.
fn letter(place: Place) -> String {
    serde_json::to_value(place).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn places_are_those_that_pages_show() {
    Server::each("places of values", &[15, 16, 18], |server| {
        let cluster = start(server);
        cluster.sql(MIXED).unwrap();
        let snapshot = seen(&cluster.conninfo("postgres"), &["--sample-size", "100MB"]);
        let mixed = table(&snapshot, "mixed");
        let places = |column: usize| sample(mixed).columns[column].places.clone();
        let is_outside =
            |place: &Place| matches!(place, Place::External | Place::ExternalPglz | Place::ExternalLz4);
        // Each of its values has a chunk with number 0, if it was written once; nothing but what was sampled is there.
        assert!(sample(mixed).is_whole);
        let outside = (0..9)
            .map(|column| places(column).iter().filter(|place| is_outside(place)).count())
            .sum::<usize>();
        let toast =
            cluster.sql("select reltoastrelid::regclass from pg_class where relname = 'mixed'").unwrap();
        let chunks = cluster.sql(&format!("select count(distinct chunk_id) from {toast}")).unwrap();
        assert_eq!(outside.to_string(), chunks, "as many as there are in the TOAST table");
        // Old rows have no values of columns that were added with a default.
        let rows = sample(mixed).rows.len();
        assert_eq!(places(6).iter().filter(|place| **place == Place::Missing).count(), rows - 500);
        assert_eq!(places(7).iter().filter(|place| **place == Place::Missing).count(), rows - 500);
        assert_eq!(places(8).iter().filter(|place| **place == Place::Null).count(), rows - 500);
        if server.major >= 17 {
            let sql = |name: &str| {
                format!(
                    "case when {name} is null then 'n' else case when pg_column_toast_chunk_id({name}) is not null \
                     then 'e' else '' end || case pg_column_compression({name}) when 'pglz' then 'p' when 'lz4' then 'l' \
                     else '' end end"
                )
            };
            let told = |at: usize, row: usize| match sample(mixed).columns[at].places[row] {
                Place::Inline | Place::Missing => String::new(),
                place => letter(place),
            };
            let varlena = [1, 3, 4, 5, 6, 8];
            let of_table =
                |at: usize, row: usize| if varlena.contains(&at) { told(at, row) } else { String::new() };
            let now = expected(&cluster, mixed, |name| match name {
                "id" | "a" | "later" => "''".to_owned(),
                name => sql(name),
            });
            assert!(listed(mixed, of_table) == now);
        }
        // Without pages, on a server that does not say it: what it would have done.
        cluster.sql("create role reader login; grant select on mixed to reader").unwrap();
        let reader = format!("{} user=reader", cluster.conninfo("postgres"));
        let snapshot = seen(&reader, &["--sample-size", "100MB"]);
        let told = table(&snapshot, "mixed");
        let differ: usize = (0..6)
            .map(|at| {
                let pairs = sample(told).columns[at].places.iter().zip(&sample(mixed).columns[at].places);
                pairs.filter(|(told, shown)| told != shown).count()
            })
            .sum();
        assert!(sample(told).pages.is_empty());
        assert!(differ * 100 < rows, "{differ} places of {rows} rows differ");
        assert!(unseen(&snapshot, "raw pages").1.contains("GRANT EXECUTE ON FUNCTION"));
    });
}

#[test]
fn pages_are_those_of_the_relation_and_pageinspect_gives_the_same() {
    Server::each("images of pages", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql(MIXED).unwrap();
        cluster.sql("create index on mixed (id); create index on mixed (md5(c)); checkpoint").unwrap();
        let files = seen(&cluster.conninfo("postgres"), &[]);
        let mixed = table(&files, "mixed");
        let page = &sample(mixed).pages[3];
        assert!(sample(mixed).pages.len() > 50 && sample(mixed).blocks.contains(&page.block));
        let path = cluster.sql("select pg_relation_filepath('mixed')").unwrap();
        let data = std::fs::read(cluster.data_dir().join(path)).unwrap();
        let start = page.block as usize * 8192;
        assert!(page.image[..] == data[start..start + 8192]);
        let others: Vec<u32> = sample(mixed).other_pages.iter().map(|pages| pages.oid).collect();
        let mut all: Vec<u32> = mixed.indexes.iter().map(|index| index.oid).collect();
        all.extend(mixed.toast.map(|toast| toast.oid));
        assert_eq!(others, all);
        assert!(sample(mixed).other_pages.iter().all(|pages| (1..=200).contains(&pages.pages.len())));
        let available = "select count(*) from pg_available_extensions where name = 'pageinspect'";
        if cluster.sql(available).unwrap() == "0" {
            return pgshrink_testkit::left_out(
                "pages by pageinspect",
                &format!("{} has none", server.version),
            );
        }
        cluster.sql("create schema \"In spect\"; create extension pageinspect schema \"In spect\"").unwrap();
        let inspected = seen(&cluster.conninfo("postgres"), &[]);
        assert!(sample(table(&inspected, "mixed")).columns == sample(mixed).columns);
        assert!(sample(table(&inspected, "mixed")).other_pages == sample(mixed).other_pages);
    });
}

#[test]
fn pages_that_the_server_has_not_written_are_said_to_be_missing() {
    Server::each("unwritten pages", &[15, 16, 18], |server| {
        let cluster = start(server);
        let sql = "create table fresh (id int primary key, a text);
                   insert into fresh select n, repeat(md5(n::text), 10) from generate_series(1, 4000) n;
                   create index fresh_hash on fresh using hash (id)";
        cluster.sql(sql).unwrap();
        let look = || seen(&cluster.conninfo("postgres"), &["--table", "fresh"]);
        let snapshot = look();
        assert!(sample(table(&snapshot, "fresh")).pages.is_empty(), "the server has written them");
        for what in ["raw pages of public.fresh", "raw pages of public.fresh (fresh_pkey)"] {
            let found = snapshot.unseen.iter().find(|unseen| unseen.what == what);
            let found = found.unwrap_or_else(|| panic!("{what}: {:?}", snapshot.unseen));
            let said = (found.why.as_str(), found.remedy.as_str());
            assert_eq!(said, ("its pages are not on disk yet", "CHECKPOINT, then run this again"));
        }
        cluster.sql("checkpoint").unwrap();
        assert_eq!(look().unseen, []);
    });
}

#[test]
fn the_same_table_gives_the_same_sample_within_its_budget() {
    Server::each("samples are the same", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql(MIXED).unwrap();
        cluster.sql("create table second as select * from mixed; vacuum analyze; checkpoint").unwrap();
        for (size, total) in [("200kB", "512MB"), ("8MB", "300kB"), ("1MB", "10MB")] {
            let words = ["--sample-size", size, "--sample-total", total];
            let [first, second] = [0, 1].map(|_| seen(&cluster.conninfo("postgres"), &words));
            assert!(first.tables == second.tables, "{size}");
            let sampled = first.tables.iter().filter_map(|table| table.sample.as_ref());
            let bytes = |sample: &Sample| {
                let values =
                    sample.columns.iter().filter_map(|column| column.values.as_ref()).flatten().flatten();
                let pages = sample.pages.len()
                    + sample.other_pages.iter().map(|other| other.pages.len()).sum::<usize>();
                (values.map(String::len).sum::<usize>() + pages * 8192) as u64
            };
            let all: Vec<u64> = sampled.map(bytes).collect();
            assert_eq!(all.len(), 2);
            assert!(
                all.iter().all(|bytes| *bytes > 0 && *bytes <= first.sampling.table_bytes_max),
                "{all:?}"
            );
            assert!(all.iter().sum::<u64>() <= first.sampling.total_bytes_max, "{all:?}");
        }
    });
}

#[test]
fn what_a_table_leaves_is_for_those_after_it_and_is_given_once() {
    Server::each("leftovers of small tables", &[15], |server| {
        let cluster = start(server);
        // In the order of their numbers: the first one leaves most of its share.
        let sql = |name: &str, rows: u32| {
            format!(
                "create table {name} as select repeat(md5(n::text), 30) v from generate_series(1, {rows}) n;"
            )
        };
        cluster.sql(&[sql("a", 100), sql("b", 4000), sql("c", 4000), sql("d", 4000)].concat()).unwrap();
        // Without a right to pages, all that a table may give is for rows.
        cluster
            .sql("create role reader login; grant select on a, b, c, d to reader; vacuum analyze")
            .unwrap();
        let reader = format!("{} user=reader", cluster.conninfo("postgres"));
        let snapshot = seen(&reader, &["--sample-size", "1536kB", "--sample-total", "4MB"]);
        let bytes = |name: &str| {
            let values = sample(table(&snapshot, name)).columns[0].values.as_ref().unwrap();
            values.iter().flatten().map(|value| value.len() as u64).sum::<u64>()
        };
        let all = ["a", "b", "c", "d"].map(bytes);
        assert!(all[0] < 100_000, "{all:?}");
        assert!(all.iter().all(|bytes| *bytes <= 1536 << 10), "more than one table may give: {all:?}");
        let total = all.iter().sum::<u64>();
        assert!(total <= 4 << 20, "more than all may give: {all:?}");
        assert!(total * 10 > (4 << 20) * 9, "something was left to nobody: {all:?}");
    });
}

#[test]
fn pages_on_which_a_server_trains_are_read_once_and_within_the_tables_share() {
    Server::each("pages to train on", &[15, 18], |server| {
        let cluster = start(server);
        cluster
            .sql("create table t as select repeat(md5(n::text), 30) v from generate_series(1, 9000) n")
            .unwrap();
        cluster.sql("vacuum analyze; checkpoint").unwrap();
        let snapshot = seen(&cluster.conninfo("postgres"), &["--sample-size", "10MB"]);
        let t = table(&snapshot, "t");
        let numbers = |pages: &[Page]| pages.iter().map(|page| page.block).collect::<BTreeSet<u32>>();
        let (pages, training) = (numbers(&sample(t).pages), numbers(&sample(t).training_pages));
        assert!(!training.is_empty() && pages.is_disjoint(&training), "{pages:?} {training:?}");
        let all: BTreeSet<u32> = pages.union(&training).copied().collect();
        assert!(first_blocks(t.bytes.main / 8192).all(|block| all.contains(&(block as u32))), "{all:?}");
        assert!(all.len() <= (10 << 20) / 4 / 8192, "{} pages", all.len());
    });
}

#[test]
fn values_of_a_first_run_that_is_too_much_are_left_out() {
    Server::each("one page of long values", &[15], |server| {
        let cluster = start(server);
        cluster.sql("create table t (v text); alter table t alter v set storage external").unwrap();
        cluster.sql("insert into t select repeat('v', 4000) from generate_series(1, 2000)").unwrap();
        cluster.sql("create role reader login; grant select on t to reader; vacuum analyze").unwrap();
        let reader = format!("{} user=reader", cluster.conninfo("postgres"));
        let snapshot = seen(&reader, &["--sample-size", "100kB"]);
        let values = sample(table(&snapshot, "t")).columns[0].values.as_ref().unwrap();
        let bytes: usize = values.iter().flatten().map(String::len).sum();
        assert!(
            values.len() > 100 && bytes > 0 && bytes <= 100 << 10,
            "{bytes} bytes of {} rows",
            values.len()
        );
    });
}

#[test]
fn pages_to_train_on_that_are_gone_do_not_keep_those_of_indexes_from_being_read() {
    Server::each("a table that becomes empty", &[15], |server| {
        let cluster = start(server);
        if cluster.sql("create extension pageinspect").is_err() {
            let why = format!("{} has no pageinspect", server.version);
            return pgshrink_testkit::left_out("a table that becomes empty", &why);
        }
        let rows = "select n, repeat(md5(n::text), 30) v from generate_series(1, 12000) n";
        cluster.sql(&format!("create table t as {rows}; create index on t (n)")).unwrap();
        cluster.sql("vacuum analyze; checkpoint").unwrap();
        let words = ["--sample-size", "10MB"];
        let before = seen(&cluster.conninfo("postgres"), &words);
        let before = sample(table(&before, "t"));
        let first: Vec<u32> = before.training_pages.iter().map(|page| page.block).take(4).collect();
        // The request for these pages, and no other, has a list that begins so.
        let list = format!("{{{},{},{},{},", first[0], first[1], first[2], first[3]).into_bytes();
        let keep = TempDir::new().unwrap();
        let listener = UnixListener::bind(keep.path().join(".s.PGSQL.6432")).unwrap();
        let (socket, own) = (cluster.socket_path(), cluster.psql());
        thread::spawn(move || {
            at_message(listener, socket, list.leak(), || {
                own.clone().sql("delete from t").unwrap();
                own.sql("vacuum t").unwrap();
            });
        });
        let conninfo = format!("{} host={} port=6432", cluster.conninfo("postgres"), keep.path().display());
        let after = seen(&conninfo, &words);
        assert!(unseen(&after, "raw pages of").0.contains("out of range"), "{:?}", after.unseen);
        let after = sample(table(&after, "t"));
        assert!(after.training_pages.is_empty() && after.pages.len() == before.pages.len());
        assert_eq!(after.other_pages.len(), before.other_pages.len());
    });
}
