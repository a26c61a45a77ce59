//! What the rules propose, done for real on a server.

use pgshrink_advisor::codecs::{self, Budget, Means};
use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::rules::{self, Candidate};
use pgshrink_advisor::snapshot::{Server as ServerFacts, Table};
use pgshrink_testkit::{Cluster, Seed, Server};

use super::engine::off;
use super::taken::{self, Taking};

/// Values that lz4 makes shorter than pglz, some forbidden to be compressed, some too short for TOAST.
const LARGE: &str = "
    create table runs as select n id, (select string_agg(repeat(chr(65 + (n * k) % 26), 2000), '') from generate_series(1, 6) k) body
        from generate_series(1, 30000) n;
    create table large (id int, plain bytea); alter table large alter plain set storage external;
    insert into large select n, convert_to((select string_agg('value ' || (n * k) % 100, ' ') from generate_series(1, 500) k), 'UTF8')
        from generate_series(1, 3000) n;
    create table shorts as select n id, repeat(md5((n % 9)::text), 20) body from generate_series(1, 20000) n;
    vacuum analyze; checkpoint";

fn take(cluster: &Cluster, name: &str) -> Table {
    let how = Taking { table: name, percent: 30, least: 100, has_pages: true };
    taken::table(cluster, &mut Seed(4).rng(), &how)
}

fn toast(table: &Table) -> Vec<Candidate> {
    rules::toast::candidates(&ServerFacts { version: 150_000, ..ServerFacts::default() }, table)
}

#[test]
fn recompressed_values_have_the_sizes_that_the_server_gives_them_after_the_sql() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(LARGE).unwrap();
    for (name, id) in [("runs", "toast:public.runs.body:lz4"), ("large", "toast:public.large.plain:storage")]
    {
        let table = take(&cluster, name);
        let found = toast(&table);
        let [candidate] = &found[..] else { panic!("{name}: {found:?}") };
        assert_eq!(candidate.finding.id, id);
        let [Edit::Recompress(edit)] = &candidate.edits[..] else { panic!("{candidate:?}") };
        let column = &table.columns[edit.column].name;
        let hash = format!("select md5(string_agg(md5(l::text), '' order by id)) from {name} l");
        let before = cluster.sql(&hash).unwrap();
        cluster.sql(&candidate.finding.sql.join(" ")).unwrap();
        assert_eq!(cluster.sql(&hash).unwrap(), before, "the rows are the same");
        // A rewrite moves rows: identifiers tell which is which.
        let sample = table.sample.as_ref().unwrap();
        let ids: Vec<&str> =
            sample.columns[0].values.iter().flatten().map(|id| id.as_deref().unwrap()).collect();
        let sizes = cluster.sql(&format!(
            "select pg_column_size({column}), pg_column_compression({column}) from {name} where id in ({}) order by id", ids.join(",")
        ));
        let mut by_id: Vec<(u32, u32)> = ids
            .iter()
            .zip(edit.compressed.iter().zip(&edit.raw))
            .map(|(id, (compressed, raw))| (id.parse().unwrap(), compressed.unwrap_or(raw.unwrap())))
            .collect();
        by_id.sort_unstable();
        for (line, (id, said)) in sizes.unwrap().lines().zip(by_id) {
            let (size, method) = line.split_once('|').unwrap();
            assert_eq!(method, if name == "runs" { "lz4" } else { "pglz" });
            // A value out of line is counted without its header of four bytes.
            let size: u32 = size.parse().unwrap();
            assert!(said == size || said == size + 4, "{column} of {id}: {said}, is {size}");
        }
    }
}

#[test]
fn a_lower_toast_target_is_not_proposed_as_no_server_looks_at_short_rows() {
    Server::each("rows below 2 KB", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster.sql(LARGE).unwrap();
        let found = toast(&take(&cluster, "shorts"));
        let [candidate] = &found[..] else { panic!("{found:?}") };
        assert!(candidate.edits.is_empty() && candidate.finding.sql.is_empty(), "{candidate:?}");
        assert!(candidate.finding.title.contains("which TOAST never compresses"));
        cluster
            .sql("create table lower (like shorts) with (toast_tuple_target = 128); insert into lower select id, body || '' from shorts")
            .unwrap();
        let sizes = cluster.sql("select pg_table_size('shorts') - pg_table_size('lower'), max(pg_column_compression(body)) from lower");
        let sizes = sizes.unwrap();
        assert!(sizes.ends_with('|'), "no value is compressed: {sizes}");
    });
}

#[test]
fn tables_that_cfs_makes_a_fifth_smaller_are_reported_with_their_bytes() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(super::pages::TABLES).unwrap();
    cluster.sql("create table tiny as select generate_series(1, 2000) n; checkpoint").unwrap();
    let snapshot =
        super::pages::snapshot(["numbers", "randoms", "tiny"].map(|name| take(&cluster, name)).to_vec());
    let measured = codecs::measure(&snapshot, &mut Budget::default(), &Means::default());
    let found = rules::cfs::candidates(&snapshot, &measured.relations);
    let names: Vec<&str> = found.iter().map(|found| found.finding.object.name.as_str()).collect();
    assert_eq!(names, ["numbers", "randoms"]);
    let numbers = &found[0];
    let compressed = numbers.finding.bytes.compressed.unwrap();
    assert!(numbers.finding.bytes.disk.saved() == 0 && numbers.finding.bytes.memory.saved() == 0);
    assert_eq!(compressed.now, snapshot.tables[0].total_bytes());
    assert!(compressed.after * 10 < compressed.now && !numbers.is_recommended, "{compressed:?}");
    assert!(off(compressed.after, 148_000 + 104_000).abs() < 15.0, "{compressed:?}");
    assert_eq!(numbers.finding.sql[0], "SELECT cfs_compress_relation('public.numbers');");
}
