//! The built program beside pg_basebackup, pgBackRest and WAL-G, with a real server and links of a chosen bandwidth.

use pgshrink_bench_backup::publish;
use pgshrink_bench_backup::system::{Bench, TABLES};
use pgshrink_bench_report::{Arguments, Result};

fn main() -> Result<()> {
    let known: Vec<&str> = TABLES.iter().map(|(id, _)| *id).collect();
    let arguments = Arguments::parse(std::env::args().skip(1), &known)?;
    let bench = Bench::new(arguments.full)?;
    for (_, make) in TABLES.iter().filter(|(id, _)| arguments.wants(id)) {
        publish(&arguments, "backup-system", make(&bench)?)?;
    }
    Ok(())
}
