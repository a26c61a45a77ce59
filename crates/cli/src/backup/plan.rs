//! The route and the compression of a backup: as named, or chosen by [`super::auto`].

use super::Failure;
use super::auto::{self, Auto};
use super::formats::Kind;
use super::parallel;
use super::route::Way;
use super::source::Server;
use super::{archive::Encoding, codecs};
use crate::args::{BackupArgs, BackupRoute, CheckpointMode};
use pgshrink_backup::base_backup::{Checkpoint, Compression, CompressionAlgorithm, MaxRate, Options};
use std::time::Duration;

/// What the server compresses with where nothing is named.
pub(super) const DEFAULT: Compression =
    Compression { algorithm: CompressionAlgorithm::Zstd, level: Some(1), ..Compression::NONE };

/// How a backup is taken.
pub(super) enum Plan {
    Named {
        way: Way,
        compression: Compression,
        /// Whether nobody named the compression.
        may_change: bool,
    },
    Auto(Box<Auto>),
}

impl Plan {
    /// From the arguments. With `--compression auto` it measures, which takes a moment.
    pub(super) fn of(args: &BackupArgs, kind: &Kind, encoding: &Encoding) -> Result<Plan, Failure> {
        if args.compression.as_deref() == Some(auto::NAME) {
            return Ok(Plan::Auto(Box::new(Auto::choose(args, kind, encoding)?)));
        }
        let way = way(args)?;
        max_rate(args)?;
        let default = match way {
            Way::Stream => DEFAULT,
            Way::Parallel { .. } => Compression::NONE,
        };
        let compression = args.compression.as_deref().map_or(Ok(default), compression)?;
        Ok(Plan::Named { way, compression, may_change: args.compression.is_none() })
    }

    /// Connects to the server, which may be silent for so long.
    pub(super) fn connect(&mut self, conninfo: &str, silence: Duration) -> Result<Server, Failure> {
        match self {
            Plan::Named { way, .. } => Server::connect(conninfo, *way, silence),
            Plan::Auto(auto) => auto.connect(conninfo, silence),
        }
    }

    /// How the server is asked.
    pub(super) fn options<'a>(&self, args: &'a BackupArgs) -> Result<Options<'a>, Failure> {
        Ok(Options {
            progress: true,
            compression: match self {
                Plan::Named { compression, .. } => *compression,
                Plan::Auto(auto) => auto.compression(),
            },
            checkpoint: match args.checkpoint {
                Some(CheckpointMode::Fast) => Checkpoint::Fast,
                _ => Checkpoint::Spread,
            },
            max_rate: max_rate(args)?,
            // WAL is streamed; nobody has to wait for the archiver.
            wait: false,
            verify_checksums: !args.no_verify_checksums,
            ..Options::new(&args.label)
        })
    }

    /// What to compress with after a failure to begin with a compression, or the reason.
    pub(super) fn instead(
        &mut self,
        failure: Failure,
        server: &mut Server,
        wanted: Compression,
    ) -> Result<Compression, Failure> {
        match self {
            Plan::Named { may_change, .. } => codecs::instead(failure, server, wanted, *may_change),
            Plan::Auto(auto) => auto.instead(failure, server, wanted),
        }
    }

    /// What was chosen, if it was.
    pub(super) fn chosen(&self) -> Option<auto::Chosen> {
        match self {
            Plan::Named { .. } => None,
            Plan::Auto(auto) => Some(auto.chosen()),
        }
    }
}

/// The rate that was asked for.
pub(super) fn max_rate(args: &BackupArgs) -> Result<Option<MaxRate>, Failure> {
    let rate = args.max_rate.map(MaxRate::from_kib_per_second).transpose();
    rate.map_err(|error| Failure::new("--max-rate", error))
}

/// What was named to compress with.
fn compression(asked: &str) -> Result<Compression, Failure> {
    let name = asked.split(':').next().unwrap_or_default();
    let is_known = CompressionAlgorithm::ALL.iter().any(|known| known.name() == name);
    asked.parse().map_err(|error: pgshrink_backup::Error| {
        let what = match name {
            auto::NAME => "auto chooses level and workers too; give just auto".to_owned(),
            _ if is_known => error.to_string(),
            _ => format!("{error}. Or use auto, which measures and chooses"),
        };
        Failure::new("--compression", what)
    })
}

/// Which way files come. What that way cannot do is refused, and not passed over.
fn way(args: &BackupArgs) -> Result<Way, Failure> {
    match (args.route.unwrap_or(BackupRoute::Stream), args.connections) {
        (BackupRoute::Stream, None) => Ok(Way::Stream),
        (BackupRoute::Stream, Some(_)) => Err(needs_parallel()),
        (BackupRoute::Parallel, _) if args.compression.as_deref().is_some_and(|asked| asked != "none") => {
            let what =
                "with --route parallel the server does not compress; leave it out, or use --route stream";
            Err(Failure::new("--compression", what))
        }
        (BackupRoute::Parallel, _) => Ok(Way::Parallel { connections: connections(args)? }),
    }
}

/// Why `--connections` is refused on the stream route.
pub(super) fn needs_parallel() -> Failure {
    Failure::new("--connections", "only --route parallel uses several connections")
}

/// Connections of the parallel route.
pub(super) fn connections(args: &BackupArgs) -> Result<usize, Failure> {
    let allowed = 1..=parallel::CONNECTIONS_MAX;
    match args.connections {
        Some(connections) if allowed.contains(&connections) => Ok(connections),
        Some(connections) => {
            let what = format!("expected a number from 1 to {}, found {connections}", allowed.end());
            Err(Failure::new("--connections", what))
        }
        None => {
            let here = std::thread::available_parallelism().map_or(1, usize::from);
            Ok(here.min(parallel::CONNECTIONS_DEFAULT_MAX))
        }
    }
}
