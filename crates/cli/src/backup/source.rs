//! The server that is backed up, checked before anything starts.

use super::Failure;
use super::parallel::{Control, Parallel, Sessions, set_up};
use super::route::{AnyRoute, Data, Way};
use super::stream::Stream;
use crate::surroundings;
use pgshrink_backup::Error as BackupError;
use pgshrink_backup::base_backup::{Options as BackupOptions, ServerMajor};
use pgshrink_backup::manifest::SystemIdentifier;
use pgshrink_backup::wal::WalSegmentSize;
use pgshrink_pgclient::connection::{Closer, Connection, Options};
use pgshrink_pgclient::{Conninfo, Parameters, Surroundings, conninfo, replication};
use std::time::Duration;

/// The database of ordinary connections, where nobody names another.
const DATABASE_DEFAULT: &[u8] = b"postgres";

/// The connections to one server.
pub(super) struct Server {
    data: Data,
    wal: WalConnection,
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
    /// How long the server may send nothing.
    pub(super) silence: Duration,
}

/// An ordinary session.
pub(super) enum Session<'s> {
    /// That of the parallel route.
    Lead(&'s mut Connection),
    /// One of its own.
    Own(Box<Connection>),
}

impl Session<'_> {
    pub(super) fn connection(&mut self) -> &mut Connection {
        match self {
            Session::Lead(connection) => connection,
            Session::Own(connection) => connection,
        }
    }
}

/// How to connect.
pub(super) struct Address<'a> {
    info: Conninfo,
    around: Surroundings<'a>,
    options: Options,
}

impl Server {
    /// Connects as a connection string says, and sees whether the server can be backed up in that way.
    /// It may be silent for so long.
    pub(super) fn connect(conninfo: &str, way: Way, silence: Duration) -> Result<Server, Failure> {
        let address = Address::parse(conninfo, silence)?;
        // First, as it sees all rights that are missing.
        let control = match way {
            Way::Stream => None,
            Way::Parallel { .. } => Some(Control::connect(&address)?),
        };
        let mut wal = address.replication()?;
        let version = wal.server_version().unwrap_or_default();
        let major = major(&wal)?;
        let system = SystemIdentifier(replication::identify_system(&mut wal)?.identifier);
        let segment = replication::show(&mut wal, "wal_segment_size")?;
        let segment_size = segment_bytes(&segment)
            .and_then(|bytes| WalSegmentSize::new(bytes).ok())
            .ok_or_else(|| Failure::new(place(&wal), format!("wal_segment_size is {segment:?}")))?;
        let slot = format!("pgshrink_{}", wal.process_id().unwrap_or_default());
        replication::create_temporary_slot(&mut wal, &slot)?;
        let wal = WalConnection { connection: wal, slot, segment_size, silence };
        let data = match (control, way) {
            (Some(control), Way::Parallel { connections }) => {
                Data::Parallel(Sessions::open(control, &address, connections, &wal)?)
            }
            _ => Data::Stream(stream(&address, system)?),
        };
        Ok(Server { data, wal, major, version, system })
    }

    /// Size of WAL segments.
    pub(super) fn wal_segment_size(&self) -> WalSegmentSize {
        self.wal.segment_size
    }

    /// What SHOW says of a setting.
    pub(super) fn setting(&mut self, name: &str) -> Result<String, Failure> {
        Ok(replication::show(&mut self.wal.connection, name)?)
    }

    /// The connection for BASE_BACKUP, for what comes in no other way; and that for WAL.
    pub(super) fn stream(&mut self) -> Result<(&mut Connection, &mut WalConnection), Failure> {
        match &mut self.data {
            Data::Stream(connection) => Ok((connection, &mut self.wal)),
            Data::Parallel(_) => Err(Failure::new(
                "--route parallel",
                "a tar backup uses a single BASE_BACKUP; use --route stream",
            )),
        }
    }

    /// An ordinary session with this very server, in the database that the connection string names.
    pub(super) fn session(&mut self, conninfo: &str) -> Result<Session<'_>, Failure> {
        if let Data::Parallel(sessions) = &mut self.data {
            return Ok(Session::Lead(sessions.lead()));
        }
        let mut session = Address::parse(conninfo, self.wal.silence)?.database()?;
        let identity = set_up(&mut session)?;
        let sql =
            "SELECT 1 FROM pg_catalog.pg_replication_slots WHERE slot_name = $1 AND temporary AND active";
        let slot = session.query_params(sql, &[Some(&self.wal.slot)])?;
        if slot.row_count() == 1 && identity.text(0, 1) == Some(&self.system.to_string()) {
            return Ok(Session::Own(Box::new(session)));
        }
        let what = "an ordinary connection reached a different server than the replication connection; name one host";
        Err(Failure::new(place(&session), what))
    }

    /// What closes all connections.
    pub(super) fn closers(&self) -> Result<Vec<Closer>, Failure> {
        let mut closers = match &self.data {
            Data::Stream(connection) => vec![connection.closer()?],
            Data::Parallel(sessions) => sessions.closers()?,
        };
        closers.push(self.wal.connection.closer()?);
        Ok(closers)
    }

    /// Begins a backup. Waits for the server's checkpoint.
    pub(super) fn begin(
        &mut self,
        options: &BackupOptions,
    ) -> Result<(AnyRoute<'_>, &mut WalConnection), Failure> {
        let route = match &mut self.data {
            Data::Stream(connection) => {
                AnyRoute::Stream(Stream::begin((connection, self.wal.silence), self.major, options)?)
            }
            Data::Parallel(sessions) => {
                AnyRoute::Parallel(Parallel::begin(sessions, self.major, self.system, options)?)
            }
        };
        Ok((route, &mut self.wal))
    }
}

/// The connection for BASE_BACKUP.
fn stream(address: &Address<'_>, system: SystemIdentifier) -> Result<Connection, Failure> {
    let mut data = address.replication()?;
    let other = replication::identify_system(&mut data)?;
    if other.identifier != system.0 {
        let found = "the second connection reached a different cluster than the first; name one host";
        return Err(Failure::new(place(&data), found));
    }
    // Checksums of pages that are wrong, files that are left out.
    data.on_notice(|report| eprintln!("pgshrink: the server says: {report}"));
    // Before its first byte the server makes a checkpoint, which may take as long as checkpoint_timeout. TCP's keepalive
    // notices a network that is gone.
    data.set_read_timeout(None);
    Ok(data)
}

/// Refuses a server of a version that is not supported.
pub(super) fn major(connection: &Connection) -> Result<ServerMajor, Failure> {
    let version = connection.server_version().unwrap_or_default();
    ServerMajor::new(version / 10_000).map_err(|error| match error {
        BackupError::Unsupported { .. } => Failure::new(place(connection), error),
        other => other.into(),
    })
}

pub(super) fn place(connection: &Connection) -> String {
    format!("server {}", connection.place())
}

impl Address<'_> {
    pub(super) fn parse(text: &str, silence: Duration) -> Result<Address<'static>, Failure> {
        let bytes = text.as_bytes();
        let info = match conninfo::is_recognized(bytes) {
            true => Conninfo::parse_strict(bytes)?,
            false if text.is_empty() => Conninfo::parse_strict(b"")?,
            false => {
                let what = "is not a connection string; write \"host=db user=replicator\" or postgresql://…";
                // It may be a URL with a password.
                return Err(Failure::new("CONNINFO", what));
            }
        };
        let options = Options { read_timeout: Some(silence), ..Options::default() };
        Ok(Address { info, around: surroundings::of_process(), options })
    }

    /// The same, with other bounds.
    pub(super) fn with(self, options: Options) -> Self {
        Address { options, ..self }
    }

    /// As libpq would, but for a replication connection.
    pub(super) fn replication(&self) -> Result<Connection, Failure> {
        let mut info = self.info.clone();
        info.set("replication", b"true");
        self.connect(&info)
    }

    /// As libpq would, but to the database `postgres` where no other is named.
    pub(super) fn database(&self) -> Result<Connection, Failure> {
        let mut info = self.info.clone();
        info.remove("replication");
        let parameters = Parameters::merge(&info.settings(), &self.around)?;
        if parameters.get_nonempty("dbname").is_none() {
            info.set("dbname", DATABASE_DEFAULT);
        }
        self.connect(&info)
    }

    fn connect(&self, info: &Conninfo) -> Result<Connection, Failure> {
        let parameters = Parameters::merge(&info.settings(), &self.around)?;
        Ok(Connection::connect(&parameters, &self.around, &self.options)?)
    }
}

/// What SHOW says: `16MB`, `1GB`.
pub(super) fn segment_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let shift = match unit {
        "kB" => 10,
        "MB" => 20,
        "GB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
