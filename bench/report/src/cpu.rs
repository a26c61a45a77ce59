//! Processor time, which a shared machine distorts less than wall time.

use rustix::time::{ClockId, clock_gettime};

/// User and system seconds of the calling thread so far.
pub fn cpu_seconds_of_thread() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
