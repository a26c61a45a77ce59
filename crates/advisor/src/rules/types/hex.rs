//! Text with hexadecimal digits of hashes and tokens: `bytea` takes half of it.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum;

/// Shorter ones are as likely numbers or codes that people type.
const DIGITS_MIN: usize = 16;
/// Of values with 16 or more random digits, less than one in a thousand has no letter.
const WITH_LETTERS_PERCENT_MIN: usize = 90;

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    let digits = values.all().next()?.len();
    let is_upper = values.all().any(|text| text.bytes().any(|byte| byte.is_ascii_uppercase()));
    let is_lower = values.all().any(|text| text.bytes().any(|byte| byte.is_ascii_lowercase()));
    let with_letters =
        values.sampled().filter(|text| text.bytes().any(|byte| byte.is_ascii_alphabetic())).count();
    let is_random = with_letters * 100 >= values.count() * WITH_LETTERS_PERCENT_MIN;
    if digits < DIGITS_MIN || is_upper == is_lower || !is_random {
        return None;
    }
    let data = |text: &str| datum::hex(text).filter(|_| text.len() == digits);
    let images = values.images(|text| Some(datum::varlena(&data(text)?)))?;
    let (class, back) = match is_upper {
        true => ("[0-9A-F]", format!("upper(encode({}, 'hex'))", "…")),
        false => ("[0-9a-f]", format!("encode({}, 'hex')", "…")),
    };
    Some(Conversion {
        type_name: "bytea".to_owned(),
        prepare: Vec::new(),
        form: Form::Varlena,
        images,
        using: format!("decode({COLUMN}, 'hex')"),
        // Repetitions above 255 are not allowed in the server's regular expressions.
        misfit: format!("length({TEXT}) <> {digits} OR {TEXT} !~ '^{class}*$'"),
        title: "bytea instead of hexadecimal digits".to_owned(),
        reason: format!(
            "All {} sampled values are {digits} hexadecimal digits, {} bytes each. As bytea they take {} bytes.",
            values.count(),
            values.average(),
            datum::varlena(&vec![0; digits / 2]).len()
        ),
        risks: vec![
            format!(
                "The server prints '\\x' before the digits, and drivers return bytes; {back} gives the old text back."
            ),
            "The column must be compared with decode('…', 'hex'). LIKE no longer works.".to_owned(),
        ],
        is_recommended: false,
        depends_on_range: true,
    })
}
