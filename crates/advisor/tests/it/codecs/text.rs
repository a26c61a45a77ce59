//! COPY text and backups, beside the whole.

use pgshrink_advisor::codecs::copy::CopyText;
use pgshrink_advisor::codecs::{Budget, backup, wire};
use pgshrink_advisor::snapshot::{ForkBytes, Table};
use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, ChunkEncoder, Content, Habit, Level};
use pgshrink_testkit::Cluster;

use super::engine::off;
use super::pages::{NAMES, TABLES};
use super::taken::{self, Taking};

#[test]
fn copy_text_is_the_servers_byte_for_byte_and_its_wire_bytes_are_near_those_of_all_rows() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    let seed = super::engine::seed();
    for name in NAMES {
        let whole = Taking { table: name, percent: 100, least: 1, has_pages: false };
        let whole = taken::table(&cluster, &mut seed.rng(), &whole);
        let copy = CopyText::of(&whole, usize::MAX).unwrap();
        let sent = cluster.psql().arg("-q").arg("-c").arg(format!("copy {name} to stdout")).run().unwrap();
        assert!(copy.text.strip_suffix(b"\n") == Some(sent.as_bytes()), "{name}");

        let part = a_run_of_each(&whole, 5);
        let budget = || Budget { copy_bytes: [64 << 20; 2], ..Budget::default() };
        let (said_text, said) = wire::measure(&part, &mut budget(), None);
        let (text, is) = wire::measure(&whole, &mut budget(), None);
        assert_eq!(text, copy.text.len() as u64);
        println!("{name}: text {said_text} is {text} ({:+.2} %)", off(said_text, text));
        assert!(off(said_text, text).abs() < 5.0, "{name}: {seed:?}");
        assert_eq!(said.len(), wire::ALGORITHMS.len());
        for (said, is) in said.iter().zip(&is) {
            let wrong = off(said.bytes, is.bytes);
            println!("{name} {}: {} is {}: {wrong:+.2} %", said.codec, said.bytes, is.bytes);
            assert!(wrong.abs() < 5.0, "{name} {}: off by {wrong:.2} %, {seed:?}", said.codec);
        }
    }
}

/// Of every so many runs of 16 blocks one, as the command reads them; all of a table of a few runs.
fn a_run_of_each(whole: &Table, stride: u32) -> Table {
    const RUN: u32 = 16;
    const BLOCKS_MIN: usize = 128;
    let mut part = whole.clone();
    let sample = part.sample.as_mut().unwrap();
    let is_small = sample.blocks.len() <= BLOCKS_MIN;
    let is_kept = |block: u32| is_small || (block / RUN).is_multiple_of(stride);
    let kept: Vec<bool> = sample.rows.iter().map(|place| is_kept(place.0)).collect();
    fn keep<T>(list: &mut Vec<T>, kept: &[bool]) {
        let mut kept = kept.iter();
        list.retain(|_| *kept.next().unwrap());
    }
    for column in &mut sample.columns {
        keep(&mut column.sizes, &kept);
        keep(&mut column.places, &kept);
        column.values.iter_mut().for_each(|values| keep(values, &kept));
    }
    keep(&mut sample.rows, &kept);
    sample.blocks.retain(|block| is_kept(*block));
    sample.is_whole = is_small;
    part
}

/// Values of more than 32 kB are not read. Others stand for them, and most of those are shorter than a value that is compressed.
#[test]
fn text_that_is_too_long_for_the_sample_counts_as_long_as_it_is() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    let sql = "create table t as select n::int id, case when n % 20 = 0
         then (select string_agg(repeat(md5((n * k)::text), 4), ' ') from generate_series(1, 1000 + n % 500) k)
         when n % 20 < 9 then (select string_agg(repeat(md5((n * k)::text), 4), ' ') from generate_series(1, 40 + n % 50) k)
         else md5(n::text) end body from generate_series(1, 4000) n; vacuum analyze t";
    sql.split(';').for_each(|statement| drop(cluster.sql(statement).unwrap()));
    let whole = Taking { table: "t", percent: 100, least: 1, has_pages: false };
    let whole = taken::table(&cluster, &mut super::engine::seed().rng(), &whole);
    let lacking = whole.sample.as_ref().unwrap().columns[1].values.as_ref().unwrap();
    assert!(lacking.iter().filter(|value| value.is_none()).count() > 100, "some are not in the sample");
    let sent = cluster.sql("select sum(octet_length(id::text) + octet_length(body) + 2) from t").unwrap();
    let sent = sent.trim().parse::<u64>().unwrap();
    let (said, _) = wire::measure(&whole, &mut Budget::default(), None);
    assert!(off(said, sent).abs() < 5.0, "{said} is {sent}");
}

#[test]
fn a_backup_of_sampled_pages_is_near_one_of_all() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    let seed = super::engine::seed();
    let (mut tables, mut archive, mut bytes) = (Vec::new(), 0u64, 0u64);
    for name in NAMES {
        let how = Taking { table: name, percent: 20, least: 256, has_pages: true };
        let table = taken::table(&cluster, &mut seed.rng(), &how);
        let mut relations = vec![format!("'{name}'")];
        relations.extend(table.toast.map(|toast| toast.oid.to_string()));
        relations.extend(table.indexes.iter().map(|index| index.oid.to_string()));
        for relation in relations {
            let raw =
                taken::file(&cluster, &relation).iter().flat_map(|page| page.to_vec()).collect::<Vec<u8>>();
            let (mut encoder, mut habit) = (ChunkEncoder::new(Level::default()), Habit::default());
            bytes += raw.len() as u64;
            for (chunk, first_block) in raw.chunks(CHUNK_BYTES_DEFAULT).zip((0..).step_by(64)) {
                let mut out = Vec::new();
                encoder.encode(chunk, Content::Pages { first_block }, &mut habit, &mut out).unwrap();
                archive += out.len() as u64;
            }
        }
        tables.push(pgshrink_advisor::snapshot::Table {
            bytes: ForkBytes { fsm: 0, vm: 0, ..table.bytes },
            ..table
        });
    }
    let mut snapshot = super::pages::snapshot(tables);
    snapshot.server.databases_bytes = Some(bytes);
    let (said, note) = backup::estimate(&snapshot, &mut Budget::default()).unwrap();
    let wrong = off(said.archive_bytes, archive);
    println!("archive: {} is {archive}: {wrong:+.2} %; tar {}", said.archive_bytes, said.tar_bytes);
    assert!(wrong.abs() < 5.0, "off by {wrong:.2} %, {seed:?}");
    assert!(said.bytes == bytes && said.tar_bytes > said.archive_bytes, "{said:?}");
    assert!(note.contains("all databases, without WAL"), "{note}");
}
