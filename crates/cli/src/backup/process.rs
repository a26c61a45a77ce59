//! Which process writes a backup, so that another one on the same machine knows at once that it is gone.

use serde::{Deserialize, Serialize};
use std::fs;

/// A process, as far as others can look for it.
#[derive(Serialize, Deserialize)]
pub(super) struct Process {
    host: String,
    /// Of the machine's start.
    boot: String,
    /// In which its number has a meaning.
    pid_namespace: String,
    pid: u32,
    /// When it began, in clock ticks since the machine's start.
    ticks: u64,
}

impl Process {
    /// This one.
    pub(super) fn this() -> Process {
        let pid = std::process::id();
        Process {
            host: line("/proc/sys/kernel/hostname"),
            boot: line("/proc/sys/kernel/random/boot_id"),
            pid_namespace: namespace(),
            pid,
            ticks: ticks(pid).unwrap_or_default(),
        }
    }

    /// Whether it lives. `None`: that cannot be seen from here.
    pub(super) fn is_alive(&self) -> Option<bool> {
        let boot = line("/proc/sys/kernel/random/boot_id");
        let is_here = !boot.is_empty() && boot == self.boot && namespace() == self.pid_namespace;
        is_here.then(|| ticks(self.pid) == Some(self.ticks))
    }

    /// For people.
    pub(super) fn place(&self) -> String {
        format!("process {} of host {}", self.pid, self.host)
    }
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

/// Field 22 of `/proc/PID/stat` (proc(5)). A dead process that nobody has waited for has none.
fn ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, which may have blanks and parentheses.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[test]
fn this_process_lives_and_others_do_not() {
    let this = Process::this();
    assert_eq!(this.is_alive(), Some(true));
    assert_eq!(Process { ticks: this.ticks + 1, ..Process::this() }.is_alive(), Some(false));
    assert_eq!(Process { boot: "another".to_owned(), ..Process::this() }.is_alive(), None);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    assert_eq!(Process { pid, ..Process::this() }.is_alive(), Some(false));
}
