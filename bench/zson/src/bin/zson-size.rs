//! What documents cost in one process: bytes and processor time of the codec.

use pgshrink_bench_report::{Arguments, Result};
use pgshrink_bench_zson::publish;
use pgshrink_bench_zson::size::{TABLES, tables};

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1), &TABLES)?;
    for table in tables(arguments.full, |table| arguments.wants(table))? {
        publish(&arguments, "zson-size", table)?;
    }
    Ok(())
}
