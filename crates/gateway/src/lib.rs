//! The shell around `pgshrink-wire`: sockets, TLS, handshakes, threads and signals.
//!
//! This crate refuses to know the compression protocol (that is `pgshrink-wire`), to read passwords, to pool
//! connections, and to hold bytes back. A client that asks for nothing gets its bytes unchanged.
//!
//! ```text
//!   client ──plain──> connector ──compressed, TLS──> gateway ──plain──> server
//!                     [run_connector]               [run_gateway]
//!
//!   lifecycle   threads, signals, drain      service    one connection from accept to close
//!   listen      sockets                      handshake  first packet, routing, negotiation, authentication
//!   upstream    connections to servers       pump       bytes in both directions
//!   registry    sessions, counters           admin      the console
//!   metrics     Prometheus, health checks    own_address  servers that are the process itself
//!   observe     what compression would save
//! ```
//!
//! [`Gateway::start`](start_gateway) and [`start_connector`] serve on their own threads, for tests and `pgshrink run`;
//! [`run_gateway`] and [`run_connector`] serve a whole process with signals.

mod admin;
mod cancel;
pub mod config;
mod descriptors;
mod error;
mod handshake;
mod lifecycle;
mod listen;
mod low_water;
mod memory;
mod metrics;
mod observe;
mod own_address;
mod places;
mod proxy_protocol;
mod pump;
pub mod registry;
mod route;
mod run;
mod scratch;
mod service;
mod stream;
mod tcp_info;
mod throttle;
mod tls;
mod upstream;

pub use config::{ConnectorConfig, GatewayConfig};
pub use error::{Error, Refusal, sqlstate};
pub use lifecycle::{Control, Running};
pub use listen::Address;
pub use run::{run_connector, run_gateway, start_connector, start_gateway};
pub use stream::Peer;
