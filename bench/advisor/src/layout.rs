//! Layout: sizes that were predicted, and those of tables on which the SQL was run.

use crate::Bench;
use crate::lab::{Lab, list, number, text};
use pgshrink_bench_report::{Result, Table, Unit, Value};
use serde_json::Value as Json;

/// Of the table's real size.
const ERROR_PERCENT_MAX: f64 = 2.0;

/// Every table's proposal, all of its findings together.
///
/// # Errors
/// Those of the server and of the program.
pub fn proposals(bench: &Bench) -> Result<Table> {
    let lab = bench.lab()?;
    let advice = lab.advice()?;
    let about = "`pg_total_relation_size` of each table with a proposal: now, as `pgshrink advise` predicts it from a sample of at most 32 MB, and \
        after its script was run on a copy of the database and the table was vacuumed. `off`: predicted to found. Corpora are as \
        their schema has them; `r_…` are tables that each have something for a rule.";
    let columns = [
        ("table", Unit::Text),
        ("findings", Unit::Count),
        ("now", Unit::Bytes),
        ("predicted", Unit::Bytes),
        ("found", Unit::Bytes),
        ("off", Unit::Percent),
        ("saved", Unit::Percent),
    ];
    let mut table = Table::new("proposals", "Proposals: predicted and found", about, &columns);
    let mut judged = Judged::default();
    for proposal in list(&advice, "/proposals") {
        let statements: Vec<&str> =
            list(proposal, "/sql").iter().flat_map(|step| texts(step, "/statements")).collect();
        if statements.is_empty() {
            continue;
        }
        let followed = Followed::of(lab, proposal, &statements, "")?;
        let count = list(proposal, "/findings").len() as f64;
        table.push(followed.row(&mut judged, vec![followed.table.as_str().into(), count.into()]));
    }
    judged.verdicts(&mut table);
    lab.drop_copy()?;
    Ok(table)
}

/// Every finding that has SQL of its own, alone.
///
/// # Errors
/// Those of the server and of the program.
pub fn findings(bench: &Bench) -> Result<Table> {
    let lab = bench.lab()?;
    let advice = lab.advice()?;
    let about = "The same for every finding alone that saves bytes and has SQL. A finding of layout is measured without bloat: before its SQL is run, the copy's table is built \
        anew by VACUUM FULL (before that of `bloat`, its indexes by REINDEX). Findings that their proof query refutes on all rows are left out, as the script stops there. Rules of compressed pages and documents are in the table of codecs.";
    let columns = [
        ("table", Unit::Text),
        ("rule", Unit::Text),
        ("part", Unit::Text),
        ("now", Unit::Bytes),
        ("predicted", Unit::Bytes),
        ("found", Unit::Bytes),
        ("off", Unit::Percent),
        ("saved", Unit::Percent),
    ];
    let mut table = Table::new("findings", "Findings: predicted and found", about, &columns);
    let mut judged = Judged::default();
    for finding in list(&advice, "/findings") {
        let (rule, statements) = (text(finding, "/rule"), texts(finding, "/sql"));
        if statements.is_empty()
            || ["cfs", "zson"].contains(&rule)
            || number(finding, "/bytes/disk/now") == 0.0
        {
            continue;
        }
        if is_refuted(lab, finding)? {
            continue;
        }
        let before = match rule {
            "bloat" => "reindex table",
            "index_bloat" | "duplicate_index" | "unused_index" => "",
            _ => "vacuum full",
        };
        let followed = Followed::of(lab, finding, &statements, before)?;
        let first = vec![followed.table.as_str().into(), rule.into(), text(finding, "/object/part").into()];
        table.push(followed.row(&mut judged, first));
    }
    judged.verdicts(&mut table);
    prove(lab, &advice, &mut table)?;
    lab.drop_copy()?;
    Ok(table)
}

/// Whether its proof, on all rows, says that the finding does not hold: its SQL would fail.
fn is_refuted(lab: &Lab, finding: &Json) -> Result<bool> {
    match finding.pointer("/proof").and_then(Json::as_str) {
        Some(proof) => Ok(lab.sql("loaded", proof)? != "0"),
        None => Ok(false),
    }
}

/// Every finding about values has a proof. Those that it refutes are listed: other rows than the sampled ones do not fit them.
fn prove(lab: &Lab, advice: &Json, table: &mut Table) -> Result<()> {
    let (mut proved, mut refuted, mut without) = (0, Vec::new(), Vec::new());
    for finding in list(advice, "/findings") {
        let has_proof = finding.pointer("/proof").and_then(Json::as_str).is_some();
        if is_refuted(lab, finding)? {
            refuted.push(text(finding, "/id"));
        } else if has_proof {
            proved += 1;
        } else if ABOUT_VALUES.contains(&text(finding, "/rule")) {
            without.push(text(finding, "/id"));
        }
    }
    let list = |list: &[&str]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let found =
        format!("{proved} hold; refuted by their query: {}; without: {}", list(&refuted), list(&without));
    table.verdict(
        "findings about values come with the query that refutes them",
        "all",
        found,
        without.is_empty(),
    );
    Ok(())
}

/// Rules that look at values of sampled rows, so that other rows could refute them.
const ABOUT_VALUES: [&str; 3] = ["column_type", "constant_column", "document_keys"];

/// What came of advice that was followed.
struct Followed {
    table: String,
    now: f64,
    predicted: f64,
    found: f64,
}

impl Followed {
    /// Runs the statements on a copy. Numbers of a finding may be of one index: then the rest of the table is as it was.
    /// `before`: what is done to the table first, so that nothing else is found.
    fn of(lab: &Lab, advice: &Json, statements: &[&str], before: &str) -> Result<Followed> {
        let (schema, name) = (text(advice, "/object/schema"), text(advice, "/object/name"));
        let copy = lab.copy()?;
        if !before.is_empty() {
            lab.sql(copy, &format!("{before} \"{schema}\".\"{name}\"; vacuum \"{schema}\".\"{name}\""))?;
        }
        let now = lab.total_bytes(copy, schema, name)?;
        lab.sql(copy, &statements.join("\n"))
            .map_err(|error| format!("{schema}.{name}: {error}\n{}", statements.join("\n")))?;
        lab.sql(copy, "vacuum")?;
        let found = lab.total_bytes(copy, schema, name)?;
        let saved = number(advice, "/bytes/disk/now") - number(advice, "/bytes/disk/after");
        Ok(Followed { table: format!("{schema}.{name}"), now, predicted: now - saved, found })
    }

    fn off(&self) -> f64 {
        (self.predicted / self.found.max(1.0) - 1.0) * 100.0
    }

    fn row(&self, judged: &mut Judged, mut first: Vec<Value>) -> Vec<Value> {
        judged.add(self);
        let saved = (1.0 - self.found / self.now.max(1.0)) * 100.0;
        first.extend([self.now, self.predicted, self.found, self.off(), saved].map(Value::from));
        first
    }
}

/// How far predictions were off.
#[derive(Default)]
struct Judged {
    count: usize,
    close: usize,
    worst: f64,
    worst_of: String,
    costly: Vec<String>,
}

impl Judged {
    fn add(&mut self, followed: &Followed) {
        let off = followed.off();
        self.count += 1;
        self.close += usize::from(off.abs() <= ERROR_PERCENT_MAX);
        if off.abs() >= self.worst.abs() {
            (self.worst, self.worst_of) = (off, followed.table.clone());
        }
        if followed.found > followed.now {
            self.costly.push(followed.table.clone());
        }
    }

    fn verdicts(&self, table: &mut Table) {
        let found =
            format!("{} of {}; {:+.2} % at worst ({})", self.close, self.count, self.worst, self.worst_of);
        let met = self.count > 0 && self.close == self.count;
        table.verdict("predicted to real pg_total_relation_size", "within 2 % on every table", found, met);
        let found = if self.costly.is_empty() { "none".to_owned() } else { self.costly.join(", ") };
        table.verdict("advice that costs space", "none", found, self.costly.is_empty());
    }
}

/// Texts of a list.
fn texts<'v>(value: &'v Json, path: &str) -> Vec<&'v str> {
    list(value, path).iter().filter_map(Json::as_str).collect()
}
