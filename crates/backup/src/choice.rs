//! Which route, algorithm, level and workers a backup gets: `--compression auto`.
//!
//! ```text
//!   Situation: link, processors, codecs  -->  Plan, Plan, ...  --model-->  Candidate: rate, bottleneck, processor time
//!                                                                --choose-->  Choice
//! ```
//! The rate of a plan is that of its slowest stage: `min(reading, server's processors / cost, link x ratio, client's
//! processors / cost)`, and a little less where another stage is nearly as slow: then each waits for the other at times. Rates are in bytes per second of the cluster's files, before compression.
//!
//! Invariants:
//! 1. The same situation gives the same choice.
//! 2. Of plans that are nearly as fast as the fastest ([`NEARLY`]), the one that takes the least processor time is chosen. So
//!    data that do not compress are not compressed. Where what the server compresses is kept as it comes, it is the
//!    smallest one.
//! 3. A slower link never gets a lower ratio, for codecs that cost more the better they compress.
//! 4. Nothing is chosen that the server lacks, that was not permitted, or that a sample cannot measure: `long` is never
//!    chosen, as what it finds lies further away than a sample reaches.
//!
//! What was measured may be anything: no number makes it panic.

mod model;
#[cfg(test)]
mod tests;

use crate::base_backup::{Compression, CompressionAlgorithm};

/// A plan is nearly as fast as another if its rate is this share of the other's: predictions are not better than that.
pub const NEARLY: f64 = 0.9;
/// A ratio is nearly as high as another if it is this share of it. Of two levels' difference, samples show about half: whole
/// files repeat themselves further away.
const NEARLY_AS_SMALL: f64 = 0.97;
/// Numbers of workers that are tried, besides none.
const WORKERS: [u32; 3] = [2, 4, 8];
/// Codecs that are looked at, at most.
pub const CODECS_MAX: usize = 32;

/// What was measured, and what is allowed.
#[derive(Clone, PartialEq, Debug)]
pub struct Situation {
    /// The way to the client. None: nothing goes over it.
    pub link: Option<Link>,
    /// Bytes per second that the server reads from its files, if it was measured.
    pub read: Option<f64>,
    /// Who computes.
    pub processors: Processors,
    /// What the server can compress with, but for `none`, which it always can.
    pub codecs: Vec<CodecRates>,
    /// What happens with what comes.
    pub keeping: Keeping,
    /// Which routes may be taken.
    pub routes: Routes,
}

/// Bytes per second that go over the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Link {
    /// Over one connection.
    pub one: f64,
    /// Over several, if it was measured.
    pub several: Option<f64>,
}

/// Processors that a backup can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processors {
    /// Of one machine, on which both server and client run.
    Shared(u32),
    /// Of two machines. Half of the server's are left to its own work.
    Apart {
        /// All of the server's.
        server: u32,
        /// All of the client's.
        client: u32,
    },
}

/// A codec on this cluster's data, in bytes before compression per second of one processor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CodecRates {
    /// Which one.
    pub algorithm: CompressionAlgorithm,
    /// Its level; none: the default.
    pub level: Option<i32>,
    /// How many times smaller the data get.
    pub ratio: f64,
    /// Compressing.
    pub compress: f64,
    /// Decompressing.
    pub decompress: f64,
}

/// What happens with what comes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Keeping {
    /// It is decompressed and compressed anew: at this rate by each of so many threads.
    Archive {
        /// Bytes per second of one processor.
        rate: f64,
        /// How many.
        threads: u32,
    },
    /// It is decompressed and written as files.
    Plain {
        /// Threads that do nothing but write; with none, who decompresses writes.
        writers: u32,
    },
    /// It is written as it comes.
    Tar,
    /// The server writes it to a disk that takes so many bytes per second.
    OnServer {
        /// After compression.
        disk: f64,
    },
}

/// Which routes may be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    /// One BASE_BACKUP.
    pub stream: bool,
    /// Numbers of connections that may read files.
    pub parallel: Vec<usize>,
}

/// Which way files come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Over one BASE_BACKUP.
    Stream,
    /// Over so many connections that read files.
    Parallel {
        /// How many.
        connections: usize,
    },
}

/// A way to take a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// How files come.
    pub route: Route,
    /// What the server compresses with.
    pub compression: Compression,
}

/// What a backup waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bottleneck {
    /// The server's reading.
    Reading,
    /// The server's process that reads, and compresses if it has no workers.
    ServerProcess,
    /// The server's processes that read, of the parallel route.
    ServerReaders,
    /// The threads that compress for that process.
    Workers,
    /// All of the server's processors.
    ServerProcessors,
    /// The network.
    Link,
    /// The server's disk.
    ServerDisk,
    /// The client's thread that receives and decompresses.
    Decompressing,
    /// What the client's threads do with the data: compressing or writing.
    Keeping,
    /// All of the client's processors.
    ClientProcessors,
    /// The processors of the machine that both run on.
    SharedProcessors,
}

impl Bottleneck {
    /// For people: what the backup waits for.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Reading => "reading on the server",
            Bottleneck::ServerProcess => "the server's process",
            Bottleneck::ServerReaders => "the server's processes",
            Bottleneck::Workers => "the server's compression threads",
            Bottleneck::ServerProcessors => "the server's processors",
            Bottleneck::Link => "the link",
            Bottleneck::ServerDisk => "the server's disk",
            Bottleneck::Decompressing => "receiving and decompressing here",
            Bottleneck::Keeping => "storing here",
            Bottleneck::ClientProcessors => "the processors here",
            Bottleneck::SharedProcessors => "the processors of the machine",
        }
    }
}

/// A plan and what is expected of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// How many times smaller the data get on the way.
    pub ratio: f64,
    /// Bytes per second, before compression.
    pub rate: f64,
    /// What does not let it be faster.
    pub bottleneck: Bottleneck,
    /// Processor time of server and client, in seconds for each byte before compression.
    pub cost: f64,
}

/// What was chosen, and from what.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// It.
    pub best: Candidate,
    /// All that were compared, it among them, in a fixed order.
    pub candidates: Vec<Candidate>,
}

/// Chooses a plan. None: no route is permitted.
pub fn choose(situation: &Situation) -> Option<Choice> {
    let plans = plans(situation);
    let candidates: Vec<Candidate> =
        plans.into_iter().map(|(plan, codec)| model::predict(situation, plan, codec)).collect();
    let fastest = candidates.iter().map(|candidate| candidate.rate).max_by(f64::total_cmp)?;
    let mut near: Vec<&Candidate> =
        candidates.iter().filter(|candidate| candidate.rate >= fastest * NEARLY).collect();
    if matches!(situation.keeping, Keeping::Tar | Keeping::OnServer { .. }) {
        let smallest = near.iter().map(|candidate| candidate.ratio).max_by(f64::total_cmp)?;
        near.retain(|candidate| candidate.ratio >= smallest * NEARLY_AS_SMALL);
    }
    let best = *near.into_iter().min_by(|one, other| one.cost.total_cmp(&other.cost))?;
    Some(Choice { best, candidates })
}

/// All plans, the simplest first, with the codec of each.
fn plans(situation: &Situation) -> Vec<(Plan, Option<CodecRates>)> {
    let mut plans = Vec::new();
    if situation.routes.stream {
        let route = Route::Stream;
        plans.push((Plan { route, compression: Compression::NONE }, None));
        for codec in situation.codecs.iter().take(CODECS_MAX) {
            let CodecRates { algorithm, level, .. } = *codec;
            let compression = Compression { algorithm, level, ..Compression::NONE };
            plans.push((Plan { route, compression }, Some(*codec)));
            if algorithm != CompressionAlgorithm::Zstd {
                continue;
            }
            let workers = WORKERS.into_iter().filter(|workers| *workers <= workers_max(situation.processors));
            plans.extend(workers.map(|workers| {
                let compression = Compression { workers: Some(workers), ..compression };
                (Plan { route, compression }, Some(*codec))
            }));
        }
    }
    let parallel = situation.routes.parallel.iter().filter(|connections| **connections > 0);
    plans.extend(parallel.map(|connections| {
        let route = Route::Parallel { connections: *connections };
        (Plan { route, compression: Compression::NONE }, None)
    }));
    plans
}

/// Threads that the server may compress with, at most.
fn workers_max(processors: Processors) -> u32 {
    match processors {
        Processors::Shared(all) => all,
        Processors::Apart { server, .. } => model::half(server),
    }
}
