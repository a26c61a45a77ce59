//! Copies of a container's bare bytes, taken while it is written to, committed and collected.
//!
//! Copies through the container, page after page as a base backup reads, are part of the schedules.

use std::collections::BTreeMap;

use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::{Budget, Error, Scratch};
use pgshrink_testkit::seed::{Rng, Seed};

use crate::fixture::{Bench, Open};
use crate::model::State;
use crate::plan::{PAGES_MAX, payload_of, state_of};

/// A container under work, and what each of its roots stands for.
struct Original {
    bench: Bench,
    container: Open<'static>,
    pages: Vec<State>,
    roots: BTreeMap<u64, Vec<State>>,
    rng: Rng,
    writes: u64,
}

/// What copies came to.
#[derive(Default, Debug)]
struct Tally {
    whole: u32,
    refused: u32,
    /// Opened, with some pages named as damaged.
    partly: u32,
}

impl Original {
    fn new(seed: u64, fault: Fault) -> Original {
        let bench = Bench::new(crate::plan::options(fault, seed));
        let container = bench.create(1);
        let roots = BTreeMap::from([(1, Vec::new())]);
        Original { bench, container, pages: Vec::new(), roots, rng: Seed(seed).rng(), writes: 0 }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..70 => self.write(),
            70..72 => {
                let left = self.rng.between(self.pages.len() / 2, self.pages.len());
                self.container.truncate(left as u32).unwrap();
                self.pages.truncate(left);
            }
            72..88 => {
                // None: nothing had changed.
                if let Some(sequence) = self.container.commit().unwrap().sequence {
                    self.roots.insert(sequence, self.pages.clone());
                }
            }
            _ => {
                self.container.collect(Budget { bytes: 12 << 10, garbage_percent: 20 }).unwrap();
            }
        }
    }

    fn write(&mut self) {
        let block = self.rng.below((self.pages.len() + 3).min(PAGES_MAX as usize));
        self.writes += 1;
        let payload = payload_of(block as u32, self.writes);
        self.container.write(block as u32, self.writes as u8, 0, &payload, &mut Scratch::new()).unwrap();
        let length = self.pages.len().max(block + 1);
        self.pages.resize(length, State::Zeros);
        self.pages[block] = State::Written(self.writes);
    }

    /// From the front to the end, with `steps` of work between two pieces.
    fn copy(&mut self, steps: usize) -> Vec<u8> {
        let mut copy = Vec::new();
        loop {
            let now = self.bench.bytes();
            let end = now.len().min(copy.len() + 4096 * self.rng.between(1, 8));
            if end <= copy.len() {
                return copy;
            }
            copy.extend_from_slice(&now[copy.len()..end]);
            (0..steps).for_each(|_| self.step());
        }
    }

    /// Opens a copy. What can be read is what one root stands for.
    fn check(&self, copy: Vec<u8>, tally: &mut Tally) -> Result<(), String> {
        let bench = Bench::new(self.bench.options);
        drop(bench.create(2));
        bench.set_bytes(copy);
        let (container, report) = match bench.open() {
            Ok(opened) => opened,
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                tally.refused += 1;
                return Ok(());
            }
        };
        let expected = &self.roots[&report.sequence];
        assert_eq!(container.pages() as usize, expected.len());
        let mut damaged = 0;
        for (block, expected) in (0..).zip(expected) {
            match container.read(block, &mut Scratch::new()) {
                Ok(stored) => {
                    let found = state_of(block, stored)?;
                    if found != *expected {
                        return Err(format!("block {block} is {found:?}, its root means {expected:?}"));
                    }
                }
                Err(error) => {
                    assert!(error.is_damage() && !matches!(error, Error::PastEnd { .. }), "{error}");
                    damaged += 1;
                }
            }
        }
        *if damaged == 0 { &mut tally.whole } else { &mut tally.partly } += 1;
        Ok(())
    }
}

#[test]
fn a_copy_of_one_moment_is_the_last_commit() {
    let mut tally = Tally::default();
    for seed in 0..40 {
        let mut original = Original::new(seed, Fault::None);
        for _ in 0..30 {
            (0..original.rng.below(20)).for_each(|_| original.step());
            let copy = original.copy(0);
            original.check(copy, &mut tally).unwrap();
        }
    }
    assert_eq!((tally.refused, tally.partly), (0, 0), "{tally:?}");
}

/// Copies while the original is worked on, until one is wrong.
fn copies_under_way(fault: Fault) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for seed in 0..150 {
        let mut original = Original::new(seed, fault);
        (0..150).for_each(|_| original.step());
        for _ in 0..6 {
            let steps = original.rng.below(6);
            let copy = original.copy(steps);
            original.check(copy, &mut tally)?;
        }
    }
    Ok(tally)
}

#[test]
fn a_copy_taken_while_others_write_is_one_commit_or_names_what_is_not() {
    let tally = copies_under_way(Fault::None).unwrap();
    println!("{tally:?}");
    assert!(tally.whole > 50 && tally.partly > 50, "{tally:?}");
}

#[test]
fn i10_a_reader_that_takes_any_record_of_its_block_is_caught_in_copies() {
    let found = copies_under_way(Fault::ReaderIgnoresTag);
    assert!(found.is_err(), "{found:?}");
}
