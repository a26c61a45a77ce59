//! Data of common types from their text, as the server's input functions make them. Without varlena headers.

use crate::datum::hex;
use crate::snapshot::Column;
use pgshrink_egress::calendar;

/// The data of a value of this column, from what its output function printed with `DateStyle` ISO. None: a type that is not
/// known here, or a text that is not one of it.
pub fn datum(column: &Column, text: &str) -> Option<Vec<u8>> {
    if column.type_kind == 'e' || (column.length != -1 && column.type_kind != 'b') {
        return None;
    }
    match column.base_type_id.as_str() {
        "int2" => Some(text.parse::<i16>().ok()?.to_le_bytes().to_vec()),
        "int4" => Some(text.parse::<i32>().ok()?.to_le_bytes().to_vec()),
        "int8" => Some(text.parse::<i64>().ok()?.to_le_bytes().to_vec()),
        "oid" => Some(text.parse::<u32>().ok()?.to_le_bytes().to_vec()),
        "float4" => Some(float(text)?.0.to_le_bytes().to_vec()),
        "float8" => Some(float(text)?.1.to_le_bytes().to_vec()),
        "bool" => match text {
            "t" | "true" => Some(vec![1]),
            "f" | "false" => Some(vec![0]),
            _ => None,
        },
        "date" => Some(date(text)?.to_le_bytes().to_vec()),
        "timestamp" | "timestamptz" => Some(timestamp(text)?.to_le_bytes().to_vec()),
        "uuid" => hex(&text.replace('-', "")).filter(|bytes| bytes.len() == 16),
        "text" | "varchar" | "bpchar" | "json" | "xml" | "citext" => Some(text.as_bytes().to_vec()),
        "bytea" => hex(text.strip_prefix("\\x")?),
        _ => None,
    }
}

/// In both widths, each read from the text.
fn float(text: &str) -> Option<(f32, f64)> {
    let text = match text {
        "Infinity" => "inf",
        "-Infinity" => "-inf",
        other => other,
    };
    Some((text.parse().ok()?, text.parse().ok()?))
}

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;
const DAY_US: i64 = 86_400_000_000;

/// Days since 2000-01-01.
fn date(text: &str) -> Option<i32> {
    match text {
        "infinity" => return Some(i32::MAX),
        "-infinity" => return Some(i32::MIN),
        _ => {}
    }
    let mut fields = text.split('-');
    let mut next = |low: i64, high: i64| -> Option<i64> {
        let field = fields.next()?.parse().ok()?;
        (low..=high).contains(&field).then_some(field)
    };
    let (year, month, day) = (next(1, 5_874_897)?, next(1, 12)?, next(1, 31)?);
    if fields.next().is_some() {
        return None;
    }
    i32::try_from(calendar::days_of(year, month, day) - EPOCH_DAYS).ok()
}

/// Microseconds since 2000-01-01, of `2026-11-27 01:02:03.456+02`.
fn timestamp(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (day, time) = text.split_once(' ')?;
    let zone_at = time.find(['+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone_at);
    let micros = i64::from(date(day)?).checked_mul(DAY_US)?.checked_add(clock_us(clock)?)?;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let offset = if zone.is_empty() { 0 } else { clock_us(&zone[1..])? };
    micros.checked_sub(sign * offset)
}

/// Microseconds of `01:02:03.456`, `01:02` or `01`.
fn clock_us(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut seconds = 0;
    let mut unit = 3600;
    for field in whole.split(':') {
        let number: i64 = field.parse().ok().filter(|number| (0..=99).contains(number) && unit > 0)?;
        seconds += number * unit;
        unit /= 60;
    }
    if fraction.len() > 6 {
        return None;
    }
    let micros: i64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<6}").parse().ok()? };
    Some(seconds * 1_000_000 + micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, text: &str) -> Option<Vec<u8>> {
        let length = if matches!(kind, "text" | "bytea") { -1 } else { 8 };
        let column = Column { base_type_id: kind.to_owned(), type_kind: 'b', length, ..Column::default() };
        datum(&column, text)
    }

    #[test]
    fn times_are_counted_from_the_year_2000() {
        let us =
            |text: &str| of("timestamptz", text).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
        assert_eq!(us("2000-01-01 00:00:00"), Some(0));
        assert_eq!(us("2000-01-01 02:00:00.5+02"), Some(500_000));
        assert_eq!(us("1999-12-31 23:30:00-00:30"), Some(0));
        // select extract(epoch from timestamp '2024-02-29 12:34:56.789') - 946684800
        assert_eq!(us("2024-02-29 12:34:56.789"), Some(762_525_296_789_000));
        assert_eq!(us("yesterday"), None);
        let days = |text: &str| of("date", text).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
        // select date '1600-02-29' - date '2000-01-01'
        assert_eq!(
            (days("2000-03-01"), days("1600-02-29"), days("2000-13-01")),
            (Some(60), Some(-146_038), None)
        );
    }

    #[test]
    fn odd_texts_are_no_values() {
        for (kind, text) in [("int4", "9999999999"), ("uuid", "12"), ("bytea", "\\x123"), ("bool", "x")] {
            assert_eq!(of(kind, text), None, "{kind} {text}");
        }
        assert_eq!(of("bytea", "\\x00ff"), Some(vec![0, 255]));
        assert_eq!(of("text", "é"), Some("é".as_bytes().to_vec()));
    }
}
