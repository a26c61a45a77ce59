//! How a session begins: with settings that nobody but the server can have changed, and only where they stay.
//!
//! The role may be a superuser, and whoever owns the database may set its `search_path` and put operators into a schema of it. So the path is
//! set by the startup packet, before the first query. A connection pooler that lends out a server's sessions query by query
//! refuses such a packet, or drops what it says: it is refused in turn, as settings would be left behind in sessions of others.

use super::super::Failure;
use pgshrink_pgclient::connection::Connection;
use pgshrink_pgclient::conninfo::Setting;
use pgshrink_pgclient::{Conninfo, Error as ClientError, Parameters, Surroundings};

/// No transaction takes longer than a minute, with the time to notice it.
const STATEMENT_TIMEOUT_MS: u32 = 55_000;
/// Who waits longer would be in the way of those that queue behind.
const LOCK_TIMEOUT_MS: u32 = 1_000;
/// The startup packet's `options`.
const OPTIONS: &str =
    "-c search_path=pg_catalog -c default_transaction_read_only=on -c statement_timeout=55s";
/// What those must have come to.
const AS_ASKED: (&str, &str) = ("pg_catalog", "on");

/// The parameters of a connection, with [`OPTIONS`] behind those that somebody has given.
pub(super) fn parameters(info: &Conninfo, around: &Surroundings<'_>) -> Result<Parameters, ClientError> {
    let mut settings = info.settings();
    let given = Parameters::merge(&settings, around)?;
    let mut options = given.get("options").unwrap_or_default().to_vec();
    if !options.is_empty() {
        options.push(b' ');
    }
    options.extend(OPTIONS.as_bytes());
    settings.push(Setting { keyword: b"options".to_vec(), value: options });
    Parameters::merge(&settings, around)
}

/// Makes a session safe.
pub(super) fn secure(connection: &mut Connection) -> Result<(), Failure> {
    // SHOW needs no operator and no function.
    let path = shown(connection, "search_path")?;
    let is_read_only = shown(connection, "default_transaction_read_only")?;
    if (path.as_str(), is_read_only.as_str()) != AS_ASKED {
        return Err(Failure::new(
            format!("server {}", connection.place()),
            format!(
                "the session began with search_path {path:?}, expected {:?}, as the connection asked for: a connection \
                 pooler is in between; connect to the server itself",
                AS_ASKED.0
            ),
        ));
    }
    connection.simple_query(&settings())?;
    Ok(())
}

fn shown(connection: &mut Connection, name: &str) -> Result<String, Failure> {
    let found = connection.simple_query(&format!("SHOW {name}"))?;
    Ok(found.first().and_then(|table| table.text(0, 0)).unwrap_or_default().to_owned())
}

/// Of settings, those that exist in this version.
fn settings() -> String {
    let timeout = STATEMENT_TIMEOUT_MS.to_string();
    let lock = LOCK_TIMEOUT_MS.to_string();
    let wanted = [
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "read committed"),
        ("default_transaction_deferrable", "off"),
        ("statement_timeout", &timeout),
        // It ends the session, so it comes after the timeout of the statement.
        ("transaction_timeout", "60000"),
        ("lock_timeout", &lock),
        ("idle_in_transaction_session_timeout", &timeout),
        ("idle_session_timeout", "0"),
        ("search_path", "pg_catalog"),
        // A query on a table whose policies hide rows is an error, and not an answer that lacks rows.
        ("row_security", "off"),
        // Somebody may put a view in the place of a table that is about to be read, and functions of a view run with the rights of
        // whoever reads it.
        ("restrict_nonsystem_relation_kind", "view, foreign-table"),
        ("standard_conforming_strings", "on"),
        ("quote_all_identifiers", "off"),
        ("TimeZone", "UTC"),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("extra_float_digits", "1"),
        ("bytea_output", "hex"),
        ("xmlbinary", "base64"),
        ("lc_monetary", "C"),
        ("lc_numeric", "C"),
        ("lc_time", "C"),
        ("jit", "off"),
        ("max_parallel_workers_per_gather", "0"),
        ("enable_tidscan", "on"),
        ("synchronize_seqscans", "off"),
    ];
    let mut list: Vec<String> = wanted.iter().map(|(name, value)| format!("('{name}', '{value}')")).collect();
    // A server that knows no encoding refuses to send what is not UTF-8 to a client that wants UTF-8.
    list.push(
        "('client_encoding', CASE pg_catalog.current_setting('server_encoding') \
         WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END)"
            .to_owned(),
    );
    format!(
        "SELECT pg_catalog.count(pg_catalog.set_config(wanted.name, wanted.value, false)) \
         FROM (VALUES {}) AS wanted(name, value) \
         WHERE wanted.name IN (SELECT known.name FROM pg_catalog.pg_settings AS known)",
        list.join(", ")
    )
}
