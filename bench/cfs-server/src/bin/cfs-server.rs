//! Compressed tablespaces of running servers, beside plain ones and btrfs.

use pgshrink_bench_cfs_server::publish;
use pgshrink_bench_cfs_server::tables::{Bench, TABLES};
use pgshrink_bench_report::{Arguments, Result};

fn main() -> Result<()> {
    pgshrink_bench_cfs_server::mount::alone();
    let known: Vec<&str> = TABLES.iter().map(|(id, _)| *id).collect();
    let arguments = Arguments::parse(std::env::args().skip(1), &known)?;
    let bench = Bench::new(arguments.full);
    for (_, make) in TABLES.iter().filter(|(id, _)| arguments.wants(id)) {
        publish(&arguments, make(&bench)?)?;
    }
    Ok(())
}
