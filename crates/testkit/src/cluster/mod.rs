//! Private PostgreSQL clusters.
//!
//! A cluster owns a data directory, a TCP port on 127.0.0.1 and a directory for its Unix socket, and runs exactly
//! one postmaster, which it stops when dropped. As root it runs as user `postgres`.
//!
//! 1. Nothing outside the test process' own directory is written (see [`crate::scratch`]).
//! 2. `fsync` is off unless asked for: a killed postmaster loses nothing, a killed machine loses the test anyway.
//! 3. Our settings live in `testkit.conf`, which `postgresql.conf` includes at its end.

mod builder;
mod postmaster;
mod standby;
mod template;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub use builder::{Auth, ClusterBuilder};
pub use standby::StandbyBuilder;

use crate::certs::Authority;
use crate::error::{Doing, Error};
use crate::port::Port;
use crate::psql::{self, Psql};
use crate::run::{self, Owner};
use crate::scratch::TempDir;
use crate::server::ServerBinaries;
use crate::wait::wait_until;
use postmaster::Postmaster;

/// The password of the superuser `postgres`, whatever the authentication.
pub const SUPERUSER_PASSWORD: &str = "pgshrink-test";

/// How a server is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Waits for sessions to end (SIGTERM).
    Smart,
    /// Ends sessions, writes a checkpoint (SIGINT).
    Fast,
    /// Ends at once, recovers at the next start (SIGQUIT).
    Immediate,
}

/// A running (or stopped) private server.
#[derive(Debug)]
pub struct Cluster {
    server: ServerBinaries,
    owner: Owner,
    auth: Auth,
    authority: Option<Arc<Authority>>,
    port: Port,
    settings: Mutex<Vec<(String, String)>>,
    environment: Mutex<Vec<(String, String)>>,
    arguments: Mutex<Vec<String>>,
    postmaster: Mutex<Postmaster>,
    // Last: removed after the postmaster has been stopped.
    home: TempDir,
}

impl Cluster {
    /// Describes a cluster to be.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::new()
    }

    /// The server's programs.
    pub fn server(&self) -> &ServerBinaries {
        &self.server
    }

    /// Its TCP port on 127.0.0.1, which also names the Unix socket.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The directory of its Unix socket: what libpq takes as `host`.
    pub fn socket_dir(&self) -> PathBuf {
        self.home.path().join("s")
    }

    /// The Unix socket itself.
    pub fn socket_path(&self) -> PathBuf {
        self.socket_dir().join(format!(".s.PGSQL.{}", self.port()))
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The user the server runs as.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The authority that signed its certificate, with `tls(true)`.
    pub fn authority(&self) -> Option<&Authority> {
        self.authority.as_deref()
    }

    /// A connection string for TCP as the superuser, with the password where one is asked for.
    pub fn conninfo(&self, database: &str) -> String {
        self.conninfo_at("127.0.0.1", self.port(), database)
    }

    /// A connection string for the Unix socket as the superuser.
    pub fn conninfo_unix(&self, database: &str) -> String {
        self.conninfo_at(&self.socket_dir().to_string_lossy(), self.port(), database)
    }

    /// A connection string as the superuser for another way to this server: a relay, a gateway.
    pub fn conninfo_at(&self, host: &str, port: u16, database: &str) -> String {
        let mut keywords = vec![
            ("host".to_owned(), host.to_owned()),
            ("port".to_owned(), port.to_string()),
            ("user".to_owned(), "postgres".to_owned()),
            ("dbname".to_owned(), database.to_owned()),
        ];
        if self.auth.asks_for_password() {
            keywords.push(("password".to_owned(), SUPERUSER_PASSWORD.to_owned()));
        }
        psql::conninfo(&keywords)
    }

    /// A psql call as the superuser over the Unix socket, to be pointed elsewhere as needed.
    pub fn psql(&self) -> Psql {
        let psql = Psql::new(self.server.program("psql"))
            .at(self.socket_dir().to_string_lossy(), self.port())
            .user("postgres")
            .database("postgres");
        if self.auth.asks_for_password() { psql.set("password", SUPERUSER_PASSWORD) } else { psql }
    }

    /// Runs SQL as the superuser in database `postgres` and returns unaligned tuples.
    pub fn sql(&self, sql: &str) -> Result<String, Error> {
        self.psql().sql(sql)
    }

    /// A program of the server (`pgbench`, `pg_dump`, `pg_basebackup`) as the test's own user.
    pub fn command(&self, program: &str) -> std::process::Command {
        self.server.command(program)
    }

    /// Starts a stopped server and waits until it accepts connections.
    pub fn start(&self) -> Result<(), Error> {
        self.write_settings()?;
        let mut command = self.owner.command(self.server.program("postgres"));
        command.arg("-D").arg(self.data_dir()).envs(self.environment().iter().cloned());
        command.args(self.arguments.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).iter());
        self.postmaster().start(command, &self.data_dir(), &self.log_path())
    }

    /// Stops the server and waits until it has ended.
    pub fn stop(&self, how: Stop) -> Result<(), Error> {
        self.postmaster().stop(how)
    }

    /// Stops it (fast) and starts it again.
    pub fn restart(&self) -> Result<(), Error> {
        self.stop(Stop::Fast)?;
        self.start()
    }

    /// Kills the postmaster (SIGKILL) and waits until its children have noticed and gone.
    pub fn kill(&self) -> Result<(), Error> {
        self.postmaster().kill(&self.data_dir())
    }

    /// True while the postmaster runs.
    pub fn is_running(&self) -> bool {
        self.postmaster().is_running()
    }

    /// The process id of the running postmaster.
    pub fn pid(&self) -> Option<u32> {
        self.postmaster().pid()
    }

    /// CPU seconds of the running server so far, user and system, all its processes and those that have ended included.
    pub fn cpu_seconds(&self) -> Option<f64> {
        crate::daemon::cpu_seconds_of_family(self.pid()?)
    }

    /// Makes a standby the primary of a new timeline, and waits for it.
    pub fn promote(&self) -> Result<(), Error> {
        let mut command = self.owner.command(self.server.program("pg_ctl"));
        run::output(command.args(["promote", "-w", "-t", "60", "-s", "-D"]).arg(self.data_dir())).map(drop)
    }

    /// Sets a configuration parameter for the next reload or start.
    pub fn set_conf(&self, name: &str, value: impl ToString) -> Result<(), Error> {
        set(&mut self.settings(), name, value.to_string());
        self.write_settings()
    }

    /// Sets a variable of the server's environment for the next start.
    pub fn set_env(&self, name: &str, value: impl ToString) {
        set(&mut self.environment(), name, value.to_string());
    }

    /// Sets arguments of `postgres` for the next start, as `-c`, `config_file=/etc/postgresql.conf`.
    pub fn set_arguments(&self, arguments: &[String]) {
        *self.arguments.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = arguments.to_vec();
    }

    /// Has the server read its configuration again, and waits until new sessions have it. What already runs reads it
    /// when it next looks.
    pub fn reload(&self) -> Result<(), Error> {
        // The server logs the signal before it reads its files. Where no session can be opened, the line must do.
        let loaded = || self.sql("select pg_conf_load_time()").ok();
        let (logged, before) = (self.log()?.len(), loaded());
        self.postmaster().signal(rustix::process::Signal::HUP)?;
        wait_until(Duration::from_secs(20), "the server to reload its configuration", || {
            self.log().is_ok_and(|log| log.get(logged..).is_some_and(|new| new.contains("received SIGHUP")))
                && (before.is_none() || loaded() != before)
        })
    }

    /// Adds a line before all others of `pg_hba.conf`, for the next reload or start.
    pub fn add_hba(&self, line: &str) -> Result<(), Error> {
        let path = self.data_dir().join("pg_hba.conf");
        let old = std::fs::read_to_string(&path).doing(|| format!("reading {}", path.display()))?;
        self.write_data_file("pg_hba.conf", &format!("{line}\n{old}"))
    }

    /// Begins a standby of this server, made by `pg_basebackup`.
    pub fn standby(&self) -> StandbyBuilder<'_> {
        StandbyBuilder::new(self)
    }

    /// Everything the server has logged, over all its starts.
    pub fn log(&self) -> Result<String, Error> {
        read_log(&self.log_path())
    }

    /// True when `needle` is in the log.
    pub fn log_contains(&self, needle: &str) -> bool {
        self.log().is_ok_and(|log| log.contains(needle))
    }

    /// Waits until `needle` is in the log.
    pub fn wait_for_log(&self, timeout: Duration, needle: &str) -> Result<(), Error> {
        wait_until(timeout, &format!("`{needle}` in the server's log"), || self.log_contains(needle))
    }

    /// The log file.
    pub fn log_path(&self) -> PathBuf {
        self.home.path().join("log")
    }

    fn settings(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.settings.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn environment(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.environment.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn postmaster(&self) -> MutexGuard<'_, Postmaster> {
        self.postmaster.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write_settings(&self) -> Result<(), Error> {
        let mut text = String::new();
        for (name, value) in self.settings().iter() {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        self.write_data_file("testkit.conf", &text)
    }

    fn write_data_file(&self, name: &str, text: &str) -> Result<(), Error> {
        write_owned(&self.owner, &self.data_dir().join(name), text.as_bytes())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let data = self.data_dir();
        self.postmaster().end(&data);
    }
}

/// Replaces or adds a setting.
fn set(settings: &mut Vec<(String, String)>, name: &str, value: String) {
    settings.retain(|(set, _)| set != name);
    settings.push((name.to_owned(), value));
}

/// Writes a file that only the server's user may read, whole or not at all: a server may be reading it.
fn write_owned(owner: &Owner, path: &Path, content: &[u8]) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let fresh = path.with_extension("new");
    std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(content))
        .doing(|| format!("writing {}", fresh.display()))?;
    owner.take(&fresh)?;
    std::fs::rename(&fresh, path).doing(|| format!("renaming to {}", path.display()))
}

fn read_log(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).doing(|| format!("reading {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
