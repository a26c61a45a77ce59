//! The server that is backed up, checked before anything starts.

use super::Failure;
use crate::surroundings;
use pgshrink_backup::Error as BackupError;
use pgshrink_backup::base_backup::ServerMajor;
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::wal::WalSegmentSize;
use pgshrink_pgclient::connection::{Connection, Options};
use pgshrink_pgclient::{Conninfo, Parameters, Surroundings, conninfo, replication};

/// Two replication connections to one server.
pub(super) struct Server {
    /// For BASE_BACKUP.
    pub(super) data: Connection,
    pub(super) wal: WalConnection,
    pub(super) major: ServerMajor,
    /// `server_version_num`.
    pub(super) version: u32,
    pub(super) system: SystemIdentifier,
}

/// The connection that WAL comes through.
pub(super) struct WalConnection {
    pub(super) connection: Connection,
    /// A temporary slot of this connection, which keeps WAL for it.
    pub(super) slot: String,
    pub(super) segment_size: WalSegmentSize,
}

impl Server {
    /// Connects as a connection string says, and sees whether the server can be backed up.
    pub(super) fn connect(conninfo: &str) -> Result<Server, Failure> {
        let around = surroundings::of_process();
        let mut data = connect(conninfo, &around)?;
        // Checksums of pages that are wrong, files that are left out.
        data.on_notice(|report| eprintln!("pgshrink: the server says: {report}"));
        let version = data.server_version().unwrap_or_default();
        let major = ServerMajor::new(version / 10_000).map_err(|error| match error {
            BackupError::Unsupported { .. } => Failure::new(place(&data), error),
            other => other.into(),
        })?;
        let system = replication::identify_system(&mut data)?;
        let segment = replication::show(&mut data, "wal_segment_size")?;
        let segment_size = segment_bytes(&segment)
            .and_then(|bytes| WalSegmentSize::new(bytes).ok())
            .ok_or_else(|| Failure::new(place(&data), format!("wal_segment_size is {segment:?}")))?;
        let mut wal = connect(conninfo, &around)?;
        let other = replication::identify_system(&mut wal)?;
        if other.identifier != system.identifier {
            let found = "the second connection came to another cluster than the first; name one host";
            return Err(Failure::new(place(&wal), found));
        }
        let slot = format!("pgshrink_{}", wal.process_id().unwrap_or_default());
        replication::create_temporary_slot(&mut wal, &slot)?;
        // Before its first byte the server makes a checkpoint, which may take as long as checkpoint_timeout. TCP's keepalive
        // notices a network that is gone.
        data.set_read_timeout(None);
        let system = SystemIdentifier(system.identifier);
        Ok(Server {
            data,
            wal: WalConnection { connection: wal, slot, segment_size },
            major,
            version,
            system,
        })
    }
}

fn place(connection: &Connection) -> String {
    format!("server {}", connection.place())
}

/// As libpq would, but for a replication connection.
fn connect(text: &str, around: &Surroundings<'_>) -> Result<Connection, Failure> {
    let bytes = text.as_bytes();
    let mut info = match conninfo::is_recognized(bytes) {
        true => Conninfo::parse_strict(bytes)?,
        false if text.is_empty() => Conninfo::parse_strict(b"")?,
        false => {
            let what = "is no connection string; write \"host=db user=replicator\" or postgresql://…";
            // It may be a URL with a password.
            return Err(Failure::new("CONNINFO", what));
        }
    };
    info.set("replication", b"true");
    let parameters = Parameters::merge(&info.settings(), around)?;
    Ok(Connection::connect(&parameters, around, &Options::default())?)
}

/// What SHOW says: `16MB`, `1GB`.
fn segment_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let shift = match unit {
        "kB" => 10,
        "MB" => 20,
        "GB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
