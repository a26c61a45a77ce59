//! Days of the calendar, in UTC.

use crate::calendar::{civil, days_of};
use std::fmt;
use std::str::FromStr;

const SECONDS: u64 = 86_400;
/// Years that a day may lie in: what `YYYY-MM-DD` can say.
const YEARS: std::ops::RangeInclusive<i64> = 1..=9999;

/// A day, as the number of days since 1970-01-01. Written `2026-11-27`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Day(i64);

impl Day {
    /// The day of a moment, in seconds since 1970.
    pub fn of(seconds: u64) -> Self {
        let days = i64::try_from(seconds / SECONDS).unwrap_or(i64::MAX);
        Self(days.min(days_of(*YEARS.end(), 12, 31)))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl FromStr for Day {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a day such as 2026-11-27, found \"{text}\"");
        let part = |range: std::ops::Range<usize>| -> Option<i64> {
            let digits = text.get(range)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
        };
        let parts = (part(0..4), part(5..7), part(8..10));
        let (Some(year), Some(month), Some(day)) = parts else { return Err(wrong()) };
        if !YEARS.contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return Err(wrong());
        }
        let found = Self(days_of(year, month, day));
        // Also refuses February 30 and other separators.
        if found.to_string() == text { Ok(found) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar_and_read_back() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (1_795_264_496, "2026-11-21"),
        ] {
            let day = Day::of(seconds);
            assert_eq!((day.to_string().as_str(), text.parse()), (text, Ok(day)));
        }
        let mut days: Vec<Day> = (0..200_000).map(Day).collect();
        days.iter().for_each(|day| assert_eq!(day.to_string().parse(), Ok(*day)));
        days.dedup();
        assert_eq!(days.len(), 200_000);
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "2026-1-1",
            "2026-02-30",
            "2026-13-01",
            "2026/01/01",
            "+026-01-01",
            "2026-01-01 ",
            "0000-01-01",
        ] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }
}
