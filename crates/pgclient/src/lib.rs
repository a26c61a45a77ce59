//! A PostgreSQL client: what libpq's connection parameters mean, and blocking sessions with live servers.
//!
//! pgshrink stands between a libpq client and its server and must change nothing else. For that it has to read
//! what the client was told (strings, URIs, service files, environment) exactly as libpq 15 to 18 reads it,
//! find out where libpq would connect and how it would verify that server, and say the same thing back with
//! only the host replaced. For physical backups it connects itself, by the same rules.
//!
//! ```text
//!  argument ──> conninfo ──┐
//!  PGSERVICE ─> service ───┼─> parameters ──> target   where to connect, in which order
//!  PG* ───────> keyword ───┘             └──> ssl      how that server is verified
//!                                   passfile           which lines of .pgpass speak of it
//!  ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─
//!            tls ──> connection ──> replication        sockets, files, clocks
//!                    protocol                          the messages, pure
//! ```
//!
//! The modules above the line, and `protocol`, refuse to connect, to resolve names, to look anything up in LDAP, and to
//! judge keywords they do not know: a newer libpq may know them. They read files only through
//! [`surroundings::Files`], so every rule can be tested from a table.
//!
//! [`connection`] has no thread and no async runtime: a backup has few connections and much data on each. It
//! refuses COPY FROM STDIN, GSSAPI, SSPI and OAuth. [`tls`] verifies servers for the gateway as well.
//!
//! ```
//! use pgshrink_pgclient::conninfo::Conninfo;
//!
//! let mut info = Conninfo::parse(b"host=db.example port=6432 compression=zstd:1 password='a b'").unwrap();
//! assert_eq!(info.get("compression").as_deref(), Some(&b"zstd:1"[..]));
//! info.remove("compression");
//! info.set("host", b"/run/private");
//! assert_eq!(info.text(), b"port=6432 password='a b' host=/run/private");
//! ```
//!
//! Source of every rule: `src/interfaces/libpq/fe-connect.c` and `fe-secure-openssl.c` of PostgreSQL 15 to 18.

pub mod connection;
pub mod conninfo;
mod error;
pub mod keyword;
pub mod parameters;
pub mod passfile;
pub mod protocol;
pub mod replication;
pub mod service;
pub mod ssl;
pub mod surroundings;
pub mod target;
pub mod tls;

pub use conninfo::Conninfo;
pub use error::Error;
pub use parameters::{Parameters, Source};
pub use ssl::SslParameters;
pub use surroundings::Surroundings;
pub use target::Target;
