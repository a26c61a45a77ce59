//! A filesystem in a file.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_bench_report::Result;
use pgshrink_testkit::run::{Owner, command, output};
use pgshrink_testkit::{TempDir, wait_until};

/// A mounted filesystem that ends with this value.
#[derive(Debug)]
pub struct Mount {
    folder: PathBuf,
    _home: TempDir,
}

impl Mount {
    /// Makes a filesystem of a kind (`btrfs`, `xfs`, `ext4`) and of so many bytes, and mounts it for `owner`.
    ///
    /// The loop device reads and writes its file directly: what is in memory is in memory once.
    ///
    /// # Errors
    /// It needs root, loop devices, the kernel's support, and the program that makes the filesystem.
    pub fn make(kind: &str, bytes: u64, options: &str, owner: &Owner) -> Result<Mount> {
        if !rustix::process::geteuid().is_root() {
            return Err(format!("{kind} needs root").into());
        }
        let home = TempDir::owned_by(owner)?;
        let (image, folder) = (home.path().join("image"), home.path().join("mounted"));
        File::create(&image)?.set_len(bytes)?;
        fs::create_dir(&folder)?;
        output(command(format!("mkfs.{kind}")).arg("-q").arg(&image))?;
        let looped = ["--find", "--show", "--direct-io=on"];
        let device = output(command("losetup").args(looped).arg(&image))?.trim().to_owned();
        let mut mount = command("mount");
        mount.args(["-t", kind, "-o", options]).arg(&device).arg(&folder);
        if let Err(error) = output(&mut mount) {
            detach(&device);
            return Err(error.into());
        }
        // The device is busy, so it goes when nothing is mounted from it any more.
        detach(&device);
        let mounted = Mount { folder, _home: home };
        std::os::unix::fs::chown(&mounted.folder, Some(owner.uid), Some(owner.gid))?;
        Ok(mounted)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A process of the server that has just ended may still be leaving.
        let unmount = || output(command("umount").arg(&self.folder)).is_ok();
        let _ = wait_until(std::time::Duration::from_secs(10), "the filesystem to be unmounted", unmount);
    }
}

/// Has this program run with mounts of its own, which end with it however it ends. Returns where that cannot be.
pub fn alone() {
    const MARK: &str = "PGSHRINK_BENCH_MOUNTS";
    if !rustix::process::geteuid().is_root() || std::env::var_os(MARK).is_some() {
        return;
    }
    if let Ok(program) = std::env::current_exe() {
        let mut again = Command::new("unshare");
        again.arg("--mount").arg(program).args(std::env::args_os().skip(1)).env(MARK, "own");
        let _ = again.exec();
    }
}

fn detach(device: &str) {
    let _ = Command::new("losetup").args(["--detach", device]).status();
}
