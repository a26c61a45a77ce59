//! When compressing pays: what may ride in a frame, how much is worth a try, when to stop trying.

use pgshrink_codec::{Algorithm, Choice, Level};

/// Smallest group tried, in bytes; see `docs/operating/wire.md` for the measurement behind it.
pub const GROUP_SIZE_MIN_DEFAULT: usize = 32;
/// Raw bytes in a frame at most: long enough to lose under 1 % of ratio, short enough for its latency.
pub const FRAME_SIZE_DEFAULT: usize = 120 << 10;
/// zstd window of 512 KiB: what `zstd -1` uses itself, so nothing is lost on rows that repeat far apart.
pub const WINDOW_LOG_DEFAULT: u32 = 19;
/// What a direction may be ahead of plain at most, in bytes: spent on small first frames that teach the peer what the next
/// ones repeat, and paid back by them.
pub const PRIMING_BYTES_MAX: i64 = 64;
/// Small groups that stay plain before a direction spends anything on teaching.
pub(crate) const PRIMING_AFTER_GROUPS: u32 = 2;

/// Largest window that [`WindowLog::Auto`] comes to: more gained nothing on any table measured.
pub const WINDOW_LOG_AUTO_MAX: u32 = 23;

/// How far back zstd refers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowLog {
    /// So many bytes, as a power of two.
    Fixed(u32),
    /// [`WINDOW_LOG_DEFAULT`], and more for bulk that gains by it, where memory and the peer allow it.
    Auto,
}

impl WindowLog {
    /// What a session begins with.
    pub fn at_start(self) -> u32 {
        match self {
            WindowLog::Fixed(log) => log,
            WindowLog::Auto => WINDOW_LOG_DEFAULT,
        }
    }
}

impl Default for WindowLog {
    fn default() -> Self {
        WindowLog::Fixed(WINDOW_LOG_DEFAULT)
    }
}

/// How long a stream's context lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ContextMode {
    /// Across all messages of the session: the best ratio.
    #[default]
    Preserved,
    /// Until the end of each transaction.
    PerTransaction,
    /// Each frame can be read on its own.
    PerFrame,
}

/// Which message types may ride in a frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum MessageTypes {
    /// Everything after authentication.
    #[default]
    All,
    /// Only these tags.
    Only(Vec<u8>),
}

impl MessageTypes {
    pub(crate) fn allow(&self, tag: u8) -> bool {
        match self {
            MessageTypes::All => true,
            MessageTypes::Only(tags) => tags.contains(&tag),
        }
    }
}

/// What a sender decides by. Sizes are raw bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Which messages may ride in a frame.
    pub types: MessageTypes,
    /// Groups of pending messages smaller than this are not compressed at a flush.
    pub group_size_min: usize,
    /// Raw bytes in one frame at most.
    pub frame_size: usize,
    /// How long context lives.
    pub context: ContextMode,
    /// zstd window of what this end sends.
    pub window_log: WindowLog,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            types: MessageTypes::All,
            group_size_min: GROUP_SIZE_MIN_DEFAULT,
            frame_size: FRAME_SIZE_DEFAULT,
            context: ContextMode::Preserved,
            window_log: WindowLog::default(),
        }
    }
}

/// Attempts remembered.
const WINDOW: u32 = 100;
/// Wins among them that keep every group tried.
const WINS_MIN: u32 = 75;
/// While given up, every so many groups one is tried.
const PROBE_EVERY: u32 = 20;
/// Probes won in a row that end giving up: the data has changed.
const PROBES_TO_RETURN: u32 = 3;

/// Adaptive giving-up of one direction: fewer than 75 wins in the last 100 attempts, then every 20th group only,
/// until three of those in a row win.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivingUp {
    /// Newest attempt in bit 0.
    history: u128,
    attempts: u32,
    given_up: bool,
    skipped: u32,
    probes_won: u32,
}

impl GivingUp {
    /// Asks whether the next group is to be tried, and counts it when it is not.
    pub(crate) fn try_next(&mut self) -> bool {
        if !self.given_up {
            return true;
        }
        self.skipped += 1;
        if self.skipped < PROBE_EVERY {
            return false;
        }
        self.skipped = 0;
        true
    }

    pub(crate) fn record(&mut self, won: bool) {
        if self.given_up {
            self.probes_won = if won { self.probes_won + 1 } else { 0 };
            if self.probes_won >= PROBES_TO_RETURN {
                *self = Self::default();
            }
            return;
        }
        let mask = (1u128 << WINDOW) - 1;
        self.history = ((self.history << 1) | u128::from(won)) & mask;
        self.attempts = (self.attempts + 1).min(WINDOW);
        self.given_up = self.attempts == WINDOW && self.history.count_ones() < WINS_MIN;
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }
}

/// Smallest group judged by [`looks_incompressible`]; a histogram of less says nothing.
const GLANCE_SIZE_MIN: usize = 2048;
/// Bytes sampled.
const GLANCE_SAMPLE: usize = 2048;

/// A glance before the encoder eats the bytes: true when a sample's byte values are as even as noise
/// (already compressed or encrypted values in binary form). Costs about a microsecond.
///
/// The statistic is the sum of squared counts: 2048 uniform bytes over 256 values give about
/// n + n(n-1)/256 = 18.4 k; text gives 80 k and more, hexadecimal 260 k.
pub(crate) fn looks_incompressible(bytes: &[u8]) -> bool {
    const NOISE_MAX: u32 = 19_600;
    if bytes.len() < GLANCE_SIZE_MIN {
        return false;
    }
    let mut counts = [0u16; 256];
    // Runs of 64 from four places: the head may be a header, the tail another value.
    let step = bytes.len() / (GLANCE_SAMPLE / 64);
    for run in 0..GLANCE_SAMPLE / 64 {
        for byte in &bytes[run * step..run * step + 64] {
            counts[usize::from(*byte)] += 1;
        }
    }
    let sum: u32 = counts.iter().map(|c| u32::from(*c) * u32::from(*c)).sum();
    sum < NOISE_MAX
}

/// Bytes that beginning a stream may cost: the method message, zstd's frame header, the block that closes the last one.
pub(crate) const STREAM_START_BOUND: usize = 6 + 24;

/// Bytes a frame may be longer than its `raw` bytes at the very worst, its wrapper counted; `alone`: it is a stream of
/// its own. What a big message may cost hangs on it, so it is no larger than it has to be.
pub(crate) fn overhead_bound(choice: Choice, raw: usize, window_log: u32, alone: bool) -> usize {
    const WRAPPER: usize = 6;
    let begin = if alone { STREAM_START_BOUND } else { 0 };
    WRAPPER
        + begin
        + match choice.algorithm {
            Algorithm::Zstd => 4 + 3 * raw.div_ceil(zstd_block_size_min(choice.level, raw, window_log)),
            // Stored blocks and the empty one of the flush.
            Algorithm::Zlib => 32 + raw.div_ceil(1 << 10),
            _ => 16 + raw / 255,
        }
}

/// Smallest piece that zstd gives a block header of its own (3 bytes). A block is as large as the window, at most 128 KiB;
/// those of the full size may be split down to 8 KiB, and the optimal parsers of high levels split further.
fn zstd_block_size_min(level: Level, raw: usize, window_log: u32) -> usize {
    const BLOCK_SIZE_MAX: usize = 128 << 10;
    const LEVEL_WITHOUT_SPLITTER_MAX: Level = Level(9);
    let split = if level > LEVEL_WITHOUT_SPLITTER_MAX {
        1 << 10
    } else if raw >= BLOCK_SIZE_MAX {
        8 << 10
    } else {
        BLOCK_SIZE_MAX
    };
    split.min(1 << window_log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_probes_every_twentieth_group_and_comes_back() {
        let mut state = GivingUp::default();
        for i in 0..100 {
            assert!(state.try_next());
            state.record(i % 4 != 0 && i % 50 != 1);
        }
        assert!(state.is_given_up(), "73 wins of 100 are too few");
        let tried = (0..100).filter(|_| state.try_next()).count();
        assert_eq!(tried, 5);
        state.record(true);
        state.record(false);
        state.record(true);
        state.record(true);
        assert!(state.is_given_up());
        state.record(true);
        assert!(!state.is_given_up());
    }

    #[test]
    fn seventy_five_wins_of_a_hundred_keep_trying() {
        let mut state = GivingUp::default();
        for i in 0..1000 {
            state.record(i % 4 != 0);
        }
        assert!(!state.is_given_up());
    }

    #[test]
    fn noise_is_told_from_text_at_a_glance() {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let noise: Vec<u8> = (0..8192)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                (x >> 32) as u8
            })
            .collect();
        assert!(looks_incompressible(&noise));
        let hex: Vec<u8> = noise.iter().map(|b| b"0123456789abcdef"[usize::from(b & 15)]).collect();
        assert!(!looks_incompressible(&hex));
        let base64: Vec<u8> = noise.iter().map(|b| 32 + (b & 63)).collect();
        assert!(!looks_incompressible(&base64), "six bits a byte still shrink");
        assert!(!looks_incompressible(&noise[..1000]), "too short to judge");
    }
}
