//! Documents in text: `jsonb`, where it takes fewer bytes. Often it does not, as it has offsets for every value.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum::{json, jsonb, varlena};

/// Since when the server can say whether a text is a document without failing: `pg_input_is_valid`.
const VALIDITY_VERSION: u32 = 160_000;

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    let is_json = values.column.base_type_id == "json";
    if values.snapshot.server.version < VALIDITY_VERSION || values.snapshot.server.encoding != "UTF8" {
        return None;
    }
    let image = |text: &str| {
        // A number or a word is a document too, but not one that was meant as such.
        let document = json::parse(text).filter(|_| is_json || text.trim_start().starts_with(['{', '[']))?;
        jsonb::data(&document).map(|data| varlena(&data))
    };
    let images = values.images(image)?;
    Some(Conversion {
        type_name: "jsonb".to_owned(),
        prepare: Vec::new(),
        form: Form::Varlena,
        images,
        using: format!("{COLUMN}::jsonb"),
        misfit: match is_json {
            true => format!("NOT pg_input_is_valid({COLUMN}::text, 'jsonb')"),
            false => format!("{TEXT} !~ '^[ \\t\\n\\r]*[{{[]' OR NOT pg_input_is_valid({COLUMN}, 'jsonb')"),
        },
        title: format!("jsonb instead of {}", values.column.type_name),
        reason: format!(
            "All {} sampled values are JSON documents, {} bytes on average, and take less as jsonb.",
            values.count(),
            values.average()
        ),
        risks: vec![
            "Blanks, the order of keys and all but the last of equal keys are lost: the text comes back differently, with the same \
             meaning."
                .to_owned(),
            "Writing a document parses it; reading one prints it.".to_owned(),
        ],
        is_recommended: false,
        depends_on_range: false,
    })
}
