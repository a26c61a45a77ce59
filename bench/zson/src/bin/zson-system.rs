//! Documents in a real server: tables, inserts, queries.

use pgshrink_bench_report::{Arguments, Result};
use pgshrink_bench_zson::publish;
use pgshrink_bench_zson::system::{Bench, TABLES};

fn main() -> Result<()> {
    let known: Vec<&str> = TABLES.iter().map(|(id, _)| *id).collect();
    let arguments = Arguments::parse(std::env::args().skip(1), &known)?;
    let bench = Bench::new(arguments.full);
    for (_, make) in TABLES.iter().filter(|(id, _)| arguments.wants(id)) {
        publish(&arguments, "zson-system", make(&bench)?)?;
    }
    Ok(())
}
