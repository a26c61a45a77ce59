//! Physical standbys: taken with `pg_basebackup`, following through any path the test likes.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;

use super::builder::{new_home, place_settings};
use super::{Cluster, set};
use crate::error::{Doing, Error};
use crate::port::Port;
use crate::run;

/// A standby to be.
#[derive(Clone, Debug)]
pub struct StandbyBuilder<'a> {
    primary: &'a Cluster,
    name: String,
    backup_from: Option<String>,
    stream_from: Option<String>,
    slot: Option<String>,
    settings: Vec<(String, String)>,
}

impl<'a> StandbyBuilder<'a> {
    pub(super) fn new(primary: &'a Cluster) -> Self {
        Self {
            primary,
            name: "standby".to_owned(),
            backup_from: None,
            stream_from: None,
            slot: None,
            settings: Vec::new(),
        }
    }

    /// Its `application_name`, which `synchronous_standby_names` knows; `standby` unless said.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// The connection string for the base backup; the primary itself unless said.
    pub fn backup_from(mut self, conninfo: &str) -> Self {
        self.backup_from = Some(conninfo.to_owned());
        self
    }

    /// The connection string of the walreceiver; the primary itself unless said.
    pub fn stream_from(mut self, conninfo: &str) -> Self {
        self.stream_from = Some(conninfo.to_owned());
        self
    }

    /// A physical replication slot of the primary, which must exist.
    pub fn slot(mut self, slot: &str) -> Self {
        self.slot = Some(slot.to_owned());
        self
    }

    /// Sets a configuration parameter of the standby.
    pub fn conf(mut self, name: &str, value: impl ToString) -> Self {
        set(&mut self.settings, name, value.to_string());
        self
    }

    /// Takes the backup and starts the standby; it accepts read-only queries when this returns.
    pub fn start(self) -> Result<Cluster, Error> {
        let standby = self.create()?;
        standby.start()?;
        Ok(standby)
    }

    /// Takes the backup without starting.
    pub fn create(self) -> Result<Cluster, Error> {
        let primary = self.primary;
        let (owner, server) = (primary.owner.clone(), primary.server.clone());
        let home = new_home(&owner)?;
        let data = home.path().join("data");
        let direct = primary.conninfo("postgres");
        let mut command = owner.command(server.program("pg_basebackup"));
        command.args(["-X", "stream", "-c", "fast", "--no-sync", "-w"]);
        command.arg("-D").arg(&data).arg("-d").arg(self.backup_from.as_deref().unwrap_or(&direct));
        run::output(&mut command)?;
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))
            .doing(|| format!("closing {}", data.display()))?;
        super::write_owned(&owner, &data.join("standby.signal"), b"")?;

        let port = Port::reserve()?;
        let mut settings = primary.settings().clone();
        // What the primary waits for is not what its standby should wait for once promoted.
        settings.retain(|(name, _)| name != "synchronous_standby_names");
        for (name, value) in place_settings(&home, &port) {
            set(&mut settings, &name, value);
        }
        let upstream = self.stream_from.unwrap_or(direct);
        set(&mut settings, "primary_conninfo", format!("{upstream} application_name='{}'", self.name));
        if let Some(slot) = self.slot {
            set(&mut settings, "primary_slot_name", slot);
        }
        for (name, value) in self.settings {
            set(&mut settings, &name, value);
        }
        Ok(Cluster {
            server,
            owner,
            auth: primary.auth,
            authority: primary.authority.clone(),
            port,
            settings: Mutex::new(settings),
            environment: Mutex::default(),
            arguments: Mutex::default(),
            postmaster: Mutex::default(),
            home,
        })
    }
}
