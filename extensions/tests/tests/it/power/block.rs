//! Power failures of a block device: copies of the file behind a loop device, taken while a server writes.
//!
//! The server's files are on ext4, that on a loop device, and the file behind it on btrfs or xfs, where a file is copied at once
//! and as of one moment (FICLONE). A copy has what the system had written to the device by then, and not what it held
//! back. It is mounted, which replays the file system's journal, and the server is started on it.
// One ioctl.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pgshrink_testkit::run::output;
use pgshrink_testkit::{Cluster, Kind, Missing, Rng, Seed, Server, ServerBinaries, Stop, TempDir, or_skip};

use super::check::{check, complaints, troubles};
use super::conversions::{self, Then};
use super::images::cluster;
use super::recorded::prepare;
use super::workload::Running;

/// Of the file system that can copy, and of the one that the server writes to.
const OUTER_BYTES: u64 = 4 << 30;
const INNER_BYTES: u64 = 700 << 20;

/// `FICLONE` of linux/fs.h: the destination's ioctl, with the source's descriptor.
const FICLONE: u64 = 0x4004_9409;

unsafe extern "C" {
    fn ioctl(descriptor: i32, request: u64, ...) -> i32;
}

/// A file system in a file, mounted.
struct Mounted {
    place: PathBuf,
}

impl Mounted {
    fn new(image: &Path, place: PathBuf) -> Result<Mounted, String> {
        std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        output(mount.args(["-o", "loop"]).arg(image).arg(&place)).map_err(|error| error.to_string())?;
        Ok(Mounted { place })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process of the server may be ending.
        for _ in 0..100 {
            if Command::new("umount").arg(&self.place).output().is_ok_and(|done| done.status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = Command::new("umount").arg("-l").arg(&self.place).output();
    }
}

/// A sparse file of this size with a file system.
fn make(path: &Path, bytes: u64, command: &str, arguments: &[&str]) -> Result<(), String> {
    File::create(path).and_then(|file| file.set_len(bytes)).map_err(|error| error.to_string())?;
    output(Command::new(command).args(arguments).arg(path)).map(drop).map_err(|error| error.to_string())
}

/// The two file systems: what is dropped first is the inner one.
struct Device {
    inner: Option<Mounted>,
    outer: Mounted,
    _scratch: TempDir,
}

impl Device {
    fn new() -> Result<Device, Missing> {
        let lacking = |why: String, kind| {
            Missing::new("a block device of its own", why, "root, loop devices, and tools/setup soak")
                .of(kind)
        };
        // SAFETY: takes nothing.
        if unsafe { geteuid() } != 0 {
            return Err(lacking("mounting needs root".to_owned(), Kind::Privilege));
        }
        let scratch = TempDir::new().unwrap();
        std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let outer = scratch.path().join("outer");
        let made = make(&outer, OUTER_BYTES, "mkfs.btrfs", &["-q"]);
        made.or_else(|why| {
            make(&outer, OUTER_BYTES, "mkfs.xfs", &["-q"]).map_err(|other| format!("{why}; {other}"))
        })
        .map_err(|why| lacking(why, Kind::Program))?;
        let privilege = |why| lacking(why, Kind::Privilege);
        let outer = Mounted::new(&outer, scratch.path().join("o")).map_err(privilege)?;
        let inner = outer.place.join("device");
        make(&inner, INNER_BYTES, "mkfs.ext4", &["-q"]).map_err(|why| lacking(why, Kind::Program))?;
        let inner = Mounted::new(&inner, scratch.path().join("i")).map_err(privilege)?;
        Ok(Device { inner: Some(inner), outer, _scratch: scratch })
    }

    fn inner(&self) -> &Path {
        &self.inner.as_ref().unwrap().place
    }

    /// What is on the device now.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.outer.place.join(name);
        let from = File::open(self.outer.place.join("device")).unwrap();
        let to = File::create(&copy).unwrap();
        // SAFETY: two open files.
        let done = unsafe { ioctl(to.as_raw_fd(), FICLONE, from.as_raw_fd()) };
        assert_eq!(done, 0, "FICLONE: {}", std::io::Error::last_os_error());
        copy
    }
}

unsafe extern "C" {
    fn geteuid() -> u32;
}

/// One copy of the device, and what the server had acknowledged before, and could have begun until after.
struct Copy {
    path: PathBuf,
    acknowledged: Vec<usize>,
    begun: Vec<usize>,
}

/// Moves a cluster's data directory to the device, and leaves a link in its place.
fn move_to(device: &Path, cluster: &Cluster) {
    let data = cluster.data_dir();
    output(Command::new("cp").arg("-a").arg(&data).arg(device.join("data"))).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    let fast = device.join("fast");
    std::fs::create_dir(&fast).unwrap();
    std::os::unix::fs::chown(&fast, Some(cluster.owner().uid), Some(cluster.owner().gid)).unwrap();
    std::os::unix::fs::symlink(device.join("data"), data).unwrap();
}

fn power_failures(server: &ServerBinaries, device: &mut Device, checksums: bool, seed: Seed, count: usize) {
    let mut rng: Rng = seed.rng();
    let place = device.inner().to_owned();
    for name in ["data", "fast"] {
        let _ = std::fs::remove_dir_all(place.join(name));
    }
    let began = Instant::now();
    let cluster = cluster(server, checksums, &conversions::settings(&mut rng));
    let scratch = TempDir::owned_by(cluster.owner()).unwrap();
    move_to(&place, &cluster);
    cluster.start().unwrap();
    prepare(&cluster, &place.join("fast"), &mut rng);
    // Files that the cluster began with were copied, and nobody waited for that.
    output(Command::new("sync").arg("-f").arg(&place)).unwrap();
    let time = Instant::now();
    let running = Running::start(&cluster, scratch.path(), seed, move || time.elapsed().as_nanos() as u64);
    let mut copies = Vec::new();
    for nth in 0..count {
        std::thread::sleep(Duration::from_millis(rng.between(100, 1500) as u64));
        let before = time.elapsed().as_nanos() as u64;
        let path = device.copy(&format!("copy{nth}"));
        let after = time.elapsed().as_nanos() as u64;
        copies.push((path, before, after));
    }
    let acknowledged = running.end();
    cluster.stop(Stop::Immediate).unwrap();
    let troubles = troubles(&cluster.log().unwrap());
    assert!(troubles.is_empty(), "{seed:?}, the server that was copied:\n{}", troubles.join("\n"));
    let copies = copies.into_iter().map(|(path, before, after)| Copy {
        path,
        acknowledged: acknowledged.until(before),
        begun: acknowledged.until(after).iter().map(|last| last + 1).collect(),
    });
    // Copies are mounted in the device's place, so that the links in them lead there.
    device.inner = None;
    for (nth, copy) in copies.enumerate() {
        let mounted = Mounted::new(&copy.path, place.clone()).unwrap();
        let wrong = try_one(&cluster, &copy, &place, Then::random(&mut rng));
        assert!(wrong.is_empty(), "{seed:?}, copy {nth}:\n{}", wrong.join("\n"));
        drop(mounted);
        std::fs::remove_file(&copy.path).unwrap();
    }
    device.inner = Some(Mounted::new(&device.outer.place.join("device"), place.clone()).unwrap());
    let done: usize = acknowledged.until(u64::MAX).iter().sum();
    println!(
        "PostgreSQL {}, checksums {}: {count} copies of a device, {done} transactions, {} s",
        server.version,
        if checksums { "on" } else { "off" },
        began.elapsed().as_secs()
    );
}

/// Starts the server on a copy, and says what is wrong.
fn try_one(cluster: &Cluster, copy: &Copy, place: &Path, then: Then) -> Vec<String> {
    let logged = cluster.log().unwrap().len();
    // The machine has started again: whoever has that number now is another.
    let _ = std::fs::remove_file(cluster.data_dir().join("postmaster.pid"));
    then.set(&cluster.data_dir());
    if let Err(error) = cluster.start() {
        return vec![format!("the server does not start: {error}")];
    }
    let mut wrong = check(cluster, &copy.acknowledged, &copy.begun);
    wrong.extend(then.leftovers(cluster, &place.join("fast")));
    if then == Then::GoOn {
        wrong.extend(check(cluster, &copy.acknowledged, &copy.begun));
    }
    let _ = cluster.stop(Stop::Immediate);
    wrong.extend(complaints(cluster.log().unwrap().get(logged..).unwrap_or_default()));
    wrong
}

#[test]
fn nothing_acknowledged_is_lost_on_a_device_that_loses_its_power() {
    let test = "power failures of a device";
    let mut device = or_skip!(test, Device::new());
    let seed = Seed::from_env_or_time();
    Server::each_with_extensions(test, &[15], |server| {
        power_failures(server, &mut device, true, seed, 3);
    });
}

/// For `make soak`: a tenth of `PGSHRINK_POWER_ROUNDS` for each major, with 20 copies each.
#[test]
#[ignore = "minutes"]
fn nothing_acknowledged_is_lost_on_a_device_that_loses_its_power_often() {
    let test = "many power failures of a device";
    let mut device = or_skip!(test, Device::new());
    let rounds = super::rounds().div_ceil(10);
    let mut rng = Seed::from_env_or_time().rng();
    Server::each_with_extensions(test, &[15, 18], |server| {
        for round in 0..rounds {
            power_failures(server, &mut device, round % 2 == 0, Seed(rng.bits()), 20);
        }
    });
}
