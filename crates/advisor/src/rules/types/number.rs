//! Numbers in text, and whole numbers in `numeric`.

use super::integer::{WIDTHS, Width, counts_up, is_growing};
use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum::{number, numeric, varlena};
use crate::layout::Alignment;
use pgshrink_codec::counted;

/// `VARHDRSZ`: it is added to the precision and scale in `atttypmod`.
const MODIFIER_BASE: i32 = 4;
/// Digits behind the point that a text with a number may have here, before it is something else.
const SCALE_MAX: usize = 30;

/// The integer type for whole numbers. The digits that each number of the type may have: so many, and no more.
fn width(values: &Values<'_>, digits_max: Option<usize>) -> Option<(&'static Width, usize)> {
    let [_, int4, int8] = &WIDTHS;
    let numbers: Vec<i64> = values.all().map(number::integer).collect::<Option<_>>()?;
    let largest = numbers.iter().map(|number| number.unsigned_abs()).max()?;
    match digits_max {
        Some(digits @ 1..=9) => Some((int4, digits)),
        Some(digits @ 10..=18) => Some((int8, digits)),
        _ if largest <= int4.limit().unsigned_abs() && !counts_up(values) && !is_growing(&numbers) => {
            Some((int4, 9))
        }
        // 18 digits always fit.
        _ => (largest < 1_000_000_000_000_000_000).then_some((int8, 18)),
    }
}

pub(super) fn convert_text(values: &Values<'_>) -> Option<Conversion> {
    convert_integer(values).or_else(|| convert_decimal(values)).filter(|conversion| {
        // Texts of few characters gain nothing; do not bother anybody with their meaning.
        values.are_larger_than(&conversion.images)
    })
}

fn convert_integer(values: &Values<'_>) -> Option<Conversion> {
    let (width, digits) = width(values, None)?;
    let images = values.images(|text| Some(width.image(number::integer(text)?)))?;
    Some(Conversion {
        type_name: width.type_name.to_owned(),
        prepare: Vec::new(),
        form: width.form(),
        images,
        using: format!("{COLUMN}::{}", width.type_name),
        misfit: format!("{TEXT} !~ '^(?:0|-?[1-9][0-9]{{0,{}}})$'", digits - 1),
        title: format!("{} instead of text", width.type_name),
        reason: format!(
            "All {} sampled values are whole numbers without leading zeros, {} bytes on average. The type {} takes {}.",
            values.count(),
            values.average(),
            width.type_name,
            width.bytes
        ),
        risks: vec![
            "The server prints the same text, but what is not a number, has a leading zero or more digits \
             can no longer be stored unchanged: do not change codes and telephone numbers that only happen \
             to be numbers."
                .to_owned(),
            "Values sort as numbers. LIKE and functions of text need a cast.".to_owned(),
        ],
        is_recommended: false,
        depends_on_range: true,
    })
}

fn convert_decimal(values: &Values<'_>) -> Option<Conversion> {
    let is_decimal = |text: &str| {
        let scale = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        numeric::is_canonical(text) && text.len() <= 40 && scale <= SCALE_MAX
    };
    let image = |text: &str| numeric::data(text).filter(|_| is_decimal(text)).map(|data| varlena(&data));
    let exact = values.images(image)?;
    let double = |text: &str| number::double(text).map(|number| number.to_le_bytes().to_vec());
    // Both print the same text. Only numeric computes exactly, so the other one must be smaller.
    let bytes = |images: &[Option<Vec<u8>>]| images.iter().flatten().map(Vec::len).sum::<usize>();
    let exact_bytes = bytes(&exact);
    let short = values.images(double).filter(|images| bytes(images) < exact_bytes);
    let is_exact = short.is_none();
    let digits = "(?:0|[1-9][0-9]{0,19})(?:\\.[0-9]{1,30})?";
    // Zero has no sign.
    let form = format!("{TEXT} !~ '^-?{digits}$' OR {TEXT} ~ '^-[0.]+$'");
    Some(Conversion {
        type_name: if is_exact { "numeric" } else { "double precision" }.to_owned(),
        prepare: Vec::new(),
        form: if is_exact { Form::Varlena } else { Form::Fixed(8, Alignment::Double) },
        images: short.unwrap_or(exact),
        using: if is_exact { format!("{COLUMN}::numeric") } else { format!("{COLUMN}::double precision") },
        misfit: match is_exact {
            true => form,
            false => format!(
                "CASE WHEN {form} THEN true ELSE {COLUMN}::double precision::text COLLATE \"C\" <> {TEXT} END"
            ),
        },
        title: format!("{} instead of text", if is_exact { "numeric" } else { "double precision" }),
        reason: format!(
            "All {} sampled values are decimal numbers that come back as they are, {} bytes on average. {}",
            values.count(),
            values.average(),
            if is_exact {
                "A numeric has four digits in two bytes."
            } else {
                "A double precision takes 8 bytes."
            }
        ),
        risks: vec![
            match is_exact {
                true => "The server prints the same text; what is not a number can no longer be stored."
                    .to_owned(),
                false => {
                    "The server prints the same text, but computes with 53 bits: not for amounts of money."
                        .to_owned()
                }
            },
            "Values sort as numbers. LIKE and functions of text need a cast.".to_owned(),
        ],
        is_recommended: false,
        depends_on_range: true,
    })
}

/// The precision of `numeric(precision, 0)`. None: no limits, or digits behind the point.
fn precision(modifier: i32) -> Option<usize> {
    let packed = modifier.checked_sub(MODIFIER_BASE).filter(|packed| *packed >= 0)?;
    (packed & 0x7ff == 0).then(|| usize::try_from(packed >> 16).unwrap_or(usize::MAX))
}

pub(super) fn convert_numeric(values: &Values<'_>) -> Option<Conversion> {
    let column = values.column;
    let limit = precision(column.type_modifier);
    // A scale says that there will be cents.
    if column.type_modifier >= MODIFIER_BASE && limit.is_none() {
        return None;
    }
    let (width, digits) = width(values, limit)?;
    let images = values.images(|text| Some(width.image(number::integer(text)?)))?;
    let bound = 10i64.checked_pow(u32::try_from(digits).ok()?)? - 1;
    let is_bounded = limit.is_some_and(|digits| digits <= 18);
    let why = match limit {
        Some(limit) => format!(
            "The column is declared with {} and no fraction",
            counted(limit as u64, "digit", "digits")
        ),
        None => "The column's sampled values have no fraction".to_owned(),
    };
    Some(Conversion {
        type_name: width.type_name.to_owned(),
        prepare: Vec::new(),
        form: width.form(),
        images,
        using: format!("{COLUMN}::{}", width.type_name),
        misfit: format!(
            "CASE WHEN {COLUMN} BETWEEN -{bound} AND {bound} THEN {COLUMN}::text <> {COLUMN}::bigint::text ELSE true END"
        ),
        title: format!("{} instead of numeric", width.type_name),
        reason: format!(
            "{why}. The {} sampled values take {} bytes on average, the type {} {} bytes.",
            values.count(),
            values.average(),
            width.type_name,
            width.bytes
        ),
        risks: vec![
            "The server prints the same text, but division drops the fraction (7 / 2 is 3), and results that are out of range fail."
                .to_owned(),
            "A fraction can no longer be stored: it is rounded, as by a numeric without decimal places.".to_owned(),
        ],
        // Where the declaration says that there are no fractions, nothing is lost.
        is_recommended: is_bounded,
        depends_on_range: !is_bounded,
    })
}
