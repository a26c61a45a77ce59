//! Loss of power of a whole server.
//!
//! Two ways, with one workload and one oracle of what the server acknowledged:
//! * a *recording* of all changes of files and all fsyncs, from which [`disk`] makes what a disk may have at any moment: what
//!   was not synced is missing, older, torn or there ([`recorded`]);
//! * copies of the block device below a file system, taken while the server runs ([`block`]): what the system had not written
//!   by then is missing.
//!
//! A server is started on each image and [`check`]ed. Among what it does are conversions of tables ([`conversions`]).

mod block;
mod check;
mod contents;
mod conversions;
mod disk;
mod guards;
mod images;
mod names;
mod recorded;
mod recording;
mod workload;

/// Runs of the long tests for each major: `PGSHRINK_POWER_ROUNDS`, 30 unless it is set.
fn rounds() -> usize {
    std::env::var("PGSHRINK_POWER_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}
