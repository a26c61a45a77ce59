//! Processes of a test that are killed. Each runs one ignored test of this program, which asks [`called`] what it is
//! to do.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::shell::starting;

const FOLDER: &str = "PGSHRINK_CFS_KILLS";
const WORKER: &str = "PGSHRINK_CFS_WORKER";

/// Starts the ignored test of this name as worker `number` of `folder`.
pub fn spawn(test: &str, folder: &Path, number: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null());
    command.env(FOLDER, folder).env(WORKER, number.to_string());
    starting(|| command.spawn()).unwrap()
}

/// The folder and number of a worker. None: it was run by somebody who runs all ignored tests.
pub fn called() -> Option<(PathBuf, u32)> {
    let Some(folder) = std::env::var_os(FOLDER) else {
        println!("{FOLDER} is not set");
        return None;
    };
    Some((folder.into(), std::env::var(WORKER).unwrap().parse().unwrap()))
}

/// Kills a worker, which must not have ended by itself.
pub fn kill(mut child: Child) {
    if let Some(status) = child.try_wait().unwrap() {
        panic!("a worker found something wrong: {status}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
