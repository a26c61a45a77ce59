//! What stops a step, with the way out.

/// Why a step did not end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The user pressed ^C, or asked the process to end.
    #[error("interrupted")]
    Interrupted,
    /// A server, relay or file did not do what it should.
    #[error("{0}")]
    Testkit(#[from] pgshrink_testkit::Error),
    /// Anything else: what happened, and what to do.
    #[error("{what}\n{advice}")]
    WithAdvice {
        /// What happened, where.
        what: String,
        /// The next step for the reader.
        advice: String,
    },
}

impl Failure {
    /// `what` happened; do what `advice` says.
    pub(crate) fn with_advice(what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure::WithAdvice { what: what.into(), advice: advice.into() }
    }

    /// An operation of the system failed.
    pub(crate) fn io(doing: impl std::fmt::Display, error: &std::io::Error) -> Failure {
        let advice = match error.kind() {
            std::io::ErrorKind::StorageFull => "free some space, or name another place in PGSHRINK_TEST_DIR",
            _ => "check permissions and space there, or name another place in PGSHRINK_TEST_DIR",
        };
        Failure::with_advice(format!("{doing}: {error}"), advice)
    }
}

impl From<pgshrink_testkit::Missing> for Failure {
    fn from(missing: pgshrink_testkit::Missing) -> Self {
        Failure::Testkit(missing.into())
    }
}
