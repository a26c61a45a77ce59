//! Compressed segments of PostgreSQL relations, over a device trait.

pub mod page;
