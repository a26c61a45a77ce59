//! What a run of a schedule is given, what it stores, and what it counts.

use pgshrink_cfs::fault::Fault;
use pgshrink_cfs::{Geometry, Options, Stored, Tuning};
use pgshrink_testkit::seed::Seed;

use crate::model::State;
use crate::schedule::Style;

pub const PAGES_MAX: u32 = 64;
/// Three leaves of the map, the last one not full.
pub const WIDE_PAGES_MAX: u32 = 1500;

/// What a run is to do.
#[derive(Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    /// Crashes, each a checked one.
    pub crashes: u32,
    pub fault: Fault,
    /// Reads, writes, syncs and space fail now and then.
    pub faults: bool,
    /// fsync is off: nothing is committed, crashes leave the power on, and recovery rolls forward.
    pub fsync_off: bool,
    /// The segment is one of several leaves.
    pub wide: bool,
    pub focus: Focus,
    /// Segments, which processes also commit together.
    pub segments: usize,
    /// Processes also panic, and some go on afterwards.
    pub panics: bool,
    /// Processes also leave the engine in the middle of a call, as longjmp does, and go on.
    pub jumps: bool,
    /// The file is replaced while its shared memory lives on, and who opens it first may do so for reading
    /// only.
    pub openers: bool,
    /// Idle leaves of the map are taken out of memory.
    pub unloads: bool,
    /// Nobody dies but all together.
    pub immortal: bool,
    /// Overrides what the seed says.
    pub style: Option<Style>,
}

/// What processes do most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Focus {
    /// A bit of everything.
    Usual,
    /// Extending, several at a time, truncating and committing.
    Sizes,
    /// Writing, where the file may hardly be larger than what is in it.
    Space,
}

impl Plan {
    pub fn options(&self) -> Options<'static> {
        let options =
            if self.wide { wide_options(self.fault, self.seed) } else { options(self.fault, self.seed) };
        // Only what a map checkpoint has written can be unloaded.
        let tuning = Tuning { changes_min: 2, changes_divisor: 500, ..options.tuning };
        let options = if self.unloads { Options { tuning, ..options } } else { options };
        let options = Options { tuning: self.limited(options.tuning), ..options };
        if self.focus != Focus::Space {
            return options;
        }
        // The fewest that are allowed, and more; of one disk block, or of two, as real segments have.
        let (extent_units, fewest) = if self.seed / 32 % 3 == 2 { (512, 25) } else { (256, 36) };
        let extents_max = fewest + [0, 7, 19, 50][self.seed as usize / 8 % 4];
        Options { geometry: Geometry { extent_units, extents_max, ..options.geometry }, ..options }
    }

    /// Writers are at the limit of garbage often, rarely, or never. Without fsync never: what is extended while a
    /// commit runs is not rolled forward.
    fn limited(&self, tuning: Tuning) -> Tuning {
        let limit_percent = match self.seed / 2 % 3 {
            _ if self.fsync_off => u32::MAX,
            0 => 60,
            1 => 200,
            _ => u32::MAX,
        };
        Tuning { limit_percent, limit_bytes_min: [12 << 10, 64 << 10][self.seed as usize % 2], ..tuning }
    }

    /// How many may extend at the same time.
    pub fn growers(&self) -> usize {
        if self.focus == Focus::Sizes && !self.fsync_off { 3 } else { 1 }
    }

    pub fn style(&self) -> Style {
        self.style.unwrap_or(Style::of(self.seed))
    }
}

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a run did.
        #[derive(Default, Debug, Clone, Copy)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl std::ops::Add for Tally {
            type Output = Tally;

            fn add(mut self, other: Tally) -> Tally {
                self += other;
                self
            }
        }

        impl std::ops::AddAssign for Tally {
            fn add_assign(&mut self, other: Tally) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

tally! {
    schedules,
    crashes,
    /// Operations on words and of the device.
    steps,
    /// Times that another process went on.
    switches,
    /// Processes that stood still inside an operation while others worked.
    freezes,
    operations,
    reads,
    writes,
    extensions,
    truncations,
    commits,
    /// Commits of several segments together.
    groups,
    collections,
    /// Leaves of the map that were taken out of memory.
    unloaded_leaves,
    punches,
    /// Pages stored anew.
    stored_anew,
    /// Collections that found that writers had moved records.
    foreground_collections,
    kills,
    panics,
    jumps,
    failures,
    /// Writes for which there was no space.
    refused_space,
    dictionaries,
    drops,
    /// Writes with a dictionary that was to go.
    refusals,
    /// Files that were replaced.
    replaced,
    /// Schedules that ended because the power failed while a block was being written that held something
    /// durable.
    garbled,
    /// Of these, where the segment did not open.
    unopened,
}

/// Small limits, so that every form of the map is used; roots longer than a sector for every other seed.
pub fn options(fault: Fault, seed: u64) -> Options<'static> {
    let geometry = Geometry { pages_max: PAGES_MAX, extent_units: 256, extents_max: 400 };
    let tuning = Tuning {
        inline_max: if seed.is_multiple_of(2) { 6 } else { 48 },
        deltas_max: 2,
        changes_min: 14,
        changes_divisor: 4,
        free_bytes_min: 16 << 10,
        free_divisor: 16,
        ceiling_percent: 40,
        ceiling_bytes_min: 8 << 10,
        foreground_bytes: 8 << 10,
        limit_percent: u32::MAX,
        limit_bytes_min: 0,
        // The map is completed soon, late, or by collection and truncation alone.
        grown_bytes: 256 << 10,
        grown_divisor: [64, 4, 0][seed as usize % 3],
        sparse_divisor: [0, 0, 2, 0, 8][seed as usize % 5],
    };
    Options { geometry, tuning, fault, ..Options::new(PAGES_MAX) }
}

/// The same for a segment of several leaves.
pub fn wide_options(fault: Fault, seed: u64) -> Options<'static> {
    let narrow = options(fault, seed);
    let geometry = Geometry { pages_max: WIDE_PAGES_MAX, extents_max: 1200, ..narrow.geometry };
    Options { geometry, ..narrow }
}

/// The bytes that a write stores: they name the block and the write, and have a length of their own.
pub fn payload_of(block: u32, write: u64) -> Vec<u8> {
    let mut rng = Seed(write << 8 | u64::from(block)).rng();
    let mut payload = block.to_le_bytes().to_vec();
    payload.extend_from_slice(&write.to_le_bytes());
    let length = if rng.chance(10) { rng.between(1000, 6000) } else { rng.below(400) };
    payload.extend_from_slice(&rng.bytes(length));
    payload
}

pub fn state_of(block: u32, stored: Stored<'_>) -> Result<State, String> {
    let Stored::Record { mode, payload, .. } = stored else {
        return Ok(State::Zeros);
    };
    let write = payload.get(4..12).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    let write = write.ok_or_else(|| format!("block {block}: {} bytes", payload.len()))?;
    if payload != payload_of(block, write) || mode != write as u8 {
        return Err(format!("block {block} reads as what nobody wrote"));
    }
    Ok(State::Written(write))
}
