//! Who runs next and for how many steps: by one seed, in one of four styles that runs take in turn.
//!
//! * **Io**: as a disk is slow: a process is left at the ends of operations of the device only.
//! * **Random**: preempted after a drawn number of steps. The mean is drawn per run, from one step to a
//!   thousand.
//! * **Priorities** (PCT; Burckhardt, Kothari, Musuvathi, Nagarakatte 2010): the highest priority runs; at a
//!   few drawn steps whoever runs gets the lowest. Who waits for another is lowered too, so that nobody spins
//!   for ever.
//! * **Freeze**: one process is stopped inside an operation and stands still while the others do whole
//!   operations.

use std::collections::BTreeMap;

use pgshrink_testkit::seed::Rng;

use super::clock::Why;
use super::process::Operation;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    Io,
    Random,
    Priorities,
    Freeze,
}

impl Style {
    pub fn of(seed: u64) -> Style {
        [Style::Freeze, Style::Random, Style::Priorities, Style::Io][seed as usize % 4]
    }
}

/// What the scheduler knows of the run.
pub struct Sight<'a> {
    /// Processes, by number.
    pub processes: &'a [u64],
    /// Operations done by all.
    pub operations: u64,
    /// Steps done by all.
    pub steps: u64,
    /// The one that ran last, if it still does, why it was left, and what was left of its budget.
    pub last: Option<(u64, Why, u64)>,
}

/// Who is next.
pub struct Turn {
    pub index: usize,
    pub budget: u64,
    /// It is to begin this operation, if it begins one.
    pub wish: Option<Operation>,
    /// Nobody is to extend the segment now: who stands still in an extension is the last.
    pub is_calm: bool,
    /// It is left when it is about to change a file for the so manieth time; 0: whatever it does.
    pub begins: u32,
}

pub enum Order {
    Run(Turn),
    Kill(usize),
    /// All end here, with the power or without.
    End,
}

#[derive(Clone, Copy)]
enum Phase {
    /// All run, until so many operations are done.
    Mixed { until: u64 },
    /// The victim comes to the begin of an operation.
    Aligned { victim: u64 },
    /// The victim runs into it.
    Advanced { victim: u64, wish: Operation, budget: u64, tries: u32 },
    /// It stands still.
    Frozen { victim: u64, until: u64, waits: u32, is_calm: bool },
    /// It has gone on for a moment.
    Last,
}

/// Steps that nothing ends but a schedule's end: whoever needs as many does not come to an end.
pub const BUDGET_MAX: u64 = 20_000_000;
/// Waits of others for a frozen process before it goes on.
const WAITS_MAX: u32 = 40;

pub struct Scheduler {
    pub style: Style,
    mean: u64,
    rng: Rng,
    segments: usize,
    priorities: BTreeMap<u64, i64>,
    lowest: i64,
    changes: Vec<u64>,
    phase: Phase,
    /// Steps that an operation took of late.
    lengths: BTreeMap<Operation, u64>,
    pub freezes: u64,
}

impl Scheduler {
    /// For about so many steps, and as many segments.
    pub fn new(style: Style, mut rng: Rng, steps: u64, segments: usize) -> Scheduler {
        let mean = *rng.pick(&[1, 3, 10, 30, 100, 300, 1000]);
        let depth = rng.between(1, 5);
        let mut changes: Vec<u64> = (0..depth).map(|_| rng.below(steps as usize) as u64).collect();
        changes.sort_unstable();
        let phase = Phase::Mixed { until: rng.below(6) as u64 };
        let (priorities, lengths) = (BTreeMap::new(), BTreeMap::new());
        Scheduler { style, mean, rng, segments, priorities, lowest: 0, changes, phase, lengths, freezes: 0 }
    }

    pub fn leaves_at_io(&self) -> bool {
        self.style == Style::Io
    }

    pub fn next(&mut self, sight: &Sight<'_>) -> Order {
        match self.style {
            Style::Io => {
                let index = self.rng.below(sight.processes.len());
                self.run(index, BUDGET_MAX)
            }
            Style::Random => self.random(sight, None),
            Style::Priorities => self.priority(sight),
            Style::Freeze => self.freeze(sight),
        }
    }

    fn run(&self, index: usize, budget: u64) -> Order {
        Order::Run(Turn { index, budget, wish: None, is_calm: false, begins: 0 })
    }

    fn random(&mut self, sight: &Sight<'_>, but: Option<u64>) -> Order {
        if let Some((peer, Why::Io | Why::Boundary, left)) = sight.last
            && let Some(index) = sight.processes.iter().position(|found| *found == peer)
            && but != Some(peer)
        {
            return self.run(index, left);
        }
        let mut index = self.rng.below(sight.processes.len());
        if Some(sight.processes[index]) == but {
            index = (index + 1) % sight.processes.len();
        }
        let budget = 1 + self.rng.below(2 * self.mean as usize) as u64;
        self.run(index, budget)
    }

    fn priority(&mut self, sight: &Sight<'_>) -> Order {
        self.priorities.retain(|peer, _| sight.processes.contains(peer));
        for peer in sight.processes {
            let drawn = self.rng.below(1 << 30) as i64;
            self.priorities.entry(*peer).or_insert(drawn);
        }
        if let Some((peer, why, _)) = sight.last {
            match why {
                Why::Relax => self.lower(peer),
                Why::Budget if self.changes.first().is_some_and(|at| *at <= sight.steps) => {
                    self.changes.remove(0);
                    self.lower(peer);
                }
                // Its work is done, and another thread's begins: who ran may rest, who was held up may go on.
                Why::Boundary if self.rng.below(6) == 0 => {
                    let peer = if self.rng.below(2) == 0 { peer } else { *self.rng.pick(sight.processes) };
                    let drawn = self.rng.below(1 << 30) as i64;
                    self.priorities.insert(peer, drawn);
                }
                _ => {}
            }
        }
        let highest = |index: &usize| self.priorities.get(&sight.processes[*index]).copied();
        let index = (0..sight.processes.len()).max_by_key(highest).unwrap_or(0);
        let budget = self.changes.first().map_or(100_000, |at| at.saturating_sub(sight.steps).max(1));
        self.run(index, budget)
    }

    fn lower(&mut self, peer: u64) {
        self.lowest -= 1;
        self.priorities.insert(peer, self.lowest);
    }

    fn freeze(&mut self, sight: &Sight<'_>) -> Order {
        let place = |victim: u64| sight.processes.iter().position(|peer| *peer == victim);
        let why = |victim: u64| sight.last.and_then(|(peer, why, _)| (peer == victim).then_some(why));
        match self.phase {
            Phase::Mixed { until } if sight.operations < until => self.random(sight, None),
            Phase::Mixed { .. } => {
                let victim = *self.rng.pick(sight.processes);
                self.phase = Phase::Aligned { victim };
                let index = place(victim).unwrap_or(0);
                self.run(index, 100_000)
            }
            Phase::Aligned { victim } => match (place(victim), why(victim)) {
                (Some(index), Some(Why::Boundary)) => self.advance(index, victim, 3),
                (Some(index), Some(Why::Io)) => self.run(index, 100_000),
                _ => self.mix(sight),
            },
            Phase::Advanced { victim, wish, budget, tries } => match (place(victim), why(victim)) {
                (Some(_), Some(Why::Budget | Why::Relax)) => {
                    self.freezes += 1;
                    let bits = self.rng.between(1, 6);
                    let until = sight.operations + 1 + self.rng.below(1 << bits) as u64;
                    let is_calm = self.rng.below(3) > 0;
                    self.phase = Phase::Frozen { victim, until, waits: 0, is_calm };
                    self.others(sight, victim, is_calm)
                }
                (Some(index), Some(Why::Boundary)) => {
                    // It came to its end too soon: now it is known how long that takes.
                    let left = sight.last.map_or(0, |(_, _, left)| left);
                    self.lengths.insert(wish, budget.saturating_sub(left));
                    if tries > 0 { self.advance(index, victim, tries - 1) } else { self.mix(sight) }
                }
                _ => self.mix(sight),
            },
            Phase::Frozen { victim, until, waits, is_calm } => {
                let waits = waits + u32::from(matches!(sight.last, Some((_, Why::Relax, _))));
                let Some(index) = place(victim) else { return self.mix(sight) };
                if sight.operations < until && waits < WAITS_MAX {
                    self.phase = Phase::Frozen { victim, until, waits, is_calm };
                    return self.others(sight, victim, is_calm);
                }
                self.phase = Phase::Mixed { until: sight.operations + self.rng.below(8) as u64 };
                match self.rng.below(24) {
                    0 => Order::End,
                    1..5 => Order::Kill(index),
                    // What it was about to write is written, and nothing is synced any more.
                    5..8 => {
                        self.phase = Phase::Last;
                        let budget = self.small(6);
                        self.run(index, budget)
                    }
                    _ => {
                        let budget = 1 + self.rng.below(400) as u64;
                        self.run(index, budget)
                    }
                }
            }
            Phase::Last => Order::End,
        }
    }

    fn others(&mut self, sight: &Sight<'_>, victim: u64, is_calm: bool) -> Order {
        match self.random(sight, Some(victim)) {
            Order::Run(turn) => Order::Run(Turn { is_calm, ..turn }),
            order => order,
        }
    }

    fn mix(&mut self, sight: &Sight<'_>) -> Order {
        self.phase = Phase::Mixed { until: sight.operations + self.rng.below(4) as u64 };
        self.random(sight, None)
    }

    /// Mostly small numbers, up to two to the power of `bits`.
    fn small(&mut self, bits: usize) -> u64 {
        let bits = self.rng.between(1, bits);
        1 + self.rng.below(1 << bits) as u64
    }

    /// Into the midst of an operation.
    fn advance(&mut self, index: usize, victim: u64, tries: u32) -> Order {
        let wish = match self.rng.below(20) {
            0..9 => Operation::Grow,
            9..12 => Operation::Write,
            12..15 => Operation::Truncate,
            15..18 => Operation::Commit,
            _ => Operation::Collect,
        };
        let length = self.lengths.get(&wish).copied().unwrap_or(100).max(10);
        let mut begins = 0;
        let budget = match self.rng.below(4) {
            // Where what was prepared is made known.
            0 => length - self.rng.below(10) as u64,
            1 => 1 + self.rng.below(length as usize * 5 / 4) as u64,
            2 => {
                begins = match wish {
                    Operation::Commit => self.rng.between(1, 12 * self.segments),
                    _ => self.rng.between(1, 2),
                } as u32;
                100_000
            }
            _ => self.small(13),
        };
        self.phase = Phase::Advanced { victim, wish, budget, tries };
        Order::Run(Turn { index, budget, wish: Some(wish), is_calm: false, begins })
    }
}
