//! The steps of processes: each operation on a word of shared memory, each begin and end of an operation of
//! the device, each wait for a lock. A process runs until its budget of steps is used up, then the scheduler
//! is asked.
//!
//! A step costs a decrement. All is of one thread, as a run of a schedule is.

use std::cell::Cell;

use crate::coroutine::switch;

/// Why a process was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Its budget is used up.
    Budget,
    /// An operation of the device ended, and the scheduler asked for that.
    Io,
    /// Between two operations.
    Boundary,
    /// It waits for others.
    Relax,
}

/// How a process is to die when it is resumed.
pub struct Injected;

struct Clock {
    left: Cell<u64>,
    /// Whether a process runs: only then is there anything to leave.
    runs: Cell<bool>,
    /// Whether the ends of operations of the device leave the process.
    leaves_at_io: Cell<bool>,
    /// What is done from now on has no effect: destructors of a process that is killed.
    is_dead: Cell<bool>,
    panics: Cell<bool>,
    /// Changes of files about to begin, after so many of which the process is left; 0: it is not.
    begins: Cell<u32>,
    why: Cell<Why>,
}

thread_local! {
    static CLOCK: Clock = const {
        Clock {
            left: Cell::new(u64::MAX),
            runs: Cell::new(false),
            leaves_at_io: Cell::new(false),
            is_dead: Cell::new(false),
            panics: Cell::new(false),
            begins: Cell::new(0),
            why: Cell::new(Why::Budget),
        }
    };
}

/// Steps after which whoever runs outside of any schedule is stuck.
const QUIET_STEPS_MAX: u64 = 1 << 32;

impl Clock {
    fn step(&self) {
        let left = self.left.get();
        if left > 1 {
            self.left.set(left - 1);
        } else {
            self.leave(Why::Budget);
        }
    }

    #[cold]
    fn leave(&self, why: Why) {
        if self.is_dead.get() || std::thread::panicking() {
            // A destructor: not for ever, if it waits for what never comes.
            self.left.set(QUIET_STEPS_MAX);
            return;
        }
        assert!(self.runs.get(), "nobody makes progress, with nobody else there");
        self.why.set(why);
        switch();
        if self.panics.replace(false) {
            std::panic::resume_unwind(Box::new(Injected));
        }
    }
}

/// A step on a word.
pub fn step() {
    CLOCK.with(Clock::step);
}

/// Whether what is done has an effect.
pub fn is_dead() -> bool {
    CLOCK.with(|clock| clock.is_dead.get())
}

/// An operation of the device has ended, or the engine pauses.
pub fn io() {
    CLOCK.with(|clock| {
        if clock.runs.get() && clock.leaves_at_io.get() {
            clock.leave(Why::Io);
        } else {
            clock.step();
        }
    });
}

/// An operation is about to change a file.
pub fn begin() {
    CLOCK.with(|clock| {
        if clock.leaves_at_io.get() {
            return;
        }
        let begins = clock.begins.get();
        clock.begins.set(begins.saturating_sub(1));
        if begins == 1 && clock.runs.get() {
            clock.leave(Why::Budget);
        } else {
            clock.step();
        }
    });
}

/// Leaves the process that runs.
pub fn leave(why: Why) {
    CLOCK.with(|clock| {
        if clock.runs.get() {
            clock.leave(why);
        }
    });
}

/// Lets a process run for `budget` steps at most, as `resume` does; returns what that says, why it was left
/// and what is left of the budget.
pub fn run(budget: u64, leaves_at_io: bool, resume: impl FnOnce() -> bool) -> (bool, Why, u64) {
    CLOCK.with(|clock| {
        clock.left.set(budget.max(1));
        clock.leaves_at_io.set(leaves_at_io);
        clock.runs.set(true);
        let goes_on = resume();
        clock.runs.set(false);
        clock.panics.set(false);
        clock.begins.set(0);
        let left = clock.left.replace(QUIET_STEPS_MAX);
        (goes_on, clock.why.get(), left)
    })
}

/// Leaves the process that runs next when it is about to change a file for the `begins`th time, if it does.
pub fn stop_at_begin(begins: u32) {
    CLOCK.with(|clock| clock.begins.set(begins));
}

/// Lets the process that is resumed next panic where it stands.
pub fn panic_next() {
    CLOCK.with(|clock| clock.panics.set(true));
}

/// Steps that are none: what a test looks at in between.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    CLOCK.with(|clock| {
        let (runs, left) = (clock.runs.replace(false), clock.left.replace(QUIET_STEPS_MAX));
        let done = work();
        clock.runs.set(runs);
        clock.left.set(left);
        done
    })
}

/// Ends a process without an effect of what its destructors do.
pub fn without_effect(end: impl FnOnce()) {
    CLOCK.with(|clock| {
        clock.is_dead.set(true);
        clock.left.set(QUIET_STEPS_MAX);
        end();
        clock.is_dead.set(false);
    });
}
