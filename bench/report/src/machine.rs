//! What a run ran on.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine and the versions of what was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor, core count, memory, kernel.
    pub hardware: String,
    /// Programs and libraries with their versions.
    pub versions: Vec<String>,
}

impl Machine {
    /// This machine, with the compiler and whatever the bench adds.
    pub fn here(versions: Vec<String>) -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let memory_kb = field_of("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or_default();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let hardware = format!(
            "{}, {cores} cores, {} GiB, Linux {}, shared with other work",
            processor(),
            memory_kb.div_ceil(1 << 20),
            kernel.trim()
        );
        let rustc = version_of(Command::new("rustc").arg("--version"));
        Machine { hardware, versions: rustc.into_iter().chain(versions).collect() }
    }
}

/// The name of this machine's processor.
pub fn processor() -> String {
    field_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned())
}

/// The first line a program prints about itself.
pub fn version_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().next()?.trim().to_owned())
}

/// Processes waiting to run, averaged over a minute: how busy others kept the machine.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// The commit that is checked out at `folder`, with a plus when files differ from it.
pub fn commit_at(folder: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "crates"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}+") })
}

/// Today in UTC, from the system's clock.
pub fn today() -> String {
    version_of(Command::new("date").args(["-u", "+%Y-%m-%d"])).unwrap_or_default()
}

fn field_of(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
