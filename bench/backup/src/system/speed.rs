//! Links between a server and who backs it up.

/// 10^6 bytes a second of a gigabit.
pub const GIGABIT: u64 = 125_000_000;
const SLOW: u64 = 16_000_000;

/// A bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    /// 127.0.0.1.
    Loopback,
    /// [`GIGABIT`].
    Gigabit,
    /// 16 * 10^6 bytes a second.
    Slow,
}

impl Speed {
    /// From fast to slow.
    pub const ALL: [Speed; 3] = [Speed::Loopback, Speed::Gigabit, Speed::Slow];

    /// As tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Speed::Loopback => "loopback",
            Speed::Gigabit => "125 MB/s",
            Speed::Slow => "16 MB/s",
        }
    }

    /// What it carries, if that is limited.
    pub fn bytes_per_second(self) -> Option<u64> {
        match self {
            Speed::Loopback => None,
            Speed::Gigabit => Some(GIGABIT),
            Speed::Slow => Some(SLOW),
        }
    }
}
