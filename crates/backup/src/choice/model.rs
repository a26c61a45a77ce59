//! How fast a plan would be.
//!
//! A stage has a cost: seconds for each byte before compression. The costs of what is not measured here are processor time of
//! `docs/decisions/2026-11-25-backup-parallel-route.md`, divided by the bytes; `bench/run backup-system --only auto` compares what
//! comes of them with real backups.

use super::{Bottleneck, Candidate, CodecRates, Keeping, Link, Plan, Processors, Route, Situation};

const NANOSECOND: f64 = 1e-9;
/// BASE_BACKUP: reading, tar, checksum. For each byte before compression.
const READ: f64 = 0.35 * NANOSECOND;
/// BASE_BACKUP: sending. For each byte after compression.
const SEND: f64 = 0.35 * NANOSECOND;
/// BASE_BACKUP: handing to workers. For each byte before compression.
const HAND_OVER: f64 = 0.2 * NANOSECOND;
/// The client: receiving. For each byte after compression.
const RECEIVE: f64 = 0.25 * NANOSECOND;
/// The client: taking archives apart. For each byte before compression.
const CUT: f64 = 0.3 * NANOSECOND;
/// The client or the server: writing files, for each byte of them.
const WRITE: f64 = 0.5 * NANOSECOND;
/// More of it where the thread that takes archives apart writes the files as well.
const WRITE_AFTER_CUT: f64 = 0.35 * NANOSECOND;
/// The parallel route, on the server and on the client.
const PARALLEL_SERVER: f64 = 0.75 * NANOSECOND;
const PARALLEL_CLIENT: f64 = 0.55 * NANOSECOND;
/// How much a stage counts that is not the slowest: stages add up as a norm of this order. One that is as slow as the slowest
/// makes 7 %, one that is twice as fast nothing.
const ORDER: i32 = 10;
/// A ratio that is lower is none.
const RATIO_MIN: f64 = 0.01;

/// What is expected of a plan.
pub(super) fn predict(situation: &Situation, plan: Plan, codec: Option<CodecRates>) -> Candidate {
    let ratio = codec.map_or(1.0, |codec| codec.ratio.max(RATIO_MIN));
    let costs = match plan.route {
        Route::Stream => stream(situation, plan, codec, ratio),
        Route::Parallel { connections } => parallel(situation, connections),
    };
    let mut stages = costs.stages;
    stages.push((situation.read.map_or(0.0, per_byte), Bottleneck::Reading));
    if let Some(link) = situation.link {
        stages.push((per_byte(bandwidth(link, plan.route)) / ratio, Bottleneck::Link));
    }
    match situation.processors {
        Processors::Shared(all) => {
            stages.push(((costs.server + costs.client) / count(all), Bottleneck::SharedProcessors));
        }
        Processors::Apart { server, client } => {
            stages.push((costs.server / count(half(server)), Bottleneck::ServerProcessors));
            stages.push((costs.client / count(client), Bottleneck::ClientProcessors));
        }
    }
    // A later one has to be slower to be the bottleneck.
    let mut slowest = (0.0, Bottleneck::ServerProcess);
    for stage in &stages {
        if stage.0 > slowest.0 {
            slowest = *stage;
        }
    }
    let (cost, bottleneck) = slowest;
    let waiting: f64 = stages.iter().map(|stage| (stage.0 / cost).powi(ORDER)).sum();
    let rate = 1.0 / (cost * waiting.powf(1.0 / f64::from(ORDER)));
    Candidate { plan, ratio, rate, bottleneck, cost: costs.server + costs.client }
}

/// What a plan costs.
struct Costs {
    /// Of what is done one after the other.
    stages: Vec<(f64, Bottleneck)>,
    /// Processor time.
    server: f64,
    client: f64,
}

fn stream(situation: &Situation, plan: Plan, codec: Option<CodecRates>, ratio: f64) -> Costs {
    let compress = codec.map_or(0.0, |codec| per_byte(codec.compress));
    let decompress = codec.map_or(0.0, |codec| per_byte(codec.decompress));
    let written = match situation.keeping {
        Keeping::OnServer { .. } => WRITE / ratio,
        _ => SEND / ratio,
    };
    let (process, workers, server) = match plan.compression.workers {
        Some(workers) => {
            let process = READ + HAND_OVER + written;
            (process, compress / count(workers), process + compress)
        }
        None => (READ + compress + written, 0.0, READ + compress + written),
    };
    let mut stages = vec![(process, Bottleneck::ServerProcess), (workers, Bottleneck::Workers)];
    let receive = RECEIVE / ratio;
    let client = match situation.keeping {
        Keeping::Archive { .. } | Keeping::Plain { .. } => {
            let mut keeping = Kept::of(situation.keeping);
            if let Keeping::Plain { writers: 0 } = situation.keeping {
                keeping.here += WRITE_AFTER_CUT;
                keeping.cost += WRITE_AFTER_CUT;
            }
            // What is compressed is received by a thread of its own.
            let thread = match codec {
                Some(_) => receive.max(decompress + CUT + keeping.here),
                None => receive + CUT + keeping.here,
            };
            stages.push((thread, Bottleneck::Decompressing));
            stages.push((keeping.beside, Bottleneck::Keeping));
            receive + decompress + CUT + keeping.cost
        }
        Keeping::Tar => {
            let thread = receive + WRITE / ratio;
            stages.push((thread, Bottleneck::Keeping));
            thread
        }
        Keeping::OnServer { disk } => {
            stages.push((per_byte(disk) / ratio, Bottleneck::ServerDisk));
            0.0
        }
    };
    Costs { stages, server, client }
}

fn parallel(situation: &Situation, connections: usize) -> Costs {
    let readers = connections.max(1) as f64;
    let keeping = Kept::of(situation.keeping);
    let stages = vec![
        (PARALLEL_SERVER / readers, Bottleneck::ServerReaders),
        ((PARALLEL_CLIENT + keeping.here) / readers, Bottleneck::Decompressing),
        (keeping.beside, Bottleneck::Keeping),
    ];
    Costs { stages, server: PARALLEL_SERVER, client: PARALLEL_CLIENT + keeping.cost }
}

/// What keeping costs.
struct Kept {
    /// Processor time.
    cost: f64,
    /// Of the thread that has the data.
    here: f64,
    /// Of other threads, which share it.
    beside: f64,
}

impl Kept {
    fn of(keeping: Keeping) -> Kept {
        match keeping {
            Keeping::Archive { rate, threads } => Kept::beside(per_byte(rate), threads),
            Keeping::Plain { writers: 0 } | Keeping::Tar | Keeping::OnServer { .. } => {
                Kept { cost: WRITE, here: WRITE, beside: 0.0 }
            }
            Keeping::Plain { writers } => Kept::beside(WRITE, writers),
        }
    }

    fn beside(cost: f64, threads: u32) -> Kept {
        Kept { cost, here: 0.0, beside: cost / count(threads) }
    }
}

fn bandwidth(link: Link, route: Route) -> f64 {
    match (route, link.several) {
        (Route::Parallel { connections }, Some(several)) if connections > 1 => several.max(link.one),
        _ => link.one,
    }
}

/// So many processors may be used of a server that has other work.
pub(super) fn half(processors: u32) -> u32 {
    (processors / 2).max(1)
}

fn count(number: u32) -> f64 {
    f64::from(number.max(1))
}

/// Seconds for a byte at a rate. Less than a byte per second is none, and neither is what is no number.
fn per_byte(rate: f64) -> f64 {
    1.0 / rate.max(1.0)
}
