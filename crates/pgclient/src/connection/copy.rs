//! COPY TO STDOUT and BASE_BACKUP: results, then data, then results.

use super::{Connection, Event, Results, Table};
use crate::Error;

/// COPY data that is being received, one CopyData message after the other, none of them copied.
///
/// ```no_run
/// # fn run(session: &mut pgshrink_pgclient::connection::Connection) -> Result<(), pgshrink_pgclient::Error> {
/// let mut copy = session.copy_out("COPY t TO STDOUT")?;
/// let mut size = 0;
/// while let Some(payload) = copy.next()? {
///     size += payload.len();
/// }
/// let after = copy.finish()?;
/// println!("{size} bytes, {}", after[0].tag);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CopyOut<'c> {
    results: Results<'c>,
    before: Vec<Table>,
    state: Data,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    Coming,
    Complete,
    /// The command gave results only.
    Never,
}

impl Connection {
    /// Runs a command that gives COPY data, and reads up to where the data begins.
    ///
    /// # Errors
    /// As [`query`](Connection::query) and [`Results::next`].
    pub fn copy_out(&mut self, sql: &str) -> Result<CopyOut<'_>, Error> {
        let mut results = self.query(sql)?;
        let mut before = Vec::new();
        let state = if results.collect(&mut before)? { Data::Coming } else { Data::Never };
        Ok(CopyOut { results, before, state })
    }
}

impl CopyOut<'_> {
    /// The results that came before the data: of BASE_BACKUP the start position and the tablespaces.
    pub fn before(&self) -> &[Table] {
        &self.before
    }

    /// How long the server may send nothing from now on before a call gives up; `None` waits for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<std::time::Duration>) {
        self.results.connection().set_read_timeout(timeout);
    }

    /// Whether there is any COPY data, even none.
    pub fn has_data(&self) -> bool {
        self.state != Data::Never
    }

    /// The payload of the next CopyData message, at most
    /// [`copy_data_size_max`](super::Limits::copy_data_size_max); `None` at the end of the data.
    ///
    /// # Errors
    /// As [`Results::next`].
    #[allow(clippy::should_implement_trait, reason = "a payload borrows from the connection")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, Error> {
        if self.state != Data::Coming {
            return Ok(None);
        }
        match self.results.next()? {
            Some(Event::CopyData(payload)) => Ok(Some(payload)),
            _ => {
                self.state = Data::Complete;
                Ok(None)
            }
        }
    }

    /// Skips data that is left and collects the results behind it: of BASE_BACKUP the end position. The completion of
    /// the COPY itself is the first of them where the server sends one.
    ///
    /// # Errors
    /// As [`Results::next`].
    pub fn finish(mut self) -> Result<Vec<Table>, Error> {
        while self.next()?.is_some() {}
        let mut after = Vec::new();
        // A second COPY in the same text would begin here: its data is skipped.
        while self.results.collect(&mut after)? {}
        Ok(after)
    }
}
