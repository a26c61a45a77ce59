//! `--compression auto`: measures, has `pgshrink_backup::choice` choose, and says what was chosen and why.
//!
//! What was chosen may turn out not to be possible before the backup begins: the server lacks the codec, or its connections do
//! not lead to one server. Then the next best is taken, and a line says so.

use super::formats::Kind;
use super::measure::{self, Measured, Said, Wanted, per_second};
use super::plain;
use super::plan::{self, DEFAULT};
use super::route::Way;
use super::source::Server;
use super::{Failure, archive::Encoding, codecs};
use crate::args::{BackupArgs, BackupRoute};
use pgshrink_backup::base_backup::{Compression, CompressionAlgorithm};
use pgshrink_backup::choice::{
    Candidate, Choice, Keeping, Link, Plan, Processors, Route, Routes, Situation, choose,
};
use pgshrink_codec::counted;
use serde::Serialize;
use std::thread;
use std::time::{Duration, Instant};

/// What asks for it.
pub(super) const NAME: &str = "auto";
/// What a server's disk is taken to write, in bytes per second.
const SERVER_DISK_ASSUMED: f64 = 200e6;
/// ERRCODE_TOO_MANY_CONNECTIONS: those that measured may not have ended yet.
const TOO_MANY_CONNECTIONS: &str = "53300";
const ENDING_TIME_MAX: Duration = Duration::from_secs(5);
const ENDING_PAUSE: Duration = Duration::from_millis(100);

/// A choice.
pub(super) struct Auto {
    plan: Plan,
    /// None: the link could not be measured, and the default was taken.
    choice: Option<Choice>,
    situation: Situation,
    said: Said,
    is_quiet: bool,
}

impl Auto {
    /// Measures and chooses.
    pub(super) fn choose(args: &BackupArgs, kind: &Kind, encoding: &Encoding) -> Result<Auto, Failure> {
        let max_rate = plan::max_rate(args)?;
        let connections = plan::connections(args)?;
        let is_one_stream = matches!(kind, Kind::Tar(_) | Kind::OnServer(_));
        let (may_stream, may_parallel) = match args.route {
            None => (true, !is_one_stream),
            Some(BackupRoute::Stream) if args.connections.is_some() => return Err(plan::needs_parallel()),
            Some(BackupRoute::Stream) => (true, false),
            Some(BackupRoute::Parallel) if is_one_stream => {
                let what = "a tar backup uses a single BASE_BACKUP; use --route stream";
                return Err(Failure::new("--route parallel", what));
            }
            Some(BackupRoute::Parallel) => (false, true),
        };
        let wanted = Wanted {
            link: !matches!(kind, Kind::OnServer(_)),
            level: encoding.level,
            connections: may_parallel.then_some(connections),
        };
        let Measured { link, read, processors, codecs, encode, may_read_files, said } =
            measure::measure(&args.conninfo, &wanted);
        let threads = encoding.threads as u32;
        let keeping = match kind {
            Kind::Archive => Keeping::Archive { rate: encode, threads },
            Kind::Plain(_) => Keeping::Plain { writers: plain::writers(encoding.threads) as u32 },
            Kind::Tar(_) => Keeping::Tar,
            Kind::OnServer(_) => Keeping::OnServer { disk: SERVER_DISK_ASSUMED },
        };
        // If the route was named, what it lacks is the error of its own check.
        let parallel = may_parallel && (may_read_files || !may_stream);
        let parallel = if parallel { vec![connections] } else { Vec::new() };
        let bound = max_rate.map_or(f64::INFINITY, |rate| f64::from(rate.kib_per_second()) * 1024.0);
        let link = link.map(|link| Link {
            one: link.one.min(bound),
            several: link.several.map(|several| several.min(bound)),
        });
        let routes = Routes { stream: may_stream, parallel };
        let situation = Situation { link, read, processors, codecs, keeping, routes };
        let mut auto = Auto {
            plan: Plan { route: Route::Stream, compression: DEFAULT },
            choice: None,
            situation,
            said,
            is_quiet: args.output.quiet,
        };
        auto.add_assumptions(args, wanted.link);
        auto.again();
        auto.say();
        Ok(auto)
    }

    fn add_assumptions(&mut self, args: &BackupArgs, wants_link: bool) {
        let assumed = &mut self.said.assumed;
        if wants_link && self.situation.link.is_none() {
            assumed.push("the link could not be measured: using the default".to_owned());
        }
        if let Keeping::OnServer { disk } = self.situation.keeping {
            assumed.push(format!("the server's disk writes {}", per_second(disk)));
        }
        if let Some(rate) = args.max_rate {
            self.said.measured.push(format!("--max-rate allows {}", per_second(rate as f64 * 1024.0)));
        }
    }

    /// Chooses by what is known now.
    fn again(&mut self) {
        let Situation { link, keeping, routes, .. } = &self.situation;
        let is_measured = link.is_some() || matches!(keeping, Keeping::OnServer { .. });
        self.choice = if is_measured || !routes.stream { choose(&self.situation) } else { None };
        self.plan = match &self.choice {
            Some(choice) => choice.best.plan,
            None => Plan { route: Route::Stream, compression: self.default() },
        };
    }

    /// The default, or what the server has instead.
    fn default(&self) -> Compression {
        let has = |wanted: CompressionAlgorithm| {
            self.situation.codecs.iter().any(|codec| codec.algorithm == wanted)
        };
        let known = [DEFAULT].into_iter().chain(codecs::INSTEAD);
        known.into_iter().find(|compression| has(compression.algorithm)).unwrap_or(Compression::NONE)
    }

    fn way(&self) -> Way {
        match self.plan.route {
            Route::Stream => Way::Stream,
            Route::Parallel { connections } => Way::Parallel { connections },
        }
    }

    pub(super) fn compression(&self) -> Compression {
        self.plan.compression
    }

    /// Connects in the way that was chosen. If several connections cannot be used and nobody named them, one is.
    pub(super) fn connect(&mut self, conninfo: &str, silence: Duration) -> Result<Server, Failure> {
        let until = Instant::now() + ENDING_TIME_MAX;
        loop {
            let failure = match Server::connect(conninfo, self.way(), silence) {
                Ok(server) => return Ok(server),
                Err(failure) => failure,
            };
            let is_full =
                matches!(&failure, Failure::Server(said) if said.sqlstate() == Some(TOO_MANY_CONNECTIONS));
            if is_full && Instant::now() < until {
                thread::sleep(ENDING_PAUSE);
            } else if matches!(self.plan.route, Route::Parallel { .. }) && self.situation.routes.stream {
                self.situation.routes.parallel.clear();
                self.change(&format!("parallel connections cannot be used: {failure}"));
            } else {
                return Err(failure);
            }
        }
    }

    /// What to compress with after a failure to begin with a compression, or the reason.
    pub(super) fn instead(
        &mut self,
        failure: Failure,
        server: &mut Server,
        wanted: Compression,
    ) -> Result<Compression, Failure> {
        let lacks = codecs::lacks(failure, server, wanted)?;
        self.situation.codecs.retain(|codec| codec.algorithm != wanted.algorithm);
        // The connections are there.
        self.situation.routes.parallel.clear();
        self.change(&lacks);
        Ok(self.plan.compression)
    }

    fn change(&mut self, reason: &str) {
        if !self.is_quiet {
            eprintln!("pgshrink: {reason}");
        }
        self.said.assumed.push(reason.to_owned());
        self.again();
        self.say_choice();
    }

    fn say(&self) {
        self.say_choice();
        if self.is_quiet {
            return;
        }
        for (how, said) in [("measured", &self.said.measured), ("not measured", &self.said.assumed)] {
            if !said.is_empty() {
                eprintln!("pgshrink: {how}: {}", said.join("; "));
            }
        }
    }

    fn say_choice(&self) {
        if self.is_quiet {
            return;
        }
        eprintln!("pgshrink: compression: {}", self.text());
    }

    /// A line for people.
    fn text(&self) -> String {
        let Plan { route, compression } = self.plan;
        let way = match route {
            Route::Stream => "one connection".to_owned(),
            Route::Parallel { connections } => {
                counted(connections as u64, "connection that reads files", "connections that read files")
            }
        };
        let Some(Choice { best, candidates }) = &self.choice else {
            return format!("{compression} over {way}");
        };
        let smaller = match compression.algorithm {
            CompressionAlgorithm::None => String::new(),
            _ => format!("; the data becomes {:.1} times smaller", best.ratio),
        };
        // What it is compared with: without compression, or the fastest that does compress.
        let other = match compression.algorithm {
            CompressionAlgorithm::None => candidates
                .iter()
                .filter(|other| other.plan.compression.algorithm != CompressionAlgorithm::None)
                .max_by(|one, other| one.rate.total_cmp(&other.rate)),
            _ => candidates.iter().find(|other| other.plan.compression == Compression::NONE),
        };
        let other = other.map_or_else(String::new, |other| {
            format!("; with {} {}", other.plan.compression, per_second(other.rate))
        });
        format!(
            "{compression} over {way}: about {} of the cluster, limited by {}{smaller}{other}",
            per_second(best.rate),
            best.bottleneck.name()
        )
    }

    /// For the report.
    pub(super) fn chosen(&self) -> Chosen {
        let Plan { route, compression } = self.plan;
        let best = self.choice.as_ref().map(|choice| choice.best);
        let candidates = self.choice.iter().flat_map(|choice| &choice.candidates);
        let (server, client, is_shared) = match self.situation.processors {
            Processors::Shared(all) => (all, all, true),
            Processors::Apart { server, client } => (server, client, false),
        };
        Chosen {
            route: route_name(route),
            connections: connections(route),
            compression: compression.to_string(),
            expected_bytes_per_second: best.map(|best| best.rate as u64),
            limited_by: best.map(|best| best.bottleneck.name()),
            ratio: best.map(|best| rounded(best.ratio)),
            link_bytes_per_second: self.situation.link.map(|link| link.one as u64),
            read_bytes_per_second: self.situation.read.map(|read| read as u64),
            processors: ProcessorsReport { server, client, shared: is_shared },
            measured: self.said.measured.clone(),
            not_measured: self.said.assumed.clone(),
            candidates: candidates.map(CandidateReport::of).collect(),
        }
    }
}

fn route_name(route: Route) -> &'static str {
    match route {
        Route::Stream => "stream",
        Route::Parallel { .. } => "parallel",
    }
}

fn connections(route: Route) -> usize {
    match route {
        Route::Stream => 1,
        Route::Parallel { connections } => connections,
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// The object `choice` of a report.
#[derive(Serialize)]
pub(super) struct Chosen {
    route: &'static str,
    connections: usize,
    compression: String,
    /// Before compression.
    expected_bytes_per_second: Option<u64>,
    limited_by: Option<&'static str>,
    ratio: Option<f64>,
    link_bytes_per_second: Option<u64>,
    read_bytes_per_second: Option<u64>,
    processors: ProcessorsReport,
    /// For people.
    measured: Vec<String>,
    not_measured: Vec<String>,
    candidates: Vec<CandidateReport>,
}

#[derive(Serialize)]
struct ProcessorsReport {
    server: u32,
    client: u32,
    shared: bool,
}

#[derive(Serialize)]
struct CandidateReport {
    route: &'static str,
    connections: usize,
    compression: String,
    expected_bytes_per_second: u64,
    limited_by: &'static str,
    ratio: f64,
    /// Of server and client.
    processor_seconds_per_gb: f64,
}

impl CandidateReport {
    fn of(candidate: &Candidate) -> CandidateReport {
        let Candidate { plan, ratio, rate, bottleneck, cost } = *candidate;
        CandidateReport {
            route: route_name(plan.route),
            connections: connections(plan.route),
            compression: plan.compression.to_string(),
            expected_bytes_per_second: rate as u64,
            limited_by: bottleneck.name(),
            ratio: rounded(ratio),
            processor_seconds_per_gb: rounded(cost * 1e9),
        }
    }
}
