//! What compression would have saved on traffic that is not compressed.
//!
//! This crate refuses to know a socket, a file or a clock. It counts nothing itself: a shell that moves bytes (the gateway with
//! `--observe`) tells how many there were, and gives it samples, which run through the real engine of `pgshrink-wire`.
//!
//! ```text
//!   bytes moved ────────────────────────────┐
//!   a Burst of them ──> Simulation::replay ─┴─> Ledger ──> Estimates ──> SHOW SAVINGS, metrics, the advisor
//!                       Link, the real one        └──> file: write, read
//! ```
//!
//! Every estimate is stated with the share that was measured. Where nothing was measured, no saving is claimed.
//!
//! The file's layout is in `formats/egress.md` and nowhere else.

pub mod calendar;
mod day;
pub mod file;
mod ledger;
pub mod replay;
pub mod traffic;

pub use day::Day;
pub use ledger::{DEFAULT_LIMITS, Estimate, Figure, Key, Ledger, Limits, OTHER};
pub use replay::{Burst, Simulation};
pub use traffic::{Direction, Kind, Line, Sample, Samples, Sum};
