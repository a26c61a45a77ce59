//! Catalogs that have grown, autovacuum that does not keep up, and settings that cost space.
//!
//! Settings have no bytes here: what they cost is not in any catalog. Each finding says how to measure it.

mod catalogs;
mod settings;
mod vacuum;

use crate::finding::{Bytes, Confidence, Finding, Object, Rule};
use crate::rules::Candidate;
use crate::snapshot::Snapshot;

/// Findings about the database as a whole.
pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let mut found = catalogs::candidates(snapshot);
    found.extend(vacuum::candidates(snapshot));
    found.extend(settings::candidates(snapshot));
    found
}

/// A finding without bytes, texts to be filled in.
fn empty(rule: Rule, id: String, object: Object) -> Finding {
    Finding {
        id,
        rule,
        object,
        title: String::new(),
        reason: String::new(),
        bytes: Bytes::default(),
        confidence: Confidence::Exact,
        cost: String::new(),
        risks: Vec::new(),
        sql: Vec::new(),
        proof: None,
        in_proposal: false,
    }
}

/// On a standby nothing can be changed.
fn on_primary(snapshot: &Snapshot, cost: &str) -> String {
    match snapshot.server.is_standby {
        true => format!("{cost} This server is a standby: run it on the primary."),
        false => cost.to_owned(),
    }
}
