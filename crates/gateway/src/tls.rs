//! TLS towards clients ([`server`]) and towards servers ([`client`]).
//!
//! Reading files and verifying servers is [`pgshrink_pgclient::tls`]'s; what is here is tokio's. No session is ever
//! resumed: PostgreSQL's clients do not, and tickets would be bytes for nothing. Files are read when a configuration is
//! loaded, so a reload takes new certificates for new sessions and a broken file never replaces a working one.

pub(crate) mod client;
pub(crate) mod server;

pub(crate) use pgshrink_pgclient::tls::{ALPN, SYSTEM_ROOTS};
