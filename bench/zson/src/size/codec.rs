//! Processor time of a document by zstd, beside the bare calls.

use pgshrink_bench_report::{Result, Samples, Table, Unit};
use pgshrink_zson::datum::{Stored, parse};
use pgshrink_zson::{Decoder, Encoder};

use super::{LEVEL, Ours, Subject};
use crate::documents::Documents;
use crate::yardstick::{Bare, Digested, seconds};

/// How much slower than the bare call encoding may be.
const ENCODE_MAX: f64 = 1.3;
/// Bytes of documents in a round: enough for milliseconds.
const ROUND_BYTES: usize = 2 << 20;
/// Fewer bytes than this fit into the fastest caches, and are a handful of documents again and again.
const JUDGED_BYTES_MIN: usize = 64 << 10;

pub(super) struct Times {
    table: Table,
    rounds: usize,
    encode: Vec<(f64, String)>,
}

/// Processor seconds of passes over the documents, and what they write to.
#[derive(Default)]
pub(super) struct Passes {
    pub(super) encode: Samples,
    pub(super) decode: Samples,
    pub(super) packed: Documents,
    pub(super) target: Vec<u8>,
}

impl Times {
    pub(super) fn new(full: bool) -> Times {
        let about = "With codec zstd:3, set as such: no shapes. Processor time on the held-out documents in one process, contexts and digested dictionaries kept. `bare`: \
            ZSTD_compress2 and ZSTD_decompressDCtx with the dictionary that zson uses, referenced, magicless frames without check \
            sum. `encode` and `decode`: ours to bare, round by round in turn, check sums and headers included. Corpora of \
            less than 64 KiB held out are not judged.";
        let columns = [
            ("corpus", Unit::Text),
            ("jsonb", Unit::Bytes),
            ("bare encode ns", Unit::Count),
            ("bare decode ns", Unit::Count),
            ("encode", Unit::Ratio),
            ("decode", Unit::Ratio),
        ];
        let table = Table::new("codec", "Time of a document by zstd", about, &columns);
        Times { table, rounds: if full { 15 } else { 5 }, encode: Vec::new() }
    }

    pub(super) fn add(&mut self, subject: &Subject<'_>, ours: &Ours) -> Result<()> {
        let some = some(&subject.held_out);
        let dictionary = ours.dictionary.as_ref().map_or(&[][..], |dictionary| dictionary.bytes());
        let digested = Digested::new(dictionary, LEVEL);
        let mut bare = Bare::new(digested.as_ref(), LEVEL)?;
        let mut our = Codec::of(ours);
        let (theirs, mine) = in_turn(
            self.rounds,
            |passes| bare_pass(&mut bare, &some, passes),
            |passes| our.pass(&some, passes),
        )?;
        let (encode, decode) = (mine.encode.over(&theirs.encode), mine.decode.over(&theirs.decode));
        if some.iter().map(|document| document.len()).sum::<usize>() >= JUDGED_BYTES_MIN {
            self.encode.push((encode.median(), subject.name.to_owned()));
        }
        let ns = |samples: &Samples| samples.median() * 1e9 / some.len() as f64;
        self.table.row([
            subject.name.into(),
            (subject.raw_bytes() as f64 / subject.held_out.len().max(1) as f64).into(),
            ns(&theirs.encode).into(),
            ns(&theirs.decode).into(),
            encode.spread(),
            decode.spread(),
        ]);
        Ok(())
    }

    pub(super) fn table(mut self) -> Table {
        let judged = |mut found: Vec<(f64, String)>| {
            found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
            let met = found.iter().filter(|(ratio, _)| *ratio <= ENCODE_MAX).count();
            let (worst, corpus) = found.first().cloned().unwrap_or_default();
            let judged = format!("{met} of {} corpora; {worst:.3} at worst ({corpus})", found.len());
            (judged, met == found.len())
        };
        let (encode, met) = judged(self.encode);
        self.table.verdict("encoding to the bare zstd call, cached context", "at most 1.3", encode, met);
        self.table
    }
}

/// Runs both once for the caches, then in rounds, each beginning with the other.
pub(super) fn in_turn(
    rounds: usize,
    mut theirs: impl FnMut(&mut Passes) -> Result<()>,
    mut ours: impl FnMut(&mut Passes) -> Result<()>,
) -> Result<(Passes, Passes)> {
    let (mut first, mut second) = (Passes::default(), Passes::default());
    for round in 0..=rounds {
        if round % 2 == 0 {
            theirs(&mut first)?;
            ours(&mut second)?;
        } else {
            ours(&mut second)?;
            theirs(&mut first)?;
        }
        if round == 0 {
            first.forget();
            second.forget();
        }
    }
    Ok((first, second))
}

/// Documents for a round, from the whole length.
pub(super) fn some<'a>(documents: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let total: usize = documents.iter().map(|document| document.len()).sum();
    documents.iter().step_by(total.div_ceil(ROUND_BYTES).max(1)).copied().collect()
}

impl Passes {
    fn forget(&mut self) {
        self.encode = Samples::default();
        self.decode = Samples::default();
    }

    fn prepare(&mut self, documents: &[&[u8]]) {
        self.packed.clear();
        self.target.resize(documents.iter().map(|document| document.len()).max().unwrap_or(0), 0);
    }
}

fn bare_pass(bare: &mut Bare<'_>, documents: &[&[u8]], passes: &mut Passes) -> Result<()> {
    passes.prepare(documents);
    let Passes { encode, decode, packed, target } = passes;
    encode.push(seconds(|| {
        for document in documents {
            let frame = bare.compress(document)?;
            packed.push(|bytes| bytes.extend_from_slice(frame));
        }
        Ok(())
    })?);
    decode.push(seconds(|| {
        for frame in packed.iter() {
            bare.decompress(frame, target)?;
        }
        Ok(())
    })?);
    Ok(())
}

/// Our calls with contexts that are kept.
pub(super) struct Codec<'a> {
    ours: &'a Ours,
    encoder: Encoder,
    decoder: Decoder,
    datum: Vec<u8>,
}

impl<'a> Codec<'a> {
    pub(super) fn of(ours: &'a Ours) -> Codec<'a> {
        Codec { ours, encoder: Encoder::new(), decoder: Decoder::new(), datum: Vec::new() }
    }

    pub(super) fn pass(&mut self, documents: &[&[u8]], passes: &mut Passes) -> Result<()> {
        passes.prepare(documents);
        let Passes { encode, decode, packed, target } = passes;
        encode.push(seconds(|| {
            for document in documents {
                self.datum.clear();
                self.encoder.encode(
                    self.ours.codec.choice,
                    self.ours.writing(),
                    document,
                    &mut self.datum,
                )?;
                packed.push(|bytes| bytes.extend_from_slice(&self.datum));
            }
            Ok(())
        })?);
        decode.push(seconds(|| {
            for datum in packed.iter() {
                let Stored::Current(header) = parse(datum)? else {
                    return Err("a datum of version 0".into());
                };
                self.decoder.decode(&header, self.ours.reading(), &mut target[..header.raw_len()])?;
            }
            Ok(())
        })?);
        Ok(())
    }
}
