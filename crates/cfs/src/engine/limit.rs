//! What writers do about garbage: a piece of collection when there is far too much, and at the limit as much as
//! it takes.
//!
//! Dead bytes are of two kinds. Some lie among live ones and become free when these are moved: above a ceiling of
//! them a write is followed by a piece of collection, which waits for nobody and commits nothing. The others only
//! wait for a commit, which nobody may make for long: a checkpoint is an hour away, collectors are slow or off.
//! Above a limit of both kinds together a writer waits its turn, commits, and moves what it has to.
//!
//! * **L1** A container takes at most `live + limit` bytes, and what each of its processes writes between two
//!   looks: a page, a piece of collection, a run of extents.
//! * **L2** Who is at the limit holds nothing that others wait for but the locks of a collector and a commit.
//! * **L3** What cannot be collected (a part of the map is damaged, a commit failed) stops no writer. The failure
//!   is reported to who reads those pages, or to the next fsync.

use crate::device::{Device, ProcessTable};
use crate::engine::collector::{Budget, Collected, FULL};
use crate::engine::container::{Container, LIMIT_PERCENT_MAX};
use crate::format::error::Error;
use crate::shared::lock::CollectorGuard;
use crate::shared::state::Counter;
use crate::shared::word::Word;

/// Rounds at most of one writer at the limit. Each commits, and moves a piece: mostly the first is enough.
const ROUNDS_MAX: u32 = 64;

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// After a write: four words are looked at, and rarely more.
    pub(crate) fn collect_after_write(&self) {
        let shared = self.state.shared();
        let used = self.state.used_extents();
        let limit = shared.limit_at.load();
        if limit == 0 {
            // Nobody has looked since the container was opened: soon.
            let _ = shared.limit_at.swap_if(0, used + self.in_extents(self.options.tuning.limit_bytes_min));
        } else if used >= limit {
            self.keep_limit();
            return;
        }
        let due = shared.foreground_at.load();
        if due == 0 || used < due {
            return;
        }
        let Some(guard) = CollectorGuard::try_lock(shared, &self.processes) else { return };
        if self.state.is_complete() {
            self.collect_in_foreground(&guard);
        } else {
            // A commit may read leaves of the map; a writer does not.
            shared.completion_due.store(1);
        }
    }

    /// A piece of collection if there is too much garbage, and when to look again. What fails here fails
    /// where somebody learns of it.
    fn collect_in_foreground(&self, guard: &CollectorGuard<'_, W>) {
        let tuning = &self.options.tuning;
        let budget = Budget { bytes: tuning.foreground_bytes, garbage_percent: tuning.ceiling_percent };
        let done = self.collect_alone(guard, budget, FULL, tuning.ceiling_bytes_min);
        let left = match done {
            Ok(found) if found.moved_records == 0 => {
                self.ceiling_bytes(found.live_bytes).saturating_sub(found.movable_bytes())
            }
            Ok(found) => {
                self.count_in_foreground(&found, 0);
                tuning.foreground_bytes / 4
            }
            Err(_) => tuning.foreground_bytes,
        };
        let next = self.state.used_extents() + left / self.options.geometry.extent_bytes() + 1;
        self.state.shared().foreground_at.store(next);
    }

    fn count_in_foreground(&self, found: &Collected, commits: u64) {
        self.state.count(Counter::ForegroundBytes, found.moved_bytes);
        self.device.note_writer_collected(found.moved_bytes, commits);
    }

    /// Until the container is below its limit again. Others that come meanwhile wait here.
    fn keep_limit(&self) {
        let shared = self.state.shared();
        let guard = CollectorGuard::lock(shared, &self.processes);
        if self.state.used_extents() < shared.limit_at.load() {
            return;
        }
        if self.keep_limit_alone(&guard).is_err() {
            // Not with every page that is written.
            let step = self.in_extents(self.options.tuning.limit_bytes_min.max(1 << 20));
            shared.limit_at.store(self.state.used_extents() + step);
        }
    }

    fn keep_limit_alone(&self, guard: &CollectorGuard<'_, W>) -> Result<(), Error> {
        let shared = self.state.shared();
        self.complete()?;
        let mut found = self.usage(FULL)?.found;
        for _ in 0..ROUNDS_MAX {
            let limit = self.in_extents(found.live_bytes.saturating_add(self.limit_bytes(found.live_bytes)));
            shared.limit_at.store(limit);
            let used = self.state.used_extents();
            if used < limit {
                return Ok(());
            }
            // Space for the copies comes from what is dead already, so that the file does not grow meanwhile.
            self.commit_now()?;
            let budget = Budget {
                bytes: self.options.tuning.foreground_bytes,
                garbage_percent: self.options.tuning.ceiling_percent / 2,
            };
            found = self.collect_alone(guard, budget, FULL, 0)?;
            self.count_in_foreground(&found, 1);
            if found.moved_records == 0 && self.state.used_extents() >= used {
                break;
            }
        }
        // Nothing more can be moved: what is dead lies in extents that are nearly full.
        shared
            .limit_at
            .store(self.state.used_extents() + self.in_extents(self.options.tuning.foreground_bytes));
        Ok(())
    }

    fn in_extents(&self, bytes: u64) -> u64 {
        bytes / self.options.geometry.extent_bytes() + 1
    }

    /// Dead bytes of every kind from which on writers wait.
    fn limit_bytes(&self, live_bytes: u64) -> u64 {
        let tuning = &self.options.tuning;
        match tuning.limit_percent {
            percent if percent > LIMIT_PERCENT_MAX => u64::MAX,
            percent => tuning.limit_bytes_min.max(live_bytes * u64::from(percent) / 100),
        }
    }

    /// Dead bytes that only moving frees, from which on writers collect.
    fn ceiling_bytes(&self, live_bytes: u64) -> u64 {
        let tuning = &self.options.tuning;
        tuning.ceiling_bytes_min.max(live_bytes * u64::from(tuning.ceiling_percent) / 100)
    }

    /// After a commit, when nothing dead waits for one: used extents from which on writers look, and wait.
    pub(crate) fn set_foreground(&self, live_bytes: u64) {
        let shared = self.state.shared();
        shared
            .foreground_at
            .store(self.in_extents(live_bytes.saturating_add(self.ceiling_bytes(live_bytes))));
        if self.state.is_complete() {
            let limit = live_bytes.saturating_add(self.limit_bytes(live_bytes));
            shared.limit_at.store(self.in_extents(limit));
        }
    }
}
