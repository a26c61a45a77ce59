//! `character(n)`: blanks up to the declared length are stored with every value.

use super::{COLUMN, Conversion, Form, Values};
use crate::datum::varlena;

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    if values.column.base_type_id != "bpchar" {
        return None;
    }
    let images = values.images(|text| Some(varlena(text.as_bytes())))?;
    Some(Conversion {
        type_name: "text".to_owned(),
        prepare: Vec::new(),
        form: Form::Varlena,
        images,
        using: COLUMN.to_owned(),
        // Every value fits: what is compared are blanks at the end, which character(n) does not look at.
        misfit: format!("{COLUMN} <> rtrim({COLUMN}, ' ')"),
        title: format!("text instead of {}", values.column.type_name),
        reason: format!(
            "Each of the {} sampled values is padded with blanks, to {} bytes on average. Text is not padded.",
            values.count(),
            values.average()
        ),
        risks: vec![
            "Values are returned without trailing blanks, and trailing blanks count when text is compared: \
             'a' = 'a ' was true."
                .to_owned(),
            "The length is no longer limited; a CHECK constraint would limit it.".to_owned(),
        ],
        is_recommended: true,
        depends_on_range: false,
    })
}
