//! Times of a server's clock, as PostgreSQL writes them into manifests.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Seconds since 1970-01-01 00:00:00 GMT by the clock of a server, from year 0 to 9999.
///
/// Its text form is that of `AddFileToBackupManifest` (`src/backend/backup/backup_manifest.c`):
/// `2026-11-25 14:39:20 GMT`. The calendar is the Gregorian one, and there are no leap seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerTime(i64);

impl ServerTime {
    /// 0000-01-01 00:00:00 GMT.
    pub const MIN: ServerTime = ServerTime(-62_167_219_200);
    /// 9999-12-31 23:59:59 GMT.
    pub const MAX: ServerTime = ServerTime(253_402_300_799);

    /// # Errors
    /// [`Error::Malformed`] outside [`ServerTime::MIN`] to [`ServerTime::MAX`].
    pub fn from_unix_seconds(seconds: i64) -> Result<ServerTime, Error> {
        if !(Self::MIN.0..=Self::MAX.0).contains(&seconds) {
            let found = seconds.to_string();
            return Err(Error::malformed(
                "time in seconds since 1970",
                "a year from 0 to 9999",
                found.as_bytes(),
            ));
        }
        Ok(ServerTime(seconds))
    }

    /// Seconds since 1970-01-01 00:00:00 GMT.
    pub fn unix_seconds(self) -> i64 {
        self.0
    }
}

impl fmt::Display for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0.div_euclid(DAY_SECONDS));
        let second = self.0.rem_euclid(DAY_SECONDS);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} GMT")
    }
}

impl FromStr for ServerTime {
    type Err = Error;

    fn from_str(text: &str) -> Result<ServerTime, Error> {
        parse(text.as_bytes())
            .ok_or_else(|| Error::malformed("time", "YYYY-MM-DD HH:MM:SS GMT", text.as_bytes()))
    }
}

fn parse(text: &[u8]) -> Option<ServerTime> {
    const FORM: &[u8] = b"dddd-dd-dd dd:dd:dd GMT";
    let fits = |(byte, form): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form };
    if text.len() != FORM.len() || !text.iter().zip(FORM).all(fits) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().fold(0, |number: i64, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    if !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_until(year, month, day);
    // A day that its month does not have comes back as another date.
    (date_of(days) == (year, month, day))
        .then(|| ServerTime(days * DAY_SECONDS + hour * 3600 + minute * 60 + second))
}

const DAY_SECONDS: i64 = 86_400;
/// Days of 400 years.
const ERA_DAYS: i64 = 146_097;
/// From 0000-03-01 to 1970-01-01.
const EPOCH_DAYS: i64 = 719_468;

/// Year, month and day of a day counted from 1970-01-01. Years begin in March here, so that the leap day is
/// the last (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAYS;
    let (era, of_era) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The inverse of [`date_of`], for dates that exist.
fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA_DAYS + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - EPOCH_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_and_read_as_postgresql_does() {
        let known = [
            (0, "1970-01-01 00:00:00 GMT"),
            (951_827_696, "2000-02-29 12:34:56 GMT"),
            (1_764_081_560, "2025-11-25 14:39:20 GMT"),
            (-1, "1969-12-31 23:59:59 GMT"),
            (ServerTime::MIN.0, "0000-01-01 00:00:00 GMT"),
            (ServerTime::MAX.0, "9999-12-31 23:59:59 GMT"),
        ];
        for (seconds, text) in known {
            let time = ServerTime::from_unix_seconds(seconds).unwrap();
            assert_eq!((time.to_string().as_str(), text.parse()), (text, Ok(time)));
        }
        assert!(ServerTime::from_unix_seconds(ServerTime::MAX.0 + 1).is_err());
    }

    #[test]
    fn every_day_comes_back() {
        for days in (ServerTime::MIN.0 / DAY_SECONDS..=ServerTime::MAX.0 / DAY_SECONDS).step_by(7) {
            let time = ServerTime(days * DAY_SECONDS + 86_399);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2025-11-25 14:39:20",
            "2025-11-25 14:39:20 CET",
            "2025-13-01 00:00:00 GMT",
            "2025-00-01 00:00:00 GMT",
            "2025-02-29 00:00:00 GMT",
            "2025-02-00 00:00:00 GMT",
            "2025-02-01 24:00:00 GMT",
            "+025-02-01 00:00:00 GMT",
        ] {
            assert!(matches!(text.parse::<ServerTime>(), Err(Error::Malformed { .. })), "{text}");
        }
    }
}
