//! A server with corpora and tables for the rules, and advice on it.

use pgshrink_bench_report::{Result, checkout};
use pgshrink_testkit::corpora;
use pgshrink_testkit::{Cluster, Server};
use serde_json::Value;
use std::process::Command;

/// Tables that each have something for a rule.
const RULES: &str = include_str!("sql/rules.sql");
/// Of a corpus, in a run that is not `--full`.
const QUICK_BYTES: usize = 8 << 20;
/// The database that is looked at.
const LOADED: &str = "loaded";

/// The server.
#[derive(Debug)]
pub struct Lab {
    cluster: Cluster,
}

impl Lab {
    /// Starts it and loads everything.
    pub fn start(full: bool) -> Result<Lab> {
        let server = Server::with_extensions(15)?;
        let builder = Cluster::builder()
            .server(&server)
            .conf("shared_preload_libraries", "cfs")
            .conf("shared_buffers", "1GB")
            .conf("max_wal_size", "16GB")
            .conf("checkpoint_timeout", "1h")
            .conf("autovacuum", "off")
            // Dictionaries are trained in the background: soon, and of several tables at a time.
            .conf("cfs.gc_period", "100ms")
            .conf("cfs.gc_workers", "2")
            .conf("jit", "off");
        let cluster = builder.start()?;
        cluster.sql("create database loaded")?;
        let lab = Lab { cluster };
        for corpus in corpora::all()? {
            let bytes = corpus.prefix(if full { usize::MAX } else { QUICK_BYTES })?;
            let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            lab.sql(LOADED, &corpus.create_table()?)?;
            let copy = lab.cluster.psql().database(LOADED).arg("-c").arg(corpus.copy_in());
            // A quoted line break may be where the corpus was cut.
            if copy.clone().input(bytes[..end].to_vec()).run().is_err() {
                eprintln!("{}: loaded whole, as it cannot be cut", corpus.name);
                // What the first attempt left behind would be bloat.
                lab.sql(LOADED, &format!("truncate \"{}\"", corpus.name))?;
                copy.input(corpus.bytes()?).run()?;
            }
        }
        let rows = if full { 300_000 } else { 60_000 };
        lab.cluster.psql().database(LOADED).arg("-v").arg(format!("rows={rows}")).sql(&format!(
            "create extension zson; create extension cfs; {RULES} vacuum analyze; checkpoint;"
        ))?;
        Ok(lab)
    }

    /// Runs SQL in a database.
    ///
    /// # Errors
    /// Those of psql, with what the server said.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        Ok(self.cluster.psql().database(database).sql(sql)?)
    }

    /// The server.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What `pgshrink advise` says about the loaded database, of all tables.
    ///
    /// # Errors
    /// Those of the program, with what it said.
    pub fn advice(&self) -> Result<Value> {
        self.advise(LOADED, &["--min-size", "0", "--all"])
    }

    /// The same of another database, with arguments of its own.
    ///
    /// # Errors
    /// As [`advice`](Self::advice).
    pub fn advise(&self, database: &str, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(checkout().join("target/release/pgshrink"));
        command.arg("advise").arg(self.cluster.conninfo_unix(database)).args(arguments).arg("--json");
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("pgshrink advise: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// A copy of the loaded database, which is removed by [`drop_copy`](Self::drop_copy).
    ///
    /// # Errors
    /// Those of the server.
    pub fn copy(&self) -> Result<&'static str> {
        self.sql("postgres", "drop database if exists copy; create database copy template loaded")?;
        Ok("copy")
    }

    /// Removes it.
    ///
    /// # Errors
    /// Those of the server.
    pub fn drop_copy(&self) -> Result<()> {
        self.sql("postgres", "drop database if exists copy")?;
        Ok(())
    }

    /// `pg_total_relation_size` of a table by its names.
    ///
    /// # Errors
    /// Those of the server.
    pub fn total_bytes(&self, database: &str, schema: &str, table: &str) -> Result<f64> {
        let quoted = |name: &str| name.replace('\'', "''");
        let sql = format!(
            "select pg_total_relation_size(c.oid) from pg_class c join pg_namespace n on n.oid = relnamespace
             where nspname = '{}' and relname = '{}'",
            quoted(schema),
            quoted(table)
        );
        let found = self.sql(database, &sql)?;
        found.parse().map_err(|_| format!("{schema}.{table}: no size: {found}").into())
    }
}

/// A number in JSON, by its path: `/bytes/disk/now`.
pub fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_default()
}

/// A text in JSON, by its path.
pub fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// A list in JSON, by its path.
pub fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    value.pointer(path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
