//! The gateway and the connector between real clients and real servers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod admin;
mod admin_access;
mod clients;
mod compressed;
mod drain;
mod edges;
mod floods;
mod harness;
mod hostile;
mod large;
mod lost_peers;
mod metrics;
mod observe;
mod observe_accuracy;
mod passthrough;
mod pipelines;
mod quiet;
mod replication;
mod routes;
mod scale;
mod service;
mod setting;
mod transparent;
mod window;
