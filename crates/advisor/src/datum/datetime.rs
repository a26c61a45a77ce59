//! Dates and times as the server prints them with `DateStyle` ISO.
//!
//! Years 1 to 9999 of our era. Infinities and `24:00:00` have no image here: they do not survive all conversions.
//!
//! Sources: `j2date` and `EncodeDateTime` in `src/backend/utils/adt/datetime.c`.

use pgshrink_egress::calendar;

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;
/// Of a second.
const MICROSECONDS: i64 = 1_000_000;
/// Of a day.
const DAY_MICROSECONDS: i64 = 86_400 * MICROSECONDS;

/// `date`: days since 2000-01-01.
pub fn date(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (digits(&bytes[..4])?, digits(&bytes[5..7])?, digits(&bytes[8..])?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        _ => return None,
    };
    if year == 0 || !(1..=days).contains(&day) {
        return None;
    }
    i32::try_from(calendar::days_of(year, month, day) - EPOCH_DAYS).ok()
}

/// `time`: microseconds since midnight.
pub fn time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let bytes = clock.as_bytes();
    if bytes.len() != 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(&bytes[..2])?, digits(&bytes[3..5])?, digits(&bytes[6..])?);
    // Zeros at the end are not printed, and no point without digits.
    let is_printed_so = fraction.len() <= 6 && !fraction.ends_with('0') && !text.ends_with('.');
    if hour > 23 || minute > 59 || second > 59 || !is_printed_so {
        return None;
    }
    let microseconds = match fraction {
        "" => 0,
        _ => digits(format!("{fraction:0<6}").as_bytes())?,
    };
    Some(((hour * 60 + minute) * 60 + second) * MICROSECONDS + microseconds)
}

/// `timestamp`: microseconds since 2000-01-01.
pub fn timestamp(text: &str) -> Option<i64> {
    let (day, clock) = text.split_once(' ')?;
    Some(i64::from(date(day)?) * DAY_MICROSECONDS + time(clock)?)
}

/// `timestamp with time zone` as it is printed where `TimeZone` is UTC: microseconds since 2000-01-01 UTC.
pub fn timestamp_utc(text: &str) -> Option<i64> {
    timestamp(text.strip_suffix("+00")?)
}

/// `time with time zone`: microseconds since midnight, and the zone in seconds to the west of Greenwich, as it is stored.
pub fn time_with_zone(text: &str) -> Option<(i64, i32)> {
    let at = text.find(['+', '-'])?;
    let (clock, zone) = text.split_at(at);
    let mut seconds = 0;
    let mut parts = 0usize;
    for part in zone[1..].split(':') {
        let number = digits(part.as_bytes()).filter(|number| part.len() == 2 && *number < 60)?;
        (seconds, parts) = (seconds * 60 + number, parts + 1);
    }
    let scale = [3600, 60, 1].get(parts.checked_sub(1)?)?;
    let east = i32::try_from(seconds * scale).ok()?;
    Some((time(clock)?, if zone.starts_with('-') { east } else { -east }))
}

/// Only digits, and few of them.
fn digits(bytes: &[u8]) -> Option<i64> {
    let digit = |sum: i64, byte: &u8| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'));
    if bytes.is_empty() || bytes.len() > 9 { None } else { bytes.iter().try_fold(0, digit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_microseconds_are_counted_from_2000() {
        assert_eq!(
            (date("2000-01-01"), date("2000-02-29"), date("1999-12-31")),
            (Some(0), Some(59), Some(-1))
        );
        assert_eq!((date("0001-01-01"), date("9999-12-31")), (Some(-730_119), Some(2_921_939)));
        assert_eq!(timestamp("2000-01-02 00:00:01.5"), Some(DAY_MICROSECONDS + 1_500_000));
        assert_eq!(timestamp_utc("1999-12-31 23:59:59.999999+00"), Some(-1));
        assert_eq!(time_with_zone("10:00:00+02"), Some((36_000 * MICROSECONDS, -7200)));
        assert_eq!(time_with_zone("10:00:00-03:30"), Some((36_000 * MICROSECONDS, 12_600)));
    }

    #[test]
    fn what_would_come_back_differently_has_no_image() {
        for text in [
            "2023-02-29",
            "1900-02-29",
            "2023-13-01",
            "2023-00-10",
            "2023-1-01",
            "0000-01-01",
            "0044-03-15 BC",
            "infinity",
            "20230101",
            "2023/01/01",
            "2023-01-01 ",
            "2023-04-31",
            "٢٠٢٣-01",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
        for text in
            ["24:00:00", "10:00", "10:00:60", "10:00:00.50", "10:00:00.", "10:00:00.1234567", "1:00:00"]
        {
            assert_eq!(time(text), None, "{text}");
        }
        for text in ["2023-01-01T00:00:00", "2023-01-01", "2023-01-01 00:00:00+00", "2023-01-01  00:00:00"] {
            assert_eq!(timestamp(text), None, "{text}");
        }
        for text in ["2023-01-01 00:00:00+02", "2023-01-01 00:00:00Z", "2023-01-01 00:00:00"] {
            assert_eq!(timestamp_utc(text), None, "{text}");
        }
        for text in ["10:00:00", "10:00:00+", "10:00:00+2", "10:00:00+02:00:00:00", "10:00:00+99"] {
            assert_eq!(time_with_zone(text), None, "{text}");
        }
    }
}
