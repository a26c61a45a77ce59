//! Which dictionaries pages may be written with: a word of shared memory for each.
//!
//! A dictionary may go when no page needs it; a page that is just being written needs it and shows nowhere yet. So writers
//! are counted in and out, in the very word that says whether the number may still be written: who comes in after it was retired
//! sees that, who came in before is seen. A writer that is killed inside keeps its dictionary until the container is
//! opened again, which costs space and nothing else.
//!
//! A number is given out once while the container is open: what a process has loaded by a number stays right.

use crate::error::Error;
use crate::live::{DICTIONARIES, Live, Word};
use crate::root::DICTIONARIES_MAX;

/// Words of all gates, and a bit for each number that was given out.
pub(crate) const WORDS: usize = DICTIONARIES_MAX + USED_WORDS;
const USED_WORDS: usize = 4;
const USED: usize = DICTIONARIES + DICTIONARIES_MAX;

const INSIDE: u64 = (1 << 32) - 1;
const RETIRED: u64 = 1 << 40;

/// What a gate's word has above the writers inside while a number may be written.
fn open(number: u8) -> u64 {
    u64::from(number) << 32
}

fn slot(number: u8) -> usize {
    usize::from(number) % DICTIONARIES_MAX
}

impl<W: Word> Live<'_, W> {
    fn gate(&self, number: u8) -> &W {
        &self.words[DICTIONARIES + slot(number)]
    }

    /// Counts a writer in that is about to publish a page with this dictionary; 0 is none. After an error it is not inside.
    pub fn enter_dictionary(&self, number: u8) -> Result<(), Error> {
        if number == 0 {
            return Ok(());
        }
        let found = self.gate(number).add(1) & !INSIDE;
        if found == open(number) {
            return Ok(());
        }
        self.leave_dictionary(number);
        let retired = found == open(number) | RETIRED;
        Err(if retired { Error::DictionaryRetired(number) } else { Error::DictionaryMissing(number) })
    }

    /// Counts it out: what it wrote is published, or given up.
    pub fn leave_dictionary(&self, number: u8) {
        if number != 0 {
            self.gate(number).add(u64::MAX);
        }
    }

    /// Lets pages be written with a number, unless it was retired. Under the commit lock, as all that follows.
    pub fn open_dictionary(&self, number: u8) {
        let used = USED + usize::from(number) / 64;
        self.set(used, self.get(used) | 1 << (number % 64));
        if !self.is_retired(number) {
            self.set_gate(number, open(number));
        }
    }

    /// Lets no page be written with it any more, until the container is opened again.
    pub fn retire_dictionary(&self, number: u8) {
        self.set_gate(number, open(number) | RETIRED);
    }

    fn set_gate(&self, number: u8, state: u64) {
        let gate = self.gate(number);
        let mut current = gate.load();
        while let Err(found) = gate.swap_if(current, current & INSIDE | state) {
            current = found;
        }
    }

    pub(crate) fn is_retired(&self, number: u8) -> bool {
        self.gate(number).load() & !INSIDE == open(number) | RETIRED
    }

    /// Whether somebody may still publish a page with it. Once no after it was retired, no for ever.
    pub fn has_writers(&self, number: u8) -> bool {
        self.gate(number).load() & INSIDE != 0
    }

    /// A number that nobody has met, with a gate of its own. None: all were given out.
    pub(crate) fn next_dictionary(&self, taken: &[u8], is_reuse_planted: bool) -> Option<u8> {
        let last = taken.last().copied().unwrap_or(0);
        let numbers = (last.saturating_add(1)..=u8::MAX).chain(1..=last);
        let was_used = |number: u8| self.get(USED + usize::from(number) / 64) >> (number % 64) & 1 == 1;
        let is_taken = |number: u8| taken.iter().any(|taken| slot(*taken) == slot(number));
        if is_reuse_planted {
            let lowest = (1..=u8::MAX).find(|number| !is_taken(*number))?;
            self.set_gate(lowest, open(lowest));
            return Some(lowest);
        }
        numbers.into_iter().find(|number| !is_taken(*number) && !was_used(*number))
    }
}
