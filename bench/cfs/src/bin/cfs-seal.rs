//! What sealing costs per record, in one process.

use pgshrink_bench_cfs::{ORDER, publish, seal};
use pgshrink_bench_report::{Arguments, Result};

fn main() -> Result<()> {
    let arguments = Arguments::parse(std::env::args().skip(1), ORDER)?;
    if arguments.wants("seal") {
        publish(&arguments, "cfs-seal", seal::table(arguments.full)?)?;
    }
    Ok(())
}
