//! Two links back to back: whatever one end compresses, the other gives back, however the bytes are cut.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod captures;
mod hostile;
mod pair;
mod policy;
mod quiet;
mod roundtrip;
mod switching;
mod windows;
