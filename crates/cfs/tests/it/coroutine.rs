//! Coroutines that can be left from anywhere below them, as the engine's calls of a device are.
// A scope is reached through a thread's variable, which the borrow checker cannot follow.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::rc::Rc;

use generator::{Gn, LocalGenerator, Scope};

const STACK_WORDS: usize = 0x8000;

type Running = Scope<'static, 'static, (), ()>;

thread_local! {
    static CURRENT: Cell<*mut Running> = const { Cell::new(std::ptr::null_mut()) };
}

/// Work that is done step by step. Dropped before its end, it is killed where it stands.
pub struct Coroutine {
    // First, so that it is killed while the scope can be reached.
    generator: Option<LocalGenerator<'static, (), ()>>,
    scope: Rc<Cell<*mut Running>>,
}

/// Leaves the coroutine that runs, if one does, until it is resumed.
pub fn switch() {
    let scope = CURRENT.get();
    if !scope.is_null() {
        // SAFETY: it is the scope of the coroutine that runs, which lives on its stack until it ends.
        unsafe { (*scope).yield_with(()) };
    }
}

impl Coroutine {
    pub fn new(work: impl FnOnce() + 'static) -> Coroutine {
        let scope: Rc<Cell<*mut Running>> = Rc::new(Cell::new(std::ptr::null_mut()));
        let current = scope.clone();
        let generator = Gn::new_scoped_opt_local(STACK_WORDS, move |mut scope| {
            current.set((&raw mut scope).cast());
            CURRENT.set(current.get());
            work();
        });
        Coroutine { generator: Some(generator), scope }
    }

    /// Runs it to the next switch; false: it has ended.
    pub fn resume(&mut self) -> bool {
        let before = CURRENT.replace(self.scope.get());
        let running = self.generator.as_mut().is_some_and(|generator| {
            generator.resume();
            !generator.is_done()
        });
        CURRENT.set(before);
        running
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        let before = CURRENT.replace(self.scope.get());
        self.generator = None;
        CURRENT.set(before);
    }
}
