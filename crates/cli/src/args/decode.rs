//! Arguments of `pgshrink decode`.

use clap::Args;
use std::path::PathBuf;

/// Print the messages of a captured session
///
/// Reads the capture of a relay. Each record has a direction byte (0: client to server), a connection number (4 bytes),
/// seconds (an 8-byte floating-point number) and a length (4 bytes), all big-endian, followed by that many bytes.
/// Follows startup, negotiation and frames of each connection, and prints one line per message. Passwords and keys are
/// not printed, and row data only with --data.
///
/// With context "preserved" or "per-transaction", frames refer to earlier ones. If the start of a connection or a part
/// of it is missing from the capture, decode prints from where on the connection cannot be decoded, and the exit code
/// is 1.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct DecodeArgs {
    /// The capture file
    #[arg(value_name = "CAPTURE")]
    pub capture: PathBuf,
    /// Print only this connection
    #[arg(long, value_name = "NUMBER")]
    pub connection: Option<u32>,
    /// Print row and COPY data, up to 100 bytes of each message
    #[arg(long)]
    pub data: bool,
}

const EXAMPLES: &str = "\
Examples:
  pgshrink decode session.relay
  pgshrink decode --connection 3 --data session.relay";
