//! Metrics for the textfile collector of Prometheus' node exporter.
//!
//! They are written after a backup, whether it succeeded or not, and by `list`: what the repository has says when the last
//! backup ended, whoever took it.

use super::clock;
use super::whole::{Whole, names};
use super::{Failure, State};
use pgshrink_repository::Repository;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// An attempt at a backup that has ended.
pub(super) struct Ended {
    pub(super) is_success: bool,
    pub(super) took: Duration,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct System {
    system_identifier: String,
}

type PerSystem = Family<System, Gauge>;

/// Writes the file, which other programs see as a whole or not at all.
pub(super) fn write(path: &Path, repository: &dyn Repository, ended: Option<&Ended>) -> Result<(), Failure> {
    let mut registry = Registry::default();
    contents(&mut registry, repository)?;
    if let Some(ended) = ended {
        attempt(&mut registry, ended);
    }
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(|error| Failure::new(path.display(), error))?;
    replace(path, text.as_bytes()).map_err(Failure::at(path))
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".pgshrink-").tempfile_in(folder)?;
    // The exporter is another user.
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.write_all(bytes)?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

/// What the repository has.
fn contents(registry: &mut Registry, repository: &dyn Repository) -> Result<(), Failure> {
    let names = names(repository)?;
    let (last, count, stored) = (PerSystem::default(), PerSystem::default(), PerSystem::default());
    let unreadable = Gauge::<i64>::default();
    for (name, attempt) in &names.whole {
        let record = match Whole::read(repository, name, *attempt) {
            Ok(whole) => whole.record,
            Err(error) if State::of(&error).is_some() => {
                unreadable.inc();
                continue;
            }
            Err(error) => return Err(error),
        };
        let system = System { system_identifier: record.system_identifier.to_string() };
        let ended = record.stop_time.unix_seconds();
        let newest = last.get_or_create(&system).get();
        last.get_or_create(&system).set(newest.max(ended));
        count.get_or_create(&system).inc();
        let bytes: u64 = record.packs.iter().map(|pack| pack.bytes).sum();
        stored.get_or_create(&system).inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
    let what = "When the newest complete backup ended, by the server's clock";
    registry.register("pgshrink_backup_last_stop_timestamp_seconds", what, last);
    registry.register("pgshrink_backup_complete", "Complete backups in the repository", count);
    registry.register("pgshrink_backup_stored_bytes", "Bytes of complete backups in the repository", stored);
    registry.register("pgshrink_backup_unreadable", "Backups whose record cannot be read", unreadable);
    let incomplete = Gauge::<i64>::default();
    incomplete.set(i64::try_from(names.begun.len()).unwrap_or(i64::MAX));
    let what = "Backups that are being written or were interrupted";
    registry.register("pgshrink_backup_incomplete", what, incomplete);
    Ok(())
}

/// What this machine did last.
fn attempt(registry: &mut Registry, ended: &Ended) {
    let gauge = |value: i64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        gauge
    };
    let what = "When pgshrink backup ended last on this machine, by its clock";
    registry.register("pgshrink_backup_attempt_timestamp_seconds", what, gauge(clock::unix_seconds() as i64));
    let what = "Whether it succeeded: 1 or 0";
    registry.register("pgshrink_backup_attempt_success", what, gauge(ended.is_success.into()));
    let what = "How long it took";
    registry.register("pgshrink_backup_attempt_duration_seconds", what, gauge(ended.took.as_secs() as i64));
}
