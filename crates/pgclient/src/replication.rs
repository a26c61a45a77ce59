//! The commands of a replication connection, as PostgreSQL 15 to 18 have them.
//!
//! A connection whose parameters have `replication=true` takes them. BASE_BACKUP is not here: its text is the caller's,
//! and its answer is what [`Connection::copy_out`] reads.
//!
//! Source: PostgreSQL documentation, "Streaming Replication Protocol"; `src/backend/replication/walsender.c`.

mod stream;

pub use stream::{Status, WalEvent, WalStream};

use crate::Error;
use crate::connection::{Connection, Table};
use crate::protocol::Lsn;

/// Longest slot name: `NAMEDATALEN` - 1.
pub const SLOT_NAME_SIZE_MAX: usize = 63;

/// What IDENTIFY_SYSTEM says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// The cluster's identifier.
    pub identifier: u64,
    /// The current timeline.
    pub timeline: u32,
    /// The server's end of flushed WAL.
    pub position: Lsn,
}

/// What READ_REPLICATION_SLOT says of a physical slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The oldest WAL that the slot keeps; `None` when it keeps none.
    pub restart: Option<Lsn>,
    /// The timeline of `restart`.
    pub timeline: Option<u32>,
}

/// The history file of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineHistory {
    /// `00000002.history`.
    pub file_name: String,
    /// The file, byte for byte.
    pub content: Vec<u8>,
}

/// Where streaming begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start<'a> {
    /// A physical slot that keeps the WAL meanwhile.
    pub slot: Option<&'a str>,
    /// The first byte wanted.
    pub position: Lsn,
    /// The timeline of it.
    pub timeline: u32,
}

/// IDENTIFY_SYSTEM.
///
/// # Errors
/// Those of [`Connection::simple_query`], and [`Error::Answer`].
pub fn identify_system(connection: &mut Connection) -> Result<System, Error> {
    const COMMAND: &str = "IDENTIFY_SYSTEM";
    let table = one(connection, COMMAND, COMMAND)?;
    let system = (|| {
        Some(System {
            identifier: value(&table, "systemid")?.parse().ok()?,
            timeline: value(&table, "timeline")?.parse().ok()?,
            position: value(&table, "xlogpos")?.parse().ok()?,
        })
    })();
    system.ok_or_else(|| answer(connection, COMMAND, "an identifier, a timeline and a position"))
}

/// SHOW: a server parameter's value.
///
/// # Errors
/// Those of [`Connection::simple_query`], [`Error::InvalidValue`] for a name that is none, and [`Error::Answer`].
pub fn show(connection: &mut Connection, name: &str) -> Result<String, Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    if name.is_empty() || !name.bytes().all(allowed) {
        let (value, allowed) = (name.to_owned(), "letters, digits, underscores and dots");
        return Err(Error::InvalidValue { keyword: "parameter name", value, allowed });
    }
    let table = one(connection, &format!("SHOW {name}"), "SHOW")?;
    let shown = table.text(0, 0).map(str::to_owned);
    shown.ok_or_else(|| answer(connection, "SHOW", "a value"))
}

/// CREATE_REPLICATION_SLOT … TEMPORARY PHYSICAL, with RESERVE_WAL: from now on the server keeps its WAL, until this
/// session ends.
///
/// # Errors
/// Those of [`Connection::simple_query`], and [`Error::InvalidValue`] for a name that is none.
pub fn create_temporary_slot(connection: &mut Connection, name: &str) -> Result<(), Error> {
    const COMMAND: &str = "CREATE_REPLICATION_SLOT";
    check_slot_name(name)?;
    one(connection, &format!("{COMMAND} {name} TEMPORARY PHYSICAL (RESERVE_WAL)"), COMMAND).map(drop)
}

/// READ_REPLICATION_SLOT: `None` when there is no such slot.
///
/// # Errors
/// Those of [`Connection::simple_query`], [`Error::InvalidValue`] for a name that is none, and [`Error::Answer`].
pub fn read_slot(connection: &mut Connection, name: &str) -> Result<Option<Slot>, Error> {
    const COMMAND: &str = "READ_REPLICATION_SLOT";
    check_slot_name(name)?;
    let table = one(connection, &format!("{COMMAND} {name}"), COMMAND)?;
    if value(&table, "slot_type").is_none() {
        return Ok(None);
    }
    // A column is NULL, or it can be read.
    let restart = value(&table, "restart_lsn").map(|text| text.parse().ok());
    let timeline = value(&table, "restart_tli").map(|text| text.parse().ok());
    match (restart, timeline) {
        (Some(None), _) | (_, Some(None)) => Err(answer(connection, COMMAND, "a position and a timeline")),
        (restart, timeline) => Ok(Some(Slot { restart: restart.flatten(), timeline: timeline.flatten() })),
    }
}

/// TIMELINE_HISTORY of a timeline after the first.
///
/// # Errors
/// Those of [`Connection::simple_query`], and [`Error::Answer`].
pub fn timeline_history(connection: &mut Connection, timeline: u32) -> Result<TimelineHistory, Error> {
    const COMMAND: &str = "TIMELINE_HISTORY";
    let table = one(connection, &format!("{COMMAND} {timeline}"), COMMAND)?;
    match (table.text(0, 0), table.bytes(0, 1)) {
        (Some(file_name), Some(content)) => {
            Ok(TimelineHistory { file_name: file_name.to_owned(), content: content.to_vec() })
        }
        _ => Err(answer(connection, COMMAND, "a file name and its content")),
    }
}

/// START_REPLICATION … PHYSICAL.
///
/// # Errors
/// Those of [`Connection::simple_query`], and [`Error::InvalidValue`] for a slot name that is none.
pub fn start_physical<'c>(connection: &'c mut Connection, start: &Start<'_>) -> Result<WalStream<'c>, Error> {
    let slot = match start.slot {
        Some(name) => {
            check_slot_name(name)?;
            format!("SLOT {name} ")
        }
        None => String::new(),
    };
    let (position, timeline) = (start.position, start.timeline);
    let command = format!("START_REPLICATION {slot}PHYSICAL {position} TIMELINE {timeline}");
    WalStream::begin(connection, &command)
}

/// The only result of a command.
fn one(connection: &mut Connection, text: &str, command: &'static str) -> Result<Table, Error> {
    let mut tables = connection.simple_query(text)?;
    match tables.pop() {
        Some(table) if tables.is_empty() && table.row_count() == 1 => Ok(table),
        _ => Err(answer(connection, command, "one row")),
    }
}

fn value<'t>(table: &'t Table, column: &str) -> Option<&'t str> {
    table.text(0, table.column(column)?)
}

fn answer(connection: &Connection, command: &'static str, expected: &'static str) -> Error {
    Error::Answer { place: connection.place().clone(), command, expected }
}

fn check_slot_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if (1..=SLOT_NAME_SIZE_MAX).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    let value = name.chars().take(SLOT_NAME_SIZE_MAX + 1).collect();
    let allowed = "1 to 63 lower case letters, digits and underscores";
    Err(Error::InvalidValue { keyword: "slot name", value, allowed })
}

#[cfg(test)]
mod tests {
    use super::check_slot_name;

    #[test]
    fn only_slot_names_get_into_a_command() {
        assert!(check_slot_name("pgshrink_1").is_ok() && check_slot_name(&"a".repeat(63)).is_ok());
        for wrong in ["", "A", "a b", "a\"", "a;", &"a".repeat(64), "ä"] {
            assert!(check_slot_name(wrong).is_err(), "{wrong}");
        }
    }
}
