//! An online rewrite in parts with names: each can be run alone, and again.
//!
//! ```text
//!   nothing ──prepare──▶ begun ──copy, catch_up, exchange──▶ exchanged ──finish──▶ ──drop──▶ dropped
//!      ▲                   │
//!      └───────undo────────┘
//! ```
//! Where a rewrite is can be read from the catalogs: see [`Stage`]. So a script needs no memory of its own.

use crate::finding::Step;

/// What an online rewrite of a table consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The table's OID. After the exchange it is the old table's.
    pub oid: u32,
    /// The table that exists from `prepare` to the exchange: quoted, with its schema.
    pub state: String,
    /// What the old table is called after the exchange: not quoted, without its schema.
    pub old_name: String,
    /// In order, with `undo` as the last one.
    pub parts: Vec<Part>,
    /// What to know before.
    pub warnings: Vec<String>,
}

/// Some steps under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which of them.
    pub name: PartName,
    /// In order. After any failure, all of them can be run again.
    pub steps: Vec<Step>,
}

/// The parts of an online rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartName {
    /// An empty table, and triggers on the old one.
    Prepare,
    /// All rows, in batches.
    Copy,
    /// Changes, indexes, changes again, and both tables compared.
    CatchUp,
    /// The last changes and the exchange.
    Exchange,
    /// What needs no strong lock and was left out of the exchange.
    Finish,
    /// The old table goes.
    Drop,
    /// Instead of the exchange.
    Undo,
}

/// Where a rewrite is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing was done, or it was undone.
    Nothing,
    /// The new table and the log exist.
    Begun,
    /// The new table has the name; the old one has another.
    Exchanged,
    /// The old table is gone.
    Dropped,
}

impl PartName {
    /// As the script has it.
    pub fn name(self) -> &'static str {
        match self {
            PartName::Prepare => "prepare",
            PartName::Copy => "copy",
            PartName::CatchUp => "catch_up",
            PartName::Exchange => "exchange",
            PartName::Finish => "finish",
            PartName::Drop => "drop",
            PartName::Undo => "undo",
        }
    }

    /// Where the rewrite has to be. Behind the last of these the part has been done.
    pub fn stages(self) -> std::ops::RangeInclusive<Stage> {
        match self {
            PartName::Prepare => Stage::Nothing..=Stage::Nothing,
            PartName::Copy | PartName::CatchUp | PartName::Exchange | PartName::Undo => {
                Stage::Begun..=Stage::Begun
            }
            PartName::Finish => Stage::Exchanged..=Stage::Dropped,
            PartName::Drop => Stage::Exchanged..=Stage::Exchanged,
        }
    }

    /// What is there after a failure, and what to do.
    pub fn on_failure(self) -> &'static str {
        match self {
            PartName::Prepare => "nothing was changed: remove the cause and run it again.",
            PartName::Copy => "completed batches stay: run it again, and it continues after the last one.",
            PartName::CatchUp => {
                "changes that were applied and completed indexes stay: run it again. If rows differ, or do not fit a \
                 new type, run undo."
            }
            PartName::Exchange => {
                "nothing was exchanged, and the old table is in use: run it again, at a quieter time if it \
                 could not get a lock. If the table was changed since the script was generated, run undo \
                 and generate a new one."
            }
            PartName::Finish => {
                "the new table is in use and complete: run it again. A foreign key that is not validated \
                 is still checked for new rows."
            }
            PartName::Drop => {
                "the old table stays, because something still needs it or somebody is reading it: run it again later."
            }
            PartName::Undo => "everything is as before it: run it again.",
        }
    }
}
