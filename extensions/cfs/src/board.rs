//! What sessions, the launcher and its dispatcher tell each other: a few words of the server's shared memory.
//!
//! ```text
//!  launcher's latch | all databases are due | of the dispatcher: its state, where it goes on, its database |
//!  databases that are due | databases that statements need for themselves
//! ```
//! A session writes the number of a database whose labels it changed, after its commit, and sets the launcher's latch.
//! What is lost with a crash is found again by the launcher's look at all databases.
//!
//! A session that needs a database for itself ([`crate::absence`]) writes its number, and then reads which one the
//! dispatcher is in. The launcher writes where it sends a dispatcher, and then reads who needs it. So one of the two sees
//! the other.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pgrx::pg_guard;
use pgrx::pg_sys;

/// Databases that can be due by name; with more, all are.
const PLACES: usize = 64;
const LATCH: usize = 0;
const ALL: usize = 1;
const STATE: usize = 2;
const CURSOR: usize = 3;
const VISITED: usize = 4;
const DATABASES: usize = 8;
const NEEDED: usize = DATABASES + PLACES;
/// Statements that need a database for themselves at a time; those beyond depend on the dispatchers' pauses.
pub const STATEMENTS: usize = 16;
const WORDS: usize = NEEDED + STATEMENTS;

/// The words; null in a process without.
static WORDS_AT: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

static mut NEXT_SHMEM_REQUEST: pg_sys::shmem_request_hook_type = None;

/// How a dispatcher's look at a database ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It has not, or by an error.
    Not,
    /// Nothing there has a setting or another form than a plain file.
    Nothing,
    /// All relations were looked at.
    Whole,
    /// Its time was over, or enough files are in hand. It goes on behind the relation of this number.
    At(u32),
}

/// Asks the server for the memory.
pub fn register() {
    // SAFETY: while the server starts, in its only process.
    unsafe {
        NEXT_SHMEM_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(shmem_request);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn shmem_request() {
    // SAFETY: what was there before; where the server asks for such requests.
    unsafe {
        if let Some(next) = NEXT_SHMEM_REQUEST {
            next();
        }
        pg_sys::RequestAddinShmemSpace(WORDS * 8);
    }
}

/// Finds the memory, all zeros: while the server starts, and again after a crash of one of its processes.
pub fn begin() {
    let mut is_found = false;
    // SAFETY: in the postmaster's hook for this, where no other process is; every bit pattern is a word.
    unsafe {
        let words = pg_sys::ShmemInitStruct(c"cfs board".as_ptr(), WORDS * 8, &mut is_found).cast::<u8>();
        words.write_bytes(0, WORDS * 8);
        WORDS_AT.store(words.cast(), Ordering::Release);
    }
}

fn words() -> &'static [AtomicU64] {
    let start = WORDS_AT.load(Ordering::Acquire);
    if start.is_null() {
        return &[];
    }
    // SAFETY: made by `begin` with so many words; the server's shared memory stays as long as the process.
    unsafe { std::slice::from_raw_parts(start, WORDS) }
}

fn word(at: usize) -> Option<&'static AtomicU64> {
    words().get(at)
}

/// This process is the launcher.
pub fn listen() {
    if let Some(word) = word(LATCH) {
        // SAFETY: reads a variable of the process: a latch in shared memory, at the same place in all processes.
        word.store(unsafe { pg_sys::MyLatch } as u64, Ordering::Release);
    }
}

fn wake() {
    let latch = word(LATCH).map_or(0, |word| word.load(Ordering::Acquire)) as *mut pg_sys::Latch;
    if !latch.is_null() {
        // SAFETY: a latch in shared memory. If the launcher has ended, nobody's or another process's, which looks
        // once more than it needs to.
        unsafe { pg_sys::SetLatch(latch) };
    }
}

/// A database's labels have changed. Raises no error.
pub fn put(database: u32) {
    let places = words().get(DATABASES..NEEDED).unwrap_or_default();
    let is_put = places.iter().any(|place| {
        let took = place.compare_exchange(0, u64::from(database), Ordering::AcqRel, Ordering::Acquire);
        took.is_ok() || took == Err(u64::from(database))
    });
    if !is_put && let Some(all) = word(ALL) {
        all.store(1, Ordering::Release);
    }
    wake();
}

/// Databases whose labels have changed since the last call; `None`: any of them may have.
pub fn take() -> Option<Vec<u32>> {
    let all = word(ALL).is_some_and(|all| all.swap(0, Ordering::AcqRel) != 0);
    let places = words().get(DATABASES..NEEDED).unwrap_or_default();
    let taken = places.iter().map(|place| place.swap(0, Ordering::AcqRel) as u32);
    let taken: Vec<_> = taken.filter(|database| *database != 0).collect();
    (!all).then_some(taken)
}

const NOTHING: u64 = 1;
const WHOLE: u64 = 2;
const PART: u64 = 3;

/// A dispatcher is about to be started for a database, to go on behind this relation. False: a statement needs the
/// database for itself.
pub fn dispatch(database: u32, cursor: u32) -> bool {
    if let (Some(state), Some(at), Some(visited)) = (word(STATE), word(CURSOR), word(VISITED)) {
        at.store(u64::from(cursor), Ordering::Release);
        state.store(0, Ordering::Release);
        visited.store(u64::from(database), Ordering::SeqCst);
    }
    let may = !is_needed(database);
    if !may {
        left(database);
    }
    may
}

/// The dispatcher has left this database, or was not started.
pub fn left(database: u32) {
    if let Some(visited) = word(VISITED) {
        // It may be another one's by now, after the launcher's restart.
        let _ = visited.compare_exchange(u64::from(database), 0, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Whether a dispatcher is in this database, or on its way.
pub fn is_visited(database: u32) -> bool {
    word(VISITED).is_some_and(|visited| visited.load(Ordering::SeqCst) == u64::from(database))
}

/// A statement needs this database for itself, until it gives the place back.
pub fn need(database: u32) -> Option<usize> {
    let places = words().get(NEEDED..).unwrap_or_default();
    let take = |place: &AtomicU64| {
        place.compare_exchange(0, u64::from(database), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    };
    places.iter().position(take)
}

/// The database that was given to [`need`] for this place.
pub fn needed(place: usize) -> u32 {
    word(NEEDED + place).map_or(0, |place| place.load(Ordering::SeqCst) as u32)
}

/// Gives back what [`need`] returned.
pub fn need_no_more(place: usize) {
    if let Some(place) = word(NEEDED + place) {
        place.store(0, Ordering::SeqCst);
    }
}

/// Whether a statement needs this database for itself.
pub fn is_needed(database: u32) -> bool {
    let places = words().get(NEEDED..).unwrap_or_default();
    places.iter().any(|place| place.load(Ordering::SeqCst) == u64::from(database))
}

/// Where the dispatcher is to go on.
pub fn cursor() -> u32 {
    word(CURSOR).map_or(0, |at| at.load(Ordering::Acquire) as u32)
}

/// The dispatcher's last word.
pub fn end(ended: Ended) {
    if let (Some(state), Some(at)) = (word(STATE), word(CURSOR)) {
        if let Ended::At(relation) = ended {
            at.store(u64::from(relation), Ordering::Release);
        }
        let word = match ended {
            Ended::Not => 0,
            Ended::Nothing => NOTHING,
            Ended::Whole => WHOLE,
            Ended::At(_) => PART,
        };
        state.store(word, Ordering::Release);
    }
}

/// How the last dispatcher has ended.
pub fn ended() -> Ended {
    match word(STATE).map_or(0, |state| state.load(Ordering::Acquire)) {
        NOTHING => Ended::Nothing,
        WHOLE => Ended::Whole,
        PART => Ended::At(cursor()),
        _ => Ended::Not,
    }
}
