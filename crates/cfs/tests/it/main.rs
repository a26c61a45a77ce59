//! Tests of the public surface, one binary.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod base;
mod convert;
mod copies;
mod coroutine;
mod crashes;
mod damage;
mod dictionaries;
mod dictionary_policy;
mod dropping;
mod faults;
mod findings;
mod fixture;
mod full_disk;
mod golden;
mod group;
mod group_kills;
mod kills;
mod leaves;
mod model;
mod page;
mod paths;
mod plan;
mod protocol;
mod pure;
mod rolled_forward;
mod schedule;
mod seal;
mod shell;
mod slots;
mod store;
mod unload;
mod updates;
mod workers;
