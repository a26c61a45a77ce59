//! Predicted containers beside real ones.

use pgshrink_advisor::codecs::{self, Budget, Means};
use pgshrink_advisor::finding::RelationCodecs;
use pgshrink_advisor::snapshot::{Server, Snapshot, Table};
use pgshrink_cfs::estimate::container_bytes;
use pgshrink_cfs::page::{PageCodec, Policy, TransformPolicy};
use pgshrink_codec::{Algorithm, AlgorithmList};
use pgshrink_testkit::corpora::{self, Corpus};
use pgshrink_testkit::{Cluster, Missing, Seed, skipped};

use super::engine::{at_rest, is_near, off, packed};
use super::taken::{self, Taking};

/// Tables that differ in what compresses, each of some megabytes.
pub const TABLES: &str = "
    select setseed(0.5); create table numbers as select n::bigint id, (n % 97)::int kind, (n * 7919 % 100003)::int8 spread, n % 3 = 0 flag,
        timestamptz '2026-01-01' + n * interval '1 s' as moment from generate_series(1, 120000) n;
    create table texts as select n::int id, md5(n::text) hash, repeat(md5((n % 100)::text), 3) body,
        case when n % 5 = 0 then null else 'state ' || n % 11 end state from generate_series(1, 40000) n;
    create table randoms as select md5('id ' || n)::uuid id, random() x, md5('y ' || n) y from generate_series(1, 40000) n;
    create table large as select n::int id, (select string_agg(md5((n * k)::text), ' ') from generate_series(1, 90 + n % 90) k) body
        from generate_series(1, 3000) n;
    create table documents as select n::int id, jsonb_build_object('identifier', n, 'customer', 'customer ' || n % 1000,
        'address', jsonb_build_object('street', md5(n::text), 'city', 'city ' || n % 50, 'zip', n % 99999),
        'tags', jsonb_build_array('a' || n % 7, 'b' || n % 13), 'amount', (n * 31 % 10007) / 100.0) doc from generate_series(1, 30000) n;
    create index on numbers (spread); create index on texts (hash); create index on texts (state, id);
    vacuum analyze; checkpoint";

pub const NAMES: [&str; 5] = ["numbers", "texts", "randoms", "large", "documents"];

pub fn snapshot(tables: Vec<Table>) -> Snapshot {
    let server = Server { version: 150_000, database_bytes: Some(1 << 30), ..Server::default() };
    Snapshot { server, tables, ..Snapshot::default() }
}

pub fn measured(table: Table) -> Vec<RelationCodecs> {
    codecs::measure(&snapshot(vec![table]), &mut Budget::default(), &Means::default()).relations
}

fn relation_of(found: &RelationCodecs) -> String {
    let object = &found.object;
    match object.kind.as_str() {
        "table" => format!("'{}'", object.name),
        "toast" => format!("(select reltoastrelid from pg_class where oid = '{}'::regclass)", object.name),
        _ => format!("'{}'", object.part.as_ref().unwrap()),
    }
}

/// Every relation of the table by the default codec: predicted from a sample, and packed by the engine.
fn compare(cluster: &Cluster, name: &str, taking: &Taking<'_>, seed: Seed, worst: &mut f64) {
    let table = taken::table(cluster, &mut seed.rng(), taking);
    for found in measured(table) {
        let pages = taken::file(cluster, &relation_of(&found));
        let real = at_rest(&pages, Policy::default(), true);
        let predicted = found.pages.iter().find(|figure| figure.codec == "zstd:1").unwrap().bytes;
        let wrong = off(predicted, real);
        println!(
            "{name} {} {} pages: predicted {predicted}, is {real}: {wrong:+.2} %",
            found.object.kind,
            pages.len()
        );
        if !is_near(predicted, real, found.bytes) {
            *worst = worst.max(wrong.abs());
        }
    }
}

#[test]
fn containers_of_generated_tables_are_predicted_within_five_per_cent() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    let seed = super::engine::seed();
    let mut worst = 0.0;
    for name in NAMES {
        let taking = Taking { table: name, percent: 15, least: 128, has_pages: true };
        compare(&cluster, name, &taking, seed, &mut worst);
    }
    assert!(worst < 5.0, "off by {worst:.2} %, {seed:?}");
}

fn compare_real(corpora: Result<Vec<Corpus>, Missing>) {
    let corpora = match corpora {
        Ok(corpora) => corpora,
        Err(missing) => return skipped("containers of real tables", &missing),
    };
    assert!(corpora.len() > 5, "a variety");
    let cluster = Cluster::builder().major(15).start().unwrap();
    let seed = super::engine::seed();
    let mut worst = 0.0;
    for corpus in corpora {
        corpus.load(&cluster).unwrap();
        cluster.sql("vacuum; checkpoint").unwrap();
        let taking = Taking { table: &corpus.name, percent: 10, least: 256, has_pages: true };
        compare(&cluster, &corpus.name, &taking, seed, &mut worst);
        cluster.sql(&format!("drop table \"{}\"", corpus.name)).unwrap();
    }
    assert!(worst < 5.0, "off by {worst:.2} %, {seed:?}");
}

#[test]
fn containers_of_small_real_tables_are_predicted_within_five_per_cent() {
    compare_real(corpora::small());
}

#[test]
#[ignore = "soak: all corpora"]
fn containers_of_real_tables_are_predicted_within_five_per_cent() {
    compare_real(corpora::all());
}

#[test]
fn every_algorithm_and_mode_is_predicted_within_five_per_cent() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    let (seed, mut worst) = (super::engine::seed(), 0.0);
    for name in NAMES {
        let taking = Taking { table: name, percent: 15, least: 128, has_pages: true };
        let table = taken::table(&cluster, &mut seed.rng(), &taking);
        let found = measured(table).remove(0);
        let kinds: Vec<&str> = found.pages.iter().map(|figure| figure.codec.as_str()).collect();
        for expected in [
            "lz4:1",
            "snappy",
            "pglz",
            "zlib:6",
            "lzfse",
            "zstd:1",
            "zstd:3",
            "zstd:1, columns off, dictionary off",
        ] {
            assert!(kinds.contains(&expected), "{expected} is not in {kinds:?}");
        }
        let pages = taken::file(&cluster, &relation_of(&found));
        for figure in &found.pages {
            let algorithm = figure.codec.split(',').next().unwrap();
            let choice = AlgorithmList::parse(algorithm, &Algorithm::ALL[1..]).unwrap().get(0).unwrap();
            let transform = if figure.codec.contains("columns off") {
                TransformPolicy::Off
            } else {
                TransformPolicy::Auto
            };
            let real = at_rest(&pages, Policy { choice, transform }, !figure.codec.contains(" off"));
            let wrong = off(figure.bytes, real);
            println!("{name} {}: predicted {}, is {real}: {wrong:+.2} %", figure.codec, figure.bytes);
            if !is_near(figure.bytes, real, found.bytes) {
                worst = f64::max(worst, wrong.abs());
            }
            assert!(figure.compress_mb_s.is_none() && figure.decompress_mb_s.is_none(), "there is no clock");
        }
    }
    assert!(worst < 5.0, "off by {worst:.2} %, {seed:?}");
}

#[test]
fn what_a_container_has_besides_records_is_counted_as_the_engine_writes_it() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    let pages = taken::file(&cluster, "'numbers'");
    // In the root, in a delta, and the most that a delta takes.
    for count in [1, 5, 20, 340, 341, 513, 1000] {
        let pages = &pages[..count];
        let (mut codec, mut payload, mut records) = (PageCodec::new(), Vec::new(), 0);
        for (block, page) in (0..).zip(pages) {
            payload.clear();
            codec.encode(page, Some(block), &Policy::default(), None, &mut payload).unwrap();
            records += (16 + payload.len()).next_multiple_of(16) as u64;
        }
        let (said, is) = (container_bytes(count as u64, records, 0), packed(pages, Policy::default(), false));
        assert!(said.abs_diff(is) <= 48, "{count} pages: {said}, is {is}");
    }
}
