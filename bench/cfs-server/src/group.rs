//! Servers with little memory, and with a slow disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_bench_report::Result;
use pgshrink_testkit::{Cluster, Stop};

/// A control group with a limit of memory, the kernel's cache of files included, and a server in it.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// Takes a server and its processes in; those that it starts later are in it too.
    ///
    /// # Errors
    /// It needs root and a memory controller, of the first or second kind of control groups.
    pub fn of(cluster: &Cluster, name: &str, bytes: u64) -> Result<Group> {
        let postmaster = cluster.pid().ok_or("the server has no process")?;
        let (first, second) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        let (parent, limit) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes"),
            false => (second, "memory.max"),
        };
        let folder = parent.join(format!("pgshrink-bench-{}-{name}", std::process::id()));
        let failed = |what: &str, error| {
            format!("{what} {}: {error}; this needs root and a memory controller", folder.display())
        };
        fs::create_dir(&folder).map_err(|error| failed("making", error))?;
        let group = Group { folder: folder.clone() };
        fs::write(folder.join(limit), bytes.to_string()).map_err(|error| failed("limiting", error))?;
        fill(&folder, postmaster).map_err(|error| failed("filling", error))?;
        Ok(group)
    }

    /// The same command, in the group from its start.
    pub fn inside(&self, command: &Command) -> Command {
        let mut moved = Command::new("sh");
        moved.arg("-c").arg("echo $$ >\"$0\" && exec \"$@\"").arg(self.folder.join("cgroup.procs"));
        moved.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => moved.env(name, value),
                None => moved.env_remove(name),
            };
        }
        moved
    }

    /// Stops the server, which has to leave the group before that can go.
    ///
    /// # Errors
    /// The server's, and the group's if something is left in it.
    pub fn end(self, cluster: &Cluster) -> Result<()> {
        cluster.stop(Stop::Fast)?;
        Ok(fs::remove_dir(&self.folder)?)
    }
}

/// A server with its processes, and those that it starts later.
fn fill(folder: &Path, postmaster: u32) -> std::io::Result<()> {
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))?;
    let processes = folder.join("cgroup.procs");
    fs::write(&processes, postmaster.to_string())?;
    children.split_whitespace().try_for_each(|pid| match fs::write(&processes, pid) {
        // A worker that has ended meanwhile.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
        written => written,
    })
}

/// A control group whose processes read from one disk at a limited rate, while it is there.
#[derive(Debug)]
pub struct SlowDisk {
    folder: PathBuf,
}

impl SlowDisk {
    /// Takes a server in that reads the files of `place`. Writes are not limited.
    ///
    /// # Errors
    /// It needs root, the first kind of control groups, and a filesystem on a disk as a whole.
    pub fn of(cluster: &Cluster, place: &Path, bytes: u64, reads: u64) -> Result<SlowDisk> {
        let postmaster = cluster.pid().ok_or("the server has no process")?;
        let device = fs::metadata(place)?.dev();
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let name = format!("pgshrink-bench-{}-{postmaster}", std::process::id());
        let folder = Path::new("/sys/fs/cgroup/blkio").join(name);
        let failed = |error| {
            format!(
                "limiting {device} in {}: {error}; this needs root and a blkio controller",
                folder.display()
            )
        };
        fs::create_dir(&folder).map_err(failed)?;
        let disk = SlowDisk { folder: folder.clone() };
        for (limit, number) in [("read_bps", bytes), ("read_iops", reads)] {
            let file = folder.join(format!("blkio.throttle.{limit}_device"));
            fs::write(file, format!("{device} {number}")).map_err(failed)?;
        }
        fill(&folder, postmaster).map_err(failed)?;
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let Ok(processes) = fs::read_to_string(self.folder.join("cgroup.procs")) else { return };
        for pid in processes.lines() {
            let _ = fs::write("/sys/fs/cgroup/blkio/cgroup.procs", pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
