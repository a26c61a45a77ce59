//! Dictionaries in schedules: added, retired and dropped while pages are written with them by processes that
//! keep what they have loaded, as the server's do. What a page was written with it must be read with, for as
//! long as it is there.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use pgshrink_cfs::dictionaries::DictionaryName;
use pgshrink_cfs::{Error, Scratch, Stored};
use pgshrink_testkit::seed::Seed;

use super::process::{Open, Process};
use crate::plan::state_of;

/// A dictionary's number, as the engine has it.
pub type Number = u16;

/// What a run's writes were made with.
#[derive(Default)]
pub struct Vocabulary {
    names: RefCell<u64>,
    /// By write; writes without a dictionary are not in it.
    of_write: RefCell<BTreeMap<u64, u64>>,
    /// What pages may have been stored anew with, or without.
    anew: RefCell<BTreeSet<(u64, Option<u64>)>>,
}

impl Vocabulary {
    pub fn new_name(&self) -> u64 {
        *self.names.borrow_mut() += 1;
        *self.names.borrow()
    }

    fn names(&self) -> u64 {
        *self.names.borrow()
    }

    pub fn note(&self, write: u64, name: u64) {
        self.of_write.borrow_mut().insert(write, name);
    }

    /// It was made without one after all.
    pub fn forget(&self, write: u64) {
        self.of_write.borrow_mut().remove(&write);
    }

    /// Its page may be stored anew with this one.
    pub fn note_anew(&self, write: u64, name: Option<u64>) {
        self.anew.borrow_mut().insert((write, name));
    }

    fn of(&self, write: u64) -> Option<u64> {
        self.of_write.borrow().get(&write).copied()
    }
}

/// What a process has loaded, by number: kept for as long as it lives.
#[derive(Default, Clone)]
pub struct Loaded(RefCell<BTreeMap<Number, u64>>);

impl Loaded {
    /// A number to write with and the dictionary that this process takes it for; 0 is none.
    pub fn choose(&self, draw: impl Fn(usize) -> usize) -> (Number, u64) {
        let loaded = self.0.borrow();
        if loaded.is_empty() || draw(3) == 0 {
            return (0, 0);
        }
        // Mostly the newest, so that older ones fall out of use.
        let index = if draw(3) > 0 { loaded.len() - 1 } else { draw(loaded.len()) };
        loaded.iter().nth(index).map_or((0, 0), |(number, name)| (*number, *name))
    }

    /// Loads all that are there.
    fn load_all(&self, container: &Open) -> Result<(), Error> {
        for number in container.dictionary_ids()? {
            match self.load(container, number) {
                Ok(_) | Err(Error::DictionaryMissing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn load(&self, container: &Open, number: Number) -> Result<u64, Error> {
        let loaded = self.0.borrow().get(&number).copied();
        if let Some(name) = loaded {
            return Ok(name);
        }
        let (name, content) = container.dictionary(number)?;
        let name = u128::from_le_bytes(name) as u64;
        assert_eq!(content, content_of(name), "dictionary {number} is not what was added");
        self.0.borrow_mut().insert(number, name);
        Ok(name)
    }

    /// Whether what was read from a page can be decoded by this process, with what it was encoded with.
    /// Ok(false): the dictionary is gone, which is right only if the page is another by now.
    pub fn can_decode(
        &self,
        container: &Open,
        vocabulary: &Vocabulary,
        write: u64,
        number: Number,
    ) -> Result<Result<bool, String>, Error> {
        let found = match number {
            0 => None,
            _ => match self.load(container, number) {
                Ok(name) => Some(name),
                Err(Error::DictionaryMissing(_)) => return Ok(Ok(false)),
                Err(error) => return Err(error),
            },
        };
        let expected = vocabulary.of(write);
        Ok(if found == expected || vocabulary.anew.borrow().contains(&(write, found)) {
            Ok(true)
        } else {
            Err(format!("write {write} was made with dictionary {expected:?} and is read with {found:?}"))
        })
    }
}

impl Process {
    pub fn decode(
        &self,
        container: &Open,
        block: u32,
        write: u64,
        number: Number,
        scratch: &mut Scratch,
    ) -> Result<(), String> {
        match self.loaded().can_decode(container, &self.world.vocabulary, write, number) {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => match container.read(block, scratch) {
                Ok(stored) if write_of(block, stored) == Some((write, number)) => {
                    Err(format!("block {block} needs dictionary {number}, which is gone"))
                }
                _ => Ok(()),
            },
            Ok(Err(what)) => Err(format!("block {block}: {what}")),
            Err(error) => {
                self.expect_failure("dictionary", &error);
                Ok(())
            }
        }
    }

    pub fn load(&self, container: &Open) {
        if let Err(error) = self.loaded().load_all(container) {
            self.expect_failure("dictionaries", &error);
        }
    }

    pub fn add_dictionary(&self, container: &Open) {
        let world = &self.world;
        let known = world.vocabulary.names();
        let name = if known > 0 && world.draw(4) == 0 {
            world.draw(known as usize) as u64 + 1
        } else {
            world.vocabulary.new_name()
        };
        match container.add_dictionary(name_of(name), &content_of(name)) {
            Ok(_) => world.count(|tally| tally.dictionaries += 1),
            // There are sixteen.
            Err(Error::Limit { .. }) => {}
            Err(error) => self.expect_failure("commit", &error),
        }
        self.load(container);
    }

    pub fn drop_dictionary(&self, container: &Open) {
        self.load(container);
        let numbers = container.dictionary_ids().unwrap_or_default();
        if numbers.is_empty() {
            return;
        }
        match container.drop_dictionary(numbers[self.world.draw(numbers.len())]) {
            Ok(done) => self.world.count(|tally| tally.drops += u64::from(done)),
            // Another process was quicker.
            Err(Error::DictionaryMissing(_)) => {}
            Err(error) => self.expect_failure("commit", &error),
        }
    }
}

pub fn name_of(name: u64) -> DictionaryName {
    u128::from(name).to_le_bytes()
}

pub fn content_of(name: u64) -> Vec<u8> {
    let mut rng = Seed(name ^ 0xd1c7).rng();
    let length = rng.between(1, 700);
    rng.bytes(length)
}

/// The write that is stored, and the number of its dictionary.
pub fn write_of(block: u32, stored: Stored<'_>) -> Option<(u64, Number)> {
    let Stored::Record { dictionary, .. } = stored else { return None };
    match state_of(block, stored) {
        Ok(crate::model::State::Written(write)) => Some((write, dictionary)),
        _ => None,
    }
}
