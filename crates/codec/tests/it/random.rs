//! A small seeded generator; tests print its seed.

/// xorshift64*.
pub struct Random(u64);

impl Random {
    /// From PGSHRINK_SEED if that is set, else from the clock. Prints the seed, which shows if the test fails.
    pub fn seeded(test: &str) -> Self {
        let seed = std::env::var("PGSHRINK_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        });
        println!("{test}: PGSHRINK_SEED={seed}");
        Random(seed.max(1))
    }

    pub fn fixed(seed: u64) -> Self {
        Random(seed.max(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    pub fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A payload of a few bytes up to 64 KiB.
    pub fn chunk(&mut self) -> Vec<u8> {
        let most = self.one_of(&[4, 100, 3000, 65_536]);
        let len = 1 + self.below(most);
        self.payload(len)
    }

    /// Text-like rows, incompressible bytes, or runs.
    pub fn payload(&mut self, len: usize) -> Vec<u8> {
        match self.below(4) {
            0 => (0..len).map(|_| self.next() as u8).collect(),
            1 => vec![self.next() as u8; len],
            _ => self.rows(len),
        }
    }

    pub fn rows(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 8] =
            ["UPDATE", "accounts", "balance", "2024-05-17", "alpha", "beta", "\t", "linux-image"];
        let mut out = Vec::with_capacity(len + 32);
        while out.len() < len {
            out.extend_from_slice(WORDS[self.below(8)].as_bytes());
            out.extend_from_slice(format!("{}\t", self.below(5000)).as_bytes());
        }
        out.truncate(len);
        out
    }
}
