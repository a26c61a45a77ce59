//! `pgshrink cfs exec`: programs beside a stopped server's files.

mod files;
mod refusals;
mod rewind;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pgshrink_testkit::Cluster;

/// The program, with its library beside it. tools/test builds both.
pub fn pgshrink() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug");
    for name in ["pgshrink", "libpgshrink_cfs_exec.so"] {
        let path = built.join(name);
        assert!(path.exists(), "{}: cargo build -p pgshrink-cli -p pgshrink-cfs-exec", path.display());
    }
    built.join("pgshrink").canonicalize().unwrap()
}

/// `pgshrink cfs exec`, as the server's user.
fn exec(cluster: &Cluster, options: &[&str], program: impl AsRef<Path>) -> Command {
    let mut command = cluster.owner().command(pgshrink());
    command.args(["cfs", "exec"]).args(options).arg("--").arg(program.as_ref());
    command
}

/// What it printed, and that it succeeded.
#[track_caller]
fn done(command: &mut Command) -> String {
    let (code, said) = outcome(command);
    assert_eq!(code, Some(0), "{command:?}\n{said}");
    said
}

fn outcome(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Files of containers below a directory.
fn containers(root: &Path) -> usize {
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => containers(&entry.path()),
            false => usize::from(entry.file_name() == "segment.pgshrink"),
        })
        .sum()
}
