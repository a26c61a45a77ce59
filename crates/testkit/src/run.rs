//! Running a program to its end, as the test's own user or as the one the server runs as.
//!
//! Every `PG*` variable of the environment is taken out first: a developer's `PGHOST` must not decide which
//! server a test talks to.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Output, Stdio};

use crate::error::{Doing, Error, Missing};

/// The operating system user that owns clusters and runs servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// True when the test runs as root and has to step down to this user.
    pub step_down: bool,
}

impl Owner {
    /// The test's own user, or `postgres` when that is root: the server refuses to run as root. `nobody` where
    /// PostgreSQL is not installed but unpacked below target.
    pub fn find() -> Result<Owner, Missing> {
        let uid = rustix::process::geteuid().as_raw();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if uid != 0 {
            let gid = rustix::process::getegid().as_raw();
            let name = passwd
                .lines()
                .find_map(|line| parse_passwd(line).filter(|found| found.1 == uid))
                .map_or_else(|| format!("uid{uid}"), |found| found.0.to_owned());
            return Ok(Owner { name, uid, gid, step_down: false });
        }
        let known = |name| passwd.lines().find_map(|line| parse_passwd(line).filter(|found| found.0 == name));
        known("postgres")
            .or_else(|| known("nobody"))
            .map(|(name, uid, gid)| Owner { name: name.to_owned(), uid, gid, step_down: true })
            .ok_or_else(|| {
                Missing::new(
                    "an unprivileged user for the server",
                    "the test runs as root, PostgreSQL refuses to, and there is neither a user `postgres` nor `nobody`",
                    "tools/setup test (its package makes the user), or run the test as an ordinary user",
                )
            })
    }

    /// A command that runs `program` as this user, without the environment's `PG*` variables.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = command(program);
        if self.step_down {
            command.uid(self.uid).gid(self.gid).env("HOME", "/").env("USER", &self.name).current_dir("/");
        }
        command.env("LC_ALL", "C");
        command
    }
}

fn parse_passwd(line: &str) -> Option<(&str, u32, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let uid = fields.nth(1)?.parse().ok()?;
    Some((name, uid, fields.next()?.parse().ok()?))
}

/// A command without the environment's `PG*` variables and with no standard input.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG") && !name.starts_with("PGSHRINK")) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs `command` to its end and returns its standard output; a failure carries what it said.
pub fn output(command: &mut Command) -> Result<String, Error> {
    let done = command.output().doing(|| format!("starting {}", shown(command)))?;
    checked(&shown(command), done)
}

/// As [`output`], with `input` on its standard input.
pub fn output_with_input(command: &mut Command, input: &[u8]) -> Result<String, Error> {
    let name = shown(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .doing(|| format!("starting {name}"))?;
    let stdin = child.stdin.take();
    let done = std::thread::scope(|scope| {
        // The program may write before it has read everything: feed it beside collecting its output. A program
        // that stops reading early shows in its exit status, not here.
        scope.spawn(move || stdin.map(|mut pipe| pipe.write_all(input)));
        child.wait_with_output()
    });
    checked(&name, done.doing(|| format!("waiting for {name}"))?)
}

fn checked(name: &str, done: Output) -> Result<String, Error> {
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = [&done.stderr[..], &done.stdout[..]].concat();
    Err(Error::Command {
        command: name.to_owned(),
        status: status_text(done.status),
        stderr: String::from_utf8_lossy(&said).into_owned(),
    })
}

fn status_text(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}
