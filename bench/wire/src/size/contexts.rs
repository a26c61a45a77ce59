//! How long a context lives: the literature's comparison, on replication, COPY and dialogues.

use pgshrink_bench_report::{Result, Table, Unit, Value};
use pgshrink_codec::{AlgorithmList, Choice};
use pgshrink_testkit::corpora;
use pgshrink_wire::negotiate::WIRE_ALGORITHMS;
use pgshrink_wire::policy::WINDOW_LOG_DEFAULT;
use pgshrink_wire::{ContextMode, Dialect};

use super::{Bench, context};
use crate::pair::{Pair, SERVER_PIECE_SIZE};
use crate::recording::{self, Piece, Recording, Way, bytes_of};
use crate::source::Form;
use crate::yardstick::permanent_stream;

const ALGORITHMS: [&str; 3] = ["zstd:1", "lz4:1", "zlib:1"];
const CORPORA: [&str; 5] = ["deb_package", "flights", "stock_price", "law_text", "cve_record"];

pub(super) fn table(bench: &Bench) -> Result<Table> {
    let about = "What the server sends, plain bytes to wire bytes. *Permanent*: one unframed stream from the first byte on, \
        flushed whenever the server flushed, nothing sent plain and nothing grouped. The others are ours, in frames: \
        context *preserved* over the session (the default), *per transaction*, and reset *per frame*. Replication is WAL as \
        a walsender sent it to pg_receivewal under pgbench tpcb-like: live as it came, with and without full page writes, \
        and catching up. COPY and catching up are one transaction. The last columns are bytes of context at both ends \
        after the run, encoder and decoder together.";
    let columns = [
        ("stream", Unit::Text),
        ("algorithm", Unit::Text),
        ("plain", Unit::Bytes),
        ("permanent", Unit::Ratio),
        ("preserved", Unit::Ratio),
        ("per transaction", Unit::Ratio),
        ("per frame", Unit::Ratio),
        ("memory preserved", Unit::Bytes),
        ("memory per frame", Unit::Bytes),
    ];
    let mut table = Table::new("contexts", "Context: permanent, framed, reset", about, &columns);
    for recording in streams(bench)? {
        for algorithm in ALGORITHMS {
            table.push(row(&recording, algorithm)?);
        }
    }
    Ok(table)
}

fn row(recording: &Recording, algorithm: &str) -> Result<Vec<Value>> {
    let pieces = &recording.pieces;
    let plain = bytes_of(pieces, Way::ToClient).len();
    let flushed = pieces.iter().filter(|p| p.way == Way::ToClient).map(|p| p.bytes.as_slice());
    let permanent = permanent_stream(choice(algorithm)?, WINDOW_LOG_DEFAULT, flushed)?;
    let mut ratios = vec![Value::from(plain as f64 / permanent as f64)];
    let mut memory = Vec::new();
    for mode in [ContextMode::Preserved, ContextMode::PerTransaction, ContextMode::PerFrame] {
        let mut pair = Pair::new(Dialect::Restart, algorithm, context(mode))?;
        let [_, cost] = pair.carry_dialogue(pieces)?;
        ratios.push(cost.ratio().into());
        memory.push(Value::from(pair.codec_memory_bytes()));
    }
    memory.remove(1);
    let mut row = vec![recording.name.clone().into(), algorithm.into(), plain.into()];
    row.extend(ratios);
    row.extend(memory);
    Ok(row)
}

fn streams(bench: &Bench) -> Result<Vec<Recording>> {
    let mut streams = Vec::new();
    let count = if bench.full { "5000" } else { "1000" };
    let load = ["-c", "4", "-j", "2", "-t", count, "-b", "tpcb-like"];
    let cluster = recording::pgbench_cluster(4, &[])?;
    streams.push(recording::wal(&cluster, "replication, live", true, &load)?);
    streams.push(recording::wal(&cluster, "replication, catching up", false, &load)?);
    drop(cluster);
    let cluster = recording::pgbench_cluster(4, &[("full_page_writes", "off")])?;
    streams.push(recording::wal(&cluster, "replication, live, no full pages", true, &load)?);
    drop(cluster);
    for name in CORPORA {
        let corpus = corpora::find(name)?;
        let answer = bench.with_source(|source| source.answer(&corpus, Form::Copy))?;
        let pieces = answer.chunks(SERVER_PIECE_SIZE);
        let pieces = pieces.map(|bytes| Piece { way: Way::ToClient, bytes: bytes.to_vec() }).collect();
        streams.push(Recording { name: format!("COPY {name}"), pieces });
    }
    streams.extend(bench.dialogues()?);
    Ok(streams)
}

fn choice(text: &str) -> Result<Choice> {
    let list = AlgorithmList::parse(text, WIRE_ALGORITHMS)?;
    Ok(*list.iter().next().ok_or("an empty list")?)
}
