//! Arguments of `pgshrink decode`.

use clap::Args;
use std::path::PathBuf;

/// Print the messages of a captured session
///
/// Reads a relay's capture: records of one direction byte (0: client to server), a connection number (4 bytes), seconds
/// (an 8-byte floating-point number) and a length (4 bytes), all big-endian, each followed by its bytes. Follows startup,
/// negotiation and frames of each connection and prints a line per message. Passwords and keys are not printed, row data
/// only with --data.
///
/// With context "preserved" or "per-transaction" a frame refers to earlier ones. If the capture does not hold a
/// connection from its begin, or something in it is missing, the line says from where on that connection cannot be read,
/// and the exit code is 1.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct DecodeArgs {
    /// The capture
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Print only this connection
    #[arg(long, value_name = "NUMBER")]
    pub connection: Option<u32>,
    /// Print the data of rows and COPY, 100 bytes of each message
    #[arg(long)]
    pub data: bool,
}

const EXAMPLES: &str = "\
Examples:
  pgshrink decode session.relay
  pgshrink decode --connection 3 --data session.relay";
