//! Tests of the public surface, one binary.
