//! `pgshrink cfs estimate`: every algorithm on pages of plain relation files.

mod measure;
mod relations;

use super::output::{self, Progress, size};
use super::{Failure, Verdict};
use crate::args::EstimateArgs;
use measure::{Measured, Plan};
use pgshrink_cfs::page::{PAGE_SIZE, Policy, TransformPolicy};
use pgshrink_codec::{Algorithm, AlgorithmList, Choice};
use relations::Relation;
use serde::Serialize;
use std::path::Path;

const ALGORITHMS: &str = "lz4,snappy,pglz,zlib:6,lzfse,zstd:1,zstd:3";
const SAMPLE_PAGES: u32 = 2000;
const MIN_PAGES: u32 = 5;

/// All of a run.
#[derive(Serialize)]
struct Report {
    relations: Vec<Estimated>,
    total: Estimated,
}

/// One relation's fork, or the sum.
#[derive(Serialize)]
struct Estimated {
    /// Of its first segment.
    path: String,
    /// As pg_class has it.
    name: Option<String>,
    fork: &'static str,
    /// What most pages look like.
    kind: String,
    pages: u64,
    measured_pages: u64,
    bytes: u64,
    algorithms: Vec<Figures>,
}

/// One algorithm's result.
#[derive(Serialize, Clone)]
struct Figures {
    algorithm: String,
    /// What a container would take.
    bytes: u64,
    ratio: f64,
    /// Millions of bytes of pages a second, one thread.
    compress_mb_s: f64,
    decompress_mb_s: f64,
    dictionary: bool,
}

pub(super) fn run(args: &EstimateArgs) -> Result<Verdict, Failure> {
    let plan = plan(args)?;
    let relations = relations::find(&args.paths)?;
    let bytes = relations.iter().map(|relation| plan.sampled(relation.pages()) * PAGE_SIZE as u64).sum();
    let progress = Progress::new(bytes, &args.output);
    let min_pages = u64::from(args.min_pages.unwrap_or(MIN_PAGES));
    let mut measured = Vec::new();
    for relation in &relations {
        progress.at(&relation.path);
        match measure::relation(relation, &plan, &progress) {
            Ok(figures) => measured.push((relation, figures)),
            // Beside a server a table may be dropped or cut meanwhile.
            Err(failure) if !relation.path.exists() => eprintln!("pgshrink: left out: {failure}"),
            Err(failure) => return Err(failure),
        }
    }
    drop(progress);
    let total = sum(&plan, &measured);
    let mut listed: Vec<Estimated> = measured
        .iter()
        .filter(|(relation, _)| relation.pages() >= min_pages)
        .map(|(relation, measured)| estimated(relation, &plan, measured))
        .collect();
    listed.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
    output::print(&args.output, &Report { relations: listed, total }, text)?;
    Ok(Verdict::Good)
}

fn plan(args: &EstimateArgs) -> Result<Plan, Failure> {
    let wrong = |reason: String| Failure::new(Path::new("--algorithms"), reason);
    let transform = if args.no_transform { TransformPolicy::Off } else { TransformPolicy::Auto };
    let mut policies = Vec::new();
    for item in args.algorithms.as_deref().unwrap_or(ALGORITHMS).split(',') {
        // One by one: here an algorithm may come at several levels.
        let list =
            AlgorithmList::parse(item, &Algorithm::ALL[1..]).map_err(|error| wrong(error.to_string()))?;
        let choice: Choice = list.get(0).ok_or_else(|| wrong("an empty item".to_owned()))?;
        policies.push(Policy { choice, transform });
    }
    let sample_max = match args.pages.unwrap_or(SAMPLE_PAGES) {
        0 => u64::MAX,
        pages => pages.into(),
    };
    Ok(Plan { policies, sample_max, dictionary: !args.no_dictionary })
}

fn estimated(relation: &Relation, plan: &Plan, measured: &Measured) -> Estimated {
    let bytes = relation.pages() * PAGE_SIZE as u64;
    let figures = plan.policies.iter().zip(&measured.by_policy).map(|(policy, one)| {
        let stored = one.container_bytes(relation.pages(), measured.pages);
        Figures {
            algorithm: policy.choice.to_string(),
            bytes: stored,
            ratio: ratio(bytes, stored),
            compress_mb_s: speed(measured.pages, one.records.encode.as_secs_f64()),
            decompress_mb_s: speed(measured.pages, one.records.decode.as_secs_f64()),
            dictionary: one.dictionary_bytes > 0,
        }
    });
    Estimated {
        path: relation.path.display().to_string(),
        name: relation.name.clone(),
        fork: relation.fork,
        kind: measured.kind.clone(),
        pages: relation.pages(),
        measured_pages: measured.pages,
        bytes,
        algorithms: figures.collect(),
    }
}

fn sum(plan: &Plan, all: &[(&Relation, Measured)]) -> Estimated {
    let pages = all.iter().map(|(relation, _)| relation.pages()).sum::<u64>();
    let measured_pages = all.iter().map(|(_, measured)| measured.pages).sum();
    let bytes = pages * PAGE_SIZE as u64;
    let figures = plan.policies.iter().enumerate().map(|(index, policy)| {
        let one = |measured: &Measured| measured.by_policy[index].clone();
        let stored = all
            .iter()
            .map(|(relation, measured)| one(measured).container_bytes(relation.pages(), measured.pages));
        let stored = stored.sum();
        Figures {
            algorithm: policy.choice.to_string(),
            bytes: stored,
            ratio: ratio(bytes, stored),
            compress_mb_s: speed(
                measured_pages,
                all.iter().map(|(_, m)| one(m).records.encode.as_secs_f64()).sum(),
            ),
            decompress_mb_s: speed(
                measured_pages,
                all.iter().map(|(_, m)| one(m).records.decode.as_secs_f64()).sum(),
            ),
            dictionary: all.iter().any(|(_, m)| one(m).dictionary_bytes > 0),
        }
    });
    let algorithms = figures.collect();
    let (path, kind) = (String::new(), String::new());
    Estimated { path, name: None, fork: "", kind, pages, measured_pages, bytes, algorithms }
}

fn ratio(plain: u64, stored: u64) -> f64 {
    if stored == 0 { 1.0 } else { plain as f64 / stored as f64 }
}

fn speed(pages: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (pages * PAGE_SIZE as u64) as f64 / seconds / 1e6 } else { 0.0 }
}

fn text(report: &Report) -> String {
    let mut header = vec!["relation".to_owned(), "size".to_owned(), "pages like".to_owned()];
    header.extend(report.total.algorithms.iter().map(|figures| figures.algorithm.clone()));
    let row = |estimated: &Estimated, label: String| {
        let mut row = vec![label, size(estimated.bytes), estimated.kind.clone()];
        row.extend(estimated.algorithms.iter().map(|figures| {
            format!("{:.2}x {:.0}/{:.0}", figures.ratio, figures.compress_mb_s, figures.decompress_mb_s)
        }));
        row
    };
    let mut rows = vec![header];
    for estimated in &report.relations {
        let fork = if matches!(estimated.fork, "main" | "") {
            String::new()
        } else {
            format!(" ({})", estimated.fork)
        };
        let label = match &estimated.name {
            Some(name) => format!("{name}{fork}  {}", estimated.path),
            None => format!("{}{fork}", estimated.path),
        };
        rows.push(row(estimated, label));
    }
    rows.push(row(&report.total, "all".to_owned()));
    let note = "\nsize ratio, then MB/s compressing/decompressing in one thread\n";
    output::table(&rows) + note
}
