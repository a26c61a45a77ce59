//! In-process tables: bytes and processor time of the codec.
//!
//! Both are made of the same training, which takes longer than either.

mod codec;
mod payload;

use std::ops::ControlFlow;

use pgshrink_bench_report::{Result, Table};
use pgshrink_codec::{Algorithm, Choice};
use pgshrink_zson::training::{Options, Report, train};
use pgshrink_zson::{DictionaryId, ReadingDictionary, WritingDictionary};

pub(crate) use payload::unhex;

use crate::documents::Documents;
use crate::store::Store;

/// Tables of this program.
pub const TABLES: [&str; 2] = ["payload", "codec"];
/// What documents are written with unless somebody says otherwise.
const LEVEL: i32 = 3;
/// What `zson_learn` samples of a column.
const SAMPLE_DOCUMENTS_MAX: usize = 20_000;
/// One document in so many is held out.
const HELD_OUT_ONE_IN: usize = 5;

/// A corpus, its documents divided.
struct Subject<'a> {
    name: &'a str,
    training: Vec<&'a [u8]>,
    held_out: Vec<&'a [u8]>,
}

/// What we write a corpus with, trained without the documents held out.
struct Ours {
    choice: Choice,
    report: Report,
    dictionaries: Option<(WritingDictionary, ReadingDictionary)>,
}

/// Measures every corpus and fills the tables.
pub fn tables(full: bool) -> Result<Vec<Table>> {
    let store = Store::start(full)?;
    let (mut payloads, mut times) = (payload::Payloads::new(), codec::Times::new(full));
    for corpus in store.corpora()? {
        let staged = store.stage(&corpus)?;
        let documents = store.documents(&staged)?;
        let words = payload::words_of_original(&store, &staged)?;
        store.cluster().sql(&format!("drop table {}", staged.table))?;
        let subject = Subject::new(&corpus.name, &documents);
        let ours = Ours::train(&subject)?;
        payloads.add(&subject, &ours, words)?;
        times.add(&subject, &ours)?;
    }
    Ok(vec![payloads.table(), times.table()])
}

impl<'a> Subject<'a> {
    fn new(name: &'a str, documents: &'a Documents) -> Subject<'a> {
        let (held_out, training): (Vec<_>, Vec<_>) =
            documents.iter().enumerate().partition(|(at, _)| at % HELD_OUT_ONE_IN == HELD_OUT_ONE_IN / 2);
        let [mut training, held_out] = [training, held_out]
            .map(|part| part.into_iter().map(|(_, document)| document).collect::<Vec<&[u8]>>());
        let step = training.len().div_ceil(SAMPLE_DOCUMENTS_MAX).max(1);
        training = training.into_iter().step_by(step).collect();
        Subject { name, training, held_out }
    }

    fn raw_bytes(&self) -> usize {
        self.held_out.iter().map(|document| document.len()).sum()
    }
}

impl Ours {
    fn train(subject: &Subject<'_>) -> Result<Ours> {
        let choice = Choice::new(Algorithm::Zstd, LEVEL.into())?;
        let report = train(&subject.training, &Options::new(choice), &mut |_| ControlFlow::Continue(()))?;
        let id = DictionaryId::new(1).ok_or("no id")?;
        let dictionaries = match &report.winner {
            Some(winner) => {
                Some((WritingDictionary::new(id, winner, choice)?, ReadingDictionary::new(id, winner)?))
            }
            None => None,
        };
        Ok(Ours { choice, report, dictionaries })
    }

    /// How the page describes the dictionary.
    fn description(&self) -> String {
        let winner = self.report.candidates[self.report.winner_index];
        match winner.size {
            0 => winner.kind.to_string(),
            size => format!("{} {}", winner.kind, size),
        }
    }

    fn writing(&self) -> Option<&WritingDictionary> {
        self.dictionaries.as_ref().map(|(writing, _)| writing)
    }

    fn reading(&self) -> Option<&ReadingDictionary> {
        self.dictionaries.as_ref().map(|(_, reading)| reading)
    }
}
