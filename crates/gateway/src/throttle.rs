//! Log lines that strangers can cause without logging in, limited per place in the code.
//!
//! The first lines of each window are written, the others are counted, and the first line of a later window says how many
//! were left out. Metrics count every event, so nothing is lost but its text.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines written in one window.
const LINES_MAX: u32 = 20;
/// How long a window lasts.
const WINDOW: Duration = Duration::from_secs(10);

/// The lines of one place in the code.
#[derive(Debug)]
pub(crate) struct Throttle(Mutex<Option<Window>>);

#[derive(Debug)]
struct Window {
    began: Instant,
    /// Lines since then, written or not.
    lines: u32,
}

impl Throttle {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether a line may be written now; then how many were left out since the last one.
    pub(crate) fn admit(&self, now: Instant) -> Option<u32> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *window {
            Some(window) if now.duration_since(window.began) < WINDOW => {
                window.lines = window.lines.saturating_add(1);
                (window.lines <= LINES_MAX).then_some(0)
            }
            last => {
                let left_out = last.as_ref().map_or(0, |window| window.lines.saturating_sub(LINES_MAX));
                *last = Some(Window { began: now, lines: 1 });
                Some(left_out)
            }
        }
    }
}

/// `limited!(warn, client = %peer, "text")`: as `tracing::warn!`, but limited.
macro_rules! limited {
    ($level:ident, $($line:tt)+) => {{
        static LINES: $crate::throttle::Throttle = $crate::throttle::Throttle::new();
        if let Some(left_out) = LINES.admit(std::time::Instant::now()) {
            if left_out > 0 {
                tracing::$level!(left_out, "lines like the next one were suppressed");
            }
            tracing::$level!($($line)+);
        }
    }};
}
pub(crate) use limited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut_and_counted() {
        let (lines, began) = (Throttle::new(), Instant::now());
        let written =
            (0..1000).filter(|ms| lines.admit(began + Duration::from_millis(*ms)).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(lines.admit(began + WINDOW), Some(980));
        assert_eq!(lines.admit(began + 3 * WINDOW), Some(0));
    }
}
