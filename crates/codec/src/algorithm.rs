//! The algorithms, their names and their levels.

use std::fmt;

use crate::Error;

/// A compression algorithm.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Algorithm {
    /// Bytes as they are.
    None,
    /// PostgreSQL's own LZ format (`src/common/pg_lzcompress.c`).
    Pglz,
    /// LZ4 blocks.
    Lz4,
    /// Deflate, in streams behind a zlib header (RFC 1950, 1951).
    Zlib,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Snappy's raw format.
    Snappy,
    /// Apple's LZFSE.
    Lzfse,
}

/// A level in its algorithm's own scale. For LZ4 it is an acceleration: higher is faster and compresses less.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, PartialOrd, Ord)]
pub struct Level(pub i32);

/// The levels an algorithm has, both ends included. All zero: it has no levels.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct LevelRange {
    /// Numerically smallest level.
    pub min: Level,
    /// Numerically largest level.
    pub max: Level,
    /// What an omitted level means.
    pub default: Level,
    /// A number that means the default, as it does to the algorithm's library.
    pub stands_for_default: Level,
}

/// An algorithm with its level. Prints as `zstd:1`, or as `snappy` where there are no levels.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The level, in range and normalised (see [`Algorithm::level`]).
    pub level: Level,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: &[Algorithm] = &[
        Algorithm::None,
        Algorithm::Pglz,
        Algorithm::Lz4,
        Algorithm::Zlib,
        Algorithm::Zstd,
        Algorithm::Snappy,
        Algorithm::Lzfse,
    ];

    /// The name that lists and messages use.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::None => "none",
            Algorithm::Pglz => "pglz",
            Algorithm::Lz4 => "lz4",
            Algorithm::Zlib => "zlib",
            Algorithm::Zstd => "zstd",
            Algorithm::Snappy => "snappy",
            Algorithm::Lzfse => "lzfse",
        }
    }

    /// The algorithm of this exact, lower-case name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|a| a.name() == name)
    }

    /// The levels there are.
    pub const fn levels(self) -> LevelRange {
        match self {
            Algorithm::Zstd => LevelRange::new(-131_072, 22, 3, 0),
            Algorithm::Zlib => LevelRange::new(1, 9, 6, -1),
            Algorithm::Lz4 => LevelRange::new(1, 65_537, 1, 0),
            _ => LevelRange::new(0, 0, 0, 0),
        }
    }

    /// Whether there is more than one level.
    pub const fn has_levels(self) -> bool {
        self.levels().min.0 != self.levels().max.0
    }

    /// The level that `found` means: in range, with the libraries' own words for "default" (zstd 0, zlib -1)
    /// and LZ4's acceleration 0 (which is 1) resolved.
    pub fn level(self, found: i64) -> Result<Level, Error> {
        let allowed = self.levels();
        match i32::try_from(found).map(Level) {
            Ok(level) if level == allowed.stands_for_default => Ok(allowed.default),
            Ok(level) if allowed.contains(level) => Ok(level),
            _ => Err(Error::Level { algorithm: self, found, allowed }),
        }
    }

    /// The level of the two that costs less CPU: the smaller number for zstd and zlib, the larger for LZ4.
    pub fn cheaper(self, a: Level, b: Level) -> Level {
        match self {
            Algorithm::Lz4 => a.max(b),
            _ => a.min(b),
        }
    }
}

impl LevelRange {
    const fn new(min: i32, max: i32, default: i32, stands_for_default: i32) -> Self {
        let (default, stands_for_default) = (Level(default), Level(stands_for_default));
        LevelRange { min: Level(min), max: Level(max), default, stands_for_default }
    }

    /// Whether `level` is one of them.
    pub fn contains(&self, level: Level) -> bool {
        self.min <= level && level <= self.max
    }
}

impl Choice {
    /// The algorithm at `level`, checked and normalised as by [`Algorithm::level`].
    pub fn new(algorithm: Algorithm, level: i64) -> Result<Self, Error> {
        Ok(Choice { algorithm, level: algorithm.level(level)? })
    }
}

impl From<Algorithm> for Choice {
    /// The algorithm at its default level.
    fn from(algorithm: Algorithm) -> Self {
        Choice { algorithm, level: algorithm.levels().default }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for LevelRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            return write!(f, "{}", self.min);
        }
        write!(f, "{} to {}, and {} for {}", self.min, self.max, self.stands_for_default, self.default)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        if self.algorithm.has_levels() { write!(f, ":{}", self.level) } else { Ok(()) }
    }
}
