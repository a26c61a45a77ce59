//! Bytes of documents that no dictionary was made of.

use pgshrink_bench_report::{Result, Table, Unit};
use pgshrink_bench_rivals::zson1::{WORDS_MAX, Words};
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::legacy;

use super::{JUDGED_DOCUMENTS_MIN, LEVEL, Ours, Subject, our_bytes};
use crate::store::{Staged, Store};
use crate::yardstick;

/// Bytes more than the bare frame that a document may cost on average, and more than jsonb at worst.
const MORE_MAX: f64 = 8.0;

pub(super) struct Payloads {
    table: Table,
    /// Average bytes more than the bare frame, with the corpus.
    more: Vec<(f64, String)>,
    /// Bytes more than jsonb at worst.
    above_jsonb: i64,
}

impl Payloads {
    pub(super) fn new() -> Payloads {
        let about = "With codec zstd:3, set as such: no shapes. Bytes of an average document that was held out from every training (one in five), without varlena headers. \
            `bare`: a magicless zstd:3 frame without content size, check sum and dictionary id, with the best of zstd's trained \
            dictionaries of 4 to 112 KiB, chosen by looking at these very documents. `zson`: our datum, headers and check sum \
            included, zstd:3, with the dictionary that training chose without having seen them. `more`: zson less bare. \
            `above jsonb`: zson less jsonb of the document where that is most. `zson 1.1`: the original's datum with a \
            dictionary of the up to 65 534 most frequent strings of the whole training part; its own default looks at 10 000 \
            strings only. Corpora of fewer than 100 held-out documents are not judged.";
        let columns = [
            ("corpus", Unit::Text),
            ("documents", Unit::Count),
            ("jsonb", Unit::Average),
            ("zson 1.1", Unit::Average),
            ("bare", Unit::Average),
            ("its dictionary", Unit::Bytes),
            ("zson", Unit::Average),
            ("its dictionary", Unit::Text),
            ("more", Unit::Average),
            ("above jsonb", Unit::Bytes),
        ];
        let table = Table::new("payload", "Bytes of a document by zstd", about, &columns);
        Payloads { table, more: Vec::new(), above_jsonb: i64::MIN }
    }

    pub(super) fn add(&mut self, subject: &Subject<'_>, ours: &Ours, words: Vec<Vec<u8>>) -> Result<()> {
        let count = subject.held_out.len().max(1) as f64;
        let best = yardstick::best(&subject.training, &subject.held_out, LEVEL)?;
        let (bytes, above) = our_bytes(&subject.held_out, ours)?;
        let original = original_bytes(subject, words)?;
        let more = (bytes as f64 - best.bytes as f64) / count;
        if subject.held_out.len() >= JUDGED_DOCUMENTS_MIN {
            self.more.push((more, subject.name.to_owned()));
        }
        self.above_jsonb = self.above_jsonb.max(above);
        self.table.row([
            subject.name.into(),
            subject.held_out.len().into(),
            (subject.raw_bytes() as f64 / count).into(),
            (original as f64 / count).into(),
            (best.bytes as f64 / count).into(),
            best.dictionary.len().into(),
            (bytes as f64 / count).into(),
            ours.description().into(),
            more.into(),
            (above as f64).into(),
        ]);
        Ok(())
    }

    pub(super) fn table(mut self) -> Table {
        self.more.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let met = self.more.iter().filter(|(more, _)| *more <= MORE_MAX).count();
        if let Some((worst, corpus)) = self.more.first() {
            self.table.verdict(
                "payload of held-out documents over a magicless zstd:3 frame with the best dictionary",
                "at most 8 bytes more per document",
                format!("{met} of {} corpora; {worst:+.1} at worst ({corpus})", self.more.len()),
                met == self.more.len(),
            );
        }
        self.table.verdict(
            "payload of any document over jsonb",
            "at most 8 bytes more",
            format!("{:+} at worst", self.above_jsonb),
            self.above_jsonb as f64 <= MORE_MAX,
        );
        self.table
    }
}

/// Bytes of the original's datums, which our reader of them has to read.
fn original_bytes(subject: &Subject<'_>, words: Vec<Vec<u8>>) -> Result<usize> {
    let reader = legacy::Words::new((1..).zip(words.iter().cloned()))?;
    let writer = Words::new(words);
    let (mut datum, mut back, mut bytes) = (Vec::new(), Vec::new(), 0);
    for document in &subject.held_out {
        datum.clear();
        writer.encode(1, document, &mut datum);
        bytes += datum.len();
        let Stored::Legacy(found) = parse(&datum)? else { return Err("not a datum of version 0".into()) };
        back.resize(found.raw_len(), 0);
        reader.decode(&found, &mut back)?;
        if back != *document {
            return Err("zson 1.1: another document came back".into());
        }
    }
    Ok(bytes)
}

/// What the original's `zson_learn` makes words of, in its order, from all but the documents held out.
pub(super) fn words_of_original(store: &Store, staged: &Staged) -> Result<Vec<Vec<u8>>> {
    let printed = store.cluster().sql(&format!(
        "select encode(convert_to(word, 'UTF8'), 'hex') from (
            select word, count(*) as times from
              (select doc, row_number() over () - 1 as n from {}) numbered, unnest(zson_extract_strings(doc)) word
            where n % {} <> {} and length(word) between 2 and 128
            group by word having count(*) >= 2 order by times desc, word limit {WORDS_MAX}) words",
        staged.table,
        super::HELD_OUT_ONE_IN,
        super::HELD_OUT_ONE_IN / 2,
    ))?;
    printed.lines().map(unhex).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(digits: &str) -> Result<Vec<u8>> {
    let byte = |at: usize| -> Result<u8> {
        Ok(u8::from_str_radix(digits.get(at..at + 2).ok_or("half a byte")?, 16)?)
    };
    (0..digits.len()).step_by(2).map(byte).collect()
}
