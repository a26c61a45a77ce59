//! Why a backup is kept or removed, in words.

use pgshrink_codec::counted;
use std::fmt;

use super::BackupName;

/// Why a backup is kept or removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Kept: no younger complete one of its system is there.
    Newest,
    /// Kept: one of the last ones.
    KeepLast {
        /// 1 for the newest.
        rank: u32,
        /// The rule's number.
        rule: u32,
    },
    /// Kept: young enough.
    KeepDays {
        /// Whole days before the newest.
        age: u64,
        /// The rule's number.
        rule: u32,
    },
    /// Kept: only incomplete backups are to be removed.
    NotAsked,
    /// Kept: this one, which is kept, cannot be restored without it.
    NeededBy(BackupName),
    /// Kept: it may still be written.
    InProgress,
    /// Kept: it cannot be restored, because this backup of its chain is missing or not complete, or of
    /// another system. People should look at it.
    Broken(BackupName),
    /// Removed: no rule keeps it.
    Expired {
        /// 1 for the newest.
        rank: u32,
        /// Whole days before the newest.
        age: u64,
    },
    /// Removed: in progress, but its writer is silent.
    Abandoned,
    /// Removed: named by the user.
    Named,
}

impl Reason {
    /// Whether the backup is kept.
    pub fn keeps(&self) -> bool {
        !matches!(self, Reason::Expired { .. } | Reason::Abandoned | Reason::Named)
    }
}

fn kept(rule: u32) -> String {
    if rule == 1 { "the last one is kept".to_owned() } else { format!("the last {rule} are kept") }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Newest => write!(f, "the newest complete backup of its system is always kept"),
            Reason::KeepLast { rank: 1, rule } => write!(f, "the newest one; {}", kept(*rule)),
            Reason::KeepLast { rank, rule } => {
                write!(f, "number {rank} from the newest; {}", kept(*rule))
            }
            Reason::KeepDays { age, rule } => {
                let (age, rule) = (counted(*age, "day", "days"), counted((*rule).into(), "day", "days"));
                write!(f, "{age} before the newest; those of {rule} are kept")
            }
            Reason::NeededBy(name) => write!(f, "backup {name} is kept and cannot be restored without it"),
            Reason::NotAsked => write!(f, "no rule for complete backups is given"),
            Reason::InProgress => {
                write!(f, "incomplete; it may still be in progress, which --abandoned checks")
            }
            Reason::Broken(name) => write!(
                f,
                "it cannot be restored: backup {name} of its chain is missing, not complete or of another system; \
                 remove it by name if it is not needed"
            ),
            Reason::Expired { rank, age } => {
                let age = counted(*age, "day", "days");
                write!(f, "no rule keeps it: number {rank} from the newest, {age} before it")
            }
            Reason::Abandoned => write!(f, "incomplete, and its writer is gone"),
            Reason::Named => write!(f, "named by the user"),
        }
    }
}
