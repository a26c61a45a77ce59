//! Places in the write-ahead log: LSNs, timelines, segments and their names.
//!
//! The rules are those of `src/include/access/xlog_internal.h`.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::str::FromStr;

use crate::error::Error;

/// A byte position in the WAL. Text form: `16/B374D848`, two hexadecimal numbers of at most eight digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// PostgreSQL's `InvalidXLogRecPtr`: no position.
    pub const INVALID: Lsn = Lsn(0);

    /// Number of the segment that holds the byte at this position.
    pub fn segment_number(self, size: WalSegmentSize) -> u64 {
        self.0 / size.bytes()
    }

    /// Number of the segment that holds the byte before this position: the last one that is needed to replay
    /// up to here (`XLByteToPrevSeg`).
    pub fn previous_segment_number(self, size: WalSegmentSize) -> u64 {
        self.0.saturating_sub(1) / size.bytes()
    }

    /// Bytes from the start of its segment.
    pub fn segment_offset(self, size: WalSegmentSize) -> u64 {
        self.0 % size.bytes()
    }

    /// Where its segment begins: what `START_REPLICATION` has to be given to get whole segments.
    pub fn segment_start(self, size: WalSegmentSize) -> Lsn {
        Lsn(self.0 - self.segment_offset(size))
    }

    /// The position `bytes` further on; none when that is past the end of all positions.
    pub fn checked_add(self, bytes: u64) -> Option<Lsn> {
        self.0.checked_add(bytes).map(Lsn)
    }

    /// Bytes from `earlier` to here; none when it is not earlier.
    pub fn bytes_since(self, earlier: Lsn) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

impl FromStr for Lsn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Lsn, Error> {
        let parts = text.split_once('/').and_then(|(high, low)| Some((hex_word(high)?, hex_word(low)?)));
        let (high, low) = parts.ok_or_else(|| {
            Error::malformed("LSN", "hexadecimal numbers such as 16/B374D848", text.as_bytes())
        })?;
        Ok(Lsn((u64::from(high) << 32) | u64::from(low)))
    }
}

/// One to eight hexadecimal digits, without a sign.
fn hex_word(text: &str) -> Option<u32> {
    let digits = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits { u32::from_str_radix(text, 16).ok() } else { None }
}

/// A timeline of a cluster's history, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timeline(NonZeroU32);

impl Timeline {
    /// The timeline of a new cluster.
    pub const FIRST: Timeline = Timeline(NonZeroU32::MIN);

    /// None for 0.
    pub fn new(number: u32) -> Option<Timeline> {
        NonZeroU32::new(number).map(Timeline)
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The name of the file with its ancestors: `00000002.history`. Timeline 1 has none.
    pub fn history_file_name(self) -> String {
        format!("{:08X}.history", self.number())
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Timeline {
    type Err = Error;

    fn from_str(text: &str) -> Result<Timeline, Error> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits { text.parse().ok() } else { None };
        number
            .map(Timeline)
            .ok_or_else(|| Error::malformed("timeline", "a number from 1 to 4294967295", text.as_bytes()))
    }
}

/// Bytes of a WAL segment: a power of two from 1 MiB to 1 GiB, fixed when a cluster is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WalSegmentSize(u32);

impl WalSegmentSize {
    /// 16 MiB, unless `initdb --wal-segsize` says otherwise.
    pub const DEFAULT: WalSegmentSize = WalSegmentSize(16 << 20);

    /// # Errors
    /// [`Error::Malformed`] for a size that no server has.
    pub fn new(bytes: u64) -> Result<WalSegmentSize, Error> {
        match u32::try_from(bytes) {
            Ok(size) if size.is_power_of_two() && (1 << 20..=1 << 30).contains(&size) => {
                Ok(WalSegmentSize(size))
            }
            _ => Err(Error::malformed(
                "size of WAL segments in bytes",
                "a power of two from 1 MiB to 1 GiB",
                bytes.to_string().as_bytes(),
            )),
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    /// Segments with the same middle part of the name: those of 4 GiB of WAL.
    fn per_log(self) -> u64 {
        (1 << 32) / self.bytes()
    }
}

/// The name of a WAL segment: 24 upper-case hexadecimal digits, such as `000000010000000A000000FF`.
///
/// Timeline, then the upper half of the LSN (the *log*), then the number of the segment in that log. The last
/// part means a position only together with a [`WalSegmentSize`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WalSegmentName {
    timeline: Timeline,
    log: u32,
    segment: u32,
}

impl WalSegmentName {
    /// Of the segment that holds the byte at `lsn`.
    pub fn holding(timeline: Timeline, lsn: Lsn, size: WalSegmentSize) -> WalSegmentName {
        let segment = (lsn.0 & 0xffff_ffff) / size.bytes();
        WalSegmentName { timeline, log: (lsn.0 >> 32) as u32, segment: segment as u32 }
    }

    /// Whose WAL it is.
    pub fn timeline(self) -> Timeline {
        self.timeline
    }

    /// Where the segment begins.
    ///
    /// # Errors
    /// [`Error::Malformed`] when a log has fewer segments of that size.
    pub fn start(self, size: WalSegmentSize) -> Result<Lsn, Error> {
        if u64::from(self.segment) >= size.per_log() {
            let expected = "a last part that fits the size of WAL segments";
            return Err(Error::malformed("name of a WAL segment", expected, self.to_string().as_bytes()));
        }
        Ok(Lsn((u64::from(self.log) << 32) + u64::from(self.segment) * size.bytes()))
    }

    /// The segment behind it on its timeline; none when it is the last one of all.
    ///
    /// # Errors
    /// As [`WalSegmentName::start`].
    pub fn next(self, size: WalSegmentSize) -> Result<Option<WalSegmentName>, Error> {
        let next = self.start(size)?.checked_add(size.bytes());
        Ok(next.map(|lsn| WalSegmentName::holding(self.timeline, lsn, size)))
    }
}

impl fmt::Display for WalSegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08X}{:08X}{:08X}", self.timeline.number(), self.log, self.segment)
    }
}

impl FromStr for WalSegmentName {
    type Err = Error;

    fn from_str(text: &str) -> Result<WalSegmentName, Error> {
        let upper = text.len() == 24 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
        let parsed = || {
            let timeline = Timeline::new(hex_word(&text[..8])?)?;
            Some(WalSegmentName { timeline, log: hex_word(&text[8..16])?, segment: hex_word(&text[16..])? })
        };
        let name = if upper { parsed() } else { None };
        name.ok_or_else(|| {
            let expected = "24 upper-case hexadecimal digits, the first 8 not all zero";
            Error::malformed("name of a WAL segment", expected, text.as_bytes())
        })
    }
}

/// Checks that all WAL of a range is there, by the names of its segments: a backup with it restores by itself.
///
/// # Errors
/// [`Error::Malformed`] names the first segment that is missing.
pub fn check_wal<'n>(
    names: impl Iterator<Item = &'n [u8]>,
    range: Range<Lsn>,
    timeline: Timeline,
    size: WalSegmentSize,
) -> Result<(), Error> {
    let known: HashSet<&[u8]> = names.collect();
    let mut at = range.start.segment_start(size);
    while at < range.end {
        let name = WalSegmentName::holding(timeline, at, size).to_string();
        if !known.contains(name.as_bytes()) {
            let expected = "all WAL from start to stop";
            return Err(Error::malformed("WAL of the backup", expected, name.as_bytes()));
        }
        let Some(next) = at.checked_add(size.bytes()) else { break };
        at = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lsns_are_read_and_printed_as_postgresql_does() {
        for (text, value) in [("0/0", 0), ("16/B374D848", 0x16_b374_d848), ("FFFFFFFF/FFFFFFFF", u64::MAX)] {
            assert_eq!((text.parse(), Lsn(value).to_string().as_str()), (Ok(Lsn(value)), text));
        }
        assert_eq!("a/00000b".parse(), Ok(Lsn(0xa_0000_000b)));
        for text in
            ["", "/", "0", "0/", "/0", "0/0/0", "100000000/0", "0/000000000", "+1/0", "0x1/0", "0/ 1", "g/0"]
        {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_positions_of_segments_agree_for_every_size() {
        let mut rng = pgshrink_testkit::Seed::from_env_or_time().rng();
        for shift in 20..=30 {
            let size = WalSegmentSize::new(1 << shift).unwrap();
            for _ in 0..1000 {
                let lsn = Lsn(rng.bits() >> rng.below(64));
                let name = WalSegmentName::holding(Timeline::FIRST, lsn, size);
                assert_eq!(name.to_string().parse(), Ok(name));
                let start = name.start(size).unwrap();
                assert_eq!(start, lsn.segment_start(size));
                assert!(start <= lsn && lsn.bytes_since(start).unwrap() < size.bytes());
                assert_eq!(lsn.segment_number(size), start.0 >> shift);
                if let Some(next) = name.next(size).unwrap() {
                    assert_eq!(next.start(size).unwrap().0, start.0 + size.bytes());
                    // The last segment that replay up to the next one's start needs is this one.
                    assert_eq!(
                        next.start(size).unwrap().previous_segment_number(size),
                        lsn.segment_number(size)
                    );
                }
            }
        }
    }

    #[test]
    fn segment_names_are_those_of_the_server() {
        let name = |lsn: &str, size| {
            WalSegmentName::holding(Timeline::FIRST, lsn.parse().unwrap(), size).to_string()
        };
        assert_eq!(name("0/2000028", WalSegmentSize::DEFAULT), "000000010000000000000002");
        assert_eq!(name("16/FFFFFFFF", WalSegmentSize::DEFAULT), "0000000100000016000000FF");
        assert_eq!(name("16/FFFFFFFF", WalSegmentSize::new(1 << 30).unwrap()), "000000010000001600000003");
        assert_eq!(name("1/100000", WalSegmentSize::new(1 << 20).unwrap()), "000000010000000100000001");
        let of_small: WalSegmentName = "0000000100000000000000FF".parse().unwrap();
        assert!(of_small.start(WalSegmentSize::new(1 << 30).unwrap()).is_err());
        assert_eq!(
            of_small.next(WalSegmentSize::DEFAULT).unwrap().unwrap().to_string(),
            "000000010000000100000000"
        );
        let last: WalSegmentName = "00000001FFFFFFFF000000FF".parse().unwrap();
        assert_eq!(last.next(WalSegmentSize::DEFAULT), Ok(None));
        for text in [
            "",
            "000000000000000000000002",
            "00000001000000000000000g",
            "00000001000000000000000a",
            "0\u{fc}",
        ] {
            assert!(text.parse::<WalSegmentName>().is_err(), "{text}");
        }
    }

    #[test]
    fn timelines_begin_at_one_and_sizes_are_powers_of_two() {
        assert_eq!("2".parse::<Timeline>().unwrap().history_file_name(), "00000002.history");
        for text in ["0", "", "-1", "+1", "4294967296", "1 "] {
            assert!(text.parse::<Timeline>().is_err(), "{text}");
        }
        for bytes in [0, 1 << 19, 3 << 20, 1 << 31, 1 << 52] {
            assert!(WalSegmentSize::new(bytes).is_err(), "{bytes}");
        }
    }
}
