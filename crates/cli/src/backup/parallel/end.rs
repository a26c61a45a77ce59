//! The end of a backup over SQL: the control file, `pg_backup_stop`, the label.

use super::ledger::Listed;
use super::pieces::Kept;
use crate::backup::Failure;
use pgshrink_backup::base_backup::{Position, Tablespace};
use pgshrink_backup::control::{self, CONTROL_BYTES};
use pgshrink_backup::files::ListedFile;
use pgshrink_backup::hex;
use pgshrink_backup::label::{BackupLabel, parse_tablespace_map};
use pgshrink_backup::manifest::{SystemIdentifier, WalRange};
use pgshrink_backup::{Error, ServerTime};
use pgshrink_pgclient::connection::Connection;
use std::thread;
use std::time::Duration;

/// How often the control file is read until it is whole, and the time between.
const CONTROL_READS_MAX: usize = 50;
const CONTROL_PAUSE: Duration = Duration::from_millis(20);

/// On a standby, the timeline of the end is that of its minimum recovery point; a primary keeps that of its checkpoints.
const STOP: &str = "SELECT stopped.lsn, CASE WHEN pg_catalog.pg_is_in_recovery() \
    THEN (SELECT min_recovery_end_timeline FROM pg_catalog.pg_control_recovery()) \
    ELSE (SELECT timeline_id FROM pg_catalog.pg_control_checkpoint()) END, \
    stopped.labelfile, stopped.spcmapfile, extract(epoch FROM pg_catalog.clock_timestamp())::bigint \
    FROM pg_catalog.pg_backup_stop(false) AS stopped";

/// What `pg_backup_stop` says.
pub(super) struct Stopped {
    pub(super) stop: Position,
    pub(super) label: BackupLabel,
    label_text: Vec<u8>,
    map_text: Vec<u8>,
    time: ServerTime,
}

/// Reads the control file, after all others.
pub(super) fn read_control(
    connection: &mut Connection,
    listed: &ListedFile,
    system: SystemIdentifier,
    kept: &Kept<'_>,
) -> Result<(), Failure> {
    let sql = format!(
        "SELECT pg_catalog.encode(pg_catalog.pg_read_binary_file('global/pg_control', 0, {CONTROL_BYTES}, true), 'hex')"
    );
    let mut reads = 0;
    loop {
        let found = connection.query_params(&sql, &[])?;
        // What is no text of bytes is malformed, too.
        let file = found.bytes(0, 0).and_then(hex::decode).unwrap_or_default();
        reads += 1;
        match control::check(&file) {
            Ok(found) if found == system => return kept.file(listed, &file),
            Ok(found) => {
                let what = format!("it belongs to the cluster {found}, but the server to {system}");
                return Err(Failure::new("global/pg_control", what));
            }
            // It is being written.
            Err(Error::Malformed { .. }) if reads < CONTROL_READS_MAX => thread::sleep(CONTROL_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends the backup on the server.
pub(super) fn stop(connection: &mut Connection) -> Result<Stopped, Failure> {
    let found = connection.query_params(STOP, &[])?;
    let text = |column| found.bytes(0, column).unwrap_or_default().to_vec();
    let seconds = found.text(0, 4).and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Stopped {
        stop: Position::from_row(&[found.bytes(0, 0), found.bytes(0, 1)])?,
        label: BackupLabel::parse(&text(2))?,
        label_text: text(2),
        map_text: text(3),
        time: ServerTime::from_unix_seconds(seconds)?,
    })
}

impl Stopped {
    /// Refuses an end that does not fit the beginning.
    pub(super) fn check(&self, start: Position, tablespaces: &[Tablespace]) -> Result<(), Failure> {
        let label = &self.label;
        if label.start != start.lsn || label.start_timeline != start.timeline {
            let what = format!(
                "it started at {} on timeline {}, but its label says {} on timeline {}: the standby has \
                 moved to another timeline in the meantime; back it up again",
                start.lsn, start.timeline, label.start, label.start_timeline
            );
            return Err(Failure::new("the backup", what));
        }
        let mut outside: Vec<_> =
            tablespaces.iter().filter_map(|tablespace| tablespace.space.as_ref()).collect();
        let map = parse_tablespace_map(&self.map_text)?;
        let mut map: Vec<_> = map.into_iter().map(|space| (space.oid, space.location)).collect();
        outside.sort();
        map.sort();
        if outside.into_iter().eq(map.iter()) {
            return Ok(());
        }
        let what = "its tablespace_map has other tablespaces than those that were read; run it again";
        Err(Failure::new("the backup", what))
    }

    /// Adds the files that are in no data directory: the label, and the map where it was asked for.
    pub(super) fn add_files(&self, with_map: bool, kept: &Kept<'_>) -> Result<(), Failure> {
        let file = |name: &str, text: &[u8]| {
            let size = text.len() as u64;
            kept.file(&ListedFile { path: name.parse()?, size, modified: self.time }, text)
        };
        file("backup_label", &self.label_text)?;
        if with_map && !self.map_text.is_empty() {
            file("tablespace_map", &self.map_text)?;
        }
        Ok(())
    }

    /// Ends the manifest.
    pub(super) fn end_manifest(&self, start: Position, kept: Kept<'_>) -> Result<Listed, Failure> {
        let range = WalRange { timeline: start.timeline, start: start.lsn, end: self.stop.lsn };
        kept.ledger.end(range)
    }
}

#[test]
fn an_end_that_does_not_fit_the_beginning_is_refused() {
    use pgshrink_backup::{Lsn, Timeline};
    let label_text = b"START WAL LOCATION: 0/4000028 (file 000000020000000000000004)\n\
        CHECKPOINT LOCATION: 0/4000080\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
        START TIME: 2026-11-25 15:39:20 CET\nLABEL: x\nSTART TIMELINE: 2\n";
    let position = |lsn, timeline| Position { lsn: Lsn(lsn), timeline: Timeline::new(timeline).unwrap() };
    let stopped = Stopped {
        stop: position(0x400_0200, 2),
        label: BackupLabel::parse(label_text).unwrap(),
        label_text: label_text.to_vec(),
        map_text: b"16385 /srv/one\n16390 /srv/two\n".to_vec(),
        time: ServerTime::MIN,
    };
    let space =
        |oid: u32, location: &[u8]| Tablespace { space: Some((oid, location.into())), size_bytes: None };
    let (one, two) = (space(16_385, b"/srv/one"), space(16_390, b"/srv/two"));
    let data = Tablespace { space: None, size_bytes: None };
    let start = position(0x400_0028, 2);
    stopped.check(start, &[two.clone(), one.clone(), data.clone()]).unwrap();
    for other in [position(0x400_0028, 1), position(0x400_0030, 2)] {
        let error = stopped.check(other, &[one.clone(), two.clone(), data.clone()]).unwrap_err().to_string();
        assert!(error.contains("its label says 0/4000028 on timeline 2"), "{error}");
    }
    for spaces in [
        vec![one.clone()],
        vec![one.clone(), two.clone(), space(16_400, b"/srv/three")],
        vec![one, space(16_390, b"/srv/moved")],
    ] {
        let error = stopped.check(start, &spaces).unwrap_err().to_string();
        assert!(error.contains("other tablespaces than those that were read"), "{error}");
    }
}
