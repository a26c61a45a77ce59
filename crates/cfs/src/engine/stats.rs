//! What a container has done since it was opened, by all its processes.

use crate::device::{Device, ProcessTable};
use crate::engine::container::Container;
use crate::engine::leaves;
use crate::format::units::{ExtentNumber, UNIT_BYTES};
use crate::shared::allocator::ExtentState;
use crate::shared::state::Counter;
use crate::shared::word::Word;

/// Counts since the container was opened, and sizes as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes of records of pages that were written, rounding included.
    pub written_bytes: u64,
    /// Bytes of records that collection moved.
    pub moved_bytes: u64,
    /// Of these, bytes that writers moved because nobody else did in time.
    pub foreground_collected_bytes: u64,
    /// Bytes of roots, leaves, indexes, deltas and dictionaries written.
    pub map_bytes: u64,
    /// Bytes of pages that the medium was asked to write before a commit waits for them.
    pub writeback_bytes: u64,
    /// Bytes given back to the filesystem.
    pub punched_bytes: u64,
    /// Roots made durable by commits.
    pub commits: u64,
    /// Commits that wrote leaves.
    pub map_checkpoints: u64,
    /// Reads that had to look again because the page was being replaced.
    pub read_retries: u64,
    /// Times that a write committed, or collected and committed, because addresses or versions were used up.
    pub room_made: u64,
    /// Reads that found damage.
    pub damages: u64,
    /// Bytes that the last commit refers to. While the map is not complete, all that was there at opening
    /// counts.
    pub live_bytes: u64,
    /// Bytes of the file that are neither holes nor past its end, in whole extents.
    pub allocated_bytes: u64,
    /// Of these, bytes of extents that are free.
    pub free_bytes: u64,
    /// Leaves of the map of which an entry is in memory: 4096 bytes each.
    pub touched_leaves: u32,
    /// Whether all of the map is in memory, so that all space is known.
    pub map_is_complete: bool,
}

impl<D: Device, P: ProcessTable, W: Word> Container<'_, D, P, W> {
    /// Counts and sizes. Looks at each extent.
    pub fn stats(&self) -> Stats {
        let extent_bytes = self.options.geometry.extent_bytes();
        let unknown = self.state.unknown_extents();
        let extents = unknown..self.state.extents_end();
        let in_state = |state| {
            extents.clone().filter(|extent| self.state.extent(ExtentNumber(*extent)).state == state).count()
                as u64
        };
        let free_bytes = in_state(ExtentState::Free) * extent_bytes;
        Stats {
            written_bytes: self.state.counter(Counter::WrittenBytes),
            moved_bytes: self.state.counter(Counter::MovedBytes),
            foreground_collected_bytes: self.state.counter(Counter::ForegroundBytes),
            map_bytes: self.state.counter(Counter::MapBytes),
            writeback_bytes: self.state.counter(Counter::WritebackBytes),
            punched_bytes: self.state.counter(Counter::PunchedBytes),
            commits: self.state.counter(Counter::Commits),
            map_checkpoints: self.state.counter(Counter::MapCheckpoints),
            read_retries: self.state.counter(Counter::ReadRetries),
            room_made: self.state.counter(Counter::RoomMade),
            damages: self.state.counter(Counter::Damages),
            live_bytes: self.state.shared().live_units.load() * UNIT_BYTES as u64,
            allocated_bytes: (u64::from(unknown) + in_state(ExtentState::Used)) * extent_bytes + free_bytes,
            free_bytes,
            touched_leaves: leaves::all().filter(|leaf| self.state.is_touched(*leaf)).count() as u32,
            map_is_complete: self.state.is_complete(),
        }
    }
}
