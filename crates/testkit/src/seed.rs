//! Seeds that a failing test prints, and the numbers drawn from them.
//!
//! The generator is splitmix64 (Steele, Lea, Flood 2014): small, well distributed for test data, and the same on
//! every machine and release, so that a seed from a log still means something next year.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// The start of a random test run. Set `PGSHRINK_SEED` to replay one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// The seed from `PGSHRINK_SEED`, or a new one from the clock; prints itself for the replay.
    pub fn from_env_or_time() -> Seed {
        let seed =
            std::env::var("PGSHRINK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                now.as_secs() ^ (u64::from(now.subsec_nanos()) << 32)
            });
        // Not past the harness' capture: shown when the test fails, which is when it is wanted.
        println!("replay with PGSHRINK_SEED={seed}");
        let _ = std::io::stdout().flush();
        Seed(seed)
    }

    /// A generator that starts here.
    pub fn rng(self) -> Rng {
        Rng { state: self.0 }
    }
}

/// A reproducible sequence of numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let scaled = (u128::from(self.bits()) * bound as u128) >> 64;
        scaled as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// `length` incompressible bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// `length` bytes of words from a small vocabulary: compressible the way text is.
    pub fn text(&mut self, length: usize) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "select",
            "from",
            "order",
            "customer",
            "shipped",
            "pending",
            "berlin",
            "tokyo",
            "2024-03-09",
            "error",
            "https://example.com/",
            "null",
            "true",
            "warehouse",
            "invoice",
            "gateway",
        ];
        let mut bytes = Vec::with_capacity(length + 24);
        while bytes.len() < length {
            bytes.extend_from_slice(self.pick(&WORDS).as_bytes());
            bytes.push(b' ');
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_on_every_release() {
        let mut rng = Seed(1).rng();
        assert_eq!([rng.bits(), rng.bits()], [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
    }

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_both_ends() {
        let mut rng = Seed(7).rng();
        let drawn: Vec<usize> = (0..1000).map(|_| rng.between(3, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        assert_eq!(rng.below(0), 0);
    }
}
