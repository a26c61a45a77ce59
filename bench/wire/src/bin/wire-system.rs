//! The built program between real servers and clients, beside its rivals.

use pgshrink_bench_report::{Arguments, Result};
use pgshrink_bench_wire::publish;
use pgshrink_bench_wire::system::{Bench, TABLES};

fn main() -> Result<()> {
    let known: Vec<&str> = TABLES.iter().map(|(id, _)| *id).collect();
    let arguments = Arguments::parse(std::env::args().skip(1), &known)?;
    let bench = Bench::new(arguments.full)?;
    for (_, make) in TABLES.iter().filter(|(id, _)| arguments.wants(id)) {
        publish(&arguments, "wire-system", make(&bench)?)?;
    }
    Ok(())
}
