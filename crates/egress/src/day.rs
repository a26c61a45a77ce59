//! Days of the calendar, in UTC.

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

    /// Year, month and day (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    fn civil(self) -> (i64, i64, i64) {
        let z = self.0 + 719_468;
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_index = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_index + 2) / 5 + 1;
        let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }
}

/// The same the other way round.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_index = (month + 9) % 12;
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
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
