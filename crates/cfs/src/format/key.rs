//! What a server calls a segment. A container says which one it is, and is known by its id.

use crate::format::error::Error;
use crate::format::root::Identity;

/// Which segment: what the server calls it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentKey {
    /// The tablespace's OID, not 0.
    pub tablespace: u32,
    /// The database's OID.
    pub database: u32,
    /// The relfilenode.
    pub relation: u32,
    /// The fork, 0 to 255.
    pub fork: u8,
    /// The segment's number, below 2^24.
    pub segment: u32,
}

impl SegmentKey {
    /// What the segment's container says it is.
    pub fn identity(&self) -> Identity {
        let SegmentKey { tablespace, database, relation, fork, segment } = *self;
        Identity { tablespace, database, relation, fork, segment }
    }

    pub(crate) fn words(&self) -> [u64; 2] {
        let high = u64::from(self.tablespace) << 32 | u64::from(self.database);
        let low = u64::from(self.relation) << 32 | u64::from(self.fork) << 24 | u64::from(self.segment);
        [high, low]
    }

    pub(crate) fn of(words: [u64; 2]) -> SegmentKey {
        let [high, low] = words;
        SegmentKey {
            tablespace: (high >> 32) as u32,
            database: high as u32,
            relation: (low >> 32) as u32,
            fork: (low >> 24) as u8,
            segment: low as u32 & 0xff_ffff,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let (found, allowed) = (self.segment.into(), 0xff_ffff);
        if found <= allowed { Ok(()) } else { Err(Error::Limit { what: "segment number", found, allowed }) }
    }
}

impl std::fmt::Display for SegmentKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.identity().fmt(out)
    }
}
