//! [`WindowLog::Auto`]: when a stream gets a larger window, and when it goes back.
//!
//! A larger window costs both ends its memory and gains nothing on most data, so a stream has to ask for it twice: by carrying
//! bulk, and by getting smaller by it. What was carried just behind a new window is left out of the comparison, as the
//! window is still empty then.

use crate::policy::{ContextMode, Policy, WindowLog};

/// Smaller frames are dialogue, which repeats what is near.
const BULK_FRAME_MIN: usize = 4 << 10;
/// Raw bytes carried by the first window before a larger one is tried, and those of them that do not count.
const WATCHED: Span = Span { skipped: 512 << 10, end: 2 << 20 };
/// The same with the larger window.
const TRIED: Span = Span { skipped: 2 << 20, end: 10 << 20 };
/// A larger window stays when what it makes is at most this share of before, in percent.
const KEPT_PERCENT_MAX: u64 = 96;

struct Span {
    skipped: u64,
    end: u64,
}

/// Raw bytes of bulk and what they became.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    raw: u64,
    wire: u64,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// The first window, so many raw bytes on.
    Watching(u64),
    /// A larger one, so many raw bytes on; what the first one made.
    Trying(u64, Sample),
    /// The larger one is to be given up.
    TurningBack,
    /// Nothing changes any more.
    Settled,
}

/// What is to be done before the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Larger,
    Back,
}

/// Watches one encoder.
#[derive(Debug)]
pub(super) struct Growth {
    stage: Stage,
    sample: Sample,
}

impl Growth {
    pub(super) fn new(policy: &Policy) -> Self {
        let may = policy.window_log == WindowLog::Auto && policy.context != ContextMode::PerFrame;
        let stage = if may { Stage::Watching(0) } else { Stage::Settled };
        Self { stage, sample: Sample::default() }
    }

    /// A frame of `raw` bytes was sent as `wire` bytes.
    pub(super) fn note(&mut self, raw: usize, wire: usize) {
        let (seen, span) = match &mut self.stage {
            Stage::Watching(seen) => (seen, WATCHED),
            Stage::Trying(seen, _) => (seen, TRIED),
            Stage::TurningBack | Stage::Settled => return,
        };
        if raw < BULK_FRAME_MIN {
            return;
        }
        *seen += raw as u64;
        if *seen > span.skipped {
            self.sample.raw += raw as u64;
            self.sample.wire += wire as u64;
        }
    }

    /// What has become due. Follow with [`tried`](Self::tried) or [`settle`](Self::settle).
    pub(super) fn due(&mut self) -> Option<Due> {
        match self.stage {
            Stage::Watching(seen) if seen >= WATCHED.end => Some(Due::Larger),
            Stage::Trying(seen, before) if seen >= TRIED.end => {
                if self.sample.pays_after(before) {
                    self.stage = Stage::Settled;
                    return None;
                }
                Some(Due::Back)
            }
            Stage::TurningBack => Some(Due::Back),
            _ => None,
        }
    }

    /// A larger window begins with the next frame.
    pub(super) fn tried(&mut self) {
        self.stage = Stage::Trying(0, std::mem::take(&mut self.sample));
    }

    /// The window stays what it is now.
    pub(super) fn settle(&mut self) {
        self.stage = Stage::Settled;
    }

    /// There is no memory for the window after all.
    pub(super) fn turn_back(&mut self) {
        if matches!(self.stage, Stage::Trying(..)) {
            self.stage = Stage::TurningBack;
        }
    }
}

impl Sample {
    /// True when this is enough smaller than `before`.
    fn pays_after(self, before: Sample) -> bool {
        let (now, then) = (u128::from(self.wire), u128::from(before.wire));
        now * u128::from(before.raw) * 100 <= then * u128::from(self.raw) * u128::from(KEPT_PERCENT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(growth: &mut Growth, mib: usize, wire_per_kib: usize) {
        for _ in 0..mib * 16 {
            growth.note(64 << 10, 64 * wire_per_kib);
        }
    }

    fn auto() -> Growth {
        Growth::new(&Policy { window_log: WindowLog::Auto, ..Policy::default() })
    }

    #[test]
    fn bulk_gets_a_larger_window_and_keeps_it_only_where_that_pays() {
        for (after, back) in [(80, None), (100, Some(Due::Back))] {
            let mut growth = auto();
            carry(&mut growth, 1, 100);
            assert_eq!(growth.due(), None);
            carry(&mut growth, 1, 100);
            assert_eq!(growth.due(), Some(Due::Larger));
            growth.tried();
            // An empty window finds little.
            carry(&mut growth, 2, 300);
            carry(&mut growth, 7, after);
            assert_eq!(growth.due(), None);
            carry(&mut growth, 1, after);
            assert_eq!(growth.due(), back);
            growth.settle();
            carry(&mut growth, 20, 1000);
            assert_eq!(growth.due(), None);
        }
    }

    #[test]
    fn dialogue_fixed_windows_and_frames_of_their_own_never_ask_for_more() {
        let mut dialogue = auto();
        (0..10_000).for_each(|_| dialogue.note(2000, 500));
        assert_eq!(dialogue.due(), None);
        for policy in [
            Policy::default(),
            Policy { window_log: WindowLog::Auto, context: ContextMode::PerFrame, ..Policy::default() },
        ] {
            let mut growth = Growth::new(&policy);
            carry(&mut growth, 4, 100);
            assert_eq!(growth.due(), None);
        }
    }
}
