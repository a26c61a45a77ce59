//! One set of buffers per worker thread.
//!
//! A session borrows them for one turn of its pump and keeps only what it could not write, so an idle session holds no
//! buffer and an active one allocates none.

use std::cell::RefCell;

/// Bytes read from a socket at once.
pub(crate) const READ_SIZE: usize = 256 << 10;

/// Buffers for one turn. All vectors are empty between turns.
pub(crate) struct Scratch {
    /// Read target.
    pub(crate) input: Vec<u8>,
    /// Output of the engine.
    pub(crate) output: Vec<u8>,
    /// Lent to a link's plain buffer, which is empty while its session is idle.
    pub(crate) plain: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; READ_SIZE],
        output: Vec::with_capacity(READ_SIZE + READ_SIZE / 2),
        plain: Vec::with_capacity(READ_SIZE),
    });
}

/// Lends this thread's buffers to one turn of one session.
pub(crate) fn with<R>(turn: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        let result = turn(scratch);
        // A turn that failed may leave output behind, which must not reach another session.
        scratch.output.clear();
        scratch.plain.clear();
        result
    })
}
