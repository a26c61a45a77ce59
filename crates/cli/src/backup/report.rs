//! What `backup`, `restore`, `verify` and `list` say of a backup.

use super::auto::Chosen;
use super::configuration;
use crate::cfs::output;
use pgshrink_backup::record::Record;
use serde::Serialize;

/// A backup that is whole.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) backup: String,
    pub(super) label: String,
    pub(super) system_identifier: String,
    pub(super) server_version: u32,
    pub(super) start_lsn: String,
    pub(super) stop_lsn: String,
    pub(super) timeline: u32,
    pub(super) stop_time: String,
    pub(super) files: u64,
    pub(super) raw_bytes: u64,
    pub(super) stored_bytes: u64,
    /// From outside of the data directory.
    pub(super) configuration_files: usize,
    pub(super) manifest_sha256: String,
    /// Of `backup.json`: it stands for everything in the backup.
    pub(super) record_sha256: String,
    /// Of a backup that was just taken with `--compression auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) choice: Option<Chosen>,
}

impl Report {
    pub(super) fn of(name: &str, record: &Record) -> Report {
        Report {
            backup: name.to_owned(),
            label: record.label.clone(),
            system_identifier: record.system_identifier.to_string(),
            server_version: record.server_version,
            start_lsn: record.start_lsn.to_string(),
            stop_lsn: record.stop_lsn.to_string(),
            timeline: record.stop_timeline.number(),
            stop_time: record.stop_time.to_string(),
            files: record.files,
            raw_bytes: record.raw_bytes,
            stored_bytes: record.packs.iter().map(|pack| pack.bytes).sum(),
            configuration_files: record.configuration.as_ref().map_or(0, |found| found.files.len()),
            manifest_sha256: record.manifest_sha256.to_string(),
            record_sha256: record.sha256().map(|sha256| sha256.to_string()).unwrap_or_default(),
            choice: None,
        }
    }

    /// A line for people.
    pub(super) fn text(&self) -> String {
        let configuration = match self.configuration_files {
            0 => String::new(),
            count => format!(", with {}", configuration::counted(count)),
        };
        format!(
            "{}: {} in {}, {}{configuration}\n",
            self.backup,
            output::size(self.raw_bytes),
            output::size(self.stored_bytes),
            smaller(self.raw_bytes, self.stored_bytes),
        )
    }
}

/// How much space was saved.
pub(super) fn smaller(raw_bytes: u64, stored_bytes: u64) -> String {
    format!("{:.2} times smaller", raw_bytes as f64 / stored_bytes.max(1) as f64)
}
