//! Shared memory whose every operation is a step of the schedule.

use std::cell::{Cell, RefCell};

use pgshrink_cfs::word::Word;

use super::clock;

/// A word of it. The step is before the operation, so what follows a load can be other than what was loaded.
#[derive(Default)]
#[repr(transparent)]
pub struct SimWord(Cell<u64>);

impl Word for SimWord {
    fn load(&self) -> u64 {
        clock::step();
        self.0.get()
    }

    fn store(&self, value: u64) {
        clock::step();
        if !clock::is_dead() {
            self.0.set(value);
        }
    }

    fn swap_if(&self, current: u64, new: u64) -> Result<(), u64> {
        clock::step();
        let found = self.0.get();
        if clock::is_dead() {
            return Ok(());
        }
        if found != current {
            return Err(found);
        }
        self.0.set(new);
        Ok(())
    }

    fn add(&self, value: u64) -> u64 {
        clock::step();
        let found = self.0.get();
        if !clock::is_dead() {
            self.0.set(found.wrapping_add(value));
        }
        found
    }
}

thread_local! {
    static POOL: RefCell<Vec<&'static [SimWord]>> = const { RefCell::new(Vec::new()) };
}

/// The shared memory of a run. It lives for ever, so that containers can be kept in what is shared, and is
/// used again.
pub struct Memory(&'static [SimWord]);

impl Memory {
    pub fn new(words: usize) -> Memory {
        let pooled = POOL.with_borrow_mut(|pool| {
            let index = pool.iter().position(|found| found.len() == words)?;
            Some(pool.swap_remove(index))
        });
        let memory = Memory(pooled.unwrap_or_else(|| {
            let words: Vec<SimWord> = (0..words).map(|_| SimWord::default()).collect();
            words.leak()
        }));
        memory.clear();
        memory
    }

    pub fn words(&self) -> &'static [SimWord] {
        self.0
    }

    /// As it is when a server starts.
    pub fn clear(&self) {
        self.0.iter().for_each(|word| word.0.set(0));
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        POOL.with_borrow_mut(|pool| pool.push(self.0));
    }
}
