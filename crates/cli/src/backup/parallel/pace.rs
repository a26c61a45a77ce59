//! A bound of what is read per second, over all connections.

use super::stop::Stop;
use crate::backup::Failure;
use crate::backup::failure::broken_off;
use pgshrink_backup::base_backup::MaxRate;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a reader sleeps before it looks whether others have failed.
const SLEEP_MAX: Duration = Duration::from_millis(100);

pub(super) struct Pace {
    bytes_per_second: u64,
    /// When the next bytes may be asked for.
    free: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: MaxRate) -> Pace {
        Pace { bytes_per_second: u64::from(rate.kib_per_second()) << 10, free: Mutex::new(Instant::now()) }
    }

    /// Waits until so many bytes may be asked for.
    pub(super) fn wait(&self, bytes: u64, stop: &Stop) -> Result<(), Failure> {
        let at = self.take(bytes)?;
        loop {
            stop.check()?;
            match at.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(SLEEP_MAX)),
            }
        }
    }

    fn take(&self, bytes: u64) -> Result<Instant, Failure> {
        let mut free = self.free.lock().map_err(|_| broken_off())?;
        let at = Instant::now().max(*free);
        // At most a chunk at a time, so this does not overflow.
        *free = at + Duration::from_micros(bytes * 1_000_000 / self.bytes_per_second);
        Ok(at)
    }
}
