//! `--format` and `--to`: which backup is made where, what it can be combined with, and what is said of it.

use super::auto::Chosen;
use super::destination::Destination;
use super::places::Places;
use super::source::Server;
use super::transfer::{Fetched, Progress};
use super::wal::Received;
use super::{Failure, interrupt, on_server, plain, print, tar_format, threads};
use crate::args::{BackupArgs, BackupFormat, ConfigurationMode};
use crate::cfs::output;
use pgshrink_backup::base_backup::{Options, Position};
use pgshrink_backup::pack::Sha256;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What `--to` begins with for a directory of the server's host.
const SERVER: &str = "server:";

/// What is made.
pub(super) enum Kind {
    Archive,
    Plain(Destination),
    Tar(PathBuf),
    /// A tar in this directory of the server's host.
    OnServer(String),
}

impl Kind {
    /// From the arguments, which may not fit together.
    pub(super) fn of(args: &BackupArgs) -> Result<Kind, Failure> {
        let refused = |what: &str, reason: &str| Err(Failure::new(what, reason));
        if let Some(folder) = args.to.strip_prefix(SERVER) {
            let is_tar = matches!(args.format, None | Some(BackupFormat::Tar));
            return match () {
                () if !is_tar => refused("--to", "server: is for tar files only; use --format tar"),
                () if !folder.starts_with('/') => refused(
                    "--to",
                    "expected server: and the absolute path of a directory on the server's host, such as \
                     server:/backups/monday",
                ),
                () => other_than_archive(args).map(|()| Kind::OnServer(folder.to_owned())),
            };
        }
        let format = args.format.unwrap_or(BackupFormat::Archive);
        if args.configuration == ConfigurationMode::Off && args.configuration_into.is_some() {
            return refused(
                "--configuration-into",
                "with --configuration off there is nothing to write; leave one out",
            );
        }
        if format == BackupFormat::Archive && args.configuration_into.is_some() {
            let what = "an archive contains them, and restore --configuration-into writes them; leave it \
                out, or use --format plain or tar";
            return refused("--configuration-into", what);
        }
        if format != BackupFormat::Plain && !args.tablespace_mapping.is_empty() {
            return refused(
                "--tablespace-mapping",
                "it is for --format plain; other formats are restored with a mapping",
            );
        }
        if format == BackupFormat::Archive {
            return Ok(Kind::Archive);
        }
        other_than_archive(args)?;
        if args.to.contains("://") {
            let what = "--format plain and tar go to a directory of this machine, or tar to server:/path; use --format \
                        archive for object stores";
            return refused(&args.to, what);
        }
        match format {
            BackupFormat::Tar => Ok(Kind::Tar(PathBuf::from(&args.to))),
            _ => Ok(Kind::Plain(Destination::new(Path::new(&args.to), &args.tablespace_mapping)?)),
        }
    }

    /// How the server is to be asked.
    pub(super) fn options<'a>(&'a self, options: Options<'a>) -> Options<'a> {
        match self {
            Kind::Archive | Kind::Plain(_) => options,
            // Who extracts a tar cannot make links; the server makes them by tablespace_map.
            Kind::Tar(_) => Options { tablespace_map: true, ..options },
            Kind::OnServer(folder) => on_server::options(folder, options),
        }
    }
}

fn other_than_archive(args: &BackupArgs) -> Result<(), Failure> {
    if !args.key.key_file.is_empty() || !args.key.key_command.is_empty() {
        let what = "only --format archive is encrypted; leave the key out, or use --format archive";
        return Err(Failure::new("--key-file", what));
    }
    if args.configuration == ConfigurationMode::Require && args.configuration_into.is_none() {
        let what = "a plain or tar backup cannot contain them; name a directory with --configuration-into, \
            or use --format archive";
        return Err(Failure::new("--configuration require", what));
    }
    match args.level {
        None => Ok(()),
        Some(_) => Err(Failure::new(
            "--level",
            "it is for --format archive; the level of the server's compression is part of --compression, \
             for example zstd:5",
        )),
    }
}

/// What is asked of the server.
pub(super) struct Asked<'a> {
    pub(super) options: Options<'a>,
    pub(super) to: &'a str,
}

/// What a plain or tar backup is.
#[derive(Serialize)]
pub(super) struct Written {
    format: &'static str,
    to: String,
    label: String,
    /// What the server compressed with.
    compression: String,
    system_identifier: String,
    server_version: u32,
    start_lsn: String,
    stop_lsn: String,
    timeline: u32,
    /// By the server's clock, of the last WAL that came.
    stop_time: Option<String>,
    /// Without WAL.
    files: Option<u64>,
    /// Of the files, WAL among them; none where they are not known.
    raw_bytes: Option<u64>,
    manifest_sha256: Option<String>,
    /// Of a plain backup.
    tablespaces: Vec<SpaceWritten>,
    /// Files of a tar.
    members: Vec<Member>,
    /// With `--compression auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<Box<Chosen>>,
}

#[derive(Serialize)]
struct SpaceWritten {
    oid: u32,
    place: String,
}

/// A file of a tar.
#[derive(Serialize)]
pub(super) struct Member {
    pub(super) name: String,
    /// None: the server wrote it.
    pub(super) bytes: Option<u64>,
}

impl Written {
    pub(super) fn new(asked: &Asked<'_>, server: &Server) -> Written {
        Written {
            format: "plain",
            to: asked.to.to_owned(),
            label: asked.options.label.to_owned(),
            compression: asked.options.compression.to_string(),
            system_identifier: server.system.to_string(),
            server_version: server.version,
            start_lsn: String::new(),
            stop_lsn: String::new(),
            timeline: 0,
            stop_time: None,
            files: None,
            raw_bytes: None,
            manifest_sha256: None,
            tablespaces: Vec::new(),
            members: Vec::new(),
            choice: None,
        }
    }

    pub(super) fn chosen(self, choice: Option<Chosen>) -> Written {
        Written { choice: choice.map(Box::new), ..self }
    }

    pub(super) fn add_positions(&mut self, start: Position, stop: Position) {
        self.start_lsn = start.lsn.to_string();
        self.stop_lsn = stop.lsn.to_string();
        self.timeline = stop.timeline.number();
    }

    pub(super) fn add_files(&mut self, files: u64, bytes: u64, manifest: Sha256) {
        self.files = Some(files);
        self.raw_bytes = Some(self.raw_bytes.unwrap_or_default() + bytes);
        self.manifest_sha256 = Some(manifest.to_string());
    }

    pub(super) fn add_wal(&mut self, wal: &Received) {
        self.stop_time = wal.clock.map(|(_, last)| last.to_string());
        let bytes: u64 = wal.files.iter().map(|file| file.bytes).sum();
        self.raw_bytes = Some(self.raw_bytes.unwrap_or_default() + bytes);
    }

    pub(super) fn add_fetched(&mut self, start: Position, fetched: &Fetched, wal: &Received) {
        self.add_positions(start, fetched.stop);
        self.add_files(fetched.files, fetched.raw_bytes, fetched.manifest);
        self.add_wal(wal);
    }

    pub(super) fn add_spaces(&mut self, places: &Places) {
        let space = |(oid, place): (u32, &Path)| SpaceWritten { oid, place: place.display().to_string() };
        self.tablespaces = places.spaces().map(space).collect();
    }

    pub(super) fn add_members(&mut self, members: Vec<Member>) {
        self.format = "tar";
        self.members = members;
    }

    /// A line for people.
    fn text(&self) -> String {
        let sizes: Option<Vec<u64>> = self.members.iter().map(|member| member.bytes).collect();
        let stored = sizes.filter(|sizes| !sizes.is_empty()).map(|sizes| sizes.iter().sum::<u64>());
        let names: Vec<_> = self.members.iter().map(|member| member.name.as_str()).collect();
        let what = match (self.raw_bytes, stored) {
            (Some(raw), None) => output::size(raw),
            (Some(raw), Some(stored)) => format!("{} in {}", output::size(raw), output::size(stored)),
            _ => "written by the server".to_owned(),
        };
        match names.is_empty() {
            true => format!("{}: a data directory, {what}\n", self.to),
            false => format!("{}: {what}: {}\n", self.to, names.join(", ")),
        }
    }
}

/// Takes a backup of another format than archive, and prints what it is.
pub(super) fn take(
    kind: &Kind,
    server: &mut Server,
    asked: &Asked<'_>,
    args: &BackupArgs,
    progress: Progress<'_>,
) -> Result<Written, Failure> {
    let taken = match kind {
        Kind::Plain(to) => plain::take(server, asked, to, threads(args.threads), progress),
        Kind::Tar(folder) => tar_format::take(server, asked, folder, progress),
        Kind::OnServer(folder) => on_server::take(server, asked, folder, progress),
        Kind::Archive => Err(Failure::new("--format archive", "it has a way of its own")),
    };
    interrupt::or_cause(taken)
}

/// Prints what was made.
pub(super) fn report(args: &BackupArgs, written: Written) -> Result<(), Failure> {
    print(&args.output, &written, Written::text)
}
