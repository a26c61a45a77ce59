//! What chunks cost in one process: bytes and processor time of the codec.

use pgshrink_bench_backup::{publish, size};
use pgshrink_bench_report::{Arguments, Result};

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1), size::TABLES)?;
    for table in size::tables(arguments.full)?.into_iter().filter(|table| arguments.wants(&table.id)) {
        publish(&arguments, "backup-size", table)?;
    }
    Ok(())
}
