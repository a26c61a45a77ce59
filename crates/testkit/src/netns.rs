//! A link of a chosen bandwidth: a network namespace behind a veth pair, both ends shaped with `tc tbf`.
//!
//! Needs root and iproute2. The test stays in the machine's own namespace at [`Link::near`]; programs started with
//! [`Link::command`] live behind the link at [`Link::far`].

use std::net::Ipv4Addr;
use std::process::Command;

use crate::error::{Doing, Error, Kind, Missing};
use crate::run;
use crate::scratch::{Reservation, process_dir};

/// A link's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkShape {
    /// What it carries in each direction, headers included.
    pub bytes_per_second: u64,
    /// What its queue holds before it drops.
    pub queue_size: u64,
}

impl LinkShape {
    /// A link of this rate, with a queue of about 50 ms.
    pub fn of(bytes_per_second: u64) -> LinkShape {
        LinkShape { bytes_per_second, queue_size: (bytes_per_second / 20).max(64 * 1024) }
    }
}

/// A namespace behind a shaped link; dropping it takes both away.
#[derive(Debug)]
pub struct Link {
    namespace: String,
    record: std::path::PathBuf,
    near: Ipv4Addr,
    far: Ipv4Addr,
    _subnet: Reservation,
}

impl Link {
    /// Makes the link. The outer error says what the machine lacks, the inner one what failed.
    pub fn new(shape: LinkShape) -> Result<Result<Link, Error>, Missing> {
        lacking()?;
        Ok(Self::make(shape))
    }

    /// The address of this side.
    pub fn near(&self) -> Ipv4Addr {
        self.near
    }

    /// The address of the far side.
    pub fn far(&self) -> Ipv4Addr {
        self.far
    }

    /// The namespace's name, for `ip netns exec`.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command that runs on the far side, without the environment's `PG*` variables.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = run::command("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    /// Changes the rate of both directions.
    pub fn reshape(&self, shape: LinkShape) -> Result<(), Error> {
        self.shape("replace", shape)
    }

    fn make(shape: LinkShape) -> Result<Link, Error> {
        let records = process_dir()?.join("netns");
        std::fs::create_dir_all(&records).doing(|| format!("creating {}", records.display()))?;
        for number in 0..=255 {
            let Some(subnet) = Reservation::take("subnets", &number.to_string())? else { continue };
            let namespace = format!("pgst{number}");
            // A name in use is another base directory's, or left by a machine that lost its guardian: not ours.
            if ip(&["netns", "add", &namespace]).is_err() {
                continue;
            }
            let record = records.join(&namespace);
            let link = Link {
                near: Ipv4Addr::new(10, 213, number, 1),
                far: Ipv4Addr::new(10, 213, number, 2),
                namespace,
                record,
                _subnet: subnet,
            };
            std::fs::write(&link.record, "").doing(|| format!("writing {}", link.record.display()))?;
            link.connect()?;
            link.shape("add", shape)?;
            return Ok(link);
        }
        Err(Error::Usage("256 links are in use".to_owned()))
    }

    fn connect(&self) -> Result<(), Error> {
        let (name, near_end, far_end) = (self.namespace.as_str(), self.near_end(), self.far_end());
        ip(&["link", "add", &near_end, "type", "veth", "peer", "name", &far_end, "netns", name])?;
        ip(&["address", "add", &format!("{}/30", self.near), "dev", &near_end])?;
        ip(&["link", "set", &near_end, "up"])?;
        ip(&["-n", name, "address", "add", &format!("{}/30", self.far), "dev", &far_end])?;
        ip(&["-n", name, "link", "set", &far_end, "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])
    }

    fn shape(&self, verb: &str, shape: LinkShape) -> Result<(), Error> {
        let rate = format!("{}bps", shape.bytes_per_second);
        // tbf needs a burst of at least rate / HZ, and one that holds the largest segment the kernel hands over.
        let burst = (shape.bytes_per_second / 200).max(64 * 1024 + 1024).to_string();
        let limit = (shape.queue_size + shape.bytes_per_second / 200).to_string();
        for (namespace, device) in [(None, self.near_end()), (Some(self.namespace.as_str()), self.far_end())]
        {
            let mut command = run::command("tc");
            command.args(namespace.map(|name| ["-n", name]).into_iter().flatten());
            command.args(["qdisc", verb, "dev", &device, "root", "tbf", "rate", &rate]);
            run::output(command.args(["burst", &burst, "limit", &limit]))?;
        }
        Ok(())
    }

    fn near_end(&self) -> String {
        format!("{}n", self.namespace)
    }

    fn far_end(&self) -> String {
        format!("{}f", self.namespace)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The kernel takes the pair down with the namespace, but later: the address must be free at once.
        let _ = ip(&["link", "delete", &self.near_end()]);
        if ip(&["netns", "delete", &self.namespace]).is_ok() {
            let _ = std::fs::remove_file(&self.record);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), Error> {
    run::output(run::command("ip").args(arguments)).map(drop)
}

fn lacking() -> Result<(), Missing> {
    let what = "a link of a chosen bandwidth";
    if !rustix::process::geteuid().is_root() {
        return Err(Missing::new(what, "network namespaces need root", "running as root").of(Kind::Privilege));
    }
    for program in ["ip", "tc"] {
        if run::output(run::command(program).arg("-V")).is_err() {
            let why = format!("there is no working `{program}`");
            return Err(Missing::new(what, why, "apt-get install iproute2"));
        }
    }
    // Entering a namespace remounts the root, which in a chroot is no mount point; trying would leave a mount behind.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if !mounts.lines().any(|mount| mount.split(' ').nth(4) == Some("/")) {
        let why = "the root is no mount point, as in a chroot";
        return Err(Missing::new(what, why, "a machine of its own").of(Kind::Privilege));
    }
    // In a container root may lack the privilege itself.
    let probe = &format!("pgstprobe{}-{:?}", std::process::id(), std::thread::current().id());
    let entered = ip(&["netns", "add", probe]).and_then(|()| {
        let entered = ip(&["-n", probe, "link", "set", "lo", "up"]);
        let _ = ip(&["netns", "delete", probe]);
        entered
    });
    entered.map_err(|error| {
        let why = format!("no network namespace can be made and entered: {error}");
        Missing::new(what, why, "a machine that allows them, and no chroot").of(Kind::Privilege)
    })
}
