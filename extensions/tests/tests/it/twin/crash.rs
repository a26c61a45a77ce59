//! Ways to end our server without warning, and its return.

use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pgshrink_testkit::{Cluster, Rng, Stop, wait_until};

use super::pair::Twins;
use super::story::SERVER;

const VICTIMS: [&str; 8] = [
    "client backend",
    "checkpointer",
    "background writer",
    "walwriter",
    "cfs garbage collector",
    "cfs launcher",
    "cfs converter",
    "cfs dispatcher",
];

/// A crash that comes by itself in a moment.
#[derive(Debug)]
pub struct Crash {
    thread: JoinHandle<()>,
}

/// Kills a process, if it is one of this server's: the number may be another's by now.
fn kill(ours: &Cluster, pid: &str) {
    if std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|place| place == ours.data_dir()) {
        // The shell's own: a minimal system has no program for it.
        let _ = Command::new("sh").args(["-c", "kill -KILL $0", pid]).status();
    }
}

impl Crash {
    /// Chooses what will happen, and lets it happen within a tenth of a second.
    pub fn arm(twins: &Arc<Twins>, rng: &mut Rng) -> Crash {
        let after = Duration::from_micros(rng.between(0, 100_000) as u64);
        let twins = twins.clone();
        let choice = rng.below(10);
        let kind = *rng.pick(&VICTIMS);
        let pid = match choice {
            0..6 => pid_of(&twins.ours, kind),
            _ => String::new(),
        };
        let what = match (choice, pid.is_empty()) {
            (0..6, false) => format!("kill -9 of a {kind}"),
            (6, _) => "an immediate stop".to_owned(),
            _ => "kill -9 of the postmaster".to_owned(),
        };
        twins.story.tell(SERVER, &format!("{what} in {} ms", after.as_millis()));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(after);
            match (choice, pid.is_empty()) {
                (0..6, false) => kill(&twins.ours, &pid),
                (6, _) => drop(twins.ours.stop(Stop::Immediate)),
                _ => drop(twins.ours.kill()),
            }
        });
        Crash { thread }
    }

    pub fn wait(self) {
        self.thread.join().unwrap();
    }
}

/// A process of this kind; none if there is none now.
fn pid_of(ours: &Cluster, kind: &str) -> String {
    let sql = format!(
        "select pid from pg_stat_activity where backend_type = '{kind}' and pid <> pg_backend_pid() order by random() limit 1"
    );
    ours.sql(&sql).unwrap_or_default()
}

/// Has the server back, sometimes after it has been killed once more while it recovered.
pub fn recover(twins: &Twins, rng: &mut Rng) -> Result<(), String> {
    let again = rng.chance(25).then(|| Duration::from_millis(rng.between(5, 150) as u64));
    if !twins.ours.is_running()
        && let Some(after) = again
    {
        twins.story.tell(SERVER, &format!("killed {} ms into its recovery", after.as_millis()));
        std::thread::scope(|scope| {
            scope.spawn(|| drop(twins.ours.start()));
            std::thread::sleep(after);
            let file = twins.ours.data_dir().join("postmaster.pid");
            let pid = std::fs::read_to_string(file).unwrap_or_default();
            if let Some(pid) = pid.lines().next() {
                kill(&twins.ours, pid);
            }
        });
    }
    let mut last = String::new();
    let back = wait_until(Duration::from_secs(180), "the server to be back", || {
        if !twins.ours.is_running()
            && let Err(error) = twins.ours.start()
        {
            last = error.to_string();
            return false;
        }
        twins.ours.sql("select 1").is_ok()
    });
    twins.story.tell(SERVER, "is back");
    back.map_err(|error| format!("{error}: {last}\n{}", tail(&twins.ours)))
}

fn tail(ours: &Cluster) -> String {
    let log = ours.log().unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
