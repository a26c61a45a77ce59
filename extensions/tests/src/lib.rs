//! Tests of the extensions in real servers; the crate itself is empty.
//!
//! `tools/extensions 15 16 18` builds the extensions into private copies of the servers, `tools/test` does that
//! and runs everything. The tests link neither the extensions nor pgrx: what they see is what a client sees.
