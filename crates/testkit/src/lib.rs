//! What the tests of pgshrink stand on, and nothing a product ships.
//!
//! It starts private PostgreSQL clusters from whatever servers the machine has, puts relays that count, cut and
//! delay between programs, finds corpora and seeds, and says aloud what could not be tested. It does not install
//! anything, does not touch a server it did not start, and knows no crate of the product: what it measures is
//! seen from outside.
//!
//! ```text
//!   test ──▶ Cluster (initdb copy, own port, own socket) ◀── psql, pgbench, any client
//!     │          ▲ standby() by pg_basebackup
//!     ├──▶ Relay ─┘ counts, captures, delays, throttles, cuts
//!     └──▶ guardian: stops and removes everything when the test process ends, however it ends
//! ```
//!
//! ```no_run
//! use pgshrink_testkit::{Auth, Cluster};
//! let primary = Cluster::builder().major(15).conf("wal_level", "logical").auth(Auth::Scram).tls(true).start()?;
//! let standby = primary.standby().name("far").start()?;
//! primary.sql("create table t as select generate_series(1, 1000) as n")?;
//! # let _ = standby;
//! # Ok::<(), pgshrink_testkit::Error>(())
//! ```

pub mod allocations;
pub mod azure;
pub mod certs;
pub mod cluster;
pub mod corpora;
pub mod daemon;
pub mod error;
pub mod netns;
pub mod port;
pub mod psql;
pub mod relay;
pub mod run;
pub mod s3;
pub mod scratch;
pub mod seed;
pub mod server;
pub mod skip;
pub mod wait;

pub use azure::Azure;
pub use certs::Authority;
pub use cluster::{Auth, Cluster, SUPERUSER_PASSWORD, Stop};
pub use daemon::Daemon;
pub use error::{Error, Kind, Missing};
pub use port::{Port, free_port};
pub use psql::Psql;
pub use relay::Relay;
pub use s3::S3;
pub use scratch::TempDir;
pub use seed::{Rng, Seed};
pub use server::{Server, ServerBinaries};
pub use skip::{checkout, left_out, skipped};
pub use wait::{wait_for, wait_until};
