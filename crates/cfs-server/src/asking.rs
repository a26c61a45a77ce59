//! A standby's redo asks for the setting of a tablespace that it does not know.
//!
//! Redo cannot read catalogs, and the launcher, who can, looks every few seconds. A table that is made right after its
//! tablespace would be plain on a standby. So redo asks before it makes the first file, and waits until the launcher
//! has looked: the transaction that made the tablespace has been replayed by then.

use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::region::Region;

/// Until redo goes on without an answer; and where there is a key, as the tablespace may be encrypted.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_WITH_KEY: Duration = Duration::from_secs(120);
/// Between two lines in the log about that.
const SILENCE: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);
/// Tablespaces without a setting that a process remembers, the last ones.
const REMEMBERED: usize = 64;

thread_local! {
    /// Those that were asked for in vain, and where the next one goes.
    static PLAIN: Cell<([u32; REMEMBERED], usize)> = const { Cell::new(([0; REMEMBERED], 0)) };
}

/// Asks, and waits until the launcher has looked.
fn wait(region: &Region, tablespace: u32, has_key: bool) {
    let patience = if has_key { PATIENCE_WITH_KEY } else { PATIENCE };
    let number = region.ask();
    let begun = Instant::now();
    let mut said = Duration::ZERO;
    while region.answered() < number {
        let waited = begun.elapsed();
        if waited >= patience {
            let without = "could not be determined in time: files that redo creates in it now are neither \
                compressed nor encrypted";
            return say(tablespace, without);
        }
        if waited >= said + SILENCE {
            said = waited;
            say(tablespace, "is unknown: redo is waiting for the cfs launcher to read it");
        }
        std::thread::sleep(STEP);
    }
}

/// Whether the server replays another one's log. After a crash of its own it knows all settings.
fn follows_a_primary() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| ["standby.signal", "recovery.signal"].iter().any(|name| Path::new(name).exists()))
}

fn say(tablespace: u32, what: &str) {
    crate::report::failure(None, None, &format!("the setting of tablespace {tablespace} {what}"));
}

/// Asks, and waits: whether the tablespace has a setting now.
pub(crate) fn ask(region: &Region, tablespace: u32) -> bool {
    let (mut plain, next) = PLAIN.get();
    if plain.contains(&tablespace) {
        return false;
    }
    let has_key = region.current_key_id().is_some();
    if !region.is_looked_after() {
        // Before a standby is consistent, and without hot_standby, there is no launcher.
        if has_key && follows_a_primary() {
            say(tablespace, "cannot be known yet: files that redo creates in it now are not encrypted");
        }
        return false;
    }
    wait(region, tablespace, has_key);
    let is_known = region.setting(tablespace).is_some();
    if !is_known {
        plain[next] = tablespace;
        PLAIN.set((plain, (next + 1) % REMEMBERED));
    }
    is_known
}
