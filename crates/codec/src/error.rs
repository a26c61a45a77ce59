//! What can go wrong while compressing or decompressing.

use crate::algorithm::{Algorithm, LevelRange};

/// Every failure of this crate except those of [`AlgorithmList`](crate::AlgorithmList).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The compressed bytes are damaged or are not of this algorithm.
    #[error("corrupt {algorithm} data at byte {offset}: {detail}")]
    Corrupt {
        /// The decoder's algorithm.
        algorithm: Algorithm,
        /// Compressed bytes that had been accepted since the stream or block began.
        offset: u64,
        /// What the decoder noticed.
        detail: &'static str,
    },
    /// A size, declared or reached, is over a cap. Nothing was allocated for it.
    #[error("{what} is {found}, over the limit of {allowed}")]
    Limit {
        /// Which size.
        what: &'static str,
        /// Its value; where the true value is unknown, the smallest it can be.
        found: u64,
        /// The cap.
        allowed: u64,
    },
    /// The level does not exist for the algorithm.
    #[error("{algorithm} level {found} is out of range: allowed are {allowed}")]
    Level {
        /// The algorithm.
        algorithm: Algorithm,
        /// The level asked for.
        found: i64,
        /// The levels there are.
        allowed: LevelRange,
    },
    /// The algorithm cannot do this, or the data uses a feature this crate leaves out.
    #[error("{algorithm} does not support {what}")]
    Unsupported {
        /// The algorithm.
        algorithm: Algorithm,
        /// What was asked of it.
        what: &'static str,
    },
    /// A dictionary cannot be made of this.
    #[error("no dictionary: {detail}")]
    Training {
        /// What the trainer says.
        detail: &'static str,
    },
    /// The codec could not get memory.
    #[error("out of memory for {algorithm}")]
    Memory {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// The caller said stop.
    #[error("interrupted by the caller")]
    Interrupted,
}
