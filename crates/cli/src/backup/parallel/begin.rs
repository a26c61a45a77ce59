//! The beginning of a backup over SQL: where it starts, and which tablespaces it has.

use crate::backup::Failure;
use crate::backup::source::place;
use pgshrink_backup::base_backup::{Checkpoint, Options, Position, Tablespace};
use pgshrink_pgclient::connection::{Connection, Table};

/// Their links, as the server reads them when a backup starts. What lies in `pg_tblspc` itself has a relative path.
const TABLESPACES: &str = "SELECT name, pg_catalog.pg_tablespace_location(name::oid) \
    FROM pg_catalog.pg_ls_dir('pg_tblspc', true, false) AS found(name) \
    WHERE name ~ '^[0-9]+$' ORDER BY name::oid";

/// Bytes of all files but WAL, about. Relations are five directories deep at most.
const SIZE: &str = "WITH RECURSIVE file(path, size, isdir, depth) AS ( \
    SELECT '.'::text, 0::bigint, true, 0 UNION ALL \
    SELECT file.path || '/' || found.name, stat.size, stat.isdir, file.depth + 1 FROM file \
    CROSS JOIN LATERAL pg_catalog.pg_ls_dir(file.path, true, false) AS found(name) \
    CROSS JOIN LATERAL pg_catalog.pg_stat_file(file.path || '/' || found.name, true) AS stat \
    WHERE file.isdir AND file.depth < 5 AND file.path <> './pg_wal') \
    SELECT sum(size)::bigint FROM file WHERE NOT isdir";

/// What is known when a backup has begun.
pub(super) struct Begun {
    pub(super) start: Position,
    pub(super) was_standby: bool,
    /// Those behind a link, and the data directory last, as BASE_BACKUP lists them.
    pub(super) tablespaces: Vec<Tablespace>,
    /// All tablespaces, and whether they lie in `pg_tblspc` itself (`allow_in_place_tablespaces`): these are a part of the data
    /// directory, as in BASE_BACKUP of 15.
    pub(super) spaces: Vec<(u32, bool)>,
    /// Whether pages have checksums, and they are to be verified.
    pub(super) verify: bool,
}

/// Waits for the server's checkpoint.
pub(super) fn begin(control: &mut Connection, options: &Options<'_>) -> Result<Begun, Failure> {
    options.check_label()?;
    let silence = control.read_timeout();
    let verify = options.verify_checksums && has_checksums(control)?;
    let size_bytes = if options.progress { size(control)? } else { None };
    let found = tablespaces(control)?;
    let fast = if options.checkpoint == Checkpoint::Fast { "true" } else { "false" };
    // The checkpoint may take as long as checkpoint_timeout. TCP's keepalive notices a network that is gone.
    control.set_read_timeout(None);
    let sql = "SELECT pg_catalog.pg_backup_start($1, $2)";
    let started = control.query_params(sql, &[Some(options.label), Some(fast)])?;
    control.set_read_timeout(silence);
    let sql = "SELECT timeline_id, pg_catalog.pg_is_in_recovery() FROM pg_catalog.pg_control_checkpoint()";
    let at = control.query_params(sql, &[])?;
    let start = Position::from_row(&[started.bytes(0, 0), at.bytes(0, 0)])?;
    if tablespaces(control)? != found {
        let what = "a tablespace was created or dropped while the backup started; run it again";
        return Err(Failure::new(place(control), what));
    }
    let spaces: Vec<_> = found.iter().filter_map(in_place).collect();
    let outside = found.into_iter().zip(&spaces).filter(|(_, (_, is_in_place))| !is_in_place);
    let mut tablespaces: Vec<_> = outside.map(|(tablespace, _)| tablespace).collect();
    tablespaces.push(Tablespace { space: None, size_bytes });
    Ok(Begun { start, was_standby: at.text(0, 1) == Some("t"), tablespaces, spaces, verify })
}

fn in_place(tablespace: &Tablespace) -> Option<(u32, bool)> {
    tablespace.space.as_ref().map(|(oid, location)| (*oid, !location.starts_with(b"/")))
}

fn has_checksums(control: &mut Connection) -> Result<bool, Failure> {
    let sql = "SELECT current_setting('data_checksums'), current_setting('segment_size'), current_setting('block_size')";
    let found = control.query_params(sql, &[])?;
    let is_usual = found.text(0, 1) == Some("1GB") && found.text(0, 2) == Some("8192");
    match found.text(0, 0) {
        Some("on") if !is_usual => {
            eprintln!(
                "pgshrink: the server has segments of {} and blocks of {} bytes: page checksums are not verified",
                found.text(0, 1).unwrap_or("?"),
                found.text(0, 2).unwrap_or("?")
            );
            Ok(false)
        }
        on => Ok(on == Some("on")),
    }
}

/// Nothing, where the server cannot say it: then progress is shown without a total.
fn size(control: &mut Connection) -> Result<Option<u64>, Failure> {
    match control.query_params(SIZE, &[]) {
        Ok(found) => Ok(found.text(0, 0).and_then(|text| text.parse().ok())),
        Err(pgshrink_pgclient::Error::Server { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn tablespaces(control: &mut Connection) -> Result<Vec<Tablespace>, Failure> {
    let found: Table = control.query_params(TABLESPACES, &[])?;
    let row = |at| Ok(Tablespace::from_row(&[found.bytes(at, 0), found.bytes(at, 1), None])?);
    (0..found.row_count()).map(row).collect()
}
