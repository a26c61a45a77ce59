//! Why a command was not started, or could not be.

use std::io;
use std::path::PathBuf;

/// An error of `pgshrink run` itself; the command's own failures are its exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each text says what its fields are")]
pub enum RunError {
    /// The parameters of a connection that is to be compressed.
    #[error("{place}: {source}")]
    Connection { place: String, source: pgshrink_pgclient::Error },
    /// The compression list.
    #[error("compression \"{text}\" ({place}): {reason}")]
    Compression { place: String, text: String, reason: String },
    /// A parameter that cannot be kept with something in between.
    #[error("{place}: {keyword}={value} does not work with compression in between: {reason}\n{advice}")]
    Impossible {
        place: String,
        keyword: &'static str,
        value: String,
        reason: &'static str,
        advice: &'static str,
    },
    /// Debian's `pg_wrapper` would look the server up.
    #[error(
        "{place}: {chooser} chooses the server, which pgshrink does not follow: name the host with -h, PGHOST or in the \
         connection string"
    )]
    Cluster { place: String, chooser: &'static str },
    /// The command says nothing about a connection, and compression is required.
    #[error(
        "compression is required, but nothing requests it: add compression=… to the connection string, or give \
         --compression"
    )]
    NothingToCompress,
    /// The private directory.
    #[error("cannot create a private directory in {}: {source}", dir.display())]
    Directory { dir: PathBuf, source: io::Error },
    /// A file or socket directory in it.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The connector.
    #[error("cannot start the connector for {target}: {reason}")]
    Connector { target: String, reason: String },
    /// The command.
    #[error("cannot run {command}: {source}")]
    Spawn { command: String, source: io::Error },
    /// Signals.
    #[error("cannot listen for signals: {source}")]
    Signals { source: io::Error },
}
