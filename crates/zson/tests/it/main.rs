//! Integration tests of the zson crate.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

mod allocations;
mod fixtures;
mod golden;
mod golden_shapes;
mod hostile;
mod independent;
mod jsonb;
mod legacy;
mod memo;
mod patches;
mod records;
mod roundtrip;
mod shapes;
mod shapes_hostile;
mod shapes_sliced;
mod shapes_values;
mod training;
mod updates;
