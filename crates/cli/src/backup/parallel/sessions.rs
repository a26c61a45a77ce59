//! The ordinary connections of the parallel route: one that leads the backup, and those that read files.

use crate::backup::Failure;
use crate::backup::source::{Address, WalConnection, major, place};
use pgshrink_pgclient::connection::{Closer, Connection, Table};

/// The functions that EXECUTE is needed on. By default only superusers have it.
const FUNCTIONS: [&str; 5] = [
    "pg_catalog.pg_backup_start(text, boolean)",
    "pg_catalog.pg_backup_stop(boolean)",
    "pg_catalog.pg_ls_dir(text, boolean, boolean)",
    "pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)",
    "pg_catalog.pg_stat_file(text, boolean)",
];

/// Of settings, those that exist in this version: a session waits as long as it must, and names of files are bytes.
const SETTINGS: &str = "SELECT pg_catalog.count(pg_catalog.set_config(wanted.name, wanted.value, false)) \
    FROM (VALUES ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_session_timeout', '0'), \
    ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'), ('jit', 'off'), \
    ('max_parallel_workers_per_gather', '0'), ('client_encoding', 'SQL_ASCII'), \
    ('standard_conforming_strings', 'on'), ('search_path', 'pg_catalog')) AS wanted(name, value) \
    WHERE wanted.name IN (SELECT known.name FROM pg_catalog.pg_settings AS known)";

/// The same on all connections to one running server, and on no others.
const IDENTITY: &str = "SELECT pg_catalog.pg_postmaster_start_time()::text, system_identifier::text, \
    catalog_version_no::text FROM pg_catalog.pg_control_system()";

/// The connection that leads the backup: the backup ends with it.
pub(in crate::backup) struct Control {
    connection: Connection,
    identity: Table,
}

/// All connections.
pub(in crate::backup) struct Sessions {
    pub(super) control: Connection,
    pub(super) readers: Vec<Connection>,
    pub(super) catalog_version: u32,
}

impl Control {
    /// Connects, and sees whether the role has the rights that a backup needs.
    pub(in crate::backup) fn connect(address: &Address<'_>) -> Result<Control, Failure> {
        let mut connection = address.database()?;
        major(&connection)?;
        check_rights(&mut connection)?;
        connection.on_notice(|report| eprintln!("pgshrink: the server says: {report}"));
        let identity = set_up(&mut connection)?;
        Ok(Control { connection, identity })
    }
}

impl Sessions {
    /// Opens the others, and sees that all came to one server.
    pub(in crate::backup) fn open(
        control: Control,
        address: &Address<'_>,
        connections: usize,
        wal: &WalConnection,
    ) -> Result<Sessions, Failure> {
        let Control { connection: mut control, identity } = control;
        check_wal(&mut control, wal)?;
        let mut readers = Vec::with_capacity(connections);
        for _ in 0..connections {
            let mut reader = address.database()?;
            if set_up(&mut reader)? != identity {
                return Err(elsewhere(&reader));
            }
            readers.push(reader);
        }
        let catalog_version = identity.text(0, 2).and_then(|text| text.parse().ok());
        let unknown = || Failure::new(place(&control), "it did not return its catalog version");
        Ok(Sessions { catalog_version: catalog_version.ok_or_else(unknown)?, control, readers })
    }

    /// The one that leads the backup.
    pub(in crate::backup) fn lead(&mut self) -> &mut Connection {
        &mut self.control
    }

    /// For closing all of them.
    pub(in crate::backup) fn closers(&self) -> Result<Vec<Closer>, Failure> {
        let all = std::iter::once(&self.control).chain(&self.readers);
        all.map(|connection| Ok(connection.closer()?)).collect()
    }
}

/// Gives a session the settings that files are read with, and says which cluster it is on.
pub(in crate::backup) fn set_up(connection: &mut Connection) -> Result<Table, Failure> {
    connection.simple_query(SETTINGS)?;
    let mut identity = connection.simple_query(IDENTITY)?;
    identity.pop().ok_or_else(|| Failure::new(place(connection), "it did not return its system identifier"))
}

/// Whether the slot of the WAL connection is of this server.
fn check_wal(control: &mut Connection, wal: &WalConnection) -> Result<(), Failure> {
    let process = wal.connection.process_id().unwrap_or_default().to_string();
    let sql =
        "SELECT 1 FROM pg_catalog.pg_replication_slots WHERE slot_name = $1 AND active_pid = $2::integer";
    let found = control.query_params(sql, &[Some(&wal.slot), Some(&process)])?;
    if found.row_count() == 1 { Ok(()) } else { Err(elsewhere(&wal.connection)) }
}

fn elsewhere(connection: &Connection) -> Failure {
    Failure::new(
        place(connection),
        "a connection reached a different server than the first one; name one host",
    )
}

/// Refuses a role that lacks a right, and says what to run.
pub(in crate::backup) fn check_rights(connection: &mut Connection) -> Result<(), Failure> {
    let list = FUNCTIONS.map(|function| format!("('{function}')")).join(", ");
    let sql = format!(
        "SELECT pg_catalog.quote_ident(current_user), pg_catalog.quote_ident(session_user), \
         pg_catalog.current_database(), (SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles \
         WHERE rolname = session_user), (SELECT pg_catalog.string_agg(function, ';') \
         FROM (VALUES {list}) AS needed(function) WHERE NOT pg_catalog.has_function_privilege(function, 'EXECUTE'))"
    );
    let found = connection.simple_query(&sql)?;
    let text = |column| found.last().and_then(|table| table.text(0, column));
    let (role, session) = (text(0).unwrap_or("?"), text(1).unwrap_or("?"));
    let missing = text(4).unwrap_or_default().split(';').filter(|function| !function.is_empty());
    let mut orders: Vec<String> = Vec::new();
    if text(3) != Some("t") {
        orders.push(format!("ALTER ROLE {session} REPLICATION;"));
    }
    orders.extend(missing.map(|function| format!("GRANT EXECUTE ON FUNCTION {function} TO {role};")));
    if orders.is_empty() {
        return Ok(());
    }
    let what = format!(
        "{role} lacks privileges that --route parallel needs; in the database {}, a superuser can grant \
         them with\n  {}",
        text(2).unwrap_or("?"),
        orders.join("\n  ")
    );
    Err(Failure::new(place(connection), what))
}
