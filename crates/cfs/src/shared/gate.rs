//! Which dictionaries pages may be written with: a word of shared memory for each.
//!
//! A dictionary may go when no page needs it; a page that is just being written needs it and shows nowhere
//! yet. So writers are counted in and out, in the very word that says whether the number may still be
//! written: who comes in after it was retired sees that, who came in before is seen. A writer that is killed
//! inside keeps its dictionary until the container is opened again, which costs space and nothing else.
//!
//! A number is given out once in a container's life: what a process has loaded by a number stays right, and a
//! record that is found without a map means one dictionary only.

use crate::format::error::Error;
use crate::format::record::DICTIONARY_NUMBER_MAX;
use crate::format::root::DICTIONARIES_MAX;
use crate::format::units::DictionaryNumber;
use crate::shared::lock::CommitGuard;
use crate::shared::state::SharedState;
use crate::shared::word::Word;

const INSIDE: u64 = (1 << 32) - 1;
const RETIRED: u64 = 1 << 48;

/// What a gate's word has above the writers inside while a number may be written.
fn open(number: DictionaryNumber) -> u64 {
    u64::from(number) << 32
}

/// The number in a gate's word; 0: the gate is nobody's.
fn number_in(word: u64) -> DictionaryNumber {
    (word >> 32) as DictionaryNumber
}

/// A writer that is inside. It leaves when this is dropped.
pub struct Inside<'m, W: Word>(Option<&'m W>);

impl<W: Word> Drop for Inside<'_, W> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.add(u64::MAX);
        }
    }
}

impl<'m, W: Word> SharedState<'m, W> {
    /// The gate that has the number now; 0 finds one that is nobody's.
    fn gate(&self, number: DictionaryNumber) -> Option<&'m W> {
        let gates = &self.shared().gates;
        let hint = usize::from(number) % DICTIONARIES_MAX;
        let (before, from_hint) = gates.split_at(hint);
        from_hint.iter().chain(before).find(|gate| number_in(gate.load()) == number)
    }

    /// Counts a writer in that is about to publish a page with this dictionary; 0 is none. After an error it
    /// is not inside.
    ///
    /// # Errors
    /// [`Error::DictionaryMissing`] if it is not one of the container's; [`Error::DictionaryRetired`] if it
    /// is to go.
    pub fn enter_dictionary(&self, number: DictionaryNumber) -> Result<Inside<'m, W>, Error> {
        if number == 0 {
            return Ok(Inside(None));
        }
        let gate = self.gate(number).ok_or(Error::DictionaryMissing(number))?;
        let found = gate.add(1) & !INSIDE;
        // Leaves again where the number is not open, or not the gate's any more.
        let inside = Inside(Some(gate));
        if found == open(number) {
            return Ok(inside);
        }
        let retired = found == open(number) | RETIRED;
        Err(if retired { Error::DictionaryRetired(number) } else { Error::DictionaryMissing(number) })
    }

    /// A gate that none of the dictionaries in `known` has. There is one as long as not all of theirs have
    /// gates: there are as many gates as a root has dictionaries at most. Who died while it dropped a
    /// dictionary may have left that one's.
    fn spare_gate(&self, known: &[DictionaryNumber]) -> Option<&'m W> {
        self.shared().gates.iter().find(|gate| !known.contains(&number_in(gate.load())))
    }

    /// Lets pages be written with a number, one of the root's that are `known`, unless it was retired.
    pub fn open_dictionary(
        &self,
        number: DictionaryNumber,
        known: &[DictionaryNumber],
        _: &CommitGuard<'_, W>,
    ) {
        if self.gate(number).is_none()
            && let Some(gate) = self.spare_gate(known)
        {
            set_gate(gate, open(number));
        }
    }

    /// Lets no page be written with it any more, until the container is opened again. Also where it was never
    /// opened: who added it may have died before.
    pub fn retire_dictionary(
        &self,
        number: DictionaryNumber,
        known: &[DictionaryNumber],
        _: &CommitGuard<'_, W>,
    ) {
        let gate = self.gate(number).or_else(|| self.spare_gate(known));
        if let Some(gate) = gate {
            set_gate(gate, open(number) | RETIRED);
        }
    }

    /// Gives the gate of a dictionary that no root has any more to the next one.
    pub fn forget_dictionary(&self, number: DictionaryNumber, _: &CommitGuard<'_, W>) {
        if let Some(gate) = self.gate(number) {
            set_gate(gate, 0);
        }
    }

    pub(crate) fn is_retired(&self, number: DictionaryNumber) -> bool {
        self.gate(number).is_some_and(|gate| gate.load() & RETIRED != 0)
    }

    /// The number that was given out last of those that pages may be written with; 0: there is none.
    pub(crate) fn newest_open(&self) -> DictionaryNumber {
        let words = self.shared().gates.iter().map(Word::load);
        words.filter(|word| word & RETIRED == 0).map(number_in).max().unwrap_or(0)
    }

    /// Whether somebody may still publish a page with it. Once no after it was retired, no for ever.
    pub fn has_writers(&self, number: DictionaryNumber) -> bool {
        self.gate(number).is_some_and(|gate| gate.load() & INSIDE != 0)
    }

    /// A number that no dictionary ever had; from now on it is given out. None: there is none left in the
    /// container's life.
    pub(crate) fn give_number(
        &self,
        is_reuse_injected: bool,
        _: &CommitGuard<'_, W>,
    ) -> Option<DictionaryNumber> {
        if is_reuse_injected {
            return (1..=DICTIONARY_NUMBER_MAX).find(|number| self.gate(*number).is_none());
        }
        let number = self.shared().dictionaries_given.load() + 1;
        let is_left = number <= u64::from(DICTIONARY_NUMBER_MAX);
        is_left.then(|| self.shared().dictionaries_given.store(number)).map(|()| number as DictionaryNumber)
    }
}

fn set_gate<W: Word>(gate: &W, state: u64) {
    let mut current = gate.load();
    while let Err(found) = gate.swap_if(current, current & INSIDE | state) {
        current = found;
    }
}
