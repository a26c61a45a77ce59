//! Configuration files on their way into an archive: they go before the files of the data directory.

use super::Found;
use crate::backup::Failure;
use crate::backup::chunks::{Jobs, Source, cut};
use crate::backup::transfer::{Fetched, Progress, Route};
use pgshrink_backup::base_backup::{Position, Tablespace};
use pgshrink_backup::pack::Area;
use std::io::Write;
use std::sync::Arc;

/// A route with configuration files beside it.
pub(in crate::backup) struct Accompanied<'f, R> {
    pub(in crate::backup) route: R,
    pub(in crate::backup) configuration: &'f Found,
}

impl<R: Route> Route for Accompanied<'_, R> {
    fn start(&self) -> Position {
        self.route.start()
    }

    fn tablespaces(&self) -> &[Tablespace] {
        self.route.tablespaces()
    }

    fn breaker(&self) -> Box<dyn FnOnce() + Send> {
        self.route.breaker()
    }

    fn fetch(
        self,
        jobs: &Jobs<'_>,
        manifest: &mut (dyn Write + Send),
        progress: Progress<'_>,
    ) -> Result<Fetched, Failure> {
        for (file, mut content) in self.configuration.files() {
            let source = Arc::new(Source::new(Area::Configuration, file.place()?));
            cut(&source, file.bytes, &mut content, jobs)?;
        }
        self.route.fetch(jobs, manifest, progress)
    }
}
