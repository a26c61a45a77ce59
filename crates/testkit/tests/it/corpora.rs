//! The corpora beside the checkout.

use std::io::Read;

use pgshrink_testkit::{Cluster, corpora, or_skip};

#[test]
fn a_corpus_loads_into_its_table_row_for_row() {
    let test = "a corpus loads into its table";
    let cluster = Cluster::builder().start().unwrap();
    for (name, rows) in [("airports", 1458), ("weather", 26115)] {
        let corpus = or_skip!(test, corpora::find(name));
        corpus.load(&cluster).unwrap();
        assert_eq!(cluster.sql(&format!("select count(*) from {name}")).unwrap(), rows.to_string());
    }
    let documents = or_skip!(test, corpora::find("windows_events"));
    documents.load(&cluster).unwrap();
    let lines = documents.bytes().unwrap().iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(cluster.sql("select count(doc) from windows_events").unwrap(), lines.to_string());
}

#[test]
fn a_prefix_is_the_start_of_the_stream() {
    let corpus = or_skip!("a prefix of a corpus", corpora::find("planes"));
    let mut whole = Vec::new();
    corpus.open().unwrap().read_to_end(&mut whole).unwrap();
    assert_eq!(corpus.bytes().unwrap(), whole);
    assert_eq!(corpus.prefix(1000).unwrap(), whole[..1000]);
}
