//! A standby's redo asks for the setting of a tablespace that it does not know.
//!
//! Redo cannot read catalogs, and the launcher, who can, looks every few seconds. A table that is made right after its
//! tablespace would be plain on a standby. So redo asks before it makes the first file, and waits until the launcher
//! has looked: the transaction that made the tablespace has been replayed by then.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::region::Region;

/// Until redo goes on without an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);
/// Tablespaces without a setting that a process remembers, the last ones.
const REMEMBERED: usize = 64;

thread_local! {
    /// Those that were asked for in vain, and where the next one goes.
    static PLAIN: Cell<([u32; REMEMBERED], usize)> = const { Cell::new(([0; REMEMBERED], 0)) };
}

/// Asks, and waits: whether the tablespace has a setting now.
pub(crate) fn ask(region: &Region, tablespace: u32) -> bool {
    let (mut plain, next) = PLAIN.get();
    if !region.is_looked_after() || plain.contains(&tablespace) {
        return false;
    }
    let number = region.ask();
    let begun = Instant::now();
    while region.answered() < number && begun.elapsed() < PATIENCE {
        std::thread::sleep(STEP);
    }
    let is_known = region.setting(tablespace).is_some();
    if !is_known {
        plain[next] = tablespace;
        PLAIN.set((plain, (next + 1) % REMEMBERED));
    }
    is_known
}
