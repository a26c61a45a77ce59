//! What the parts of pgshrink would make of a database, measured with their own engines on sampled pages and rows.
//!
//! Nothing here looks at a catalog's estimate of a ratio: pages go through the page codec of cfs ([`pages`]), rows as COPY text through a link of the
//! wire ([`wire`]), documents through the encoder of zson ([`documents`]), and pages through the chunk encoder of backups ([`backup`]). Where
//! pages could not be read they are made of rows ([`rows`]), and the result says so.
//!
//! ```text
//!   Sample.pages ───────────────┬──> pages: cfs, every algorithm ──> RelationCodecs.pages
//!   Sample.values ──> rows ─────┘            │
//!        │             └──> rebuild: the same rows in another arrangement ──> compressed: a Change
//!        ├──> copy ──> wire ──> RelationCodecs.wire
//!        └──> documents ──> RelationCodecs.documents, Retype to zson
//! ```
//!
//! Invariants:
//! 1. A damaged page or row is left out. It never ends the advice, and never counts as a small one.
//! 2. The same snapshot gives the same bytes. Only speeds depend on the machine, and there are none without a clock.
//! 3. No more is encoded than the [`Budget`] allows, however many relations there are.

pub mod backup;
pub mod copy;
pub mod documents;
pub mod pages;
pub mod rebuild;
pub mod rows;
pub mod toaster;
pub mod wire;

use std::time::Duration;

use pgshrink_cfs::page::{PageCodec, Policy, TransformPolicy};
use pgshrink_cfs::segment::PLAIN_PAGES_MAX;
use pgshrink_codec::{Algorithm, Choice, Level};

use crate::arrangement::Arrangement;
use crate::finding::{Change, CodecFigure, Object, RelationCodecs};
use crate::layout::heap::PAGE_BYTES;
use crate::report::shown;
use crate::snapshot::{Snapshot, Table};
use pages::{PageSet, Trained};

pub use rebuild::Compressed;

/// The time since some moment in the past, as the caller measures it. None: speeds are not measured.
pub type Clock<'c> = Option<&'c dyn Fn() -> Duration>;

/// Makes jsonb, without a varlena header, of a document's text. None: it is not JSON.
pub type Jsonb<'j> = &'j dyn Fn(&str) -> Option<Vec<u8>>;

/// What measuring gets from its caller.
#[derive(Clone, Copy, Default)]
pub struct Means<'m> {
    /// For speeds.
    pub clock: Clock<'m>,
    /// For documents that are not on raw pages. None: only those are measured.
    pub jsonb: Option<Jsonb<'m>>,
}

/// How much may be encoded for all relations together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Pages of one relation at most, for the default algorithm.
    pub default_pages: usize,
    /// Pages of one relation at most, where those of many others have taken most of what there is.
    pub relation_pages: usize,
    /// Pages on which other algorithms are compared with the first one.
    pub compared_pages: usize,
    /// Pages to encode in all, once for each method. At 25 microseconds a page, the default takes 13 seconds of one thread.
    pub encodings: u64,
    /// Bytes of COPY text of one table at most, for the default algorithm, and for each of the others.
    pub copy_bytes: [usize; 2],
    /// Bytes of COPY text to send in all, for all algorithms together.
    pub copy_bytes_total: u64,
    /// Bytes of documents of one column at most.
    pub document_bytes: usize,
    /// Bytes of documents to train on and encode in all.
    pub document_bytes_total: u64,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            default_pages: 4096,
            relation_pages: 384,
            compared_pages: 64,
            encodings: 500_000,
            copy_bytes: [32 << 20, 8 << 20],
            copy_bytes_total: 2 << 30,
            document_bytes: 8 << 20,
            document_bytes_total: 32 << 20,
        }
    }
}

impl Budget {
    /// Takes pages to encode out of the budget. False: so many are not left, and nothing was taken.
    pub fn take_encodings(&mut self, pages: usize) -> bool {
        let left = self.encodings.checked_sub(pages as u64);
        self.encodings = left.unwrap_or(self.encodings);
        left.is_some()
    }
}

/// What every codec makes of a database's relations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Codecs {
    /// The largest first.
    pub relations: Vec<RelationCodecs>,
    /// What was not measured, in words.
    pub notes: Vec<String>,
}

/// A way to store pages, with its name in reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mode {
    policy: Policy,
    has_dictionary: bool,
}

impl Mode {
    fn name(self) -> String {
        let columns = if self.policy.transform == TransformPolicy::Off { ", columns off" } else { "" };
        let is_usable = pgshrink_cfs::page::PageDictionary::usable_with(self.policy.choice);
        let dictionary = if is_usable && !self.has_dictionary { ", dictionary off" } else { "" };
        format!("{}{columns}{dictionary}", self.policy.choice)
    }

    /// Every algorithm with columns, and without; zstd also with columns and no dictionary.
    fn all() -> Vec<Mode> {
        let plain = [Algorithm::Lz4, Algorithm::Snappy, Algorithm::Pglz, Algorithm::Zlib, Algorithm::Lzfse];
        let zstd = [1, 3].map(|level| Choice { algorithm: Algorithm::Zstd, level: Level(level) });
        let choices: Vec<Choice> = plain.map(Choice::from).into_iter().chain(zstd).collect();
        let mode =
            |choice, transform, has_dictionary| Mode { policy: Policy { choice, transform }, has_dictionary };
        let with = choices.iter().map(|choice| mode(*choice, TransformPolicy::Auto, true));
        let without = choices.iter().filter(|choice| choice.algorithm == Algorithm::Zstd);
        let without = without.map(|choice| mode(*choice, TransformPolicy::Auto, false));
        let off = choices.iter().map(|choice| mode(*choice, TransformPolicy::Off, false));
        with.chain(without).chain(off).collect()
    }
}

/// A relation with pages to measure.
struct Relation<'s> {
    object: Object,
    bytes: u64,
    pages: &'s [crate::snapshot::sample::Page],
    /// Further ones, on which a server trains.
    training_pages: &'s [crate::snapshot::sample::Page],
    /// For a table: pages may be made of its rows, and it has COPY text.
    table: Option<&'s Table>,
}

/// Everything that the snapshot's samples allow, the largest relations first, for as long as the budget lasts.
pub fn measure(snapshot: &Snapshot, budget: &mut Budget, means: &Means<'_>) -> Codecs {
    let mut relations: Vec<Relation<'_>> = snapshot.tables.iter().flat_map(relations_of).collect();
    relations.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.object.cmp(&b.object)));
    let mut codecs = Codecs::default();
    let (mut unmeasured, mut unmeasured_bytes) = (0u64, 0u64);
    for relation in &relations {
        let found = one(relation, budget, means);
        if found.pages.is_empty() && found.wire.is_empty() && found.documents.is_empty() {
            unmeasured += 1;
            unmeasured_bytes = unmeasured_bytes.saturating_add(relation.bytes);
        } else {
            codecs.relations.push(found);
        }
    }
    if unmeasured > 0 {
        codecs.notes.push(format!(
            "Not measured with codecs: {}, {} in all. Pages and rows were not sampled, or larger relations used up the available time.",
            shown::counted(unmeasured, "relation", "relations"),
            shown::size(unmeasured_bytes)
        ));
    }
    codecs
}

fn one(relation: &Relation<'_>, budget: &mut Budget, means: &Means<'_>) -> RelationCodecs {
    let mut found =
        RelationCodecs { object: relation.object.clone(), bytes: relation.bytes, ..Default::default() };
    let total = relation.bytes.div_ceil(PAGE_BYTES as u64);
    let made;
    let mut set = PageSet::of(relation.pages, total, budget.default_pages).with(relation.training_pages);
    if let Some(table) = relation.table.filter(|_| set.is_empty()) {
        made = rebuild::from_rows(table);
        set = PageSet::made(&made, total, budget.default_pages);
        found.is_estimate = true;
    }
    let measured = figures(&set, budget, means.clock);
    let measured = measured.or_else(|| figures(&set.at_most(budget.relation_pages), budget, means.clock));
    found.pages = measured.unwrap_or_default();
    if let Some(table) = relation.table {
        (found.wire_bytes, found.wire) = wire::measure(table, budget, means.clock);
        found.documents = documents::measure(table, budget, means);
    }
    found
}

/// Every mode on the pages of a relation. None: there are none, or the budget is spent.
fn figures(set: &PageSet<'_>, budget: &mut Budget, clock: Clock<'_>) -> Option<Vec<CodecFigure>> {
    let modes = Mode::all();
    let compared = budget.compared_pages.min(set.len());
    let wide = budget.relation_pages.min(set.len());
    // The first policy without and with a dictionary, then all of them on a part.
    if set.is_empty() || !budget.take_encodings(2 * set.len() + 5 * wide + (modes.len() + 1) * compared) {
        return None;
    }
    let mut codec = PageCodec::new();
    let trained = Trained::of(set);
    let (records, dictionary) = trained.records(&mut codec, &Policy::default())?;
    let part = trained.compared(compared);
    let wide = trained.compared(wide);
    let mut based =
        |on: &PageSet<'_>| pages::compare(&mut codec, &Policy::default(), dictionary.as_ref(), on, None);
    let (base, wide_base) = (based(&part)?, based(&wide)?);
    let mut list = Vec::with_capacity(modes.len());
    for mode in modes {
        let how = mode.policy;
        // What an encoder learned of other methods is of no use here, and may mislead it.
        let mut codec = PageCodec::new();
        let is_fast = how.choice.algorithm == Algorithm::Lz4 && how.transform == TransformPolicy::Auto;
        let own = if mode.has_dictionary { trained.dictionary(&mut PageCodec::new(), &how) } else { None };
        if is_fast {
            // It learns from pages which ones are worth rearranging, and changes its mind for some time.
            pages::compare(&mut codec, &how, own.as_ref(), &wide, None)?;
        }
        let (part, base) = if is_fast { (&wide, &wide_base) } else { (&part, &base) };
        let found = pages::compare(&mut codec, &how, own.as_ref(), part, clock)?;
        let dictionary_bytes = own.map_or(0, |own| own.bytes().len() as u64);
        let is_first = how == Policy::default() && mode.has_dictionary;
        let scaled = records.scaled(base.bytes, found.bytes).with_dictionary(dictionary_bytes);
        let of_all = if is_first { records } else { scaled };
        list.push(CodecFigure {
            codec: mode.name(),
            bytes: of_all.container_bytes(set.total()),
            compress_mb_s: found.compress_mb_s,
            decompress_mb_s: found.decompress_mb_s,
        });
    }
    Some(list)
}

/// A table with its TOAST table and indexes.
fn relations_of(table: &Table) -> Vec<Relation<'_>> {
    let object = |kind: &str, part: Option<&str>| Object {
        kind: kind.to_owned(),
        schema: table.schema.clone(),
        name: table.name.clone(),
        part: part.map(str::to_owned),
    };
    let Some(sample) = &table.sample else { return Vec::new() };
    let of = |oid: u32| {
        let found = sample.other_pages.iter().find(|other| other.oid == oid);
        found.map_or(&[][..], |other| &other.pages[..])
    };
    let main = Relation {
        object: object("table", None),
        bytes: table.bytes.main,
        pages: &sample.pages,
        training_pages: &sample.training_pages,
        table: Some(table),
    };
    let toast = table.toast.map(|toast| Relation {
        object: object("toast", None),
        bytes: toast.bytes.main,
        pages: of(toast.oid),
        training_pages: &[],
        table: None,
    });
    let indexes = table.indexes.iter().map(|index| Relation {
        object: object("index", Some(&index.name)),
        bytes: index.bytes,
        pages: of(index.oid),
        training_pages: &[],
        table: None,
    });
    let all = [main].into_iter().chain(toast).chain(indexes);
    // Smaller files stay plain, and are too small to tell anything.
    all.filter(|relation| relation.bytes > u64::from(PLAIN_PAGES_MAX) * PAGE_BYTES as u64).collect()
}

/// Bytes of the table with its TOAST table and indexes in a compressed tablespace: now, and in this arrangement.
/// None: there is nothing to measure on. Of several arrangements of one table, [`Compressed`] measures what is there once.
pub fn compressed(table: &Table, arrangement: &Arrangement<'_>) -> Option<Change> {
    Compressed::of(table)?.change(arrangement)
}
