//! What a container has done since it was opened, by all its processes.

use crate::device::{Device, Peers};
use crate::engine::container::Container;
use crate::engine::leaves;
use crate::format::units::{GRAIN_BYTES, ZoneNumber};
use crate::shared::live::Counter;
use crate::shared::space::ZoneState;
use crate::shared::word::Word;

/// Counts since the container was opened, and sizes as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes of records of pages that were written, rounding included.
    pub written_bytes: u64,
    /// Bytes of records that collection moved.
    pub moved_bytes: u64,
    /// Of these, bytes that writers moved because nobody else did in time.
    pub helped_bytes: u64,
    /// Bytes of roots, leaves, indexes, deltas and dictionaries written.
    pub map_bytes: u64,
    /// Bytes given back to the filesystem.
    pub punched_bytes: u64,
    /// Roots made durable by commits.
    pub commits: u64,
    /// Commits that wrote leaves.
    pub folds: u64,
    /// Reads that had to look again because the page was being replaced.
    pub read_retries: u64,
    /// Times that a write committed, or collected and committed, because addresses or versions were used up.
    pub room_made: u64,
    /// Reads that found damage.
    pub damages: u64,
    /// Bytes that the last commit refers to. While the map is not complete, all that was there at opening
    /// counts.
    pub live_bytes: u64,
    /// Bytes of the file that are neither holes nor past its end, in whole zones.
    pub allocated_bytes: u64,
    /// Of these, bytes of zones that are free.
    pub free_bytes: u64,
    /// Leaves of the map of which an entry is in memory: 4096 bytes each.
    pub touched_leaves: u32,
    /// Whether all of the map is in memory, so that all space is known.
    pub map_is_complete: bool,
}

impl<D: Device, P: Peers, W: Word> Container<'_, D, P, W> {
    /// Counts and sizes. Looks at each zone.
    pub fn stats(&self) -> Stats {
        let zone_bytes = self.options.geometry.zone_bytes();
        let unknown = self.live.unknown_zones();
        let zones = unknown..self.live.zones_end();
        let in_state = |state| {
            zones.clone().filter(|zone| self.live.zone(ZoneNumber(*zone)).state == state).count() as u64
        };
        let free_bytes = in_state(ZoneState::Free) * zone_bytes;
        Stats {
            written_bytes: self.live.counter(Counter::WrittenBytes),
            moved_bytes: self.live.counter(Counter::MovedBytes),
            helped_bytes: self.live.counter(Counter::HelpedBytes),
            map_bytes: self.live.counter(Counter::MapBytes),
            punched_bytes: self.live.counter(Counter::PunchedBytes),
            commits: self.live.counter(Counter::Commits),
            folds: self.live.counter(Counter::Folds),
            read_retries: self.live.counter(Counter::ReadRetries),
            room_made: self.live.counter(Counter::RoomMade),
            damages: self.live.counter(Counter::Damages),
            live_bytes: self.live.shared().live_grains.load() * GRAIN_BYTES as u64,
            allocated_bytes: (u64::from(unknown) + in_state(ZoneState::Used)) * zone_bytes + free_bytes,
            free_bytes,
            touched_leaves: leaves::all().filter(|leaf| self.live.is_touched(*leaf)).count() as u32,
            map_is_complete: unknown == 0,
        }
    }
}
