//! The settings of the server on scratch space: the cluster's own, but for those by which it would reach, or be reached by, others.

use super::super::Failure;
use super::layout::Layout;
use super::scratch::Scratch;
use pgshrink_backup::record::Record;
use std::fs;
use std::io;
use std::path::Path;

/// The socket's name. No TCP port is opened; extensions that connect to their own server over TCP must not find another one.
pub(super) const PORT: u16 = 1;

/// What is passed to the server with `-c`, which is stronger than its files.
pub(super) struct Settings {
    pub(super) values: Vec<(String, String)>,
    /// What was changed in the restored files, for the report.
    pub(super) notes: Vec<String>,
}

impl Settings {
    /// Makes the restored cluster ready to be started by itself. `asked` are `--set`, the strongest.
    pub(super) fn prepare(scratch: &Scratch, record: &Record, asked: &[String]) -> Result<Settings, Failure> {
        let mut settings = Settings { values: Vec::new(), notes: Vec::new() };
        let data = scratch.data();
        for signal in ["standby.signal", "recovery.signal"] {
            match fs::remove_file(data.join(signal)) {
                Ok(()) => {
                    settings
                        .notes
                        .push(format!("{signal} was removed, so that recovery ends with the backup's WAL"));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Failure::at(&data.join(signal))(error)),
            }
        }
        let asked = parse(asked)?;
        if !asked.iter().any(|(name, _)| name == "config_file") {
            settings.own_configuration(scratch, record)?;
        }
        settings.isolate(scratch, record.server_version / 10_000)?;
        settings.values.extend(asked);
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: impl std::fmt::Display) {
        self.values.push((name.to_owned(), value.to_string()));
    }

    fn isolate(&mut self, scratch: &Scratch, major: u32) -> Result<(), Failure> {
        let (hba, ident) = (scratch.file("pg_hba.conf"), scratch.file("pg_ident.conf"));
        write(&hba, "local all all trust\n")?;
        write(&ident, "")?;
        self.set("data_directory", scratch.data().display());
        self.set("hba_file", hba.display());
        self.set("ident_file", ident.display());
        self.set("unix_socket_directories", scratch.sockets().display());
        self.set("port", PORT);
        self.set("external_pid_file", scratch.file("server.pid").display());
        for (name, value) in ISOLATION {
            self.set(name, value);
        }
        if major >= 17 {
            self.set("event_triggers", "off");
            self.set("summarize_wal", "off");
            self.set("sync_replication_slots", "off");
        }
        Ok(())
    }

    /// The cluster's own `postgresql.conf`, with what it includes from the backup; an empty one where the backup has none.
    fn own_configuration(&mut self, scratch: &Scratch, record: &Record) -> Result<(), Failure> {
        let layout = Layout::new(scratch, record.configuration.as_ref());
        let (from, config) = layout.config_file()?;
        if config.exists() {
            layout.adapt(from, config.clone(), &mut self.notes)?;
            self.set("config_file", config.display());
            return Ok(());
        }
        let empty = scratch.file("postgresql.conf");
        write(&empty, "")?;
        self.set("config_file", empty.display());
        let note =
            "the backup has no postgresql.conf: PostgreSQL's defaults are used (--set config_file=FILE)";
        self.notes.push(note.to_owned());
        Ok(())
    }
}

/// Nobody connects but over the private socket; the server connects to nobody, runs no command and no job of its own, and waits
/// for no standby. Damage is not passed over. The log goes where it is looked for, in English.
const ISOLATION: &[(&str, &str)] = &[
    ("listen_addresses", ""),
    ("unix_socket_group", ""),
    ("unix_socket_permissions", "0700"),
    ("bonjour", "off"),
    ("ssl", "off"),
    ("archive_mode", "off"),
    ("archive_command", ""),
    ("archive_library", ""),
    ("restore_command", ""),
    ("archive_cleanup_command", ""),
    ("recovery_end_command", ""),
    ("primary_conninfo", ""),
    ("primary_slot_name", ""),
    ("synchronous_standby_names", ""),
    ("max_worker_processes", "0"),
    ("max_logical_replication_workers", "0"),
    ("autovacuum", "off"),
    ("fsync", "off"),
    ("huge_pages", "try"),
    ("restart_after_crash", "on"),
    ("zero_damaged_pages", "off"),
    ("ignore_checksum_failure", "off"),
    ("ignore_invalid_pages", "off"),
    ("ignore_system_indexes", "off"),
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_min_messages", "warning"),
    ("log_statement", "none"),
    ("log_min_duration_statement", "-1"),
    ("log_line_prefix", "%m [%p] "),
    ("lc_messages", "C"),
];

/// Reads `--set NAME=VALUE`.
pub(super) fn parse(asked: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    let read = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && name.bytes().all(allowed) => {
            Ok((name.to_ascii_lowercase(), value.to_owned()))
        }
        _ => Err(Failure::new("--set", format!("expected NAME=VALUE, found {text}"))),
    };
    asked.iter().map(read).collect()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(Failure::at(path))
}
