//! What is read of a live database.

pub mod definitions;
