//! Documents as zson, beside all documents of the table encoded with a dictionary as zson_learn makes it.

use std::ops::ControlFlow;

use pgshrink_advisor::advise::{Options, advise};
use pgshrink_advisor::codecs::documents::Documents;
use pgshrink_advisor::codecs::{Budget, Means, documents};
use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::finding::Rule;
use pgshrink_advisor::rules;
use pgshrink_advisor::snapshot::Table;
use pgshrink_testkit::{Cluster, Seed, corpora, skipped};
use pgshrink_zson::training::{self, train};
use pgshrink_zson::{DictionaryId, Encoder, WritingDictionary};

use super::engine::off;
use super::pages::TABLES;
use super::taken::{self, Taking};

/// Mean bytes of a document's datum with its header: all of the table, dictionary from 20,000 of them.
fn real(images: &[&[u8]]) -> f64 {
    let step = images.len().div_ceil(20_000);
    let samples: Vec<&[u8]> = images.iter().step_by(step).copied().collect();
    let report = train(&samples, &training::Options::usual(), &mut |_| ControlFlow::Continue(())).unwrap();
    let codec = report.codec;
    let id = DictionaryId::new(1).unwrap();
    let writing = report.winner.map(|winner| WritingDictionary::new(id, &winner, codec).unwrap());
    let (mut encoder, mut bytes) = (Encoder::new(), 0);
    for image in images {
        let mut datum = Vec::new();
        encoder.encode(codec.choice, writing.as_ref(), image, &mut datum).unwrap();
        bytes += datum.len() + if datum.len() <= 126 { 1 } else { 4 };
    }
    bytes as f64 / images.len() as f64
}

fn compare(cluster: &Cluster, name: &str, percent: usize, seed: Seed) {
    let take = |percent| {
        let how = Taking { table: name, percent, least: 200, has_pages: true };
        taken::table(cluster, &mut seed.rng(), &how)
    };
    let (part, whole): (Table, Table) = (take(percent), take(100));
    let column = part.columns.iter().position(|column| column.name == "doc").unwrap();
    let means = Means::default();
    let all = Documents::of(&whole, column, &means).unwrap();
    let images: Vec<&[u8]> = all.images.iter().map(|(_, image)| &image[..]).collect();
    let sampled = Documents::of(&part, column, &means).unwrap();
    let encoded = sampled.encoded(&part.sample.as_ref().unwrap().rows).unwrap();
    assert_eq!(encoded.iter().flatten().count(), sampled.images.len() + sampled.lacking.len());
    // Those that are not on pages are guessed by the others.
    let bytes = sampled.images.iter().map(|(row, _)| encoded[*row].as_ref().unwrap().len() as f64);
    let (said, count) = (bytes.sum::<f64>() / sampled.images.len() as f64, sampled.images.len());
    let is = real(&images);
    let wrong = off((said * 1e3) as u64, (is * 1e3) as u64);
    println!("{name}: {count} of {} documents: {said:.1} bytes, is {is:.1}: {wrong:+.2} %", images.len());
    assert!(wrong.abs() < 5.0, "{name}: off by {wrong:.2} %, {seed:?}");
}

#[test]
fn documents_take_what_a_trained_column_takes_within_five_per_cent() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    compare(&cluster, "documents", 20, super::engine::seed());
    match corpora::find("osm_element") {
        Ok(corpus) => {
            corpus.load(&cluster).unwrap();
            cluster.sql("vacuum; checkpoint").unwrap();
            compare(&cluster, "osm_element", 20, super::engine::seed());
        }
        Err(missing) => skipped("real documents", &missing),
    }
}

#[test]
fn a_column_of_documents_is_proposed_as_zson_with_sizes_of_documents_that_no_dictionary_has_seen() {
    let cluster = Cluster::builder().major(15).start().unwrap();
    cluster.sql(TABLES).unwrap();
    let how = Taking { table: "documents", percent: 30, least: 200, has_pages: true };
    let table = taken::table(&cluster, &mut Seed(9).rng(), &how);
    let snapshot = super::pages::snapshot(vec![table.clone()]);
    let found = rules::zson::candidates(&snapshot, &table, &Means::default());
    let [candidate] = &found[..] else { panic!("{found:?}") };
    let [Edit::Retype(retype)] = &candidate.edits[..] else { panic!("{candidate:?}") };
    let sample = table.sample.as_ref().unwrap();
    assert_eq!(retype.images.len(), sample.rows.len());
    let stored: usize = sample.columns[retype.column].sizes.iter().map(|size| *size as usize).sum();
    let encoded: usize = retype.images.iter().flatten().map(Vec::len).sum();
    assert!(encoded * 2 < stored, "{encoded} of {stored}");
    assert_eq!(
        candidate.finding.sql,
        [
            "CREATE EXTENSION IF NOT EXISTS zson;",
            "SELECT zson_learn('public.documents', 'doc', 'documents');",
            "ALTER TABLE public.documents ALTER COLUMN doc TYPE zson('documents');"
        ]
    );
    let figures = documents::measure(&table, &mut Budget::default(), &Means::default());
    let [figure] = &figures[..] else { panic!("{figures:?}") };
    let of = |codec: &str| figure.codecs.iter().find(|found| found.codec.starts_with(codec)).unwrap().bytes;
    assert!(
        of("zstd:3, dictionary of") < of("zstd:3") && of("zstd:3") <= of("jsonb") && figure.documents > 100,
        "{figure:?}"
    );
    // The report has the table after the conversion, also where no finding says so.
    let of = |options: &Options| {
        let report = advise(&snapshot, options, None);
        let finding = report.findings.into_iter().find(|finding| finding.rule == Rule::Zson);
        let mut figures = report.codecs.into_iter().flat_map(|codecs| codecs.documents);
        (figures.next().unwrap().table.unwrap(), finding.map(|finding| finding.bytes.disk))
    };
    let (found, finding) = of(&Options::default());
    assert!(found.now == table.total_bytes() && found.after * 10 < found.now * 9, "{found:?}");
    assert_eq!(finding, Some(found));
    let skipped = Options { skipped: vec![Rule::Zson], ..Options::default() };
    assert_eq!(of(&skipped), (found, None));
    // Texts give the same documents where there is somebody who makes jsonb of them.
    let text = Taking { has_pages: false, ..how };
    let text = taken::table(&cluster, &mut Seed(9).rng(), &text);
    assert_eq!(Documents::of(&text, retype.column, &Means::default()), None);
    let same = |text: &str| Some(text.as_bytes().to_vec());
    let means = Means { jsonb: Some(&same), ..Means::default() };
    assert_eq!(
        Documents::of(&text, retype.column, &means).unwrap().images.len(),
        text.sample.unwrap().rows.len()
    );
}
