//! `backup_label` and `tablespace_map`: what tells a restored server where replay begins, and where its
//! tablespaces lie.

mod tablespace_map;

use std::fmt::Write;

use crate::error::Error;
use crate::wal::{Lsn, Timeline, WalSegmentName, WalSegmentSize};

pub use tablespace_map::{TABLESPACES_MAX, TablespaceLocation, parse_tablespace_map, write_tablespace_map};

/// The longest file that is parsed. A label has at most 1024 bytes of free text.
pub const LABEL_FILE_BYTES_MAX: usize = 16 << 10;
/// PostgreSQL's `MAXPGPATH`, the limit of a backup's name in `do_pg_backup_start`.
pub const LABEL_BYTES_MAX: usize = 1024;

/// The content of `backup_label`.
///
/// Written by `build_backup_content` (`src/backend/access/transam/xlogbackup.c`, before 16 `xlog.c`), read by
/// `read_backup_label` (`src/backend/access/transam/xlogrecovery.c`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BackupLabel {
    /// Where replay begins: the redo position of the checkpoint.
    pub start: Lsn,
    /// The segment that holds `start`.
    pub start_file: WalSegmentName,
    /// The record of the checkpoint that the backup began with, not before `start`.
    pub checkpoint: Lsn,
    /// How the backup was made.
    pub method: BackupMethod,
    /// What it was made from.
    pub from: BackupFrom,
    /// When it began, in the server's `log_timezone`: `2026-11-25 15:39:20 CET`. Abbreviations of time zones
    /// are ambiguous, so this is for people.
    pub start_time: String,
    /// The name that was given to `BASE_BACKUP` or `pg_backup_start`. Empty with pg_rewind.
    pub label: Vec<u8>,
    /// The timeline of `start`.
    pub start_timeline: Timeline,
    /// What the backup is incremental from, on 17 and later.
    pub incremental_from: Option<(Lsn, Timeline)>,
}

/// `BACKUP METHOD`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupMethod {
    /// By `BASE_BACKUP` or `pg_backup_start`: replay waits for the record of the backup's end.
    Streamed,
    /// By pg_rewind.
    PgRewind,
}

/// `BACKUP FROM`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackupFrom {
    /// A server that was not in recovery.
    Primary,
    /// A server in recovery: replay ends at the minimum recovery point of its control file.
    Standby,
}

impl BackupLabel {
    /// Reads a `backup_label`.
    ///
    /// The order of the lines is the server's. A line that this code does not know is refused: a newer server
    /// may mean by it that the backup is to be treated in another way.
    ///
    /// # Errors
    /// [`Error::Malformed`] names the line; [`Error::Limit`].
    pub fn parse(file: &[u8]) -> Result<BackupLabel, Error> {
        check_size("backup_label in bytes", file.len(), LABEL_FILE_BYTES_MAX)?;
        let mut lines = Lines(file);
        let (start, start_file) = start_location(lines.text("START WAL LOCATION: ")?)?;
        let checkpoint: Lsn = lines.text("CHECKPOINT LOCATION: ")?.parse()?;
        let method = match lines.text("BACKUP METHOD: ")? {
            "streamed" => BackupMethod::Streamed,
            "pg_rewind" => BackupMethod::PgRewind,
            other => {
                return Err(Error::malformed("BACKUP METHOD", "streamed or pg_rewind", other.as_bytes()));
            }
        };
        let from = match lines.text("BACKUP FROM: ")? {
            "primary" => BackupFrom::Primary,
            "standby" => BackupFrom::Standby,
            other => return Err(Error::malformed("BACKUP FROM", "primary or standby", other.as_bytes())),
        };
        let start_time = lines.text("START TIME: ")?.to_owned();
        // pg_rewind's file ends here.
        let (label, start_timeline, incremental_from) = match method {
            BackupMethod::PgRewind => (&[][..], start_file.timeline(), None),
            BackupMethod::Streamed => {
                let label = lines.value("LABEL: ")?;
                (label, lines.text("START TIMELINE: ")?.parse()?, incremental_from(&mut lines)?)
            }
        };
        if let [_, ..] = lines.0 {
            return Err(Error::malformed("backup_label", "its end", lines.0));
        }
        let label = BackupLabel {
            start,
            start_file,
            checkpoint,
            method,
            from,
            start_time,
            label: label.to_vec(),
            start_timeline,
            incremental_from,
        };
        label.check()?;
        Ok(label)
    }

    /// The file as the server or pg_rewind writes it.
    ///
    /// # Errors
    /// [`Error::Malformed`] when a text holds a newline, or when fields contradict each other.
    pub fn write(&self) -> Result<Vec<u8>, Error> {
        self.check()?;
        let mut head = String::new();
        let method = match self.method {
            BackupMethod::Streamed => "streamed",
            BackupMethod::PgRewind => "pg_rewind",
        };
        let from = match self.from {
            BackupFrom::Primary => "primary",
            BackupFrom::Standby => "standby",
        };
        // A string takes everything.
        let _ = write!(
            head,
            "START WAL LOCATION: {} (file {})\nCHECKPOINT LOCATION: {}\nBACKUP METHOD: {method}\nBACKUP FROM: {from}\n\
             START TIME: {}\n",
            self.start, self.start_file, self.checkpoint, self.start_time
        );
        let mut file = head.into_bytes();
        if self.method == BackupMethod::PgRewind {
            return Ok(file);
        }
        file.extend_from_slice(b"LABEL: ");
        file.extend_from_slice(&self.label);
        let mut tail = format!("\nSTART TIMELINE: {}\n", self.start_timeline);
        if let Some((lsn, timeline)) = self.incremental_from {
            let _ = write!(tail, "INCREMENTAL FROM LSN: {lsn}\nINCREMENTAL FROM TLI: {timeline}\n");
        }
        file.extend_from_slice(tail.as_bytes());
        Ok(file)
    }

    /// Checks that the segment's name is that of the start with this size of segments, which the label does
    /// not say.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is another one.
    pub fn check_segment_size(&self, size: WalSegmentSize) -> Result<(), Error> {
        let named = WalSegmentName::holding(self.start_timeline, self.start, size);
        if named != self.start_file {
            let found = format!("{} for {} on timeline {}", self.start_file, self.start, self.start_timeline);
            let expected = "the WAL segment that holds the start";
            return Err(Error::malformed("START WAL LOCATION", expected, found.as_bytes()));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        check_size("LABEL in bytes", self.label.len(), LABEL_BYTES_MAX)?;
        for (what, text) in [("START TIME", self.start_time.as_bytes()), ("LABEL", &self.label)] {
            if text.contains(&b'\n') || text.contains(&0) {
                return Err(Error::malformed(what, "one line without NUL bytes", text));
            }
        }
        if self.start_timeline != self.start_file.timeline() {
            let found = format!("timeline {} and file {}", self.start_timeline, self.start_file);
            return Err(Error::malformed("backup_label", "one timeline", found.as_bytes()));
        }
        if self.checkpoint < self.start {
            let found = format!("checkpoint {} before {}", self.checkpoint, self.start);
            return Err(Error::malformed(
                "backup_label",
                "a checkpoint not before the start",
                found.as_bytes(),
            ));
        }
        Ok(())
    }
}

/// `0/2000028 (file 000000010000000000000002)`.
fn start_location(text: &str) -> Result<(Lsn, WalSegmentName), Error> {
    let parts = text.strip_suffix(')').and_then(|text| text.split_once(" (file "));
    let (lsn, file) =
        parts.ok_or_else(|| Error::malformed("START WAL LOCATION", "LSN (file NAME)", text.as_bytes()))?;
    Ok((lsn.parse()?, file.parse()?))
}

fn incremental_from(lines: &mut Lines<'_>) -> Result<Option<(Lsn, Timeline)>, Error> {
    if lines.0.is_empty() {
        return Ok(None);
    }
    let lsn = lines.text("INCREMENTAL FROM LSN: ")?.parse()?;
    Ok(Some((lsn, lines.text("INCREMENTAL FROM TLI: ")?.parse()?)))
}

/// What is left of a file of lines.
struct Lines<'a>(&'a [u8]);

impl<'a> Lines<'a> {
    /// The rest of the next line, which has to begin with `key`.
    fn value(&mut self, key: &'static str) -> Result<&'a [u8], Error> {
        let missing = || {
            Error::malformed(
                "backup_label",
                key,
                self.0.split(|byte| *byte == b'\n').next().unwrap_or_default(),
            )
        };
        let line = self.0.strip_prefix(key.as_bytes()).ok_or_else(missing)?;
        let end = line.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| Error::malformed(key, "a line ended by a newline", line))?;
        self.0 = &line[end + 1..];
        Ok(&line[..end])
    }

    fn text(&mut self, key: &'static str) -> Result<&'a str, Error> {
        let value = self.value(key)?;
        std::str::from_utf8(value).map_err(|_| Error::malformed(key, "UTF-8", value))
    }
}

fn check_size(what: &'static str, found: usize, allowed: usize) -> Result<(), Error> {
    if found > allowed {
        return Err(Error::Limit { what, found: found as u64, allowed: allowed as u64 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_18: &str = "START WAL LOCATION: 0/4000028 (file 000000020000000000000004)\n\
        CHECKPOINT LOCATION: 0/4000080\nBACKUP METHOD: streamed\nBACKUP FROM: standby\n\
        START TIME: 2026-11-25 15:39:20 CET\nLABEL: pg_basebackup base backup\nSTART TIMELINE: 2\n\
        INCREMENTAL FROM LSN: 0/2000028\nINCREMENTAL FROM TLI: 1\n";

    #[test]
    fn a_label_is_read_and_written_again() {
        let label = BackupLabel::parse(OF_18.as_bytes()).unwrap();
        assert_eq!((label.start, label.checkpoint), (Lsn(0x400_0028), Lsn(0x400_0080)));
        assert_eq!((label.from, label.method), (BackupFrom::Standby, BackupMethod::Streamed));
        assert_eq!(label.incremental_from, Some((Lsn(0x200_0028), Timeline::FIRST)));
        assert_eq!(
            (label.start_time.as_str(), label.start_timeline.number()),
            ("2026-11-25 15:39:20 CET", 2)
        );
        assert_eq!(label.write().unwrap(), OF_18.as_bytes());
        label.check_segment_size(WalSegmentSize::DEFAULT).unwrap();
        assert!(label.check_segment_size(WalSegmentSize::new(1 << 20).unwrap()).is_err());
        let full = OF_18.split("INCREMENTAL").next().unwrap();
        assert_eq!(BackupLabel::parse(full.as_bytes()).unwrap().incremental_from, None);
    }

    #[test]
    fn a_label_that_is_cut_off_is_refused_but_for_its_optional_lines() {
        let optional = OF_18.find("INCREMENTAL").unwrap();
        for length in (0..OF_18.len()).filter(|length| *length != optional) {
            assert!(BackupLabel::parse(&OF_18.as_bytes()[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn the_label_of_pg_rewind_ends_with_its_time() {
        let rewound = OF_18.replace("streamed", "pg_rewind");
        let rewound = rewound.split("LABEL").next().unwrap();
        let label = BackupLabel::parse(rewound.as_bytes()).unwrap();
        assert_eq!((label.start_timeline.number(), label.label.len()), (2, 0));
        assert_eq!(label.write().unwrap(), rewound.as_bytes());
        assert!(BackupLabel::parse(OF_18.replace("streamed", "pg_rewind").as_bytes()).is_err());
    }

    #[test]
    fn contradictions_and_unknown_lines_are_refused() {
        for (from, to) in [
            ("000000020000000000000004", "000000010000000000000004"),
            ("CHECKPOINT LOCATION: 0/4000080", "CHECKPOINT LOCATION: 0/4000020"),
            ("streamed", "copied"),
            ("standby", "elsewhere"),
            ("INCREMENTAL FROM TLI: 1\n", "INCREMENTAL FROM TLI: 1\nNEW: 1\n"),
            ("INCREMENTAL FROM TLI: 1\n", "INCREMENTAL FROM TLI: 0\n"),
            ("LABEL", "LABLE"),
        ] {
            assert!(BackupLabel::parse(OF_18.replace(from, to).as_bytes()).is_err(), "{to}");
        }
        let long = OF_18.replace("pg_basebackup", &"x".repeat(LABEL_BYTES_MAX + 1));
        assert!(matches!(BackupLabel::parse(long.as_bytes()), Err(Error::Limit { .. })));
        let huge = vec![b'x'; LABEL_FILE_BYTES_MAX + 1];
        assert!(matches!(BackupLabel::parse(&huge), Err(Error::Limit { .. })));
        let two_lines = BackupLabel {
            label: b"a\nSTART TIMELINE: 9".to_vec(),
            ..BackupLabel::parse(OF_18.as_bytes()).unwrap()
        };
        assert!(two_lines.write().is_err());
    }
}
