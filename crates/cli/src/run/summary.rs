//! What a run says at its end: what its connections saved, or why they were plain.

use pgshrink_codec::{counted, size};
use pgshrink_gateway::registry::{DirectionTotals, Registry};
use std::fmt;
use std::sync::atomic::Ordering;

/// A connection that goes elsewhere cannot be seen from here.
const NOTHING_ARRIVED: &str = "no session went through pgshrink: the command opened none, or a client in \
    it (for example in a script) names its host or port itself (-h, -p, host=, port=); leave these out \
    there, so that it uses PGHOST and PGPORT, or use pgshrink connect";

/// Sums over all connectors of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Sessions that were compressed.
    pub compressed: u64,
    /// Sessions that were not.
    pub plain: u64,
    /// Why they were not, the reasons that occurred.
    pub reasons: Vec<&'static str>,
    /// Connections that the command made to the connectors, whatever became of them.
    pub arrived: u64,
    /// Both directions.
    pub moved: DirectionTotals,
}

impl Summary {
    /// Adds what a connector has done.
    pub(crate) fn add(&mut self, registry: &Registry) {
        let totals = registry.totals();
        let [ack, restart, plain] = totals.by_dialect;
        self.arrived += registry.events.accepted.load(Ordering::Relaxed);
        self.compressed += ack + restart;
        self.plain += plain;
        self.moved.add(totals.to_client);
        self.moved.add(totals.to_server);
        for (reason, _) in registry.events.plain().into_iter().filter(|(_, count)| *count > 0) {
            let words = match reason {
                "nothing_common" => "the server allows none of the requested algorithms",
                "refused_by_peer" => {
                    "the server does not know the request; is a pgshrink gateway listening there?"
                }
                _ => "the program asks for compression itself",
            };
            if !self.reasons.contains(&words) {
                self.reasons.push(words);
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.arrived == 0 {
            return f.write_str(NOTHING_ARRIVED);
        }
        let sessions = |count: u64| counted(count, "session", "sessions");
        if self.compressed > 0 {
            let (raw, wire) = (self.moved.raw_bytes, self.moved.wire_bytes);
            let ratio = self.moved.ratio();
            write!(
                f,
                "{}: {} travelled as {} ({ratio:.1}x)",
                sessions(self.compressed),
                size(raw),
                size(wire)
            )?;
        }
        if self.plain > 0 {
            let gap = if self.compressed > 0 { "; " } else { "" };
            write!(f, "{gap}{} not compressed: {}", sessions(self.plain), self.reasons.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_was_saved_or_why_nothing_was() {
        let moved = DirectionTotals { raw_bytes: 24_800_000, wire_bytes: 4_100_000, ..Default::default() };
        let saved = Summary { compressed: 2, arrived: 2, moved, ..Default::default() };
        assert_eq!(saved.to_string(), "2 sessions: 23.7 MB travelled as 3.9 MB (6.0x)");
        let plain = Summary { plain: 1, arrived: 1, reasons: vec!["why"], ..Default::default() };
        assert_eq!(plain.to_string(), "1 session not compressed: why");
        let both = Summary { plain: 3, ..saved };
        assert!(both.to_string().ends_with("(6.0x); 3 sessions not compressed: "));
        assert!(Summary::default().to_string().starts_with("no session went through pgshrink: "));
        assert_eq!(
            Summary { arrived: 1, ..Summary::default() }.to_string(),
            "",
            "a failure is the command's to tell"
        );
    }
}
