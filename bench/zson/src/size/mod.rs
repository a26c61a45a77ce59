//! In-process tables: bytes and processor time of the codec.
//!
//! `payload` and `codec` are of zstd alone and of one training, which takes longer than either; `shapes` trains as
//! `zson_learn` does.

mod codec;
mod payload;
mod shapes;

use std::ops::ControlFlow;

use pgshrink_bench_report::{Result, Table};
use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::training::{Options, Report, train};
use pgshrink_zson::{Codec, Decoder, DictionaryId, Encoder, ReadingDictionary, WritingDictionary};

pub(crate) use payload::unhex;

use crate::documents::Documents;
use crate::store::Store;

/// Tables of this program.
pub const TABLES: [&str; 3] = ["shapes", "payload", "codec"];
/// Of zstd.
const LEVEL: i32 = 3;
/// What `zson_learn` samples of a column.
const SAMPLE_DOCUMENTS_MAX: usize = 20_000;
/// One document in so many is held out.
const HELD_OUT_ONE_IN: usize = 5;
/// Fewer documents than this say nothing about an average.
const JUDGED_DOCUMENTS_MIN: usize = 100;

/// A corpus, its documents divided.
struct Subject<'a> {
    name: &'a str,
    training: Vec<&'a [u8]>,
    held_out: Vec<&'a [u8]>,
}

/// What we write a corpus with, trained without the documents held out.
struct Ours {
    codec: Codec,
    /// Where the dictionary came from.
    kind: String,
    dictionary: Option<Dictionary>,
    prepared: Option<(WritingDictionary, ReadingDictionary)>,
}

/// Measures every corpus and fills those tables that are wanted.
pub fn tables(full: bool, wants: impl Fn(&str) -> bool) -> Result<Vec<Table>> {
    let store = Store::start(full)?;
    let mut shapes = wants("shapes").then(|| shapes::Shapes::new(full));
    let mut payloads = wants("payload").then(payload::Payloads::new);
    let mut times = wants("codec").then(|| codec::Times::new(full));
    for corpus in store.corpora()? {
        let staged = store.stage(&corpus)?;
        let documents = store.documents(&staged)?;
        let words = match &payloads {
            Some(_) => payload::words_of_original(&store, &staged)?,
            None => Vec::new(),
        };
        store.cluster().sql(&format!("drop table {}", staged.table))?;
        let subject = Subject::new(&corpus.name, &documents);
        if let Some(shapes) = &mut shapes {
            shapes.add(&subject, &documents)?;
        }
        if payloads.is_none() && times.is_none() {
            continue;
        }
        let ours = Ours::trained_for_zstd(&subject)?;
        if let Some(payloads) = &mut payloads {
            payloads.add(&subject, &ours, words)?;
        }
        if let Some(times) = &mut times {
            times.add(&subject, &ours)?;
        }
    }
    let tables = [
        shapes.map(shapes::Shapes::table),
        payloads.map(payload::Payloads::table),
        times.map(codec::Times::table),
    ];
    Ok(tables.into_iter().flatten().collect())
}

fn zstd() -> Result<Choice> {
    Ok(Choice::new(Algorithm::Zstd, LEVEL.into())?)
}

/// A corpus whose first third is trained on, and whose rest is held out.
fn first_third<'a>(name: &'a str, documents: &'a Documents) -> Subject<'a> {
    let third = documents.count() / 3;
    let training = sample(documents.iter().take(third).collect());
    Subject { name, training, held_out: documents.iter().skip(third).collect() }
}

/// As many as `zson_learn` takes, from the whole length.
fn sample(documents: Vec<&[u8]>) -> Vec<&[u8]> {
    let step = documents.len().div_ceil(SAMPLE_DOCUMENTS_MAX).max(1);
    documents.into_iter().step_by(step).collect()
}

/// Bytes of our datums, and what one has more than its jsonb at worst. Each is decoded again and compared.
fn our_bytes(documents: &[&[u8]], ours: &Ours) -> Result<(usize, i64)> {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
    let (mut datum, mut back) = (Vec::new(), Vec::new());
    let (mut bytes, mut above) = (0, i64::MIN);
    for document in documents {
        datum.clear();
        encoder.encode(ours.codec.choice, ours.writing(), document, &mut datum)?;
        bytes += datum.len();
        above = above.max(datum.len() as i64 - document.len() as i64);
        let Stored::Current(header) = parse(&datum)? else { return Err("a datum of version 0".into()) };
        back.resize(header.raw_len(), 0);
        decoder.decode(&header, ours.reading(), &mut back)?;
        if back != *document {
            return Err("another document came back".into());
        }
    }
    Ok((bytes, above))
}

impl<'a> Subject<'a> {
    fn new(name: &'a str, documents: &'a Documents) -> Subject<'a> {
        let (held_out, training): (Vec<_>, Vec<_>) =
            documents.iter().enumerate().partition(|(at, _)| at % HELD_OUT_ONE_IN == HELD_OUT_ONE_IN / 2);
        let [training, held_out] = [training, held_out]
            .map(|part| part.into_iter().map(|(_, document)| document).collect::<Vec<&[u8]>>());
        Subject { name, training: sample(training), held_out }
    }

    fn raw_bytes(&self) -> usize {
        self.held_out.iter().map(|document| document.len()).sum()
    }
}

impl Ours {
    fn of(codec: Codec, kind: String, dictionary: Option<Dictionary>) -> Result<Ours> {
        let id = DictionaryId::new(1).ok_or("no id")?;
        let prepared = match &dictionary {
            Some(made) => Some((WritingDictionary::new(id, made, codec)?, ReadingDictionary::new(id, made)?)),
            None => None,
        };
        Ok(Ours { codec, kind, dictionary, prepared })
    }

    /// What training has found best.
    fn chosen(report: Report) -> Result<Ours> {
        let kind = report.candidates[report.winner_index].kind.to_string();
        Ours::of(report.codec, kind, report.winner)
    }

    /// The best of the dictionaries that zstd uses alone.
    fn trained_for_zstd(subject: &Subject<'_>) -> Result<Ours> {
        let options = Options::new(zstd()?);
        Ours::chosen(train(&subject.training, &options, &mut |_| ControlFlow::Continue(()))?)
    }

    fn dictionary_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len())
    }

    /// How the page describes the dictionary.
    fn description(&self) -> String {
        match self.dictionary_bytes() {
            0 => self.kind.clone(),
            size => format!("{} {size}", self.kind),
        }
    }

    fn writing(&self) -> Option<&WritingDictionary> {
        self.prepared.as_ref().map(|(writing, _)| writing)
    }

    fn reading(&self) -> Option<&ReadingDictionary> {
        self.prepared.as_ref().map(|(_, reading)| reading)
    }
}
