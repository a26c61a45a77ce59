//! What the process itself costs, from the kernel.

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// CPU, memory, file descriptors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) open_fds: u64,
    pub(crate) max_fds: u64,
}

/// `None` where /proc is not mounted.
pub(crate) fn usage() -> Option<Usage> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    Some(Usage {
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        resident_bytes: pages * rustix::param::page_size() as u64,
        // The directory itself is open while it is read.
        open_fds: (std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1),
        max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_time_and_files() {
        let before = usage().unwrap();
        let file = std::fs::File::open("/proc/self/statm").unwrap();
        let after = usage().unwrap();
        assert!(before.resident_bytes > 1 << 20 && before.cpu_seconds > 0.0);
        assert!(after.open_fds >= 4 && after.open_fds <= after.max_fds, "{after:?}");
        drop(file);
    }
}
