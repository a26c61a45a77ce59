//! The corpora in a private server, asked for their rows as a client would.

use std::collections::HashSet;

use pgshrink_bench_report::Result;
use pgshrink_testkit::Cluster;
use pgshrink_testkit::corpora::{self, Corpus, Format};

use crate::session::Session;

/// Bytes of an answer in a run that is not `--full`.
const QUICK_SIZE_MAX: usize = 16 << 20;

/// How rows are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `COPY table TO STDOUT`.
    Copy,
    /// A row of one JSON document for each row of the table.
    Json,
}

/// A server that takes a corpus in when it is first asked for.
#[derive(Debug)]
pub struct Source {
    cluster: Cluster,
    loaded: HashSet<String>,
    size_max: usize,
}

impl Source {
    /// A server without corpora yet.
    pub fn start(full: bool) -> Result<Source> {
        let cluster = Cluster::builder()
            .conf("wal_level", "minimal")
            .conf("max_wal_senders", 0)
            .conf("max_wal_size", "4GB")
            .conf("autovacuum", "off")
            // A part of a table must be the same part each time.
            .conf("synchronize_seqscans", "off")
            .start()?;
        let size_max = if full { usize::MAX } else { QUICK_SIZE_MAX };
        Ok(Source { cluster, loaded: HashSet::new(), size_max })
    }

    /// Every corpus, in the order of their names.
    pub fn corpora(&self) -> Result<Vec<Corpus>> {
        Ok(corpora::all()?)
    }

    /// The server.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Takes a corpus in, the first time.
    pub fn load(&mut self, corpus: &Corpus) -> Result<()> {
        if self.loaded.insert(corpus.name.clone()) {
            corpus.load(&self.cluster)?;
        }
        Ok(())
    }

    /// What the server sends when asked for this corpus.
    pub fn answer(&mut self, corpus: &Corpus, form: Form) -> Result<Vec<u8>> {
        self.load(corpus)?;
        let table = &corpus.name;
        let sql = match (form, corpus.format) {
            (Form::Copy, _) => format!("copy \"{table}\" to stdout"),
            (Form::Json, Format::JsonLines) => format!("select doc from \"{table}\""),
            (Form::Json, Format::Csv) => format!("select row_to_json(t) from \"{table}\" t"),
        };
        Session::connect(self.cluster.port(), &[])?.query(&sql, self.size_max)
    }
}
