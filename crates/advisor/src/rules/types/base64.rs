//! Text with base64 of binary data: `bytea` takes three quarters of it.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum;

/// Shorter ones may be words.
const CHARACTERS_MIN: usize = 16;
/// Of values that look random, at least.
const RANDOM_PERCENT_MIN: usize = 90;

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    // Words and identifiers are valid base64 too. 16 or more random characters have digits and letters of both cases nearly
    // always.
    let is_random = |text: &&str| {
        let has = |is: fn(&u8) -> bool| text.as_bytes().iter().any(is);
        has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit)
    };
    let random = values.sampled().filter(is_random).count();
    let has_marks = values.sampled().any(|text| text.contains(['+', '/', '=']));
    if random * 100 < values.count() * RANDOM_PERCENT_MIN || !has_marks {
        return None;
    }
    let data = |text: &str| datum::base64(text).filter(|_| text.len() >= CHARACTERS_MIN);
    let images = values.images(|text| Some(datum::varlena(&data(text)?)))?;
    let digit = "[A-Za-z0-9+/]";
    Some(Conversion {
        type_name: "bytea".to_owned(),
        prepare: Vec::new(),
        form: Form::Varlena,
        images,
        using: format!("decode({COLUMN}, 'base64')"),
        // The digit before the padding has no bits set that are not used.
        misfit: format!(
            "length({TEXT}) < {CHARACTERS_MIN} OR {TEXT} !~ '^(?:{digit}{{4}})*(?:{digit}[AQgw]==|{digit}{{2}}[AEIMQUYcgkosw048]=)?$'"
        ),
        title: "bytea instead of base64".to_owned(),
        reason: format!(
            "All {} sampled values are base64, {} bytes on average. As bytea they take three quarters of it.",
            values.count(),
            values.average()
        ),
        risks: vec![
            "The server prints '\\x' and hexadecimal digits, and drivers return bytes; replace(encode(…, 'base64'), E'\\n', '') \
             gives the old text back."
                .to_owned(),
            "The column must be compared with decode('…', 'base64'). It sorts differently, and LIKE no longer works.".to_owned(),
        ],
        is_recommended: false,
        depends_on_range: false,
    })
}
