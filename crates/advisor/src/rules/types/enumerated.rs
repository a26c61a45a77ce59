//! Text with few different words: an enum takes four bytes.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::layout::Alignment;
use crate::sql::{qualified, quote_literal};
use pgshrink_codec::counted;
use std::collections::BTreeMap;

/// Words, at most.
const LABELS_MAX: usize = 32;
/// Values per word, at least. With fewer, words are likely that the sample did not show.
const VALUES_PER_LABEL_MIN: usize = 20;
/// `NAMEDATALEN` less its zero byte.
const NAME_BYTES_MAX: usize = 63;

pub(super) fn convert(values: &Values<'_>) -> Option<Conversion> {
    if values.is_key {
        return None;
    }
    let mut counts: BTreeMap<&str, usize> = values.default.iter().map(|text| (text.as_str(), 0)).collect();
    for text in values.sampled() {
        *counts.entry(text).or_default() += 1;
        if counts.len() > LABELS_MAX {
            return None;
        }
    }
    let is_whole = values.table.sample.as_ref().is_some_and(|sample| sample.is_whole);
    // A word that was seen once says that there are more that were not seen.
    let is_settled = is_whole || counts.values().all(|count| *count != 1);
    let is_refuted = values
        .column
        .statistics
        .as_ref()
        .is_some_and(|known| known.distinct < 0.0 || known.distinct > LABELS_MAX as f64);
    let has_room = counts.len() * VALUES_PER_LABEL_MIN <= values.count();
    let are_labels =
        counts.len() > 1 && counts.keys().all(|label| !label.is_empty() && label.len() <= NAME_BYTES_MAX);
    if !is_settled || is_refuted || !has_room || !are_labels {
        return None;
    }
    let labels: Vec<&str> = counts.into_keys().collect();
    // What the server gives the labels are OIDs, of four bytes.
    let oid = |text: &str| labels.binary_search(&text).ok().map(|at| 16_384 + at as u32);
    let images = values.images(|text| oid(text).map(|oid| oid.to_le_bytes().to_vec()))?;
    let type_name = type_name(values)?;
    let list = labels.iter().map(|label| quote_literal(label)).collect::<Vec<_>>().join(", ");
    Some(Conversion {
        prepare: vec![format!("CREATE TYPE {type_name} AS ENUM ({list});")],
        form: Form::Fixed(4, Alignment::Int),
        images,
        using: format!("{COLUMN}::{type_name}"),
        misfit: format!("{TEXT} NOT IN ({list})"),
        title: format!("an enum of {} instead of text", counted(labels.len() as u64, "word", "words")),
        reason: format!(
            "All {} sampled values are one of {} words, {} bytes on average. An enum takes 4 bytes; a smallint that refers to a table \
             of the words takes 2, and needs a join.",
            values.count(),
            labels.len(),
            values.average()
        ),
        risks: vec![
            "A new word fails until ALTER TYPE … ADD VALUE has added it, and words cannot be removed.".to_owned(),
            "Values sort in the order of CREATE TYPE, which is that of the bytes here. LIKE and functions of text need a cast."
                .to_owned(),
        ],
        type_name,
        is_recommended: false,
        depends_on_range: true,
    })
}

/// A name that no table has: its row type would have it too.
fn type_name(values: &Values<'_>) -> Option<String> {
    let mut name = format!("{}_{}", values.table.name, values.column.name);
    while name.len() > NAME_BYTES_MAX - "_enum".len() {
        name.pop();
    }
    name.push_str("_enum");
    let schema = values.table.schema.as_str();
    let is_taken = values.snapshot.tables.iter().any(|other| other.schema == schema && other.name == name);
    (!is_taken).then(|| qualified(schema, &name))
}
