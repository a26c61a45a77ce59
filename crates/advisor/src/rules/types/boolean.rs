//! Text with one of two words for true and false: `boolean` takes one byte.

use super::{Conversion, Form, TEXT, Values};
use crate::layout::Alignment;
use crate::sql::quote_literal;

/// The words for true and false, as they are written together.
const PAIRS: [(&str, &str); 13] = [
    ("t", "f"),
    ("true", "false"),
    ("True", "False"),
    ("TRUE", "FALSE"),
    ("yes", "no"),
    ("Yes", "No"),
    ("YES", "NO"),
    ("y", "n"),
    ("Y", "N"),
    ("T", "F"),
    ("on", "off"),
    ("ON", "OFF"),
    ("1", "0"),
];

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    let found = values.distinct();
    // One word alone may be one of many: 'N' of a compass, '0' of a number.
    let (yes, no) = PAIRS
        .into_iter()
        .find(|(yes, no)| found.len() == 2 && found.contains(yes) && found.contains(no) && !values.is_key)?;
    let images = values.images(|text| Some(vec![u8::from(text == yes)]))?;
    let printed = match yes {
        "t" => "The text that the server prints is the same, 't' and 'f'".to_owned(),
        _ => format!("The server prints 't' and 'f' instead of '{yes}' and '{no}'"),
    };
    Some(Conversion {
        type_name: "boolean".to_owned(),
        prepare: Vec::new(),
        form: Form::Fixed(1, Alignment::Char),
        images,
        using: format!("({TEXT} = {})", quote_literal(yes)),
        misfit: format!("{TEXT} NOT IN ({}, {})", quote_literal(yes), quote_literal(no)),
        title: format!("boolean instead of the texts '{yes}' and '{no}'"),
        reason: format!(
            "All {} sampled values are '{yes}' or '{no}', in {} bytes on average. A boolean takes 1 byte.",
            values.count(),
            values.average()
        ),
        risks: vec![
            format!("{printed}; drivers return a boolean instead of a string."),
            "A third word, such as one for unknown, can no longer be stored. False sorts before true."
                .to_owned(),
        ],
        is_recommended: false,
        depends_on_range: false,
    })
}
