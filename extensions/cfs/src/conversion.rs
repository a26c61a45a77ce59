//! What SQL asks of conversions: settings of tables and databases, the wait for their files, progress.
//!
//! A function changes a label and nothing else. Workers make files follow it, after the commit.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pgrx::datum::Interval;
use pgrx::iter::TableIterator;
use pgrx::pg_sys::{self, Oid};
use pgrx::{PgSqlErrorCode as Code, name, pg_extern};
use pgshrink_cfs::page::PAGE_SIZE;
use pgshrink_cfs_server::convert::{self, Direction, FileForm, FileProgress, Waits};
use pgshrink_cfs_server::policy::Wanted;
use pgshrink_cfs_server::setting::{DEFAULT, Setting};

use crate::functions::{FORKS, raise};
use crate::members::{self, Which};
use crate::{labels, report, settings, targets};

/// Between two looks of `cfs_wait`.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// What is recommended.
const RECOMMENDED: Setting = Setting { compression: Some(DEFAULT), is_encrypted: false };

fn parse(text: &str) -> Setting {
    text.parse().unwrap_or_else(|error| labels::raise(&error))
}

/// Files of a table, its partitions, and what belongs to them, for which `is_it` says so: their number, and their bytes.
fn sum(table: Oid, is_it: impl Fn(Wanted, &FileForm) -> bool) -> (i64, i64) {
    let (mut count, mut bytes) = (0, 0);
    for member in members::find(Which::Of(table)) {
        pgrx::check_for_interrupts!();
        let wanted = member.settings.wanted();
        let files = members::files(member.tablespace, member.file).unwrap_or_else(|problem| raise(&problem));
        for (_, form) in files.iter().filter(|(_, form)| is_it(wanted, form)) {
            count += 1;
            bytes += form.pages as i64 * PAGE_SIZE as i64;
        }
    }
    (count, bytes)
}

/// Bytes of files that do not have the form that their setting says.
fn bytes_to_convert(table: Oid) -> i64 {
    sum(table, |wanted, form| !wanted.is_met_by(form)).1
}

/// Says what keeps a setting from having an effect.
fn warn_of_node(is_to_be_compressed: bool) {
    if let Some(node) = settings::node_compression()
        && node.compression.is_some() != is_to_be_compressed
    {
        report::warning(
            Code::ERRCODE_WARNING,
            format!("the setting has no effect on this server: cfs.node_compression = '{node}' overrides it"),
            "Set cfs.node_compression = '' and reload, to use the settings of tables and databases.",
        );
    }
    if !settings::converts() || settings::converters() == 0 {
        let (name, step) = match settings::converts() {
            true => ("cfs.convert_workers is 0", "Set it to 1 or more, and restart the server."),
            false => ("cfs.convert is off", "Set it to on, and reload."),
        };
        report::warning(Code::ERRCODE_WARNING, format!("files are not converted: {name}"), step);
    }
}

/// The setting of a table: its own; null takes it away.
#[pg_extern]
fn cfs_set(relation: Option<Oid>, compression: Option<&str>) {
    let Some(relation) = relation else { return };
    let setting = compression.map(parse);
    targets::claim(relation);
    if let Some(setting) = setting
        && setting.compression.is_none()
    {
        check_can_return(relation);
    }
    targets::set_relation(relation, setting);
}

/// Compresses a table; returns the bytes that are to be compressed.
#[pg_extern]
fn cfs_compress_relation(relation: Option<Oid>, compression: Option<&str>) -> Option<i64> {
    let relation = relation?;
    let wanted = compression.map(parse);
    if wanted.is_some_and(|wanted| wanted.compression.is_none()) {
        report::error(
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "cannot compress with \"none\"",
            "Use cfs_decompress_relation to decompress a table.",
        );
    }
    targets::claim(relation);
    compress(relation, wanted);
    tell_of_partitions(relation, true);
    warn_of_node(true);
    Some(bytes_to_convert(relation))
}

/// Gives a claimed table a setting that compresses: the one that is wanted, or that it has, or the recommended one.
fn compress(relation: Oid, wanted: Option<Setting>) {
    let own = targets::relation_label(relation).flatten().filter(|own| own.compression.is_some());
    targets::set_relation(relation, Some(wanted.or(own).unwrap_or(RECOMMENDED)));
}

/// Raises an ERROR where a file of a table is encrypted: its pages would be written in the clear.
fn check_can_return(relation: Oid) {
    let (encrypted, _) = sum(relation, |_, form| form.is_encrypted);
    if encrypted > 0 {
        report::error(
            Code::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!(
                "cannot decompress \"{}\": {encrypted} of its files are encrypted, and would be written unencrypted",
                targets::name_of(relation)
            ),
            "If that is wanted, move the table to a tablespace that is not encrypted, with ALTER TABLE … SET TABLESPACE.",
        );
    }
}

/// Makes a table plain; returns the bytes that are to be decompressed.
#[pg_extern]
fn cfs_decompress_relation(relation: Oid) -> i64 {
    targets::claim(relation);
    check_can_return(relation);
    targets::set_relation(relation, Some(Setting::PLAIN));
    tell_of_partitions(relation, false);
    warn_of_node(false);
    bytes_to_convert(relation)
}

/// Turns round what is under way, or has not begun; returns the number of files that go back.
#[pg_extern]
fn cfs_cancel(relation: Oid) -> i64 {
    targets::claim(relation);
    let to_compress =
        |wanted: Wanted, form: &FileForm| matches!(wanted, Wanted::Compressed(_)) && !wanted.is_met_by(form);
    // What its files were written with.
    let choice = Cell::new(DEFAULT);
    let to_return = |wanted: Wanted, form: &FileForm| {
        let is_it = wanted == Wanted::Plain && !wanted.is_met_by(form);
        if let Some(own) = form.choice.filter(|_| is_it) {
            choice.set(own);
        }
        is_it
    };
    let is_compressing = sum(relation, to_compress).0 > 0;
    let setting = if is_compressing {
        check_can_return(relation);
        Setting::PLAIN
    } else if sum(relation, to_return).0 > 0 {
        Setting { compression: Some(choice.get()), is_encrypted: false }
    } else {
        report::notice(
            "the relation is not being converted",
            "cfs_progress shows all conversions; cfs_compress_relation and cfs_decompress_relation start one.",
        );
        return 0;
    };
    // Without a label of its own it may be as it is to be, by another setting or by none.
    targets::set_relation(relation, None);
    let is_right = |wanted| match wanted {
        Wanted::Plain => is_compressing,
        Wanted::Compressed(_) => !is_compressing,
        Wanted::Leave => false,
    };
    let mut own = members::find(Which::Of(relation)).into_iter().filter(|member| member.table == relation);
    if is_partitioned(relation) || !own.all(|member| is_right(member.settings.wanted())) {
        targets::set_relation(relation, Some(setting));
    }
    warn_of_node(!is_compressing);
    sum(relation, |wanted, form| !wanted.is_met_by(form)).0
}

fn is_partitioned(relation: Oid) -> bool {
    // SAFETY: in a transaction.
    unsafe { pg_sys::get_rel_relkind(relation) as u8 == b'p' }
}

/// Compresses a database's tables, and those that are made later.
#[pg_extern]
fn cfs_compress_database(name: &std::ffi::CStr, compression: &str) {
    let setting = parse(compression);
    if setting.compression.is_none() {
        report::error(
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            "cannot compress with \"none\"",
            "Use cfs_decompress_database to decompress a database's tables.",
        );
    }
    targets::set_database(&name.to_string_lossy(), setting);
    tell_of_own_settings(name, true);
    warn_of_node(true);
}

/// Says how many tables do not follow the setting of their database, if it is this one: others cannot be looked at.
fn tell_of_own_settings(database: &std::ffi::CStr, compresses: bool) {
    // SAFETY: in a transaction; a string that ends with a zero.
    let is_here = unsafe { pg_sys::get_database_oid(database.as_ptr(), true) == pg_sys::MyDatabaseId };
    let others = if is_here { members::labels_that_say(compresses) } else { 0 };
    tell_of_others(others, if others == 1 { "table" } else { "tables" }, compresses);
}

/// The same of a partitioned table and its partitions.
fn tell_of_partitions(relation: Oid, compresses: bool) {
    if !is_partitioned(relation) || settings::node_compression().is_some() {
        return;
    }
    let others: HashSet<Oid> = members::find(Which::Of(relation))
        .into_iter()
        .filter(|member| matches!(member.settings.wanted(), Wanted::Compressed(_)) != compresses)
        .map(|member| member.table)
        .collect();
    let count = others.len() as i64;
    tell_of_others(count, if count == 1 { "partition" } else { "partitions" }, compresses);
}

fn tell_of_others(others: i64, tables: &str, compresses: bool) {
    if others > 0 {
        let form = if compresses { "plain" } else { "compressed" };
        let have = if others == 1 { "stays" } else { "stay" };
        report::notice(
            format!("{others} {tables} with a table-level setting {have} {form}"),
            "cfs_set(table, NULL) removes a table's own setting. These settings are in pg_seclabels, with \
             the provider cfs.",
        );
    }
}

/// Makes a database's tables plain.
#[pg_extern]
fn cfs_decompress_database(name: &std::ffi::CStr) {
    targets::set_database(&name.to_string_lossy(), Setting::PLAIN);
    tell_of_own_settings(name, false);
    warn_of_node(false);
}

/// Waits until all files of a table have the form that their setting says; false when the time is over before.
#[pg_extern]
fn cfs_wait(relation: Option<Oid>, timeout: Option<Interval>) -> Option<bool> {
    let relation = relation?;
    // SAFETY: reads a variable of the session.
    if labels::has_changed(unsafe { pg_sys::MyDatabaseId }) {
        report::error(
            Code::ERRCODE_ACTIVE_SQL_TRANSACTION,
            "cannot wait for a conversion in the transaction that requested it: it starts after the commit",
            "Commit first, then wait.",
        );
    }
    let timeout = timeout.map(|timeout| {
        let microseconds = timeout.as_micros();
        if microseconds < 0 {
            report::error(
                Code::ERRCODE_INVALID_PARAMETER_VALUE,
                "the timeout must not be negative",
                "Give a time such as '10 min', or NULL to wait as long as it takes.",
            );
        }
        Duration::from_micros(u64::try_from(microseconds).unwrap_or(u64::MAX))
    });
    let begun = Instant::now();
    loop {
        let looked = Instant::now();
        if sum(relation, |wanted, form| !wanted.is_met_by(form)).0 == 0 {
            return Some(true);
        }
        if !settings::converts() || settings::converters() == 0 {
            report::error(
                Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cannot wait: cfs.convert is off, or cfs.convert_workers is 0, so files are not converted",
                "Set cfs.convert = on and reload, and wait again; cfs.convert_workers needs a restart.",
            );
        }
        if timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
            return Some(false);
        }
        // Of a database with very many relations a look takes long.
        pause(LOOK_PERIOD.max(looked.elapsed() * 5));
    }
}

/// Sleeps, and looks at interrupts.
pub fn pause(time: Duration) {
    let flags = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    // SAFETY: the process's own latch.
    unsafe {
        let time = time.as_millis() as i64;
        pg_sys::WaitLatch(pg_sys::MyLatch, flags as i32, time, pg_sys::PG_WAIT_EXTENSION);
        pg_sys::ResetLatch(pg_sys::MyLatch);
    }
    pgrx::check_for_interrupts!();
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What the conversion of a file of so many pages waits for, in words.
fn waits_for(waits: Waits, pages: u64) -> Option<String> {
    match waits {
        Waits::Nothing => None,
        Waits::Descriptors { pid, count: 1 } => Some(format!("process {pid} to close a descriptor")),
        Waits::Descriptors { pid, count } => Some(format!("process {pid} to close {count} descriptors")),
        Waits::Unreadable { pid } => {
            Some(format!("process {pid}, whose descriptors in /proc cannot be read"))
        }
        Waits::FreeSpace => {
            Some(format!("free space: {} MB", convert::bytes_needed(pages).div_ceil(1 << 20)))
        }
        Waits::Paused => Some("cfs.convert, which is off".to_owned()),
        Waits::Lock => Some("another process that is working on the file".to_owned()),
    }
}

/// Conversions that are under way.
#[pg_extern]
#[allow(clippy::type_complexity)]
fn cfs_progress_rows() -> TableIterator<
    'static,
    (
        name!(pid, Option<i32>),
        name!(database, Oid),
        name!(tablespace, Oid),
        name!(file, Oid),
        name!(path, String),
        name!(fork, &'static str),
        name!(segment, i32),
        name!(direction, &'static str),
        name!(state, &'static str),
        name!(pages, i64),
        name!(pages_done, i64),
        name!(bytes_written, i64),
        name!(started, f64),
        name!(copying_since, Option<f64>),
        name!(waits_for, Option<String>),
    ),
> {
    let row = |found: FileProgress| {
        let key = found.key;
        let direction = match found.direction {
            Direction::Compress => "compress",
            Direction::Decompress => "decompress",
        };
        let waits = if settings::converts() { found.waits } else { Waits::Paused };
        (
            (found.pid != 0).then_some(found.pid as i32),
            Oid::from(key.database),
            Oid::from(key.tablespace),
            Oid::from(key.relation),
            convert::path_of(&key),
            FORKS.iter().find(|(fork, _)| *fork == key.fork).map_or("", |(_, name)| *name),
            key.segment as i32,
            direction,
            found.state,
            found.pages as i64,
            found.pages_done as i64,
            found.bytes_written as i64,
            seconds(found.started),
            found.copying_since.map(seconds),
            waits_for(waits, found.pages),
        )
    };
    TableIterator::new(convert::progress().into_iter().map(row).collect::<Vec<_>>())
}
