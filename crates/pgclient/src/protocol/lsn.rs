//! Positions in the write-ahead log.

use std::fmt;
use std::str::FromStr;

use super::Malformed;

/// A byte position in the write-ahead log, written as `16/B374D848`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Lsn {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let half = |digits: &str| {
            let hexadecimal =
                (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            hexadecimal.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let parsed = text.split_once('/').and_then(|(high, low)| Some(half(high)? << 32 | half(low)?));
        parsed.map(Lsn).ok_or_else(|| Malformed {
            what: "LSN",
            expected: "two hexadecimal numbers around a /",
            found: format!("\"{}\"", text.chars().take(40).collect::<String>()),
        })
    }
}
