//! Text with UUIDs: 16 bytes instead of 37.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum;
use crate::layout::Alignment;

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    let images = values.images(|text| datum::uuid(text).map(|bytes| bytes.to_vec()))?;
    Some(Conversion {
        type_name: "uuid".to_owned(),
        prepare: Vec::new(),
        form: Form::Fixed(16, Alignment::Char),
        images,
        using: format!("{COLUMN}::uuid"),
        misfit: format!("{TEXT} !~ '^[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}$'"),
        title: "uuid instead of text".to_owned(),
        reason: format!(
            "All {} sampled values are UUIDs in lower case, {} bytes each. The type uuid takes 16 bytes, \
             in indexes too.",
            values.count(),
            values.average()
        ),
        risks: vec![
            "The server prints the same text, but drivers return a UUID instead of a string. LIKE and functions of text need \
             a cast."
                .to_owned(),
            "Capital letters and braces are accepted and come back as lower-case letters without braces.".to_owned(),
        ],
        is_recommended: true,
        depends_on_range: false,
    })
}
