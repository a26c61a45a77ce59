//! A private server with the extension, and corpora in it as tables of jsonb.

use pgshrink_bench_report::Result;
use pgshrink_testkit::cluster::ClusterBuilder;
use pgshrink_testkit::corpora::{self, Corpus, Format};
use pgshrink_testkit::{Cluster, Server};

use crate::documents::Documents;

/// How much of each corpus is taken, in bytes of jsonb.
const FULL_BYTES: u64 = 24 << 20;
const QUICK_BYTES: u64 = 2 << 20;
/// Of the text of a corpus, in a run that is not `--full`.
const QUICK_TEXT_BYTES: usize = 6 << 20;

/// The server.
#[derive(Debug)]
pub struct Store {
    cluster: Cluster,
    full: bool,
}

/// A corpus that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Of the corpus.
    pub name: String,
    /// The unlogged table with the column `doc jsonb`, not compressed.
    pub table: String,
    /// What the corpus consists of.
    pub format: Format,
}

/// Settings of a server that is measured: nothing happens in it by itself, and one process answers a query.
pub fn builder() -> Result<ClusterBuilder> {
    let server = Server::with_extensions(15)?;
    Ok(Cluster::builder()
        .server(&server)
        .conf("max_wal_size", "16GB")
        .conf("checkpoint_timeout", "1h")
        .conf("autovacuum", "off")
        .conf("synchronize_seqscans", "off")
        .conf("jit", "off")
        .conf("max_parallel_workers_per_gather", 0)
        .fsync(true))
}

impl Store {
    /// A server without corpora yet.
    pub fn start(full: bool) -> Result<Store> {
        Store::start_as(builder()?.conf("shared_buffers", "1GB"), full)
    }

    /// The same with settings of its own.
    pub fn start_as(builder: ClusterBuilder, full: bool) -> Result<Store> {
        let cluster = builder.start()?;
        // The bytes of a jsonb behind its varlena header.
        cluster.sql("create extension zson; create cast (jsonb as bytea) without function")?;
        Ok(Store { cluster, full })
    }

    /// The server.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Every corpus, in the order of their names.
    pub fn corpora(&self) -> Result<Vec<Corpus>> {
        Ok(corpora::all()?)
    }

    /// Takes documents in from the whole length of a corpus, up to the size of this run.
    pub fn stage(&self, corpus: &Corpus) -> Result<Staged> {
        self.stage_up_to(corpus, if self.full { FULL_BYTES } else { QUICK_BYTES })
    }

    /// The same up to so many bytes of jsonb.
    pub fn stage_up_to(&self, corpus: &Corpus, bytes_max: u64) -> Result<Staged> {
        let (name, table) = (corpus.name.clone(), format!("staged_{}", corpus.name));
        self.load(corpus)?;
        let document = match corpus.format {
            Format::JsonLines => "(r).doc",
            Format::Csv => "to_jsonb(r)",
        };
        let step = self.step(&name, document, bytes_max)?;
        self.cluster.sql(&format!(
            "create unlogged table {table} (doc jsonb);
            alter table {table} alter doc set storage external;
            insert into {table} select {document}
              from (select t as r, row_number() over () as n from \"{name}\" t) numbered where n % {step} = 0;
            vacuum analyze {table};
            drop table \"{name}\""
        ))?;
        Ok(Staged { name, table, format: corpus.format })
    }

    /// One row of so many makes about `bytes_max`.
    fn step(&self, name: &str, document: &str, bytes_max: u64) -> Result<u64> {
        let found = self.cluster.sql(&format!(
            "select (select count(*) from \"{name}\")
              * (select avg(length({document}::bytea)) from (select t as r from \"{name}\" t limit 2000) beginning)
              / {bytes_max}"
        ))?;
        let times: f64 = found.parse().map_err(|_| format!("{name}: no size: {found}"))?;
        Ok((times.round() as u64).max(1))
    }

    fn load(&self, corpus: &Corpus) -> Result<()> {
        let mut text = corpus.prefix(if self.full { usize::MAX } else { QUICK_TEXT_BYTES })?;
        text.truncate(end_of_rows(&text, corpus.format));
        self.cluster.sql(&corpus.create_table()?)?;
        if corpus.format == Format::JsonLines {
            // What is compressed here would be copied as it is.
            self.cluster.sql(&format!("alter table \"{}\" alter doc set storage external", corpus.name))?;
        }
        self.cluster.psql().arg("-c").arg(corpus.copy_in()).input(text).run()?;
        Ok(())
    }

    /// The documents of a staged corpus.
    pub fn documents(&self, staged: &Staged) -> Result<Documents> {
        Documents::of(&self.cluster, &format!("select doc::bytea from {}", staged.table))
    }

    /// The first answer to `sql` as a number.
    pub fn number(&self, sql: &str) -> Result<f64> {
        let found = self.cluster.sql(sql)?;
        Ok(found.parse().map_err(|_| format!("not a number: {found}; asked with {sql}"))?)
    }
}

/// Where the last whole row of a text ends: at a line end that is not within quotes.
fn end_of_rows(text: &[u8], format: Format) -> usize {
    let (mut quoted, mut end) = (false, 0);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' if format == Format::Csv => quoted = !quoted,
            b'\n' if !quoted => end = at + 1,
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_ends_outside_of_quotes() {
        assert_eq!(end_of_rows(b"a,\"b\nc\"\nd,\"e\n", Format::Csv), 8);
        assert_eq!(end_of_rows(b"{\"a\n", Format::JsonLines), 4);
    }
}
