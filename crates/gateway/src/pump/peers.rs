//! Whether the two peers of a session still acknowledge what is sent to them.
//!
//! The kernel goes on for about 15 minutes with a peer that is gone, and meanwhile the backend of a COPY to it keeps its
//! snapshot. A peer that lives but does not read is left alone: it acknowledges the kernel's probes.

use std::time::{Duration, Instant};

use crate::tcp_info::Acknowledgement;

/// One peer, looked at now and then.
#[derive(Debug, Default)]
pub(super) struct PeerWatch {
    /// Since when something has been due without a break, as far as looks tell.
    due_since: Option<Instant>,
}

/// What a look says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing is due.
    Idle,
    /// Something is; look again.
    Waits,
    /// Nothing was acknowledged for the whole limit.
    Gone,
}

impl PeerWatch {
    /// Judges by what the kernel says now. `None`: the peer is no TCP peer.
    pub(super) fn look(&mut self, now: Instant, found: Option<Acknowledgement>, limit: Duration) -> Seen {
        let Some(found) = found.filter(|found| found.is_due) else {
            self.due_since = None;
            return Seen::Idle;
        };
        match self.due_since.map(|since| now.saturating_duration_since(since)) {
            // An acknowledgement came in between.
            Some(waited) if found.last < waited => {
                self.due_since = Some(now);
                Seen::Waits
            }
            Some(waited) if waited >= limit => Seen::Gone,
            Some(_) => Seen::Waits,
            None => {
                self.due_since = Some(now);
                Seen::Waits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Looks at these seconds: (now, is_due, seconds since the last acknowledgement).
    fn looks(looks: &[(u64, bool, u64)]) -> Vec<Seen> {
        let (mut watch, began) = (PeerWatch::default(), Instant::now());
        let look = |&(at, is_due, last): &(u64, bool, u64)| {
            let found = Acknowledgement { is_due, last: Duration::from_secs(last) };
            watch.look(began + Duration::from_secs(at), Some(found), LIMIT)
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn only_a_peer_that_acknowledges_nothing_for_the_whole_limit_is_gone() {
        use Seen::{Gone, Idle, Waits};
        assert_eq!(looks(&[(0, true, 0), (5, true, 5), (10, true, 10)]), [Waits, Waits, Gone]);
        // An hour of quiet before does not count.
        assert_eq!(looks(&[(0, true, 3600), (5, true, 3605), (9, true, 3609)]), [Waits, Waits, Waits]);
        // A peer that reads nothing acknowledges probes now and then.
        assert_eq!(looks(&[(0, true, 0), (6, true, 2), (12, true, 8), (17, true, 1)]), [Waits; 4]);
        assert_eq!(looks(&[(0, true, 0), (6, false, 6), (11, true, 11)]), [Waits, Idle, Waits]);
    }
}
