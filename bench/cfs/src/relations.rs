//! Relation files that a real server has made.

use std::path::PathBuf;

use pgshrink_bench_report::Result;
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_testkit::{Cluster, Stop, corpora};

/// What a relation counts as.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Group {
    /// Tables and what they have in TOAST.
    Heap,
    /// Indexes.
    Index,
    /// Of pgbench, which compresses like nothing else and would hide all others.
    Pgbench,
}

/// One relation's main fork.
#[derive(Debug, Clone)]
pub struct Relation {
    /// Database and name.
    pub name: String,
    /// Heap, TOAST or the index's access method.
    pub kind: String,
    /// What it counts as.
    pub group: Group,
    path: PathBuf,
}

/// All relations of a stopped server of at least this many bytes.
#[derive(Debug)]
pub struct Relations {
    /// Largest first.
    pub all: Vec<Relation>,
    /// Keeps the files.
    _cluster: Cluster,
}

/// Smaller relations say nothing about ratios.
pub const BYTES_MIN: u64 = 1_000_000;
/// Indexes of all kinds on the corpora.
pub const INDEXES: &str = include_str!("sql/indexes.sql");
const LIST: &str = "select pg_relation_filepath(c.oid), coalesce(t.relname || '.toast', c.relname), \
    case when c.relkind = 'i' then am.amname when c.relkind = 't' then 'toast' else 'heap' end \
    from pg_class c left join pg_am am on am.oid = c.relam left join pg_class t on t.reltoastrelid = c.oid \
    where c.relkind in ('r', 'i', 't') and c.oid >= 16384 and pg_relation_size(c.oid) >= ";

impl Relations {
    /// Starts a server, fills it and stops it. It takes minutes.
    pub fn make() -> Result<Relations> {
        let cluster = server()?;
        cluster.sql("create database churn; create database pgbench")?;
        for corpus in corpora::all()? {
            corpus.load(&cluster)?;
        }
        cluster.sql(INDEXES)?;
        cluster.sql("vacuum analyze")?;
        cluster.psql().database("churn").sql(include_str!("sql/churn.sql"))?;
        pgbench(&cluster, &["--initialize", "--quiet", "--scale=20"])?;
        pgbench(&cluster, &["--builtin=simple-update", "--client=4", "--transactions=8000"])?;
        Relations::of(cluster, &["postgres", "churn", "pgbench"])
    }

    /// As [`make`](Self::make), of the tables alone that are updated and deleted from. It takes a minute.
    pub fn churned() -> Result<Relations> {
        let cluster = server()?;
        cluster.sql("create database churn")?;
        cluster.psql().database("churn").sql(include_str!("sql/churn.sql"))?;
        Relations::of(cluster, &["churn"])
    }

    fn of(cluster: Cluster, databases: &[&str]) -> Result<Relations> {
        cluster.sql("checkpoint")?;
        let mut all = Vec::new();
        for database in databases {
            all.extend(list(&cluster, database)?);
        }
        cluster.stop(Stop::Fast)?;
        all.sort_by_key(|relation| {
            std::cmp::Reverse(std::fs::metadata(&relation.path).map_or(0, |m| m.len()))
        });
        Ok(Relations { all, _cluster: cluster })
    }
}

fn server() -> Result<Cluster> {
    let builder = Cluster::builder().major(15).conf("autovacuum", "off");
    let builder = builder.conf("shared_buffers", "512MB").conf("max_wal_size", "4GB");
    Ok(builder.conf("maintenance_work_mem", "256MB").start()?)
}

impl Relation {
    /// Its pages.
    pub fn pages(&self) -> Result<Vec<[u8; PAGE_SIZE]>> {
        Ok(std::fs::read(&self.path)?.as_chunks::<PAGE_SIZE>().0.to_vec())
    }
}

fn pgbench(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    let output = cluster.command("pgbench").args(arguments).arg(cluster.conninfo_unix("pgbench")).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("pgbench: {stderr}").into()) }
}

fn list(cluster: &Cluster, database: &str) -> Result<Vec<Relation>> {
    let rows = cluster.psql().database(database).sql(&format!("{LIST}{BYTES_MIN}"))?;
    let relations = rows.lines().filter_map(|row| {
        let mut fields = row.split('|');
        let (path, name, kind) = (fields.next()?, fields.next()?, fields.next()?);
        let group = match kind {
            _ if database == "pgbench" => Group::Pgbench,
            "heap" | "toast" => Group::Heap,
            _ => Group::Index,
        };
        let path = cluster.data_dir().join(path);
        Some(Relation { name: format!("{database}.{name}"), kind: kind.to_owned(), group, path })
    });
    Ok(relations.collect())
}
