//! Waiting for a condition with a bound.

use std::time::{Duration, Instant};

use crate::error::Error;

/// Calls `condition` until it holds, at first often and then every 50 ms; an error names `what` was waited for.
///
/// ```
/// # use std::time::Duration;
/// let mut tries = 0;
/// pgshrink_testkit::wait_until(Duration::from_secs(5), "the third try", || {
///     tries += 1;
///     tries == 3
/// })?;
/// # Ok::<(), pgshrink_testkit::Error>(())
/// ```
pub fn wait_until(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Error> {
    wait_for(timeout, what, || condition().then_some(()))
}

/// As [`wait_until`], for a condition that yields something.
pub fn wait_for<T>(
    timeout: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<T, Error> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(found) = attempt() {
            return Ok(found);
        }
        if start.elapsed() >= timeout {
            return Err(Error::Timeout { what: what.to_owned(), after: timeout });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
