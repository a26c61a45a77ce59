//! Dates and times in text, and timestamps and times that do not use all they have.
//!
//! The sample was taken with `TimeZone` UTC and `DateStyle` ISO.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum::datetime;
use crate::layout::Alignment;

/// A date of our era, with four digits for the year, in a regular expression. It takes no date that there is not.
const DATE: &str = "(?:(?!0000)[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)\
    |02-(?:0[1-9]|1[0-9]|2[0-8]))\
    |(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
/// A time as it is printed: no zeros at the end of the fraction.
const TIME: &str = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{0,5}[1-9])?";

/// What texts are, their type, the regular expression, what changes.
struct Kind {
    type_name: &'static str,
    form: Form,
    image: fn(&str) -> Option<Vec<u8>>,
    pattern: String,
    using: String,
    risk: &'static str,
}

fn kinds() -> [Kind; 3] {
    let eight = Form::Fixed(8, Alignment::Double);
    [
        Kind {
            type_name: "date",
            form: Form::Fixed(4, Alignment::Int),
            image: |text| datetime::date(text).map(|days| days.to_le_bytes().to_vec()),
            pattern: DATE.to_owned(),
            using: format!("{COLUMN}::date"),
            risk: "The server prints the same text where DateStyle is ISO, which is the default.",
        },
        Kind {
            type_name: "timestamp without time zone",
            form: eight,
            image: |text| datetime::timestamp(text).map(|time| time.to_le_bytes().to_vec()),
            pattern: format!("{DATE} {TIME}"),
            using: format!("{COLUMN}::timestamp"),
            risk: "The server prints the same text where DateStyle is ISO, which is the default.",
        },
        Kind {
            type_name: "timestamp with time zone",
            form: eight,
            image: |text| datetime::timestamp_utc(text).map(|time| time.to_le_bytes().to_vec()),
            pattern: format!("{DATE} {TIME}\\+00"),
            using: format!("{COLUMN}::timestamptz"),
            risk: "The server prints the same text only where TimeZone is UTC, and local times elsewhere.",
        },
    ]
}

pub(super) fn convert_text(values: &Values<'_>) -> Option<Conversion> {
    kinds().into_iter().find_map(|kind| {
        let images = values.images(kind.image)?;
        let Form::Fixed(bytes, _) = kind.form else { return None };
        Some(Conversion {
            type_name: kind.type_name.to_owned(),
            prepare: Vec::new(),
            form: kind.form,
            images,
            using: kind.using,
            misfit: format!("{TEXT} !~ '^(?:{})$'", kind.pattern),
            title: format!("{} instead of text", kind.type_name),
            reason: format!(
                "All {} sampled values are written as the type {} is printed, {} bytes on average. It takes {bytes} bytes.",
                values.count(),
                kind.type_name,
                values.average()
            ),
            risks: vec![
                kind.risk.to_owned(),
                "Drivers return a date or time instead of a string. LIKE and functions of text need a cast.".to_owned(),
            ],
            is_recommended: kind.type_name != "timestamp with time zone",
            depends_on_range: false,
        })
    })
}

/// Midnight at all values: only the date is meant.
pub(super) fn convert_timestamp(values: &Values<'_>) -> Option<Conversion> {
    let has_zone = values.column.base_type_id == "timestamptz";
    let suffix = if has_zone { " 00:00:00+00" } else { " 00:00:00" };
    let image =
        |text: &str| datetime::date(text.strip_suffix(suffix)?).map(|days| days.to_le_bytes().to_vec());
    let images = values.images(image)?;
    let time = if has_zone { format!("({COLUMN} AT TIME ZONE 'UTC')") } else { COLUMN.to_owned() };
    let zone = match has_zone {
        true => {
            "The date is that in UTC. Where TimeZone is another one, the old values were printed with another hour or on another day, \
             and a comparison of the date with a timestamptz means midnight there."
        }
        false => "Values are printed without '00:00:00'.",
    };
    Some(Conversion {
        type_name: "date".to_owned(),
        prepare: Vec::new(),
        form: Form::Fixed(4, Alignment::Int),
        images,
        using: format!("{time}::date"),
        misfit: format!(
            "CASE WHEN isfinite({COLUMN}) AND {time} BETWEEN '0001-01-01' AND '9999-12-31' \
             THEN {time} <> date_trunc('day', {time}) ELSE true END"
        ),
        title: format!("date instead of {}", values.column.type_name),
        reason: format!(
            "All {} sampled values are midnight{}. A date takes 4 bytes instead of 8.",
            values.count(),
            if has_zone { " in UTC" } else { "" }
        ),
        risks: vec![
            zone.to_owned(),
            "A time of the day can no longer be stored. The difference of two dates is a number of days instead of an interval."
                .to_owned(),
        ],
        is_recommended: false,
        depends_on_range: false,
    })
}

/// The same zone at all values: it says nothing.
pub(super) fn convert_timetz(values: &Values<'_>) -> Option<Conversion> {
    let (_, west) = values.all().next().and_then(datetime::time_with_zone)?;
    let image = |text: &str| {
        let (time, zone) = datetime::time_with_zone(text)?;
        (zone == west).then(|| time.to_le_bytes().to_vec())
    };
    let images = values.images(image)?;
    let east = -west;
    Some(Conversion {
        type_name: "time without time zone".to_owned(),
        prepare: Vec::new(),
        form: Form::Fixed(8, Alignment::Double),
        images,
        using: format!("{COLUMN}::time"),
        misfit: format!("extract(timezone FROM {COLUMN}) <> {east} OR {COLUMN}::time = time '24:00:00'"),
        title: "time instead of time with time zone".to_owned(),
        reason: format!(
            "All {} sampled values have the same zone, {east} seconds east of UTC, so storing it adds \
             nothing. A time takes 8 bytes instead of 12. A point in time would also need a date, as in \
             timestamp with time zone.",
            values.count()
        ),
        risks: vec![
            "The zone is lost: times are printed without it, and one in another zone would be stored without a warning.".to_owned(),
        ],
        is_recommended: false,
        depends_on_range: false,
    })
}
