//! The dispatcher: a worker that looks at one database's relations, and begins conversions of files that do not have
//! the form that their setting says.
//!
//! Only a process that is connected to a database knows which relation a file is of. It must not stay: CREATE
//! DATABASE … TEMPLATE and DROP DATABASE wait five seconds for others to go. So it lists the relations, looks at them for
//! one second at most, and leaves at once when a statement needs the database for itself ([`crate::absence`]). The
//! launcher ([`crate::dispatching`]) starts it again, to go on where it ended.
//!
//! It waits for no lock. A relation that somebody else has locked altogether is left for the next look. What it holds, it
//! holds in a transaction for each relation, without waiting for anything but the disk.
#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::pg_sys::{self, Datum, Oid};
use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_guard};
use pgshrink_cfs::slots::SegmentKey;
use pgshrink_cfs_server::convert::{self, Exchanged, FormNow, IN_FLIGHT_MAX};
use pgshrink_cfs_server::policy::{Lacks, Wanted};
use pgshrink_cfs_server::{Problem, server};

use crate::board::{self, Ended};
use crate::members::{self, Member, Which};
use crate::worker::is_ending;
use crate::{report, settings, targets, worker};

/// So long it looks at relations at most, and one relation's files.
const TIME: Duration = Duration::from_secs(1);
/// So long it holds a lock at most, and one file's exchange: DROP TABLE may wait for it.
const HOLD: Duration = Duration::from_millis(100);

/// How far a relation's conversion was begun.
enum Begun {
    /// All its files were looked at.
    Whole,
    /// So many were; the lock was held for long enough.
    Files(usize),
    /// Not now: the look is over, or enough files are in hand.
    NotNow,
}

/// Which files of a relation are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    All,
    /// Those that have become plain again but for the last step.
    Returned,
}

/// A look at the session's database.
struct Look {
    begun: Instant,
    /// Files that are compressed, by their tablespace.
    containers: HashMap<u32, HashSet<u32>>,
    has_told: bool,
}

/// The worker's main function; its argument is the database's OID.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cfs_dispatcher_main(argument: Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    let database = Oid::from(argument.value() as u32);
    // Before it is connected, so that it is called after the connection's end.
    // SAFETY: a function that lives as long as the library.
    unsafe { pg_sys::on_shmem_exit(Some(leave), argument) };
    // SAFETY: a worker that has no database yet, and whose registration asked for one. ALLOW_CONNECTIONS is for sessions:
    // files of a database that nobody may connect to change their form like others, and go back.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnectionByOid(
            database,
            pg_sys::InvalidOid,
            pg_sys::BGWORKER_BYPASS_ALLOWCONN,
        );
    }
    override_settings();
    worker::report("looking for relations to convert");
    let mut look = Look { begun: Instant::now(), containers: HashMap::new(), has_told: false };
    let cursor = board::cursor();
    // Whatever number of files is under way: nobody else ends these.
    let returned = BackgroundWorker::transaction(returned_relations);
    look.finish(&returned);
    if must_leave() {
        return board::end(Ended::At(cursor));
    }
    let found = BackgroundWorker::transaction(AssertUnwindSafe(|| look.survey(cursor)));
    // However long the list took, something of it is done.
    look.begun = Instant::now();
    let ended = match found {
        None => Ended::Nothing,
        Some(found) => look.at(&found, cursor),
    };
    board::end(ended);
}

/// Tells that the process has left the database.
#[pg_guard]
unsafe extern "C-unwind" fn leave(_code: std::ffi::c_int, database: Datum) {
    board::left(database.value() as u32);
}

/// Whether the process is to leave its database at once.
fn must_leave() -> bool {
    // SAFETY: reads a variable of the session.
    is_ending() || board::is_needed(unsafe { pg_sys::MyDatabaseId }.to_u32())
}

/// What the database's owner has set is not for this process, which is a superuser's.
fn override_settings() {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    const NEWER: &[(&std::ffi::CStr, &std::ffi::CStr)] = &[(c"transaction_timeout", c"0")];
    #[cfg(not(any(feature = "pg17", feature = "pg18")))]
    const NEWER: &[(&std::ffi::CStr, &std::ffi::CStr)] = &[];
    let settings = [
        (c"search_path", c""),
        (c"statement_timeout", c"0"),
        (c"lock_timeout", c"0"),
        (c"idle_in_transaction_session_timeout", c"0"),
        (c"default_transaction_isolation", c"read committed"),
        (c"jit", c"off"),
    ];
    for (name, value) in settings.iter().chain(NEWER) {
        let (context, source) = (pg_sys::GucContext::PGC_SUSET, pg_sys::GucSource::PGC_S_OVERRIDE);
        // SAFETY: strings that end with a zero, of settings that the server has.
        unsafe { pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), context, source) };
    }
}

impl Look {
    /// The relations behind this one, in a transaction; `None`: nothing says that any is to be compressed, and none
    /// is.
    fn survey(&mut self, cursor: u32) -> Option<Vec<Member>> {
        // SAFETY: reads a variable of the session.
        let database = unsafe { pg_sys::MyDatabaseId };
        let tablespaces = members::tablespaces();
        for tablespace in &tablespaces {
            let files = convert::container_files(*tablespace, database.to_u32());
            if !files.is_empty() {
                self.containers.insert(*tablespace, files.into_iter().collect());
            }
        }
        let compresses = |tablespace: &u32| {
            server::setting(*tablespace).is_some_and(|setting| setting.compression.is_some())
        };
        let is_worth_it = !self.containers.is_empty()
            || settings::node_compression().is_some_and(|node| node.compression.is_some())
            || targets::database_label(database).is_some()
            || tablespaces.iter().any(compresses)
            || members::has_labels();
        is_worth_it.then(|| members::find(Which::After(Oid::from(cursor))))
    }

    /// Takes the last step of files that have become plain again but for that.
    fn finish(&mut self, returned: &[Oid]) {
        if returned.is_empty() {
            return;
        }
        let found = || members::find(Which::These(returned));
        for member in BackgroundWorker::transaction(AssertUnwindSafe(found)) {
            pgrx::check_for_interrupts!();
            if must_leave() {
                return;
            }
            let mut files = 0;
            loop {
                let finish = || self.convert(&member, files, Files::Returned);
                match BackgroundWorker::transaction(AssertUnwindSafe(finish)) {
                    Begun::Files(begun) => files = begun,
                    Begun::Whole | Begun::NotNow => break,
                }
            }
        }
    }

    /// Looks at relations, one after the other.
    fn at(&mut self, found: &[Member], cursor: u32) -> Ended {
        let mut last = cursor;
        for member in found {
            pgrx::check_for_interrupts!();
            if must_leave() || self.begun.elapsed() >= TIME {
                return Ended::At(last);
            }
            if self.lacks_anything(member) {
                if convert::in_flight() >= IN_FLIGHT_MAX {
                    return Ended::At(last);
                }
                let mut files = 0;
                loop {
                    let begin = || self.convert(member, files, Files::All);
                    match BackgroundWorker::transaction(AssertUnwindSafe(begin)) {
                        Begun::Whole => break,
                        Begun::Files(begun) => files = begun,
                        Begun::NotNow => return Ended::At(last),
                    }
                    pgrx::check_for_interrupts!();
                }
            }
            last = member.relation.to_u32();
        }
        Ended::Whole
    }

    /// Whether a relation has a file of another form than it is to have; without a lock.
    fn lacks_anything(&mut self, member: &Member) -> bool {
        let wanted = member.settings.wanted();
        let has_container = || {
            let files = self.containers.get(&member.tablespace.to_u32());
            files.is_some_and(|files| files.contains(&member.file.to_u32()))
        };
        match wanted {
            Wanted::Plain | Wanted::Leave if !has_container() => return false,
            Wanted::Plain | Wanted::Leave | Wanted::Compressed(_) => {}
        }
        match members::files(member.tablespace, member.file) {
            Ok(files) => {
                files.iter().for_each(|(key, form)| convert::take_up(key, form));
                files.iter().any(|(_, form)| wanted.lacks(form) != Lacks::Nothing)
            }
            Err(problem) => {
                self.note(&format!("relation {}", member.relation.to_u32()), &problem);
                false
            }
        }
    }

    /// Begins conversions of a relation's files from this one on, in a transaction, or ends some.
    fn convert(&mut self, member: &Member, from: usize, which: Files) -> Begun {
        // SAFETY: in a transaction, at whose end the lock goes.
        if !unsafe { pg_sys::ConditionalLockRelationOid(member.relation, pg_sys::AccessShareLock as i32) } {
            return Begun::Whole;
        }
        let held = Instant::now();
        // It may have got another file, or be gone, before it was locked.
        let Some((tablespace, file)) = place_of(member.relation) else { return Begun::Whole };
        let wanted = member.settings.wanted();
        let files = members::files(tablespace, file).unwrap_or_else(|problem| {
            self.note(&format!("relation {}", member.relation.to_u32()), &problem);
            Vec::new()
        });
        for (at, (key, form)) in files.iter().enumerate().skip(from) {
            let lacks = wanted.lacks(form);
            if lacks == Lacks::Nothing || which == Files::Returned && form.form != FormNow::Returned {
                continue;
            }
            let is_enough = || convert::in_flight() >= IN_FLIGHT_MAX || self.begun.elapsed() >= TIME;
            if must_leave() || which == Files::All && is_enough() {
                return Begun::NotNow;
            }
            if at > from && held.elapsed() >= HOLD {
                return Begun::Files(at);
            }
            if let Err(problem) = begin(member, key, lacks, wanted) {
                self.note(&format!("\"{}\"", convert::path_of(key)), &problem);
            }
        }
        Begun::Whole
    }

    /// The first problem of a look is told; others are likely the same.
    fn note(&mut self, what: &str, problem: &Problem) {
        let level = if self.has_told { PgLogLevel::DEBUG1 } else { PgLogLevel::LOG };
        self.has_told = true;
        let message = format!("cfs cannot convert {what}: {problem}");
        report::log(level, Code::ERRCODE_IO_ERROR, message, "It will be retried after cfs.naptime.");
    }
}

/// Relations of the session's database that have a file whose conversion needs a lock to end. A loss of power can bring a
/// dropped relation's file back, in whatever form it had: nobody can have a lock of that, and it is forgotten.
fn returned_relations() -> Vec<Oid> {
    // SAFETY: reads a variable of the session.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let waits =
        convert::progress().into_iter().filter(|found| found.is_leaving && found.key.database == database);
    let mut relations = Vec::new();
    for key in waits.map(|found| found.key) {
        match relation_of(&key) {
            Oid::INVALID => convert::forget(&key),
            relation => relations.push(relation),
        }
    }
    relations
}

unsafe extern "C-unwind" {
    #[cfg_attr(feature = "pg15", link_name = "RelidByRelfilenode")]
    #[cfg_attr(not(feature = "pg15"), link_name = "RelidByRelfilenumber")]
    fn relid_by_file(tablespace: Oid, file: Oid) -> Oid;
}

/// Whose file it is, as the catalog says.
fn relation_of(key: &SegmentKey) -> Oid {
    // SAFETY: in a transaction; a look into the catalog.
    unsafe {
        let tablespace = Oid::from(key.tablespace);
        let tablespace = if tablespace == pg_sys::MyDatabaseTableSpace { Oid::INVALID } else { tablespace };
        pg_sys::ffi::pg_guard_ffi_boundary(|| relid_by_file(tablespace, Oid::from(key.relation)))
    }
}

/// Where a locked relation's file is; `None`: it has none that may be converted.
fn place_of(relation: Oid) -> Option<(Oid, Oid)> {
    if relation.to_u32() < targets::FIRST_OID {
        return None;
    }
    // SAFETY: in a transaction; a tuple of this catalog, copied before it is released.
    let form = unsafe {
        let key = pg_sys::SysCacheIdentifier::RELOID as i32;
        let tuple = pg_sys::SearchSysCache1(key, Datum::from(relation));
        if tuple.is_null() {
            return None;
        }
        let form = *pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_class>();
        pg_sys::ReleaseSysCache(tuple);
        form
    };
    let is_fit = matches!(form.relkind as u8, b'r' | b'm' | b't' | b'i')
        && matches!(form.relpersistence as u8, b'p' | b'u')
        && !form.relisshared
        && form.relfilenode != Oid::INVALID;
    is_fit.then(|| (members::tablespace_of(form.reltablespace), form.relfilenode))
}

/// Begins what a file lacks. The relation is locked.
fn begin(member: &Member, key: &SegmentKey, lacks: Lacks, wanted: Wanted) -> Result<(), Problem> {
    let choice = match wanted {
        Wanted::Compressed(choice) => choice,
        Wanted::Plain | Wanted::Leave => None,
    };
    let (what, done) = match lacks {
        Lacks::Nothing => return Ok(()),
        Lacks::Compression => {
            let exchanged = convert::exchange(key, choice)?;
            let done = match exchanged {
                Exchanged::Done => "begun",
                Exchanged::IsContainer => "it is a container",
                Exchanged::TooSmall => "it is too small",
                Exchanged::Missing => "it is missing",
                Exchanged::Busy(why) => why,
            };
            ("compress", done)
        }
        Lacks::Return => ("decompress", if convert::begin_return(key)? { "begun" } else { "it is plain" }),
        Lacks::Choice => {
            ("recompress", if convert::set_choice(key, choice)? { "begun" } else { "it is plain" })
        }
    };
    let (relation, path) = (member.relation.to_u32(), convert::path_of(key));
    ereport!(
        PgLogLevel::DEBUG1,
        Code::ERRCODE_SUCCESSFUL_COMPLETION,
        format!("cfs dispatcher: {what} \"{path}\" of relation {relation}: {done}")
    );
    Ok(())
}
