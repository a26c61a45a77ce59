//! What containers cost in real files: latency of reads, bytes of updates, checkpoints, open segments, small relations, the
//! interface for pages.

use pgshrink_bench_cfs::container::sample::Sample;
use pgshrink_bench_cfs::container::{checkpoint, latency, slots, small, store, updates};
use pgshrink_bench_cfs::relations::Relations;
use pgshrink_bench_cfs::{ORDER, publish};
use pgshrink_bench_report::{Arguments, Result};

const FULL_PAGES: usize = 24 << 10;
const QUICK_PAGES: usize = 8 << 10;

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1), ORDER)?;
    let full = arguments.full;
    if arguments.wants("small") {
        publish(&arguments, "cfs-container", small::table()?)?;
    }
    if arguments.wants("checkpoint") {
        publish(&arguments, "cfs-container", checkpoint::table(full)?)?;
    }
    if arguments.wants("slots") {
        publish(&arguments, "cfs-container", slots::table()?)?;
    }
    if ["updates", "latency", "store"].iter().any(|table| arguments.wants(table)) {
        let relations = Relations::churned()?;
        let pages = if full { FULL_PAGES } else { QUICK_PAGES };
        if arguments.wants("store") {
            publish(&arguments, "cfs-container", store::table(&store::Pages::of(&relations, pages)?, full)?)?;
        }
        let sample = Sample::of(&relations, pages)?;
        if arguments.wants("updates") {
            publish(&arguments, "cfs-container", updates::table(&sample, full)?)?;
        }
        if arguments.wants("latency") {
            publish(&arguments, "cfs-container", latency::table(&sample, full)?)?;
        }
    }
    Ok(())
}
