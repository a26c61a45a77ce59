//! What each page may be: the contract, as a list of states per page.

use std::collections::BTreeMap;

/// What a page is seen to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Past the end.
    Absent,
    Zeros,
    /// What the write of this number stored.
    Written(u64),
}

#[derive(Clone, Debug)]
struct History {
    /// Everything it was or may have been made since the last crash, in the order in which it began.
    states: Vec<State>,
    /// Reads give this one or a later one.
    completed: usize,
    /// After a power failure it is this one or a later one.
    durable: usize,
    /// Written by who died before the page was there: without fsync, a crash of the server may bring it.
    returning: Vec<State>,
}

/// The pages of one segment.
#[derive(Default, Debug)]
pub struct Model {
    pages: BTreeMap<u32, History>,
}

/// What was completed when a commit was called.
pub struct Begun(Vec<(u32, usize)>);

impl Model {
    fn history(&mut self, block: u32) -> &mut History {
        self.pages.entry(block).or_insert_with(|| History {
            states: vec![State::Absent],
            completed: 0,
            durable: 0,
            returning: Vec::new(),
        })
    }

    /// Something begins that will make the page `state`; returns what to complete or take back.
    pub fn begin(&mut self, block: u32, state: State) -> usize {
        let history = self.history(block);
        history.states.push(state);
        history.states.len() - 1
    }

    pub fn complete(&mut self, block: u32, index: usize) {
        let history = self.history(block);
        history.completed = history.completed.max(index);
    }

    /// It failed and is said to have changed nothing.
    pub fn take_back(&mut self, block: u32, index: usize) {
        self.history(block).states[index] = self.history(block).states[index - 1];
    }

    /// The state may be found after a crash, whatever becomes of it until then.
    pub fn may_return(&mut self, block: u32, index: usize) {
        let history = self.history(block);
        history.returning.push(history.states[index]);
    }

    pub fn completed(&mut self, block: u32) -> usize {
        self.history(block).completed
    }

    pub fn begin_commit(&self) -> Begun {
        Begun(self.pages.iter().map(|(block, history)| (*block, history.completed)).collect())
    }

    pub fn committed(&mut self, begun: Begun) {
        for (block, completed) in begun.0 {
            let history = self.history(block);
            history.durable = history.durable.max(completed);
        }
    }

    /// Whether a read that began when `completed` was may give `state`.
    pub fn check_read(&mut self, block: u32, completed: usize, state: State) -> Result<(), String> {
        let history = self.history(block);
        if history.states[completed..].contains(&state) {
            return Ok(());
        }
        Err(format!("block {block} reads as {state:?}, may be {:?}", &history.states[completed..]))
    }

    /// After a crash the page is seen to be `state`: checks it against the contract, and from now on it is
    /// that.
    pub fn check_recovered(&mut self, block: u32, state: State, power_lost: bool) -> Result<(), String> {
        let history = self.history(block);
        let from = history.durable;
        if !history.states[from..].contains(&state) && !history.returning.contains(&state) {
            let when = if power_lost { "power was lost" } else { "the server crashed" };
            return Err(format!(
                "after {when} block {block} is {state:?}, may be {:?} (of {:?})",
                &history.states[from..],
                history.states
            ));
        }
        *history = History { states: vec![state], completed: 0, durable: 0, returning: Vec::new() };
        Ok(())
    }

    pub fn blocks(&self) -> Vec<u32> {
        self.pages.keys().copied().collect()
    }
}
