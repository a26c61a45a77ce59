//! Learning: from a column's documents to a dictionary that its profile is written with.
//!
//! Nothing is written with a dictionary before the transaction that made it is committed; see
//! [`Objects::newest_dictionary`](crate::catalog::Objects::newest_dictionary).
#![allow(unsafe_code)]

use pgshrink_codec::counted;
use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::ControlFlow;

use pgrx::pg_sys::{self, Datum};
use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_zson::training::{self, Kind, Options, Progress, Report, Shapes};
use pgshrink_zson::{Codec, memory};

use crate::backend::{default_codec, objects, parse_codec};
use crate::catalog::{DictionaryRow, Objects, text_datum};
use crate::column::{Column, Wanted};
use crate::error::{PgSqlErrorCode as Code, notice, raise, raise_core};
use crate::internal::{as_owner, check_interrupts, run};
use crate::profiles::{make, text_arg, to_hex};
use crate::query::Session;
use crate::sys::{self, bytes_of, check_name_len, copy_of, had, pg_function};

/// Words of the original's dictionaries at most.
const WORDS_MAX: usize = 65_534;
/// A new dictionary that somebody asked for has to save this share of the old one's bytes.
pub const GAIN_MIN_ASKED: f64 = 0.01;

pg_function! {
    /// `zson_learn(tables_and_columns text[][], max_examples, min_length, max_length, min_count)`.
    fn zson_learn_strings(fcinfo) {
        let places = pairs(sys::arg(fcinfo, 0));
        let words = WordRule {
            examples_max: positive(fcinfo, 1, "max_examples"),
            length_min: positive(fcinfo, 2, "min_length"),
            length_max: positive(fcinfo, 3, "max_length"),
            count_min: positive(fcinfo, 4, "min_count"),
        };
        let columns = places.iter().map(|(table, column)| Column::find(table, column)).collect();
        text_datum(&learn(columns, Some(words), GAIN_MIN_ASKED))
    }
    /// `zson_learn(table_name text, column_name text)`.
    fn zson_learn_column(fcinfo) {
        let column = Column::find(&sys::name_arg(fcinfo, 0), &sys::name_arg(fcinfo, 1));
        text_datum(&learn(vec![column], None, GAIN_MIN_ASKED))
    }
    /// `zson_learn(table_name text, column_name text, profile text, anew boolean)`: another profile than the
    /// column's, which the column may get later.
    fn zson_learn_profile(fcinfo) {
        let mut column = Column::find(&sys::name_arg(fcinfo, 0), &sys::name_arg(fcinfo, 1));
        let name = text_arg(fcinfo, 2);
        let objects = objects();
        column.profile = objects.profile_named(&name).unwrap_or_else(|| make(&objects, &name));
        let anew = sys::arg(fcinfo, 3).value() != 0;
        text_datum(&learn(vec![column], None, if anew { f64::NEG_INFINITY } else { GAIN_MIN_ASKED }))
    }
}

/// What the original's parameters mean: which strings make words, and of how many they are chosen.
#[derive(Clone, Copy)]
struct WordRule {
    examples_max: usize,
    length_min: usize,
    length_max: usize,
    count_min: usize,
}

/// Trains each profile that the columns have on its columns, and keeps what saves at least `gain_min`. Returns what
/// to report to the caller.
fn learn(columns: Vec<Column>, words: Option<WordRule>, gain_min: f64) -> String {
    let objects = objects();
    let mut session = Session::open();
    let mut profiles: Vec<(String, Vec<Column>)> = Vec::new();
    for column in columns {
        match profiles.iter_mut().find(|(name, _)| *name == column.profile.name) {
            Some((_, same)) => same.push(column),
            None => profiles.push((column.profile.name.clone(), vec![column])),
        }
    }
    let mut said = Vec::new();
    for (profile, columns) in profiles {
        // One learner of a database at a time: the second measures against what the first found.
        // SAFETY: the lock goes with the transaction.
        unsafe {
            pg_sys::LockRelationOid(objects.dictionary_table(), pg_sys::ShareUpdateExclusiveLock as c_int);
        }
        let wanted = Wanted {
            documents: usize::MAX,
            strings: words.map(|rule| rule.examples_max.div_ceil(columns.len())),
        };
        let mut samples = Vec::new();
        for column in &columns {
            let more = column.sample(&mut session, wanted);
            had(memory::reserve(&mut samples, more.len()));
            samples.extend(more);
        }
        let words = words.map_or(Vec::new(), |rule| frequent_strings(&samples, rule));
        let learnt =
            Learning { objects: &objects, profile: &profile, codec: columns[0].profile.codec.as_deref() };
        said.push(learnt.learn(&samples, words, gain_min));
    }
    said.join("\n")
}

/// A profile that is to learn.
struct Learning<'a> {
    objects: &'a Objects,
    profile: &'a str,
    codec: Option<&'a str>,
}

impl Learning<'_> {
    fn learn(&self, samples: &[Vec<u8>], words: Vec<Vec<u8>>, gain_min: f64) -> String {
        let Learning { objects, profile, codec } = *self;
        if samples.is_empty() {
            return format!(
                "Profile \"{profile}\": there are no documents to learn from; nothing has changed."
            );
        }
        let trained = Trained::of(objects, profile, codec, samples, words);
        if trained.is_off() {
            return format!(
                "Profile \"{profile}\": its codec is none, which has no dictionaries; nothing has changed."
            );
        }
        if trained.report.holdout_documents == 0 {
            return format!(
                "Profile \"{profile}\": {} documents are too few to learn from, or all alike: \
                 none is left to test a dictionary on; nothing has changed.",
                samples.len()
            );
        }
        if !trained.is_worth(gain_min) {
            return format!(
                "Profile \"{profile}\" is not changed: the best dictionary found would save {:.1} % of the \
                 bytes of {} documents it was not trained on.",
                trained.gain().max(0.0) * 100.0,
                trained.report.holdout_documents
            );
        }
        trained.store(objects, profile)
    }
}

/// What training found for a profile, and what it has now.
pub struct Trained {
    /// Of the core.
    pub report: Report,
    choice: Choice,
    is_shapes_wanted: bool,
    incumbent: Option<DictionaryRow>,
}

impl Trained {
    /// Trains on `samples`, with a notice for each candidate.
    pub fn of(
        objects: &Objects,
        profile: &str,
        codec: Option<&str>,
        samples: &[Vec<u8>],
        words: Vec<Vec<u8>>,
    ) -> Trained {
        let (incumbent, own) = objects.newest_dictionary(profile);
        if own {
            raise(
                Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("zson: this transaction has already trained profile \"{profile}\""),
                "A dictionary can be used, and compared with others, only after it is committed.",
                "Commit first.",
            );
        }
        let given = codec.map(parse_codec);
        let before = incumbent.as_ref().map(|row| parse_codec(&row.codec));
        let codec = given.or(before).unwrap_or_else(default_codec);
        let choice = codec.choice;
        let mut options = Options::new(choice);
        options.words = words;
        options.shapes = match given {
            None => Shapes::IfBest,
            Some(Codec { is_shapes: true, .. }) => Shapes::Only,
            Some(_) => Shapes::Never,
        };
        // A profile that is turned off is measured without its dictionary, as it is written.
        let used = incumbent.as_ref().filter(|_| choice.algorithm != Algorithm::None);
        let known = used.and_then(|row| row.content.clone()).and_then(|bytes| Dictionary::new(bytes).ok());
        options.incumbent = known.map(|dictionary| (dictionary, codec));
        let mut last = None;
        let report = training::train(samples, &options, &mut |progress| {
            say(profile, samples.len(), &mut last, progress);
            check_interrupts();
            ControlFlow::Continue(())
        })
        .unwrap_or_else(|error| raise_core(&error));
        Trained { report, choice, is_shapes_wanted: given.is_some_and(|codec| codec.is_shapes), incumbent }
    }

    /// Whether the profile's codec is none.
    pub fn is_off(&self) -> bool {
        self.choice.algorithm == Algorithm::None
    }

    /// Whether the winner is to be kept: it saves this share of the bytes, or is the first of shapes where they are wanted.
    pub fn is_worth(&self, gain_min: f64) -> bool {
        self.gain() >= gain_min || self.is_first_of_shapes()
    }

    /// Whether the profile is to be written by shapes, and has had none.
    fn is_first_of_shapes(&self) -> bool {
        let has_shapes = |row: &DictionaryRow| parse_codec(&row.codec).is_shapes;
        self.is_shapes_wanted
            && self.report.codec.is_shapes
            && !self.incumbent.as_ref().is_some_and(has_shapes)
    }

    /// Bytes of the held-out documents as the profile writes them now.
    fn before(&self) -> u64 {
        self.report.incumbent_bytes.unwrap_or_else(|| self.report.none_bytes())
    }

    /// The share of them that the winner saves.
    pub fn gain(&self) -> f64 {
        let before = self.before();
        if before == 0 { 0.0 } else { 1.0 - self.report.winner_bytes() as f64 / before as f64 }
    }

    /// Makes the winner the profile's. Returns what to tell the caller.
    pub fn store(&self, objects: &Objects, profile: &str) -> String {
        let report = &self.report;
        let hash = report.winner.as_ref().map_or_else(Vec::new, |dictionary| dictionary.hash().to_vec());
        let candidate = report.candidates[report.winner_index];
        let codec = report.codec.to_string();
        if self.incumbent.as_ref().is_some_and(|row| row.hash == hash && row.codec == codec) {
            return format!(
                "Profile \"{profile}\" is not changed: training came to the dictionary that it has."
            );
        }
        let content = report.winner.as_ref().map(|dictionary| to_hex(dictionary.bytes()));
        as_owner(objects.owner, || {
            let (table, bytes) =
                (objects.qualified("zson_dictionary"), objects.qualified("zson_dictionary_bytes"));
            run(
                &format!(
                    "INSERT INTO {table} VALUES (0, $1, pg_catalog.clock_timestamp(), $2, $3, $4, $5, $6, $7, \
                     $8, $9, $10::{bytes})"
                ),
                &[
                    profile.into(),
                    codec.into(),
                    candidate.kind.name().into(),
                    (candidate.size as i32).into(),
                    hash.into(),
                    (report.holdout_documents as i64).into(),
                    (report.holdout_raw_bytes as i64).into(),
                    (self.before() as i64).into(),
                    (report.winner_bytes() as i64).into(),
                    content.into(),
                ],
            );
        });
        self.said(profile, candidate.kind, candidate.size)
    }

    fn said(&self, profile: &str, kind: Kind, size: usize) -> String {
        let report = &self.report;
        let what = match kind {
            Kind::None => "compression without a dictionary is best".to_owned(),
            kind => format!("a new dictionary of {size} bytes ({})", kind.name()),
        };
        let times = |bytes: u64| report.holdout_raw_bytes as f64 / bytes.max(1) as f64;
        let instead = if self.incumbent.is_some() { "the previous one" } else { "no dictionary" };
        format!(
            "Profile \"{profile}\": {what}. {} {:.2} times smaller \
             than jsonb, with {instead} {:.2} times. New documents use it once this is committed; \
             zson_reencode re-encodes old ones.",
            counted(
                report.holdout_documents as u64,
                "document it was not trained on is",
                "documents it was not trained on are"
            ),
            times(report.winner_bytes()),
            times(self.before())
        )
    }
}

fn say(profile: &str, samples: usize, last: &mut Option<usize>, progress: Progress) {
    if *last == Some(progress.done) || progress.done == progress.total {
        return;
    }
    *last = Some(progress.done);
    let what = match progress.kind {
        Kind::None => "without a dictionary".to_owned(),
        kind if progress.size == 0 => kind.name().to_owned(),
        kind => format!("{}, {} bytes", kind.name(), progress.size),
    };
    let (step, total) = (progress.done + 1, progress.total);
    let samples = counted(samples as u64, "sample", "samples");
    notice(format!("zson: profile \"{profile}\", {samples}, {step} of {total}: {what}"), "");
}

/// The most frequent strings of the samples, the most frequent first.
fn frequent_strings(samples: &[Vec<u8>], rule: WordRule) -> Vec<Vec<u8>> {
    let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut left = rule.examples_max;
    for sample in samples {
        // SAFETY: a jsonb behind its varlena header, made here.
        unsafe {
            let jsonb = crate::value::new_varlena(sample);
            crate::inspect::strings_of(jsonb, &mut |text| {
                if left > 0 {
                    left -= 1;
                    if let Some(count) = counts.get_mut(text) {
                        *count += 1;
                    } else {
                        let more = counts.try_reserve(1);
                        had(more.map_err(|_| memory::lacking::<(Vec<u8>, usize)>(counts.len())));
                        counts.insert(copy_of(text), 1);
                    }
                }
            });
            pg_sys::pfree(jsonb.cast_mut_ptr());
        }
    }
    let fits = |text: &[u8]| {
        let length = characters(text);
        (rule.length_min..=rule.length_max).contains(&length)
    };
    let mut words: Vec<(Vec<u8>, usize)> = had(memory::collect(
        counts.into_iter().filter(|(text, count)| *count >= rule.count_min && fits(text)),
    ));
    // In place: a stable sort would take memory.
    words.sort_unstable_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then_with(|| a.cmp(b)));
    words.truncate(WORDS_MAX);
    had(memory::collect(words.into_iter().map(|(text, _)| text)))
}

/// Characters of a text in the database's encoding.
fn characters(text: &[u8]) -> usize {
    // SAFETY: pointer and length are of one string.
    unsafe { pg_sys::pg_mbstrlen_with_len(text.as_ptr().cast(), text.len() as c_int) as usize }
}

/// Argument `n`, which has to be a positive number.
unsafe fn positive(fcinfo: pg_sys::FunctionCallInfo, n: usize, name: &str) -> usize {
    // SAFETY: by the caller.
    let found = unsafe { sys::int4_arg(fcinfo, n, 0) };
    match usize::try_from(found) {
        Ok(value) if value > 0 => value,
        _ => raise(
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("zson: {name} must be at least 1, is {found}"),
            "",
            "",
        ),
    }
}

/// The rows of an array of tables and columns.
unsafe fn pairs(array: Datum) -> Vec<(Vec<u8>, Vec<u8>)> {
    // SAFETY: the argument is an array of texts.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        let dimensions = array.cast::<c_int>().add(size_of::<pg_sys::ArrayType>() / size_of::<c_int>());
        let shaped = (*array).ndim == 2 && *dimensions.add(1) == 2;
        let (mut elements, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        let align = pg_sys::TYPALIGN_INT as std::ffi::c_char;
        pg_sys::deconstruct_array(
            array,
            pg_sys::TEXTOID,
            -1,
            false,
            align,
            &mut elements,
            &mut nulls,
            &mut count,
        );
        let count = count as usize;
        if !shaped || (0..count).any(|at| *nulls.add(at)) {
            raise(
                Code::ERRCODE_INVALID_PARAMETER_VALUE,
                "zson: tables_and_columns must be pairs of a table and a column",
                "",
                "For example '{{event,doc},{audit,payload}}'.",
            );
        }
        let text = |at: usize| {
            let name = bytes_of((*elements.add(at)).cast_mut_ptr());
            check_name_len(name);
            copy_of(name)
        };
        had(memory::collect((0..count / 2).map(|pair| (text(2 * pair), text(2 * pair + 1)))))
    }
}
