//! Advice on real servers, followed.

use pgshrink_bench_advisor::{Bench, TABLES, publish};
use pgshrink_bench_report::{Arguments, Result};

fn main() -> Result<()> {
    let known: Vec<&str> = TABLES.iter().map(|(id, _)| *id).collect();
    let arguments = Arguments::parse(std::env::args().skip(1), &known)?;
    let bench = Bench::new(arguments.full);
    for (_, make) in TABLES.iter().filter(|(id, _)| arguments.wants(id)) {
        publish(&arguments, make(&bench)?)?;
    }
    Ok(())
}
