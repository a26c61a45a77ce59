//! How many documents were written with a dictionary of shapes, and how many of them were unlike those it was learned from.
//!
//! The counts are of all sessions, since the server started: a small table in the server's shared memory, which the first
//! session that writes such a document makes. The background worker learns anew where misses are many.
//!
//! 1. A count is never worth an error: where there is no shared memory left, nothing is counted.
//! 2. A place belongs to a database and a dictionary as long as its key says so. Two sessions that take one at the same time
//!    may lose a few counts, and do nothing worse.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys::{self, Oid};
use pgrx::{IntoDatum, PgTryBuilder};

use crate::sys::{self, pg_function};

/// Dictionaries that are counted at a time.
const PLACES: usize = 512;
/// Places that are looked at for a dictionary.
const LOOKED_AT: usize = 8;
/// Of named locks, that of `ShmemInitStruct` (`lwlocknames.txt` of 15 and 16, `lwlocklist.h` since).
const ADDIN_SHMEM_INIT_LOCK: usize = 21;

/// A database and a dictionary, and what was written with it.
#[repr(C)]
struct Place {
    /// Zero: nobody's.
    key: AtomicU64,
    written: AtomicU64,
    misses: AtomicU64,
}

/// The counts of a dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Documents written with it.
    pub written: u64,
    /// Of these, unlike what it was learned from.
    pub misses: u64,
}

impl Counts {
    /// Whether learning anew may pay.
    pub fn are_many(self) -> bool {
        self.misses >= MISSES_MIN && self.misses.saturating_mul(MISSES_ONE_IN) >= self.written
    }
}

/// Misses that say anything.
const MISSES_MIN: u64 = 200;
/// Many are one in so many documents.
const MISSES_ONE_IN: u64 = 5;

#[derive(Clone, Copy)]
enum Table {
    /// Not looked for yet.
    Unknown,
    /// There is no memory for it.
    None,
    At(*const Place),
}

struct Known(Cell<Table>);
// SAFETY: only the one thread of the backend that runs server code comes here.
unsafe impl Sync for Known {}
static TABLE: Known = Known(Cell::new(Table::Unknown));

pg_function! {
    /// `zson_dictionary_use(dictionary integer, OUT written bigint, OUT misses bigint)`.
    fn zson_dictionary_use(fcinfo) {
        let found = counts(pg_sys::MyDatabaseId, sys::int4_arg(fcinfo, 0, 0) as u32);
        sys::return_row(fcinfo, [
            found.and_then(|counts| (counts.written as i64).into_datum()),
            found.and_then(|counts| (counts.misses as i64).into_datum()),
        ])
    }
}

/// Counts a document that was written. May call the server, but raises nothing.
pub fn count(dictionary: u32, is_miss: bool) {
    // SAFETY: a plain variable of the server.
    let key = key_of(unsafe { pg_sys::MyDatabaseId }, dictionary);
    let Some(places) = places() else { return };
    if let Some(place) = find(places, key).or_else(|| take(places, key)) {
        place.written.fetch_add(1, Ordering::Relaxed);
        if is_miss {
            place.misses.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What was counted of a dictionary, if anything was.
pub fn counts(database: Oid, dictionary: u32) -> Option<Counts> {
    find(places()?, key_of(database, dictionary)).map(Place::counts)
}

/// Whether any dictionary of any database has many misses.
pub fn are_many() -> bool {
    places().unwrap_or_default().iter().any(|place| place.counts().are_many())
}

/// Whether any dictionary of a database has many misses.
pub fn are_many_in(database: Oid) -> bool {
    let places = places().unwrap_or_default();
    let of_database =
        |place: &&Place| place.key.load(Ordering::Relaxed) >> 32 == u64::from(u32::from(database));
    places.iter().filter(of_database).any(|place| place.counts().are_many())
}

/// Counts the dictionaries of a database from nothing.
pub fn forget(database: Oid) {
    for place in places().unwrap_or_default() {
        if place.key.load(Ordering::Relaxed) >> 32 == u64::from(u32::from(database)) {
            place.written.store(0, Ordering::Relaxed);
            place.misses.store(0, Ordering::Relaxed);
        }
    }
}

impl Place {
    fn counts(&self) -> Counts {
        let misses = self.misses.load(Ordering::Relaxed);
        Counts { written: self.written.load(Ordering::Relaxed).max(misses), misses }
    }
}

fn key_of(database: Oid, dictionary: u32) -> u64 {
    u64::from(u32::from(database)) << 32 | u64::from(dictionary)
}

/// The places where a key may be.
fn places_of(key: u64) -> impl Iterator<Item = usize> {
    let start = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (0..LOOKED_AT).map(move |next| (start + next) % PLACES)
}

fn find(places: &[Place], key: u64) -> Option<&Place> {
    places_of(key).map(|at| &places[at]).find(|place| place.key.load(Ordering::Relaxed) == key)
}

/// Takes a place that is nobody's, or else that of the dictionary that least was written with.
fn take(places: &[Place], key: u64) -> Option<&Place> {
    let used = |at: &usize| match places[*at].key.load(Ordering::Relaxed) {
        0 => 0,
        _ => 1 + places[*at].written.load(Ordering::Relaxed),
    };
    let place = &places[places_of(key).min_by_key(used)?];
    let known = place.key.load(Ordering::Relaxed);
    place.key.compare_exchange(known, key, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    place.written.store(0, Ordering::Relaxed);
    place.misses.store(0, Ordering::Relaxed);
    Some(place)
}

/// The table.
fn places() -> Option<&'static [Place]> {
    let table = match TABLE.0.get() {
        Table::Unknown => attach(),
        known => known,
    };
    match table {
        // SAFETY: of this size, made of zeros, and there as long as the server.
        Table::At(places) => Some(unsafe { std::slice::from_raw_parts(places, PLACES) }),
        Table::None | Table::Unknown => None,
    }
}

#[cold]
fn attach() -> Table {
    // SAFETY: the lock of those who make such tables is held, and given back even if there is no memory left.
    let found = unsafe {
        let lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        pg_sys::LWLockAcquire(lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let made = PgTryBuilder::new(|| {
            let mut is_found = false;
            let size = PLACES * size_of::<Place>();
            let table = pg_sys::ShmemInitStruct(c"zson dictionaries".as_ptr(), size, &mut is_found);
            if !is_found {
                ptr::write_bytes(table.cast::<u8>(), 0, size);
            }
            Table::At(table.cast::<Place>())
        })
        .catch_others(|_| {
            // An ERROR forgets that interrupts are held; the lock's release resumes them.
            pg_sys::InterruptHoldoffCount += 1;
            Table::None
        })
        .execute();
        pg_sys::LWLockRelease(lock);
        made
    };
    TABLE.0.set(found);
    found
}
