//! What a segment may be: of each page, and of the size, everything it was, up to what has begun.

use super::slot::PAGES_MAX;

/// What something was, oldest first.
#[derive(Clone)]
pub struct History {
    values: Vec<u64>,
    completed: usize,
    durable: usize,
}

impl History {
    pub fn new(value: u64) -> History {
        History { values: vec![value], completed: 0, durable: 0 }
    }

    /// A change has begun; returns its number.
    pub fn begin(&mut self, value: u64) -> usize {
        self.values.push(value);
        self.values.len() - 1
    }

    pub fn complete(&mut self, number: usize) {
        self.completed = self.completed.max(number);
    }

    pub fn completed(&self) -> usize {
        self.completed
    }

    pub fn synced(&mut self, number: usize) {
        self.durable = self.durable.max(number);
    }

    /// Whether it may be `found` for who began to look when `from` was complete.
    pub fn may_be(&self, from: usize, found: u64) -> bool {
        self.values[from..].contains(&found)
    }

    pub fn may_be_after_crash(&self, found: u64) -> bool {
        self.values[self.durable..].contains(&found)
    }

    /// For who says what went wrong.
    pub fn since(&self, from: usize) -> &[u64] {
        &self.values[from..]
    }

    pub fn after_crash(&self) -> &[u64] {
        &self.values[self.durable..]
    }
}

pub struct Truth {
    /// One more with each relation that had the name.
    pub incarnation: u64,
    pub pages: Vec<History>,
    pub size: History,
    /// Who writes a page: PostgreSQL's buffer locks.
    pub is_busy: [bool; PAGES_MAX],
    /// Pages from this one on are being cut off, or one is being added there.
    pub changing_from: Option<usize>,
    /// Calls that hold a lock of the relation, the worker's included.
    pub users: u32,
    /// The relation was dropped: its files go, without a lock.
    pub is_dropped: bool,
}

impl Truth {
    pub fn of(incarnation: u64, pages: &[u64]) -> Truth {
        let all = (0..PAGES_MAX).map(|page| History::new(pages.get(page).copied().unwrap_or(0)));
        Truth {
            incarnation,
            pages: all.collect(),
            size: History::new(pages.len() as u64),
            is_busy: [false; PAGES_MAX],
            changing_from: None,
            users: 0,
            is_dropped: false,
        }
    }

    pub fn size_now(&self) -> usize {
        self.size.since(self.size.completed()).last().copied().unwrap_or(0) as usize
    }
}
