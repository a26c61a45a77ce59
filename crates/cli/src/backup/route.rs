//! Which way the files of a cluster come.

use super::Failure;
use super::chunks::Jobs;
use super::parallel::{Parallel, Sessions};
use super::stream::Stream;
use super::transfer::{Fetched, Progress, Route};
use pgshrink_backup::base_backup::{Position, Tablespace};
use pgshrink_pgclient::connection::Connection;
use std::io::Write;

/// What was asked for.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// One BASE_BACKUP.
    Stream,
    /// So many ordinary connections that read files.
    Parallel { connections: usize },
}

/// The connections that files come through.
pub(super) enum Data {
    Stream(Connection),
    Parallel(Sessions),
}

/// A route of either kind.
pub(super) enum AnyRoute<'c> {
    Stream(Stream<'c>),
    Parallel(Parallel<'c>),
}

impl Route for AnyRoute<'_> {
    fn start(&self) -> Position {
        match self {
            AnyRoute::Stream(route) => route.start(),
            AnyRoute::Parallel(route) => route.start(),
        }
    }

    fn tablespaces(&self) -> &[Tablespace] {
        match self {
            AnyRoute::Stream(route) => route.tablespaces(),
            AnyRoute::Parallel(route) => route.tablespaces(),
        }
    }

    fn breaker(&self) -> Box<dyn FnOnce() + Send> {
        match self {
            AnyRoute::Stream(route) => route.breaker(),
            AnyRoute::Parallel(route) => route.breaker(),
        }
    }

    fn fetch(
        self,
        jobs: &Jobs<'_>,
        manifest: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<Fetched, Failure> {
        match self {
            AnyRoute::Stream(route) => route.fetch(jobs, manifest, progress),
            AnyRoute::Parallel(route) => route.fetch(jobs, manifest, progress),
        }
    }
}
