//! `pgshrink cfs estimate`: every algorithm on pages of plain relation files.

mod measure;
mod relations;
mod text;

use super::output::{self, Progress};
use super::{Failure, Verdict};
use crate::args::EstimateArgs;
use measure::{Measured, Plan};
use pgshrink_cfs::page::{PAGE_SIZE, Policy, TransformPolicy};
use pgshrink_codec::{Algorithm, AlgorithmList, Choice};
use relations::Relation;
use serde::Serialize;
use std::path::Path;

/// Without `--all`: those that a server is likely to get.
const ALGORITHMS: &str = "lz4,zstd:1,zstd:3";
const ALGORITHMS_ALL: &str = "lz4,snappy,pglz,zlib:6,lzfse,zstd:1,zstd:3";
const SAMPLE_PAGES: u32 = 2000;
const MIN_PAGES: u32 = 5;

/// All of a run.
#[derive(Serialize)]
struct Report {
    /// The largest first.
    relations: Vec<Estimated>,
    /// Tables, indexes, catalogs and other files, where there are any.
    groups: Vec<Sum>,
    total: Sum,
    /// Relations that went away while they were measured, and why they could not be.
    left_out: Vec<String>,
    /// Files that are no relation's, listed or not.
    #[serde(skip)]
    others: Vec<String>,
}

/// One relation's fork.
#[derive(Serialize)]
struct Estimated {
    /// Of its first segment.
    path: String,
    /// The same, seen from the path that was named.
    #[serde(skip)]
    place: String,
    /// As pg_class has it.
    name: Option<String>,
    fork: &'static str,
    group: Group,
    /// What most pages look like.
    kind: String,
    #[serde(flatten)]
    figures: Measurements,
}

/// Several relations.
#[derive(Serialize)]
struct Sum {
    /// None: all.
    group: Option<Group>,
    /// Without counting their maps, whose sizes are included.
    relations: u64,
    #[serde(flatten)]
    figures: Measurements,
}

/// What a relation counts as.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Group {
    /// With its TOAST table, maps and sequences.
    Tables,
    Indexes,
    /// With their indexes.
    Catalogs,
    /// Files that were named and are no relation's, by their names and their pages.
    Others,
}

/// Sizes before and after.
#[derive(Serialize)]
struct Measurements {
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
    /// None where all measured pages are zeros, so that it says nothing; they have no record, and no codec sees them.
    ratio: Option<f64>,
    /// Millions of bytes of pages a second, one thread. None as with the ratio.
    compress_mb_s: Option<f64>,
    decompress_mb_s: Option<f64>,
    dictionary: bool,
}

pub(super) fn run(args: &EstimateArgs) -> Result<Verdict, Failure> {
    let plan = plan(args)?;
    let relations = relations::find(&args.paths)?;
    let bytes = relations.iter().map(|relation| plan.sampled(relation.pages()) * PAGE_SIZE as u64).sum();
    let progress = Progress::new(bytes, &args.output);
    let min_pages = u64::from(args.min_pages.unwrap_or(MIN_PAGES));
    let (mut measured, mut left_out) = (Vec::new(), Vec::new());
    for relation in &relations {
        progress.at(&relation.path);
        match measure::relation(relation, &plan, &progress) {
            Ok(figures) => measured.push((relation, figures)),
            // Beside a server a table may be dropped or cut meanwhile.
            Err(failure) if !relation.path.exists() => left_out.push(failure.to_string()),
            Err(failure) => return Err(failure),
        }
    }
    drop(progress);
    left_out.iter().for_each(|failure| eprintln!("pgshrink: left out: {failure}"));
    let mut listed: Vec<Estimated> = measured
        .iter()
        .filter(|(relation, _)| relation.pages() >= min_pages)
        .map(|one| estimated(&plan, one))
        .collect();
    listed.sort_by(|a, b| b.figures.bytes.cmp(&a.figures.bytes).then_with(|| a.path.cmp(&b.path)));
    let groups = [Group::Tables, Group::Indexes, Group::Catalogs, Group::Others]
        .map(|group| sum(&plan, &measured, Some(group)));
    let groups = groups.into_iter().filter(|group| group.relations > 0).collect();
    let others = measured.iter().filter(|(relation, one)| group(relation, &one.kind) == Group::Others);
    let others = others.map(|(relation, _)| relation.path.display().to_string()).collect();
    let total = sum(&plan, &measured, None);
    let report = Report { relations: listed, groups, total, left_out, others };
    output::print(&args.output, &report, |report| text::text(report, args.all))?;
    Ok(Verdict::Good)
}

fn plan(args: &EstimateArgs) -> Result<Plan, Failure> {
    let wrong = |reason: String| Failure::new(Path::new("--algorithms"), reason);
    let transform = if args.no_transform { TransformPolicy::Off } else { TransformPolicy::Auto };
    let mut policies = Vec::new();
    let default = if args.all { ALGORITHMS_ALL } else { ALGORITHMS };
    for item in args.algorithms.as_deref().unwrap_or(default).split(',') {
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

fn estimated(plan: &Plan, one: &(&Relation, Measured)) -> Estimated {
    let (relation, measured) = one;
    Estimated {
        path: relation.path.display().to_string(),
        place: relation.place.display().to_string(),
        name: relation.name.as_ref().map(|named| named.name.clone()),
        fork: relation.fork,
        group: group(relation, &measured.kind),
        kind: measured.kind.clone(),
        figures: measurements(plan, &[one]),
    }
}

/// Where pg_class says nothing, what its pages look like.
fn group(relation: &Relation, kind: &str) -> Group {
    let looks_like_index = ["btree", "btreeposting", "hash", "gin", "gist", "spgist", "brin"].contains(&kind);
    match &relation.name {
        Some(named) if named.is_catalog => Group::Catalogs,
        Some(named) if named.is_index => Group::Indexes,
        None if looks_like_index => Group::Indexes,
        None if !relation.has_relation_name && kind == "other" => Group::Others,
        _ => Group::Tables,
    }
}

fn sum(plan: &Plan, all: &[(&Relation, Measured)], of: Option<Group>) -> Sum {
    let is_in = |(relation, measured): &&(&Relation, Measured)| {
        of.is_none_or(|wanted| group(relation, &measured.kind) == wanted)
    };
    let those: Vec<_> = all.iter().filter(is_in).collect();
    let relations = those.iter().filter(|(relation, _)| relation.fork == "main").count();
    Sum { group: of, relations: relations as u64, figures: measurements(plan, &those) }
}

fn measurements(plan: &Plan, those: &[&(&Relation, Measured)]) -> Measurements {
    let pages = those.iter().map(|(relation, _)| relation.pages()).sum::<u64>();
    let measured_pages = those.iter().map(|(_, measured)| measured.pages).sum();
    let bytes = pages * PAGE_SIZE as u64;
    let is_zero = those.iter().all(|(_, measured)| measured.kind == "zero");
    let figures = plan.policies.iter().enumerate().map(|(index, policy)| {
        let each =
            || those.iter().map(|(relation, measured)| (relation, measured, &measured.by_policy[index]));
        let stored = each()
            .map(|(relation, measured, one)| one.container_bytes(relation.pages(), measured.pages))
            .sum();
        let seconds = |of: fn(&measure::OnePolicy) -> f64| each().map(|(_, _, one)| of(one)).sum();
        Figures {
            algorithm: policy.choice.to_string(),
            bytes: stored,
            ratio: (!is_zero && stored > 0).then_some(bytes as f64 / stored as f64),
            compress_mb_s: speed(measured_pages, seconds(|one| one.records.encode.as_secs_f64()))
                .filter(|_| !is_zero),
            decompress_mb_s: speed(measured_pages, seconds(|one| one.records.decode.as_secs_f64()))
                .filter(|_| !is_zero),
            dictionary: each().any(|(_, _, one)| one.dictionary_bytes > 0),
        }
    });
    Measurements { pages, measured_pages, bytes, algorithms: figures.collect() }
}

fn speed(pages: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| (pages * PAGE_SIZE as u64) as f64 / seconds / 1e6)
}
