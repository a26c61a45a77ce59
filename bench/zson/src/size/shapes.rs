//! What training chooses, beside zstd with a dictionary: bytes, time, and a field that is read in place.

use std::collections::HashSet;

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_codec::Dictionary;
use pgshrink_zson::datum::{Method, Stored, parse};
use pgshrink_zson::shapes::Step;
use pgshrink_zson::training::{Options, train};
use pgshrink_zson::{Decoder, Encoder, ReadingDictionary};

use super::codec::{self, Passes, in_turn};
use super::{JUDGED_DOCUMENTS_MIN, Ours, Subject, first_third, our_bytes, zstd};
use crate::documents::Documents;
use crate::yardstick::{seconds, trained};

/// Of zstd's dictionary.
const ZSTD_DICTIONARY_BYTES: usize = 112 << 10;
/// Of ours.
const DICTIONARY_BYTES_MAX: usize = 256 << 10;
const SIZE_MAX: f64 = 1.0;
const FIRST_THIRD_MAX: f64 = 1.2;
const DECODE_MAX: f64 = 1.2;
const ENCODE_MAX: f64 = 1.5;
/// Of documents above [`LARGE_BYTES_MIN`] on average.
const ENCODE_LARGE_MAX: f64 = 2.0;
const LARGE_BYTES_MIN: f64 = 1024.0;
/// Where the flags and the count of a jsonb's container are, and the length of an entry.
const IS_OBJECT: u32 = 0x2000_0000;
const COUNT_MASK: u32 = 0x0fff_ffff;

/// A figure that is judged, its line, and the corpus.
type Judged = Vec<(f64, f64, String)>;

pub(super) struct Shapes {
    table: Table,
    rounds: usize,
    dictionary: Judged,
    size: Judged,
    first_third: Judged,
    decode: Judged,
    encode: Judged,
}

/// Bytes of datums to those of zstd's.
struct Sizes {
    zstd: usize,
    ours: usize,
}

/// Processor time beside that of zstd.
struct Times {
    encode: Samples,
    decode: Samples,
    /// Nanoseconds of a document.
    field: f64,
    zstd_decode: f64,
}

impl Shapes {
    pub(super) fn new(full: bool) -> Shapes {
        let about = "What `zson_learn` chooses of a column whose codec nobody has set, beside our datum of zstd:3 with a dictionary of 112 KiB \
            that zstd's trainer made of the same documents. Bytes of an average document that was held out (one in five), headers and check \
            sums included; each is decoded again and compared. `ratio`: to zstd. `by zstd`: the share of the held-out documents that the \
            chosen codec stores as zstd. `first third`: the same ratio where both were trained on the first third of the corpus and measured \
            on the rest; `to zstd of all`: where zstd's dictionary was trained on documents of the whole length instead. `encode`, `decode`: \
            processor time of whole documents to that of zstd, \
            round by round in turn. `field ns`: one value read in place, that of the document's first key, as a text, from the bytes of the datum on, \
            check sum included; documents that are stored as zstd are decoded for it. `zstd ns`: decoding a document of zstd, which a \
            field needs there. Corpora of fewer than 100 held-out documents are not judged.";
        let columns = [
            ("corpus", Unit::Text),
            ("documents", Unit::Count),
            ("jsonb", Unit::Average),
            ("zstd", Unit::Average),
            ("chosen", Unit::Average),
            ("its dictionary", Unit::Text),
            ("ratio", Unit::Ratio),
            ("by zstd", Unit::Ratio),
            ("first third", Unit::Ratio),
            ("to zstd of all", Unit::Ratio),
            ("encode", Unit::Ratio),
            ("decode", Unit::Ratio),
            ("field ns", Unit::Count),
            ("zstd ns", Unit::Count),
        ];
        let table = Table::new("shapes", "Shapes beside zstd", about, &columns);
        Shapes {
            table,
            rounds: if full { 15 } else { 5 },
            dictionary: Judged::new(),
            size: Judged::new(),
            first_third: Judged::new(),
            decode: Judged::new(),
            encode: Judged::new(),
        }
    }

    pub(super) fn add(&mut self, subject: &Subject<'_>, documents: &Documents) -> Result<()> {
        let (theirs, ours) = (zstd_trained(subject)?, chosen(subject)?);
        let sizes = Sizes::of(subject, &theirs, &ours)?;
        let early = first_third(subject.name, documents);
        let (early_zstd, early_ours) = (zstd_trained(&early)?, chosen(&early)?);
        let late = Sizes::of(&early, &early_zstd, &early_ours)?;
        let late_zstd_of_all = our_bytes(&early.held_out, &theirs)?.0;
        let times = Times::of(subject, &theirs, &ours, self.rounds)?;

        let count = subject.held_out.len().max(1) as f64;
        let jsonb = subject.raw_bytes() as f64 / count;
        if subject.held_out.len() >= JUDGED_DOCUMENTS_MIN {
            let name = subject.name.to_owned();
            let dictionary = ours.dictionary_bytes().max(early_ours.dictionary_bytes());
            self.dictionary.push((dictionary as f64, DICTIONARY_BYTES_MAX as f64, name.clone()));
            self.size.push((sizes.ratio(), SIZE_MAX, name.clone()));
            self.first_third.push((late.ratio(), FIRST_THIRD_MAX, name.clone()));
            self.decode.push((times.decode.median(), DECODE_MAX, name.clone()));
            let encode_max = if jsonb > LARGE_BYTES_MIN { ENCODE_LARGE_MAX } else { ENCODE_MAX };
            self.encode.push((times.encode.median(), encode_max, name));
        }
        self.table.row([
            subject.name.into(),
            subject.held_out.len().into(),
            jsonb.into(),
            (sizes.zstd as f64 / count).into(),
            (sizes.ours as f64 / count).into(),
            ours.description().into(),
            sizes.ratio().into(),
            share_of_zstd(subject, &ours)?.into(),
            late.ratio().into(),
            (late.ours as f64 / late_zstd_of_all as f64).into(),
            times.encode.spread(),
            times.decode.spread(),
            times.field.into(),
            times.zstd_decode.into(),
        ]);
        Ok(())
    }

    pub(super) fn table(mut self) -> Table {
        let lines = [
            ("dictionary that training chooses, bytes", "at most 262144", self.dictionary),
            ("held-out documents, what training chooses to zstd:3 with 112 KiB", "at most 1.0", self.size),
            ("the same, trained on the first third only", "at most 1.2", self.first_third),
            ("whole documents decoded, to zstd", "at most 1.2", self.decode),
            ("documents encoded, to zstd", "at most 1.5, above 1 KiB on average 2", self.encode),
        ];
        for (what, limit, found) in lines {
            let (found, met) = judge(found);
            self.table.verdict(what, limit, found, met);
        }
        self.table
    }
}

/// How many lie below their lines, and all that do not, the furthest first, or else what comes nearest.
fn judge(mut found: Judged) -> (String, bool) {
    found.sort_by(|(a, a_max, _), (b, b_max, _)| (b / b_max).total_cmp(&(a / a_max)));
    let missed = found.iter().filter(|(figure, max, _)| figure > max).count();
    let shown = |figure: f64| if figure >= 1000.0 { format!("{figure:.0}") } else { format!("{figure:.3}") };
    let worst: Vec<String> = found
        .iter()
        .take(missed.max(1))
        .map(|(figure, _, corpus)| format!("{} ({corpus})", shown(*figure)))
        .collect();
    let text = format!("{} of {} corpora; at worst {}", found.len() - missed, found.len(), worst.join(", "));
    (text, missed == 0 && !found.is_empty())
}

/// zstd:3, with a dictionary if its trainer makes one of so few documents.
fn zstd_trained(subject: &Subject<'_>) -> Result<Ours> {
    let dictionary = trained(&subject.training, ZSTD_DICTIONARY_BYTES).map(Dictionary::new).transpose()?;
    Ours::of(zstd()?.into(), "trained".to_owned(), dictionary)
}

/// What is written where nobody has set a codec.
fn chosen(subject: &Subject<'_>) -> Result<Ours> {
    Ours::chosen(train(&subject.training, &Options::usual(), &mut |_| std::ops::ControlFlow::Continue(()))?)
}

impl Sizes {
    fn of(subject: &Subject<'_>, zstd: &Ours, ours: &Ours) -> Result<Sizes> {
        let [zstd, ours] = [zstd, ours].map(|written| our_bytes(&subject.held_out, written));
        Ok(Sizes { zstd: zstd?.0, ours: ours?.0 })
    }

    fn ratio(&self) -> f64 {
        self.ours as f64 / self.zstd as f64
    }
}

fn share_of_zstd(subject: &Subject<'_>, ours: &Ours) -> Result<f64> {
    let (mut encoder, mut datum, mut count) = (Encoder::new(), Vec::new(), 0);
    for document in &subject.held_out {
        datum.clear();
        encoder.encode(ours.codec.choice, ours.writing(), document, &mut datum)?;
        let Stored::Current(header) = parse(&datum)? else { return Err("a datum of version 0".into()) };
        count += usize::from(header.method() == Method::Zstd);
    }
    Ok(count as f64 / subject.held_out.len().max(1) as f64)
}

impl Times {
    fn of(subject: &Subject<'_>, zstd: &Ours, ours: &Ours, rounds: usize) -> Result<Times> {
        let some = codec::some(&subject.held_out);
        let (mut first, mut second) = (codec::Codec::of(zstd), codec::Codec::of(ours));
        let mut fields = Fields { keys: first_keys(&some), ours, taken: Samples::default() };
        let (mut decoder, mut text) = (Decoder::new(), Vec::new());
        let (theirs, mine) = in_turn(
            rounds,
            |passes| first.pass(&some, passes),
            |passes| {
                second.pass(&some, passes)?;
                fields.pass(passes, &mut decoder, &mut text)
            },
        )?;
        let ns = |samples: &Samples| samples.median() * 1e9 / some.len().max(1) as f64;
        Ok(Times {
            encode: mine.encode.over(&theirs.encode),
            decode: mine.decode.over(&theirs.decode),
            field: ns(&fields.taken),
            zstd_decode: ns(&theirs.decode),
        })
    }
}

/// One field of each document.
struct Fields<'a> {
    /// Of each document; none if it is no object, or an empty one.
    keys: Vec<Option<&'a [u8]>>,
    ours: &'a Ours,
    taken: Samples,
}

impl Fields<'_> {
    /// Reads them from what `passes` has encoded.
    fn pass(&mut self, passes: &mut Passes, decoder: &mut Decoder, text: &mut Vec<u8>) -> Result<()> {
        let Passes { packed, target, .. } = passes;
        let (reading, keys) = (self.ours.reading(), &self.keys);
        let taken = seconds(|| {
            for (datum, key) in packed.iter().zip(keys) {
                text.clear();
                field(datum, *key, reading, decoder, target, text)?;
            }
            Ok(())
        })?;
        self.taken.push(taken);
        Ok(())
    }
}

fn field(
    datum: &[u8],
    key: Option<&[u8]>,
    reading: Option<&ReadingDictionary>,
    decoder: &mut Decoder,
    target: &mut [u8],
    text: &mut Vec<u8>,
) -> Result<()> {
    let Stored::Current(header) = parse(datum)? else { return Err("a datum of version 0".into()) };
    let view = match reading {
        Some(reading) => reading.view(&header)?,
        None => None,
    };
    let Some(view) = view else {
        return Ok(decoder.decode(&header, reading, &mut target[..header.raw_len()])?);
    };
    let Some(key) = key else { return Ok(()) };
    let value = view.next(view.root()?, Step::Key(key))?.ok_or("a key that is not found")?;
    view.text(value, text, decoder.scratch())?;
    Ok(())
}

/// The first key of each document. Equal ones are the same bytes in memory, as the key of a query is.
fn first_keys<'a>(documents: &[&'a [u8]]) -> Vec<Option<&'a [u8]>> {
    let mut known = HashSet::new();
    let mut one = |key: &'a [u8]| {
        known.insert(key);
        known.get(key).copied()
    };
    documents.iter().map(|document| first_key(document).and_then(&mut one)).collect()
}

/// The first key of an object, in its own order.
fn first_key(document: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(u32::from_le_bytes(*document.get(at..)?.first_chunk()?));
    let (head, entry) = (word(0)?, word(4)?);
    let keys_at = 4 + 8 * (head & COUNT_MASK) as usize;
    let is_pair = head & IS_OBJECT != 0 && head & COUNT_MASK != 0;
    document.get(keys_at..keys_at + (entry & COUNT_MASK) as usize).filter(|_| is_pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_found_in_the_bytes_of_a_jsonb() {
        // {"a": "x", "bc": "y"}
        let mut document = Vec::new();
        for word in [IS_OBJECT | 2, 0x8000_0001, 2, 1, 1] {
            document.extend_from_slice(&u32::to_le_bytes(word));
        }
        document.extend_from_slice(b"abcxy");
        assert_eq!(first_key(&document), Some(&b"a"[..]));
        assert_eq!(first_key(&IS_OBJECT.to_le_bytes()), None);
        assert_eq!(first_key(&[]), None);
    }

    #[test]
    fn what_is_missed_is_told_with_the_furthest_first() {
        let found = vec![(0.9, 1.0, "a".to_owned()), (1.1, 1.0, "b".to_owned()), (1.2, 1.0, "c".to_owned())];
        assert_eq!(judge(found), ("1 of 3 corpora; at worst 1.200 (c), 1.100 (b)".to_owned(), false));
        let met = vec![(0.9, 1.5, "a".to_owned()), (0.8, 1.0, "b".to_owned())];
        assert_eq!(judge(met), ("2 of 2 corpora; at worst 0.800 (b)".to_owned(), true));
    }
}
