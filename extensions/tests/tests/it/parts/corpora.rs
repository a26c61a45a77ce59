//! The corpora, as documents.

use pgshrink_testkit::corpora::{self, Corpus, Format};
use pgshrink_testkit::or_skip;

use super::{arguments, compare, learn, stored_by};
use crate::databases::{Database, on_one_major};
use crate::documents::DIFFERENT;

/// Bytes of a corpus, documents of one at most.
const BYTES: usize = 1 << 20;
const DOCUMENTS: usize = 250;

#[test]
fn every_part_of_the_corpora_is_what_it_is_of_a_jsonb() {
    let test = "parts of the corpora";
    let all = or_skip!(test, corpora::all());
    on_one_major(test, |database| {
        for corpus in &all {
            let beside = Database::with_zson(database.cluster.server());
            check(&beside, corpus);
        }
    });
}

fn check(database: &Database, corpus: &Corpus) {
    let mut bytes = corpus.prefix(BYTES).unwrap();
    let (mut end, mut is_quoted) = (0, false);
    for (at, byte) in bytes.iter().enumerate() {
        is_quoted ^= *byte == b'"' && corpus.format == Format::Csv;
        if *byte == b'\n' && !is_quoted {
            end = at + 1;
        }
    }
    bytes.truncate(end);
    database.sql(&corpus.create_table().unwrap());
    database.psql().arg("-c").arg(corpus.copy_in()).input(bytes).run().unwrap();
    let document = match corpus.format {
        Format::Csv => "to_jsonb(c)",
        Format::JsonLines => "c.doc::jsonb",
    };
    database.sql(&format!(
        "create table t (id serial, was jsonb, doc zson);
        insert into t (was, doc) select d, d from (select {document} d from \"{}\" c limit {DOCUMENTS}) s",
        corpus.name
    ));
    learn(database, "t", "default");
    println!("{}: {} documents by their shape", corpus.name, stored_by(database, "t", "shapes"));
    assert_eq!(database.sql(DIFFERENT), "0", "{}", corpus.name);
    arguments(database, "t");
    compare(database, "t");
}
