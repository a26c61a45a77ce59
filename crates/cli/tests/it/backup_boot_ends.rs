//! `pgshrink verify --boot` that is interrupted, and servers whose processes end.

use crate::backup_boot::{LONG, Space, servers_in};
use pgshrink_testkit::{Cluster, Server, ServerBinaries, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Its exit code and what it said on standard error.
    fn end(&mut self) -> (Option<i32>, String) {
        wait_until(LONG, "the end", || self.0.try_wait().unwrap().is_some()).unwrap();
        let mut text = String::new();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut text).unwrap();
        (self.0.wait().unwrap().code(), text)
    }

    fn signal(&self, signal: Signal) {
        send(self.0.id(), signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A backup that takes its time to be restored and read. A locked table is waited for, for five seconds.
fn slow(server: &ServerBinaries, space: &Space, locked: usize) {
    let cluster = Cluster::builder().server(server).conf("max_prepared_transactions", "20").start().unwrap();
    for n in 0..locked {
        let lock = format!("begin; lock table locked{n}; prepare transaction 'forgotten{n}'");
        cluster.sql(&format!("create table locked{n} (n int); {lock}")).unwrap();
    }
    cluster.sql("create table big as select n, md5(n::text) as t from generate_series(1, 400000) n").unwrap();
    cluster.sql("create index on big (t)").unwrap();
    space.backup(&cluster.conninfo("postgres"));
}

#[test]
fn an_interrupted_verification_leaves_no_server_and_no_scratch() {
    Server::each("verify --boot is interrupted", &[18], |server| {
        let space = Space::new();
        slow(server, &space, 20);
        let has_data = || {
            let entries = fs::read_dir(space.dir.path()).unwrap().flatten();
            entries.map(|entry| entry.path().join("data")).any(|data| data.join("base").exists())
        };
        for (signal, with_server) in [(Signal::INT, false), (Signal::TERM, true), (Signal::INT, true)] {
            let mut running = Running::start(&mut space.verify(server, &[]));
            wait_until(LONG, "the restore to begin", has_data).unwrap();
            if with_server {
                wait_until(LONG, "the server to start", || !servers_in(space.dir.path()).is_empty()).unwrap();
            }
            running.signal(signal);
            let (status, text) = running.end();
            assert_eq!(status, Some(2), "{text}");
            assert!(text.contains("interrupted"), "{text}");
            space.assert_clean();
        }
        // What cannot be caught leaves the files, but no server.
        let mut running = Running::start(&mut space.verify(server, &[]));
        wait_until(LONG, "the server to start", || !servers_in(space.dir.path()).is_empty()).unwrap();
        running.signal(Signal::KILL);
        assert_eq!(running.0.wait().unwrap().signal(), Some(9));
        wait_until(LONG, "the server to end", || servers_in(space.dir.path()).is_empty()).unwrap();
    });
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// A process of the server that reads a table for the verification.
fn reader(space: &Space) -> Option<u32> {
    servers_in(space.dir.path()).into_iter().find(|pid| {
        let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let title = String::from_utf8_lossy(&title);
        title.contains("pgshrink_verify_") && title.contains("COPY")
    })
}

#[test]
fn a_process_that_crashes_is_a_problem_and_one_that_was_killed_is_not() {
    Server::each("verify --boot and crashes", &[15], |server| {
        let space = Space::new();
        slow(server, &space, 0);
        for (signal, code) in [(Signal::SEGV, 1), (Signal::KILL, 0)] {
            let mut running = Running::start(&mut space.verify(server, &["--threads", "1"]));
            let mut found = None;
            let is_reading = || {
                found = reader(&space);
                found.is_some()
            };
            wait_until(LONG, "a session that reads", is_reading).unwrap();
            send(found.unwrap(), signal);
            let (status, text) = running.end();
            assert_eq!(status, Some(code), "{text}");
            assert_eq!(text.contains("crashed: signal 11"), code == 1, "{text}");
            assert_eq!(text.contains("1 problem"), code == 1, "{text}");
            space.assert_clean();
        }
    });
}
