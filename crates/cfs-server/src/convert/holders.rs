//! Who has descriptors of a file under the name that an exchange gave it: a look into `/proc`.

use std::collections::HashMap;
use std::fs::{read_dir, read_link, read_to_string};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use pgshrink_cfs::convert::{Holders, NEW_SUFFIX};

/// What one look at all processes has found.
pub(crate) struct Scan {
    /// When it began.
    pub(crate) begun: Instant,
    /// The count of exchanges before it began. While it is this, no name has changed its form since.
    pub(crate) generation: Option<u64>,
    /// Writable descriptors by device and inode.
    found: HashMap<(u64, u64), Holders>,
    /// Processes that could not be looked at.
    unreadable: Holders,
}

impl Scan {
    /// Looks at all processes of this user.
    pub(crate) fn new(generation: Option<u64>) -> Scan {
        let begun = Instant::now();
        let mut scan = Scan { begun, generation, found: HashMap::new(), unreadable: Holders::default() };
        let me = own_user();
        let Ok(processes) = read_dir("/proc") else {
            scan.unreadable = Holders { unreadable: 1, ..Holders::default() };
            return scan;
        };
        for entry in processes.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // Of another user, it cannot have opened the file for writing. One that hides its memory is shown as root's.
            if entry.metadata().is_ok_and(|metadata| metadata.uid() == me) || has_user(&entry.path(), me) {
                scan.look_at(pid, &entry.path());
            }
        }
        scan
    }

    fn look_at(&mut self, pid: u32, process: &Path) {
        let descriptors = match read_dir(process.join("fd")) {
            Ok(descriptors) => descriptors,
            // It has ended.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound) => return,
            Err(_) => return self.cannot_read(pid, process),
        };
        for descriptor in descriptors {
            let Ok(descriptor) = descriptor else { return self.cannot_read(pid, process) };
            let link = match read_link(descriptor.path()) {
                Ok(link) => link,
                // Closed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(_) => return self.cannot_read(pid, process),
            };
            let name = link.file_name().unwrap_or_default().as_encoded_bytes();
            if !name.windows(NEW_SUFFIX.len()).any(|part| part == NEW_SUFFIX.as_bytes()) {
                continue;
            }
            let file = match std::fs::metadata(descriptor.path()) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(_) => return self.cannot_read(pid, process),
            };
            let number = descriptor.file_name();
            if !is_writable(&process.join("fdinfo").join(number)) {
                continue;
            }
            let holders = self.found.entry((file.dev(), file.ino())).or_default();
            holders.writable += 1;
            holders.process = pid;
        }
    }

    /// It counts as one that has every file open, unless it has ended.
    fn cannot_read(&mut self, pid: u32, process: &Path) {
        let is_ending = read_to_string(process.join("stat")).map_or(true, |stat| {
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X', 'x']))
        });
        if !is_ending {
            self.unreadable.unreadable += 1;
            self.unreadable.process = pid;
        }
    }

    /// Who has this file.
    pub(crate) fn of(&self, device: u64, inode: u64) -> Holders {
        let found = self.found.get(&(device, inode)).copied().unwrap_or_default();
        let process = if found.process == 0 { self.unreadable.process } else { found.process };
        Holders { unreadable: self.unreadable.unreadable, process, ..found }
    }
}

/// Whether one of the process's user ids is this.
fn has_user(process: &Path, user: u32) -> bool {
    let Ok(status) = read_to_string(process.join("status")) else { return false };
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.is_some_and(|ids| ids.split_whitespace().any(|id| id.parse() == Ok(user)))
}

/// Whether the descriptor may write; what does not say so may.
fn is_writable(info: &Path) -> bool {
    let Ok(text) = read_to_string(info) else { return true };
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

fn own_user() -> u32 {
    // Who owns what this process has in /proc.
    std::fs::metadata("/proc/self").map_or(u32::MAX, |metadata| metadata.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn writable_descriptors_of_an_exchanged_name_are_found_and_no_others() {
        let folder = tempfile_dir();
        let path = folder.join(format!("16401{NEW_SUFFIX}7"));
        std::fs::write(&path, b"x").unwrap();
        let (device, inode) = {
            let file = std::fs::metadata(&path).unwrap();
            (file.dev(), file.ino())
        };
        let reader = File::open(&path).unwrap();
        assert_eq!(Scan::new(None).of(device, inode).writable, 0);
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let scan = || Scan::new(None).of(device, inode);
        wait_until(|| (scan().writable, scan().process) == (1, std::process::id()));
        drop(writer);
        wait_until(|| scan().writable == 0);
        drop(reader);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// What other tests start has our descriptors, too, until it runs its program.
    fn wait_until(is_so: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "not within 20 seconds");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn tempfile_dir() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("pgshrink-holders-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
