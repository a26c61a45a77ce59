//! The tables: what chunks of relations become, and what that costs.

use pgshrink_backup::chunk::{CHUNK_BYTES_DEFAULT, ChunkDecoder, ChunkEncoder, Content, Habit, Level};
use pgshrink_bench_cfs::relations::{Group, Relation, Relations};
use pgshrink_bench_report::page::Value;
use pgshrink_bench_report::{Result, Samples, Table, Unit, cpu_seconds_of_thread};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer};

const PAGE_SIZE: usize = 8192;
const ROUNDS: usize = 3;
/// Of a relation in a quick look.
const QUICK_BYTES: usize = 16 << 20;
/// The server's window for a tar that it compresses by zstd:3: 512 KiB.
const TAR_WINDOW_LOG: u32 = 19;
const TAR_LEVEL: i32 = 3;

const ZSTD_3: usize = 1;
const OURS_1: usize = 2;
const OURS: usize = 3;
const NAMES: [&str; 4] = ["zstd:1", "zstd:3", "ours, level 1", "ours, default"];

/// One relation by every method.
struct Measured {
    relation: Relation,
    bytes: f64,
    methods: Vec<Sums>,
}

/// Bytes, and seconds of each round.
#[derive(Clone, Default)]
struct Sums {
    stored: f64,
    encode: Vec<f64>,
    decode: Vec<f64>,
}

impl Sums {
    fn add(&mut self, round: usize, stored: usize, encode: f64, decode: f64) {
        self.encode.resize(ROUNDS, 0.0);
        self.decode.resize(ROUNDS, 0.0);
        self.stored += if round == 0 { stored as f64 } else { 0.0 };
        self.encode[round] += encode;
        self.decode[round] += decode;
    }

    fn join(&mut self, other: &Sums) {
        self.stored += other.stored;
        for (ours, theirs) in [(&mut self.encode, &other.encode), (&mut self.decode, &other.decode)] {
            ours.resize(theirs.len(), 0.0);
            ours.iter_mut().zip(theirs).for_each(|(sum, seconds)| *sum += seconds);
        }
    }
}

/// The names of both tables.
pub const TABLES: &[&str] = &["chunks", "chunk-relations"];

/// Both tables.
pub fn tables(full: bool) -> Result<Vec<Table>> {
    let relations = Relations::make()?;
    let mut tar = Tar::new()?;
    let mut measured = Vec::new();
    for relation in &relations.all {
        let pages = relation.pages()?;
        let bytes = pages.as_flattened();
        let bytes = &bytes[..bytes.len().min(if full { usize::MAX } else { QUICK_BYTES })];
        tar.add(bytes)?;
        let mut methods = vec![Sums::default(); NAMES.len()];
        for round in 0..ROUNDS {
            zstd(bytes, 1, round, &mut methods[0])?;
            zstd(bytes, 3, round, &mut methods[ZSTD_3])?;
            ours(bytes, Level::new(1)?, round, &mut methods[OURS_1])?;
            ours(bytes, Level::default(), round, &mut methods[OURS])?;
        }
        measured.push(Measured { relation: relation.clone(), bytes: bytes.len() as f64, methods });
    }
    Ok(vec![chunks_table(&measured, &tar), relations_table(&measured)])
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, f64) {
    let begin = cpu_seconds_of_thread();
    let done = run();
    (done, cpu_seconds_of_thread() - begin)
}

fn zstd(bytes: &[u8], level: i32, round: usize, sums: &mut Sums) -> Result<()> {
    let (mut encoder, mut decoder) = (CCtx::create(), DCtx::create());
    let mut room = vec![0; zstd_safe::compress_bound(CHUNK_BYTES_DEFAULT)];
    let mut back = vec![0; CHUNK_BYTES_DEFAULT];
    for raw in bytes.chunks(CHUNK_BYTES_DEFAULT) {
        let (size, encode) = timed(|| encoder.compress(&mut room[..], raw, level));
        let size = size.map_err(zstd_safe::get_error_name)?;
        let (done, decode) = timed(|| decoder.decompress(&mut back[..], &room[..size]));
        done.map_err(zstd_safe::get_error_name)?;
        if back[..raw.len()] != *raw {
            return Err("zstd gave other bytes back".into());
        }
        sums.add(round, size.min(raw.len()), encode, decode);
    }
    Ok(())
}

fn ours(bytes: &[u8], level: Level, round: usize, sums: &mut Sums) -> Result<()> {
    let (mut encoder, mut decoder) = (ChunkEncoder::new(level), ChunkDecoder::new());
    let (mut payload, mut back) = (Vec::new(), Vec::new());
    let mut habit = Habit::default();
    for (raw, index) in bytes.chunks(CHUNK_BYTES_DEFAULT).zip(0..) {
        let content = Content::Pages { first_block: index * (CHUNK_BYTES_DEFAULT / PAGE_SIZE) as u32 };
        payload.clear();
        back.clear();
        let (codec, encode) = timed(|| encoder.encode(raw, content, &mut habit, &mut payload));
        let codec = codec?;
        let (done, decode) = timed(|| decoder.decode(codec, &payload, content, raw.len(), &mut back));
        done?;
        if back != *raw {
            return Err("a chunk came back as another".into());
        }
        sums.add(round, payload.len(), encode, decode);
    }
    Ok(())
}

/// One stream over all relations.
struct Tar {
    context: CCtx<'static>,
    room: Vec<u8>,
    stored: f64,
    seconds: f64,
}

impl Tar {
    fn new() -> Result<Tar> {
        let mut context = CCtx::create();
        for parameter in [CParameter::CompressionLevel(TAR_LEVEL), CParameter::WindowLog(TAR_WINDOW_LOG)] {
            context.set_parameter(parameter).map_err(zstd_safe::get_error_name)?;
        }
        Ok(Tar { context, room: vec![0; CCtx::out_size()], stored: 0.0, seconds: 0.0 })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        let mut input = InBuffer::around(bytes);
        let Tar { context, room, stored, seconds } = self;
        while input.pos() < bytes.len() {
            let mut output = OutBuffer::around(&mut room[..]);
            let go_on = ZSTD_EndDirective::ZSTD_e_continue;
            let (done, cpu) = timed(|| context.compress_stream2(&mut output, &mut input, go_on));
            done.map_err(zstd_safe::get_error_name)?;
            *stored += output.pos() as f64;
            *seconds += cpu;
        }
        Ok(())
    }
}

fn samples(seconds: &[f64], bytes: f64) -> Samples {
    let mut samples = Samples::default();
    seconds.iter().for_each(|seconds| samples.push(bytes / seconds / 1e6));
    samples
}

fn chunks_table(measured: &[Measured], tar: &Tar) -> Table {
    let about = format!(
        "Relations of a megabyte or more (a quick look: their first {} MiB) in chunks of {} KiB: bytes to what they take, and \
        processor time of one thread, {ROUNDS} rounds, decoded chunks compared. `tar zstd:3`: one stream over all of them in \
        turn with a window of 512 KiB, once.",
        QUICK_BYTES >> 20,
        CHUNK_BYTES_DEFAULT >> 10,
    );
    let columns = [
        ("relations", Unit::Text),
        ("method", Unit::Text),
        ("ratio", Unit::Ratio),
        ("encode", Unit::MegabytesPerSecond),
        ("decode", Unit::MegabytesPerSecond),
    ];
    let mut table = Table::new("chunks", "Size and speed of chunks", &about, &columns);
    let groups = [
        (None, "all"),
        (Some(Group::Heap), "heap"),
        (Some(Group::Index), "index"),
        (Some(Group::Pgbench), "pgbench"),
    ];
    let mut all = Vec::new();
    for (group, name) in groups {
        let members = || measured.iter().filter(|one| group.is_none_or(|group| one.relation.group == group));
        let bytes: f64 = members().map(|one| one.bytes).sum();
        for (method, label) in NAMES.iter().enumerate() {
            let mut sums = Sums::default();
            members().for_each(|one| sums.join(&one.methods[method]));
            let (encode, decode) = (samples(&sums.encode, bytes), samples(&sums.decode, bytes));
            let ratio = (bytes / sums.stored).into();
            table.row([name.into(), (*label).into(), ratio, encode.spread(), decode.spread()]);
            if group.is_none() {
                all.push((sums.stored, encode.median(), decode.median()));
            }
        }
        if group.is_none() {
            let (ratio, speed) = (bytes / tar.stored, bytes / tar.seconds / 1e6);
            table.row([name.into(), "tar zstd:3".into(), ratio.into(), speed.into(), Value::None]);
        }
    }
    verdicts(measured, tar, all[OURS], &mut table);
    table
}

fn verdicts(measured: &[Measured], tar: &Tar, (stored, encode, decode): (f64, f64, f64), table: &mut Table) {
    let mut at_least = |what: &str, found: f64, least: f64| {
        table.verdict(what, &format!("at least {least}"), format!("{found:.3}"), found >= least);
    };
    at_least("default mode smaller than tar zstd:3", tar.stored / stored, 1.3);
    at_least("default mode, encoding, MB/s of a core", encode, 170.0);
    at_least("default mode, decoding, MB/s of a core", decode, 400.0);
    let larger: Vec<&str> = measured
        .iter()
        .filter(|one| one.methods[OURS].stored > one.methods[ZSTD_3].stored)
        .map(|one| one.relation.name.as_str())
        .collect();
    let found = if larger.is_empty() { "none".to_owned() } else { larger.join(", ") };
    table.verdict("relations larger than zstd:3 of the same chunks", "none", found, larger.is_empty());
}

fn relations_table(measured: &[Measured]) -> Table {
    let about = "Bytes of a relation to what its chunks take, by each method.";
    let mut columns = vec![("relation", Unit::Text), ("kind", Unit::Text), ("bytes", Unit::Bytes)];
    columns.extend(NAMES.iter().map(|name| (*name, Unit::Ratio)));
    let mut table = Table::new("chunk-relations", "Size of chunks by relation", about, &columns);
    for one in measured {
        let mut cells: Vec<Value> =
            vec![one.relation.name.as_str().into(), one.relation.kind.as_str().into(), one.bytes.into()];
        cells.extend(one.methods.iter().map(|sums| Value::from(one.bytes / sums.stored)));
        table.push(cells);
    }
    table
}
