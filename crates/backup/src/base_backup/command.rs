//! The text of the command.

use std::fmt::Write;

use super::compression::{Compression, CompressionAlgorithm};
use crate::checksum::ChecksumAlgorithm;
use crate::error::Error;
use crate::label::LABEL_BYTES_MAX;
use crate::manifest::PathEncoding;

/// A major version of a server that backups are made of: 15 to 18.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerMajor(u32);

impl ServerMajor {
    /// # Errors
    /// [`Error::Unsupported`] for other versions than 15, 16, 17 and 18.
    pub fn new(major: u32) -> Result<ServerMajor, Error> {
        match major {
            15..=18 => Ok(ServerMajor(major)),
            _ => Err(Error::Unsupported {
                what: "PostgreSQL's version",
                found: major.to_string(),
                known: "15 to 18",
            }),
        }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    fn has(self, what: &'static str, since: u32) -> Result<(), Error> {
        if self.0 < since { Err(Error::TooOld { what, major: self.0, since }) } else { Ok(()) }
    }
}

/// Where the server sends the archives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target<'a> {
    /// To us.
    #[default]
    Client,
    /// Into a directory of its own host, an absolute path. Needs the role `pg_write_server_files`.
    Server(&'a str),
    /// Nowhere: for measuring.
    Blackhole,
}

/// How the backup's checkpoint is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checkpoint {
    /// At once, at the cost of a burst of writes.
    Fast,
    /// Over `checkpoint_completion_target`, which may take minutes.
    #[default]
    Spread,
}

/// Whether the server makes a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ManifestOption {
    /// It makes none.
    No,
    /// With these checksums and paths.
    Yes(ChecksumAlgorithm, PathEncoding),
}

/// A bound of what the server sends, in KiB per second: 32 to 1048576.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxRate(u32);

impl MaxRate {
    /// # Errors
    /// [`Error::Malformed`] outside the range of `MAX_RATE`.
    pub fn from_kib_per_second(rate: u64) -> Result<MaxRate, Error> {
        match u32::try_from(rate) {
            Ok(rate @ 32..=1_048_576) => Ok(MaxRate(rate)),
            _ => {
                let expected = "a number from 32 to 1048576";
                Err(Error::malformed("rate in kB per second", expected, rate.to_string().as_bytes()))
            }
        }
    }

    /// KiB per second.
    pub fn kib_per_second(self) -> u32 {
        self.0
    }
}

/// What the server is asked for. [`Options::new`] has the server's defaults, but for the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options<'a> {
    /// The backup's name, for `backup_label`: one line.
    pub label: &'a str,
    /// Where archives go.
    pub target: Target<'a>,
    /// Whether the server counts all sizes first and says them in the list of tablespaces.
    pub progress: bool,
    /// How it makes its checkpoint.
    pub checkpoint: Checkpoint,
    /// Whether `base.tar` ends with the WAL that the backup needs. Not when WAL is streamed beside it.
    pub wal: bool,
    /// Whether the server waits until the WAL is archived.
    pub wait: bool,
    /// What it compresses archives with.
    pub compression: Compression,
    /// How fast it may send; none: as fast as it can.
    pub max_rate: Option<MaxRate>,
    /// Whether `base.tar` has `tablespace_map` instead of links in `pg_tblspc`.
    pub tablespace_map: bool,
    /// Whether the server verifies the checksums of pages, where it has them.
    pub verify_checksums: bool,
    /// The manifest.
    pub manifest: ManifestOption,
    /// An incremental backup, on 17 and later: by the manifest that was sent by `UPLOAD_MANIFEST`.
    pub incremental: bool,
}

impl<'a> Options<'a> {
    /// A full backup to the client, with a manifest with CRC-32C.
    pub fn new(label: &'a str) -> Options<'a> {
        Options {
            label,
            target: Target::Client,
            progress: false,
            checkpoint: Checkpoint::Spread,
            wal: false,
            wait: true,
            compression: Compression::NONE,
            max_rate: None,
            tablespace_map: false,
            verify_checksums: true,
            manifest: ManifestOption::Yes(ChecksumAlgorithm::Crc32c, PathEncoding::AsNeeded),
            incremental: false,
        }
    }

    /// The command for a server of this version.
    ///
    /// # Errors
    /// [`Error::TooOld`] for what the version does not know; [`Error::Malformed`] and [`Error::Limit`] for
    /// values that no version takes.
    pub fn command(&self, major: ServerMajor) -> Result<String, Error> {
        self.check_label()?;
        let mut list = List(String::from("BASE_BACKUP ("));
        list.text("LABEL", self.label)?;
        self.add_target(&mut list)?;
        list.switch("PROGRESS", self.progress);
        if self.checkpoint == Checkpoint::Fast {
            list.text("CHECKPOINT", "fast")?;
        }
        list.switch("WAL", self.wal);
        if !self.wait {
            list.word("WAIT 0");
        }
        if let Some(rate) = self.max_rate {
            list.word(&format!("MAX_RATE {}", rate.kib_per_second()));
        }
        list.switch("TABLESPACE_MAP", self.tablespace_map);
        if !self.verify_checksums {
            list.word("VERIFY_CHECKSUMS 0");
        }
        if let ManifestOption::Yes(algorithm, encoding) = self.manifest {
            let value = if encoding == PathEncoding::Always { "force-encode" } else { "yes" };
            list.text("MANIFEST", value)?;
            list.text("MANIFEST_CHECKSUMS", algorithm.name())?;
        }
        self.add_compression(&mut list, major)?;
        if self.incremental {
            major.has("incremental backups", 17)?;
            list.word("INCREMENTAL");
        }
        list.0.push(')');
        Ok(list.0)
    }

    /// Checks the label, which `pg_backup_start` takes too.
    ///
    /// # Errors
    /// [`Error::Malformed`] for more than one line or a NUL byte, [`Error::Limit`].
    pub fn check_label(&self) -> Result<(), Error> {
        if self.label.len() > LABEL_BYTES_MAX {
            let (found, allowed) = (self.label.len() as u64, LABEL_BYTES_MAX as u64);
            return Err(Error::Limit { what: "label in bytes", found, allowed });
        }
        if self.label.contains(['\n', '\r', '\0']) {
            return Err(Error::malformed("label", "one line without NUL bytes", self.label.as_bytes()));
        }
        Ok(())
    }

    /// A command that asks whether the server can compress like this, and backs nothing up. It always ends with an
    /// error, and before the checkpoint: [`Probed::of`] says what the error means.
    ///
    /// The label is one byte too long. The server looks at the label after it has set up the compression
    /// (`SendBaseBackup` in `basebackup.c`) and before it asks for a checkpoint (`do_pg_backup_start` in `xlog.c`).
    ///
    /// # Errors
    /// As [`Options::command`].
    pub fn probe(compression: Compression, major: ServerMajor) -> Result<String, Error> {
        let about = "pgshrink asks whether this server has a compression; the label is too long on purpose ";
        let label = format!("{about:-<length$}", length = LABEL_BYTES_MAX + 1);
        let mut list = List(String::from("BASE_BACKUP ("));
        list.text("LABEL", &label)?;
        list.text("TARGET", "blackhole")?;
        Options { compression, ..Options::new("") }.add_compression(&mut list, major)?;
        list.0.push(')');
        Ok(list.0)
    }

    fn add_target(&self, list: &mut List) -> Result<(), Error> {
        match self.target {
            Target::Client => list.text("TARGET", "client"),
            Target::Blackhole => list.text("TARGET", "blackhole"),
            Target::Server(path) if path.starts_with('/') => {
                list.text("TARGET", "server")?;
                list.text("TARGET_DETAIL", path)
            }
            Target::Server(path) => {
                Err(Error::malformed("target server", "an absolute path", path.as_bytes()))
            }
        }
    }

    fn add_compression(&self, list: &mut List, major: ServerMajor) -> Result<(), Error> {
        self.compression.check()?;
        if self.compression.algorithm == CompressionAlgorithm::None {
            return Ok(());
        }
        if self.compression.long {
            major.has("compression with long-distance matching (`long`)", 16)?;
        }
        list.text("COMPRESSION", self.compression.algorithm.name())?;
        self.compression.detail().map_or(Ok(()), |detail| list.text("COMPRESSION_DETAIL", &detail))
    }
}

/// What the answer to [`Options::probe`] means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probed {
    /// The server has the compression.
    Has,
    /// It was built without it.
    Lacks,
    /// The error is about something else.
    Other,
}

impl Probed {
    /// From the error's SQLSTATE.
    pub fn of(sqlstate: &str) -> Probed {
        match sqlstate {
            // ERRCODE_INVALID_PARAMETER_VALUE: the label.
            "22023" => Probed::Has,
            // ERRCODE_FEATURE_NOT_SUPPORTED in 15, ERRCODE_SYNTAX_ERROR since 16.
            "0A000" | "42601" => Probed::Lacks,
            _ => Probed::Other,
        }
    }
}

/// The options in their parentheses.
struct List(String);

impl List {
    fn word(&mut self, word: &str) {
        if !self.0.ends_with('(') {
            self.0.push_str(", ");
        }
        self.0.push_str(word);
    }

    fn switch(&mut self, name: &str, on: bool) {
        if on {
            self.word(name);
        }
    }

    /// In the grammar of replication commands (`src/backend/replication/repl_scanner.l`), only the quote
    /// itself is special in a string.
    fn text(&mut self, name: &'static str, value: &str) -> Result<(), Error> {
        if value.contains('\0') {
            return Err(Error::malformed(name, "text without NUL bytes", value.as_bytes()));
        }
        self.word(name);
        // A string takes everything.
        let _ = write!(self.0, " '{}'", value.replace('\'', "''"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(options: &Options<'_>, major: u32) -> Result<String, Error> {
        options.command(ServerMajor::new(major).unwrap())
    }

    #[test]
    fn options_are_written_as_the_server_reads_them() {
        let plain = Options::new("it's \\ a label");
        let expected = "BASE_BACKUP (LABEL 'it''s \\ a label', TARGET 'client', MANIFEST 'yes', MANIFEST_CHECKSUMS 'CRC32C')";
        assert_eq!(command(&plain, 15).unwrap(), expected);
        let all = Options {
            target: Target::Server("/a'b"),
            progress: true,
            checkpoint: Checkpoint::Fast,
            wal: true,
            wait: false,
            compression: "zstd:3".parse().unwrap(),
            max_rate: Some(MaxRate::from_kib_per_second(32).unwrap()),
            tablespace_map: true,
            verify_checksums: false,
            manifest: ManifestOption::Yes(ChecksumAlgorithm::Sha256, PathEncoding::Always),
            incremental: true,
            label: "",
        };
        let expected = "BASE_BACKUP (LABEL '', TARGET 'server', TARGET_DETAIL '/a''b', PROGRESS, CHECKPOINT 'fast', WAL, \
                        WAIT 0, MAX_RATE 32, TABLESPACE_MAP, VERIFY_CHECKSUMS 0, MANIFEST 'force-encode', \
                        MANIFEST_CHECKSUMS 'SHA256', COMPRESSION 'zstd', COMPRESSION_DETAIL 'level=3', INCREMENTAL)";
        assert_eq!(command(&all, 17).unwrap(), expected);
    }

    #[test]
    fn a_probe_has_a_label_that_no_server_takes() {
        let probe = Options::probe("zstd:3".parse().unwrap(), ServerMajor::new(15).unwrap()).unwrap();
        let (label, rest) = probe.strip_prefix("BASE_BACKUP (LABEL '").unwrap().split_once('\'').unwrap();
        assert_eq!(label.len(), LABEL_BYTES_MAX + 1);
        assert_eq!(rest, ", TARGET 'blackhole', COMPRESSION 'zstd', COMPRESSION_DETAIL 'level=3')");
        assert_eq!(["22023", "0A000", "42601", "42501"].map(Probed::of), {
            [Probed::Has, Probed::Lacks, Probed::Lacks, Probed::Other]
        });
    }

    #[test]
    fn what_a_version_does_not_know_is_refused() {
        let long = Options { compression: "zstd:long".parse().unwrap(), ..Options::new("x") };
        assert!(matches!(command(&long, 15), Err(Error::TooOld { since: 16, major: 15, .. })));
        assert!(command(&long, 16).is_ok());
        let off = Options { compression: "zstd:long=off".parse().unwrap(), ..Options::new("x") };
        assert!(command(&off, 15).is_ok());
        let incremental = Options { incremental: true, ..Options::new("x") };
        assert!(matches!(command(&incremental, 16), Err(Error::TooOld { since: 17, .. })));
        assert!(command(&incremental, 18).is_ok());
        for major in [14, 19] {
            assert!(matches!(ServerMajor::new(major), Err(Error::Unsupported { .. })));
        }
    }

    #[test]
    fn values_that_no_version_takes_are_refused() {
        let long = "x".repeat(LABEL_BYTES_MAX + 1);
        for label in ["a\nb", "a\0b", &long] {
            assert!(command(&Options::new(label), 18).is_err());
        }
        let relative = Options { target: Target::Server("backups"), ..Options::new("x") };
        assert!(command(&relative, 18).is_err());
        let level =
            Compression { level: Some(10), algorithm: CompressionAlgorithm::Gzip, ..Compression::NONE };
        assert!(command(&Options { compression: level, ..Options::new("x") }, 18).is_err());
        for rate in [0, 31, 1_048_577, u64::MAX] {
            assert!(MaxRate::from_kib_per_second(rate).is_err());
        }
    }
}
