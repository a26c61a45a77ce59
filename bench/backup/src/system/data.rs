//! Servers with data in them.

use std::net::Ipv4Addr;

use pgshrink_bench_cfs::relations::INDEXES;
use pgshrink_bench_report::Result;
use pgshrink_testkit::{Cluster, corpora};

/// Corpora of the small one: documents, text and rows of numbers.
const SMALL: [&str; 4] = ["deb_package", "stars", "law_text", "flights"];
const LARGE_BYTES: f64 = 4e9;
const NOISE_BYTES: u32 = 400_000_000;
/// What is compressed already, as images are, beside corpora: the whole compresses about 3.3 times.
const IMAGES_BYTES: u32 = 80_000_000;
const IMAGE_BYTES: u32 = 1 << 16;

/// What is in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Some corpora, for a slow link.
    Small,
    /// All corpora, indexes of all kinds on them, and images.
    Medium,
    /// That in several databases, 4 GB or more.
    Large,
    /// Random bytes.
    Noise,
}

impl Amount {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Amount::Small => "some corpora",
            Amount::Medium => "all corpora with indexes and images",
            Amount::Large => "all corpora with indexes and images, several times",
            Amount::Noise => "random bytes",
        }
    }
}

/// A server that nobody writes to.
#[derive(Debug)]
pub struct Source {
    /// The server.
    pub cluster: Cluster,
    /// Of all databases.
    pub bytes: f64,
}

impl Source {
    /// Starts and fills it. It listens on 127.0.0.1, and on this side of a link.
    pub fn start(amount: Amount, near: Option<Ipv4Addr>) -> Result<Source> {
        let near = near.map(|address| format!(",{address}")).unwrap_or_default();
        let cluster = Cluster::builder()
            .conf("listen_addresses", format!("127.0.0.1{near}"))
            .conf("shared_buffers", "256MB")
            .conf("maintenance_work_mem", "256MB")
            .conf("max_wal_size", "2GB")
            .conf("checkpoint_timeout", "1h")
            .conf("autovacuum", "off")
            .start()?;
        match amount {
            Amount::Small => load(&cluster, |name| SMALL.contains(&name))?,
            Amount::Medium | Amount::Large => {
                load(&cluster, |_| true)?;
                cluster.sql(INDEXES)?;
                images(&cluster, IMAGES_BYTES)?;
            }
            Amount::Noise => images(&cluster, NOISE_BYTES)?,
        }
        cluster.sql("vacuum analyze")?;
        if amount == Amount::Large {
            repeat(&cluster)?;
        }
        trim_wal(&cluster)?;
        let bytes = bytes(&cluster)?;
        Ok(Source { cluster, bytes })
    }
}

/// Several servers are here at a time; the disk is for their data.
fn trim_wal(cluster: &Cluster) -> Result<()> {
    cluster.set_conf("max_wal_size", "64MB")?;
    cluster.reload()?;
    for _ in 0..2 {
        cluster.sql("select pg_switch_wal()")?;
        cluster.sql("checkpoint")?;
    }
    Ok(())
}

fn bytes(cluster: &Cluster) -> Result<f64> {
    Ok(cluster.sql("select sum(pg_database_size(oid)) from pg_database")?.parse()?)
}

fn load(cluster: &Cluster, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for corpus in corpora::all()?.iter().filter(|corpus| wanted(&corpus.name)) {
        corpus.load(cluster)?;
    }
    Ok(())
}

/// Random bytes, in a table's TOAST.
fn images(cluster: &Cluster, bytes: u32) -> Result<()> {
    cluster.sql("create table image (bytes bytea)")?;
    cluster.sql("alter table image alter bytes set storage external")?;
    let rows = bytes / IMAGE_BYTES;
    cluster.sql(&format!(
        "insert into image select pg_read_binary_file('/dev/urandom', 0, {IMAGE_BYTES}) from generate_series(1, {rows})"
    ))?;
    Ok(())
}

/// Copies of a database are far enough apart for no compressor here to notice.
fn repeat(cluster: &Cluster) -> Result<()> {
    for number in 1.. {
        if bytes(cluster)? >= LARGE_BYTES {
            break;
        }
        let sql = format!("create database copy{number} template postgres strategy file_copy");
        cluster.psql().database("template1").sql(&sql)?;
    }
    Ok(())
}
