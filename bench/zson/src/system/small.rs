//! A server whose buffers hold a small part of its tables.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use pgshrink_bench_report::Result;
use pgshrink_testkit::corpora;
use rustix::fs::{Advice, fadvise, fdatasync};

use super::load::Form;
use crate::store::{Store, builder};

/// The server and what is in it.
#[derive(Debug)]
pub struct Small {
    /// The server, with tables `(id, doc)` of each corpus in every live form.
    pub store: Store,
    /// Names of the corpora and how many documents each has.
    pub corpora: Vec<(String, u64)>,
    /// `shared_buffers`, as on the page.
    pub buffers: &'static str,
}

/// What is in the server, and what it may keep in its buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `shared_buffers`.
    pub buffers: &'static str,
    /// Bytes of jsonb at most, of each corpus.
    pub bytes_max: u64,
    /// Whether a smaller corpus is repeated until it has about so many.
    pub is_repeated: bool,
}

impl Small {
    /// Takes these corpora in.
    pub fn start(full: bool, names: &[&str], settings: Settings) -> Result<Small> {
        let buffers = settings.buffers;
        let builder = builder()?.conf("shared_buffers", buffers);
        // Loading does not need it to be small, but a cluster's settings are those it starts with.
        let store = Store::start_as(builder, full)?;
        let mut small = Small { store, corpora: Vec::new(), buffers };
        for name in names {
            small.load(name, settings)?;
        }
        Ok(small)
    }

    fn load(&mut self, name: &str, settings: Settings) -> Result<()> {
        let staged = self.store.stage_up_to(&corpora::find(name)?, settings.bytes_max)?;
        let bytes = self.store.number(&format!("select sum(length(doc::bytea)) from {}", staged.table))?;
        let times =
            if settings.is_repeated { (settings.bytes_max as f64 / bytes).round().max(1.0) } else { 1.0 };
        for form in Form::LIVE {
            let (cluster, table) = (self.store.cluster(), form.table(name));
            if matches!(form, Form::Zson | Form::ZsonZstd | Form::ZsonLz4) {
                form.learn(cluster, name, &staged.table)?;
            }
            cluster.sql(&format!(
                "drop table if exists {table}; create table {table} (id int, {});
                insert into {table} select row_number() over (), doc from {}, generate_series(1, {times});
                alter table {table} add primary key (id); vacuum analyze {table}",
                form.column(name),
                staged.table
            ))?;
        }
        self.store.cluster().sql(&format!("drop table {}; checkpoint", staged.table))?;
        let count = self.store.number(&format!("select count(*) from {}", Form::Zson.table(name)))?;
        self.corpora.push((name.to_owned(), count as u64));
        Ok(())
    }

    /// Bytes of a table with its TOAST.
    pub fn size(&self, form: Form, name: &str) -> Result<f64> {
        self.store.number(&format!("select pg_table_size('{}')", form.table(name)))
    }

    /// Reads all of a corpus' tables.
    pub fn warm(&self, name: &str) -> Result<()> {
        for form in Form::LIVE {
            self.store
                .cluster()
                .sql(&format!("select sum(length(doc->>'no such key')) from {}", form.table(name)))?;
        }
        Ok(())
    }

    /// Restarts the server with nothing of its tables in memory, neither in its buffers nor in the kernel's cache.
    pub fn forget(&self) -> Result<()> {
        let cluster = self.store.cluster();
        let database =
            cluster.sql("checkpoint; select oid from pg_database where datname = current_database()")?;
        cluster.stop(pgshrink_testkit::Stop::Fast)?;
        let folder = cluster.data_dir().join("base").join(database.trim());
        for entry in fs::read_dir(&folder)? {
            let file = File::open(entry?.path())?;
            // Only pages that are on disk are dropped.
            fdatasync(&file)?;
            fadvise(&file, 0, std::num::NonZeroU64::new(file.metadata()?.size()), Advice::DontNeed)?;
        }
        Ok(cluster.start()?)
    }
}
