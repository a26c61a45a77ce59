//! The tables: what pages become, and what that costs, by relation and in all.

use std::time::Duration;

use pgshrink_bench_report::page::Value;
use pgshrink_bench_report::{Result, Samples, Table, Unit, cpu_seconds_of_thread};
use pgshrink_cfs::estimate::{Allocation, DICTIONARY_BYTES, Estimate, Method, estimate};
use pgshrink_cfs::page::{PAGE_SIZE, Policy, TransformPolicy};
use pgshrink_codec::{Algorithm, Choice};

use crate::chunks::compressed_bytes;
use crate::relations::{Group, Relation, Relations};

/// Pages of a relation that a quick look takes, in runs from its whole length, and a full one.
const QUICK_PAGES: usize = 400;
const FULL_PAGES: usize = 1600;
const ROUNDS: usize = 3;
const RUN_PAGES: usize = 16;
const CHUNKS: [(usize, &str); 2] =
    [(32 << 10, "zstd:3, chunks of 32 KiB"), (128 << 10, "zstd:3, chunks of 128 KiB")];

const LZ4: usize = 0;
const ZSTD_1: usize = 1;
const ZSTD_3: usize = 2;
const FAST: usize = 3;
const DEFAULT: usize = 4;
const BEST: usize = 5;
const NAMES: [&str; 6] = ["lz4", "zstd:1", "zstd:3", "ours, lz4", "ours, zstd:1", "ours, zstd:9"];

fn methods() -> Result<[Method; 6]> {
    let method = |algorithm, level, transform, dictionary_size_max| {
        let policy = Policy { choice: Choice::new(algorithm, level)?, transform };
        Ok::<_, pgshrink_codec::Error>(Method { policy, dictionary_size_max })
    };
    use TransformPolicy::{Auto, Off};
    Ok([
        method(Algorithm::Lz4, 1, Off, 0)?,
        method(Algorithm::Zstd, 1, Off, 0)?,
        method(Algorithm::Zstd, 3, Off, 0)?,
        method(Algorithm::Lz4, 1, Auto, 0)?,
        method(Algorithm::Zstd, 1, Auto, DICTIONARY_BYTES)?,
        method(Algorithm::Zstd, 9, Auto, 4 * DICTIONARY_BYTES)?,
    ])
}

/// One relation by every method: bytes scaled to all its pages, and seconds of each round.
struct Measured {
    relation: Relation,
    bytes: f64,
    methods: Vec<Sums>,
    chunks: Vec<f64>,
}

/// What adds up.
#[derive(Clone, Default)]
struct Sums {
    payload: f64,
    fine: f64,
    coarse: f64,
    encode: Vec<f64>,
    decode: Vec<f64>,
}

/// Both tables.
pub fn tables(full: bool) -> Result<Vec<Table>> {
    let relations = Relations::make()?;
    let measured: Vec<Measured> = relations
        .all
        .iter()
        .map(|relation| measure(relation, if full { FULL_PAGES } else { QUICK_PAGES }))
        .collect::<Result<_>>()?;
    Ok(vec![pages_table(&measured), relations_table(&measured)])
}

fn measure(relation: &Relation, pages_max: usize) -> Result<Measured> {
    let pages = relation.pages()?;
    let bytes = (pages.len() * PAGE_SIZE) as f64;
    let some = some(pages, pages_max);
    let weight = bytes / (some.len() * PAGE_SIZE) as f64;
    let mut sums = vec![Sums::default(); NAMES.len()];
    for round in 0..ROUNDS {
        // One round tells the sizes at the coarser granule, the others at the finer.
        let granule_bytes = if round == 0 { 64 } else { 16 };
        let allocation = Allocation { granule_bytes, ..Allocation::default() };
        let mut clock = || Duration::from_secs_f64(cpu_seconds_of_thread());
        let found = estimate(&some, 0, &methods()?, allocation, &mut clock)?;
        for (sums, found) in sums.iter_mut().zip(&found) {
            sums.add(found, weight, round == 0);
        }
    }
    let joined = some.as_flattened();
    let chunks = CHUNKS.iter().map(|(size, _)| compressed_bytes(joined, *size, 3) as f64 * weight).collect();
    Ok(Measured { relation: relation.clone(), bytes, methods: sums, chunks })
}

/// Bytes of records scaled to all pages; a dictionary is there once.
fn of_all(found: &Estimate, weight: f64) -> f64 {
    let dictionary = found.dictionary_bytes as f64;
    (found.allocated_bytes as f64 - dictionary) * weight + dictionary
}

fn some(pages: Vec<[u8; PAGE_SIZE]>, pages_max: usize) -> Vec<[u8; PAGE_SIZE]> {
    if pages.len() <= pages_max {
        return pages;
    }
    let stride = RUN_PAGES * pages.len().div_ceil(pages_max);
    pages.chunks(stride).flat_map(|run| run[..run.len().min(RUN_PAGES)].iter().copied()).collect()
}

impl Sums {
    fn add(&mut self, found: &Estimate, weight: f64, coarse: bool) {
        self.payload = found.payload_bytes as f64 * weight + found.dictionary_bytes as f64;
        *if coarse { &mut self.coarse } else { &mut self.fine } = of_all(found, weight);
        self.encode.push(found.encode.as_secs_f64() * weight);
        self.decode.push(found.decode.as_secs_f64() * weight);
    }

    /// All of a group, round by round.
    fn total<'m>(measured: impl Iterator<Item = &'m Measured>, method: usize) -> Sums {
        let mut total = Sums::default();
        for sums in measured.map(|measured| &measured.methods[method]) {
            total.payload += sums.payload;
            total.fine += sums.fine;
            total.coarse += sums.coarse;
            total.encode.resize(sums.encode.len(), 0.0);
            total.decode.resize(sums.decode.len(), 0.0);
            total.encode.iter_mut().zip(&sums.encode).for_each(|(all, one)| *all += one);
            total.decode.iter_mut().zip(&sums.decode).for_each(|(all, one)| *all += one);
        }
        total
    }
}

fn samples(seconds: &[f64], bytes: f64) -> Samples {
    let mut samples = Samples::default();
    seconds.iter().for_each(|seconds| samples.push(bytes / seconds / 1e6));
    samples
}

/// Whether a relation counts in a row.
fn counts(measured: &Measured, group: Option<Group>) -> bool {
    match group {
        None => measured.relation.group != Group::Pgbench,
        Some(group) => measured.relation.group == group,
    }
}

fn pages_table(measured: &[Measured]) -> Table {
    let about = format!(
        "Bytes of relations of a megabyte or more to what they take. `payload`: bare; `at 16 B`, `at 64 B`: with 32 bytes of header \
        each and rounded up, which pages by plain algorithms are charged too, chunks are not; dictionaries included. Large relations stand for \
        themselves by {FULL_PAGES} pages (a quick look: {QUICK_PAGES}) in runs of {RUN_PAGES} from their whole length. Speed is \
        processor time of one thread, {ROUNDS} rounds, decoded pages compared. `ours, zstd:1` is the default, with a dictionary of \
        16 KiB from the first 128 pages; `ours, zstd:9` has 64 KiB; `ours, lz4` none. `all` leaves pgbench out."
    );
    let columns = [
        ("relations", Unit::Text),
        ("method", Unit::Text),
        ("payload", Unit::Ratio),
        ("at 16 B", Unit::Ratio),
        ("at 64 B", Unit::Ratio),
        ("encode", Unit::MegabytesPerSecond),
        ("decode", Unit::MegabytesPerSecond),
    ];
    let mut table = Table::new("pages", "Size and speed of pages", &about, &columns);
    let groups = [
        (None, "all"),
        (Some(Group::Heap), "heap"),
        (Some(Group::Index), "index"),
        (Some(Group::Pgbench), "pgbench"),
    ];
    for (group, name) in groups {
        let members = || measured.iter().filter(|measured| counts(measured, group));
        let bytes: f64 = members().map(|measured| measured.bytes).sum();
        for (method, label) in NAMES.iter().enumerate() {
            let sums = Sums::total(members(), method);
            let ratio = |size: f64| Value::from(bytes / size);
            let (encode, decode) = (samples(&sums.encode, bytes), samples(&sums.decode, bytes));
            let sizes = [ratio(sums.payload), ratio(sums.fine), ratio(sums.coarse)];
            let [payload, fine, coarse] = sizes;
            table.row([
                name.into(),
                (*label).into(),
                payload,
                fine,
                coarse,
                encode.spread(),
                decode.spread(),
            ]);
        }
        for (i, (_, label)) in CHUNKS.iter().enumerate() {
            let size: f64 = members().map(|measured| measured.chunks[i]).sum();
            let none = || Value::None;
            table.row([name.into(), (*label).into(), (bytes / size).into(), none(), none(), none(), none()]);
        }
    }
    verdicts(measured, &mut table);
    table
}

fn verdicts(measured: &[Measured], table: &mut Table) {
    let all = |method| Sums::total(measured.iter().filter(|measured| counts(measured, None)), method);
    let index = |method| Sums::total(measured.iter().filter(|m| counts(m, Some(Group::Index))), method);
    let mut at_least = |what: &str, found: f64, least: f64| {
        table.verdict(what, &format!("at least {least}"), format!("{found:.3}"), found >= least);
    };
    at_least("default mode smaller than zstd:3 per page", all(ZSTD_3).fine / all(DEFAULT).fine, 1.4);
    at_least("best mode smaller than zstd:3 per page", all(ZSTD_3).fine / all(BEST).fine, 1.55);
    at_least("indexes, best mode, smaller than zstd:3 per page", index(ZSTD_3).fine / index(BEST).fine, 2.3);
    at_least(
        "indexes, default mode, smaller than zstd:3 per page",
        index(ZSTD_3).fine / index(DEFAULT).fine,
        2.3,
    );
    let chunks: f64 = measured.iter().filter(|m| counts(m, None)).map(|m| m.chunks[1]).sum();
    at_least("default mode smaller than zstd:3 in chunks of 128 KiB", chunks / all(DEFAULT).fine, 1.2);
    at_least("fast mode smaller than lz4 per page", all(LZ4).fine / all(FAST).fine, 1.55);
    let speed = |ours: &[f64], theirs: &[f64]| {
        let mut ratios = Samples::default();
        ours.iter().zip(theirs).for_each(|(ours, theirs)| ratios.push(theirs / ours));
        ratios.median()
    };
    at_least("default mode, encoding speed to zstd:1", speed(&all(DEFAULT).encode, &all(ZSTD_1).encode), 0.7);
    at_least(
        "default mode, decoding speed to zstd:1",
        speed(&all(DEFAULT).decode, &all(ZSTD_1).decode),
        0.75,
    );
    at_least("fast mode, encoding speed to lz4", speed(&all(FAST).encode, &all(LZ4).encode), 0.5);
    at_least("fast mode, decoding speed to lz4", speed(&all(FAST).decode, &all(LZ4).decode), 0.5);
    let worse: Vec<&str> = measured
        .iter()
        .filter(|measured| measured.methods[DEFAULT].fine > measured.methods[ZSTD_1].fine)
        .map(|measured| measured.relation.name.as_str())
        .collect();
    let found = if worse.is_empty() { "none".to_owned() } else { worse.join(", ") };
    table.verdict("relations larger than by plain zstd:1", "none", found, worse.is_empty());
}

fn relations_table(measured: &[Measured]) -> Table {
    let about = "Bytes of a relation to what it takes at 16 bytes with headers, by each method; chunks bare.";
    let mut columns = vec![("relation", Unit::Text), ("kind", Unit::Text), ("bytes", Unit::Bytes)];
    columns.extend(NAMES.iter().map(|name| (*name, Unit::Ratio)));
    columns.push((CHUNKS[1].1, Unit::Ratio));
    let mut table = Table::new("relations", "Size by relation", about, &columns);
    for one in measured {
        let mut cells: Vec<Value> =
            vec![one.relation.name.as_str().into(), one.relation.kind.as_str().into(), one.bytes.into()];
        cells.extend(one.methods.iter().map(|sums| Value::from(one.bytes / sums.fine)));
        cells.push((one.bytes / one.chunks[1]).into());
        table.push(cells);
    }
    table
}
