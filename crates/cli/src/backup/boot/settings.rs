//! The settings of the server on scratch space: the cluster's own, but for those by which it would reach, or be reached by, others.

use super::super::Failure;
use super::scratch::Scratch;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The socket's name. No TCP port is opened; extensions that connect to their own server over TCP must not find another one.
pub(super) const PORT: u16 = 1;

/// Configuration files that are looked at.
const FILES_MAX: usize = 1000;

/// What is passed to the server with `-c`, which is stronger than its files.
pub(super) struct Settings {
    pub(super) values: Vec<(String, String)>,
    /// What was changed in the restored files, for the report.
    pub(super) notes: Vec<String>,
}

impl Settings {
    /// Makes the restored cluster ready to be started by itself. `asked` are `--set`, the strongest.
    pub(super) fn prepare(scratch: &Scratch, major: u32, asked: &[String]) -> Result<Settings, Failure> {
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
        let config = data.join("postgresql.conf");
        if config.exists() {
            settings.leave_out_absent(&data, &config)?;
        } else if !asked.iter().any(|(name, _)| name == "config_file") {
            let empty = scratch.file("postgresql.conf");
            write(&empty, "")?;
            settings.set("config_file", empty.display());
            let note =
                "the backup has no postgresql.conf: PostgreSQL's defaults are used (--set config_file=FILE)";
            settings.notes.push(note.to_owned());
        }
        settings.isolate(scratch, major)?;
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

    /// Makes a comment of each `include` whose file or directory this machine does not have, in the files of the data directory.
    fn leave_out_absent(&mut self, data: &Path, config: &Path) -> Result<(), Failure> {
        let mut files = vec![config.to_owned()];
        let mut at = 0;
        while let Some(path) = files.get(at).cloned() {
            at += 1;
            let bytes = fs::read(&path).map_err(Failure::at(&path))?;
            // A setting may be in any encoding, and stays as it is.
            let mut changed = Vec::with_capacity(bytes.len());
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let text = String::from_utf8_lossy(line);
                if let Some(target) = included(&text) {
                    let target = path.parent().unwrap_or(data).join(target);
                    if !target.exists() {
                        changed.push(b'#');
                        let what = format!(
                            "`{}` of {}",
                            text.trim(),
                            path.strip_prefix(data).unwrap_or(&path).display()
                        );
                        self.notes.push(format!("{what} was left out: this machine does not have it"));
                    } else if target.starts_with(data) && files.len() < FILES_MAX {
                        files.extend(
                            files_at(&target)
                                .into_iter()
                                .filter(|file| !files.contains(file))
                                .collect::<Vec<_>>(),
                        );
                    }
                }
                changed.extend_from_slice(line);
            }
            if changed.len() != bytes.len() {
                fs::write(&path, changed).map_err(Failure::at(&path))?;
            }
        }
        Ok(())
    }
}

/// The file itself, or the files of a directory that the server would read.
fn files_at(target: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(target) else { return vec![target.to_owned()] };
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .take(FILES_MAX)
        .collect()
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

/// What a line includes, if it must be there.
fn included(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix("include_dir").or_else(|| line.strip_prefix("include"))?;
    // Not include_if_exists.
    let rest = rest.strip_prefix(|c: char| c.is_ascii_whitespace() || c == '=' || c == '\'')?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '=' || c == '\'');
    let end = rest.find(['\'', '#', '\n']).unwrap_or(rest.len());
    Some(rest[..end].trim_end()).filter(|target| !target.is_empty())
}

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

#[test]
fn included_files_are_recognized() {
    assert_eq!(included("include_dir 'conf.d'\t# more\n"), Some("conf.d"));
    assert_eq!(included("  include = '/etc/x y.conf'"), Some("/etc/x y.conf"));
    assert_eq!(included("include_if_exists 'x'"), None);
    assert_eq!(included("#include 'x'"), None);
    assert_eq!(included("included = 'x'"), None);
}
