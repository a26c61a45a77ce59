//! Keys that nearly all documents have, as columns.
//!
//! A `jsonb` object takes 4 bytes, and for each key 8 bytes, the key itself and the value. A column takes the value, and nothing where
//! there is none. Numbers get smaller on the way: a `numeric` of 8 bytes and padding becomes an integer of four.
//!
//! A key becomes a column when it is in 95 of 100 sampled documents or more, and its values are all of one type and never `null`:
//! a column cannot tell `null` from a key that is not there.

use super::types::{is_changeable, is_growing};
use crate::datum::json::{self, Json};
use crate::datum::{self, jsonb, number, numeric, varlena};
use crate::edit::{Edit, ExtractedColumn, Extraction};
use crate::finding::{Bytes, Confidence, Finding, Rule};
use crate::layout::{Alignment, Column};
use crate::rules::{Candidate, column_object};
use crate::snapshot::sample::Place;
use crate::snapshot::{Sample, Snapshot, Table, TableKind};
use crate::sql::{qualified, quote_ident, quote_literal};
use std::collections::BTreeMap;

/// Documents, at least, unless the whole table was read.
const DOCUMENTS_MIN: usize = 100;
/// Of documents that have a key, at least.
const PRESENT_PERCENT_MIN: usize = 95;
/// Columns that one finding adds, at most.
const COLUMNS_MAX: usize = 64;
/// `NAMEDATALEN` less its zero byte.
const NAME_BYTES_MAX: usize = 63;

/// Keys of documents that could be columns, at most one finding for each column of documents.
pub fn candidates(_snapshot: &Snapshot, table: &Table) -> Vec<Candidate> {
    let is_alone = table.parent == 0 && !table.has_children && table.kind == TableKind::Table;
    let Some(sample) = table.sample.as_ref().filter(|_| is_alone) else { return Vec::new() };
    (0..table.columns.len()).filter_map(|index| candidate(table, sample, index)).collect()
}

fn candidate(table: &Table, sample: &Sample, index: usize) -> Option<Candidate> {
    let column = table.columns.get(index).filter(|column| column.type_id == "jsonb")?;
    if !is_changeable(table, index) {
        return None;
    }
    let documents = documents(sample, index)?;
    let count = documents.iter().flatten().count();
    if count < if sample.is_whole { 1 } else { DOCUMENTS_MIN } {
        return None;
    }
    let keys = keys(&documents, count, table);
    if keys.is_empty() {
        return None;
    }
    let name = quote_ident(&column.name);
    let added: Vec<ExtractedColumn> =
        keys.iter().map(|key| key.column(&name, &documents)).collect::<Option<_>>()?;
    let rest = |members: &Option<Members>| match members {
        None => Some(None),
        Some(members) => {
            let left = members.iter().filter(|(name, _)| keys.iter().all(|key| key.name != *name));
            let rest = Json::Object(left.cloned().collect());
            jsonb::data(&rest).map(|data| Some(varlena(&data)))
        }
    };
    let rest = documents.iter().map(rest).collect::<Option<Vec<_>>>()?;
    let list: Vec<String> = keys.iter().map(|key| quote_literal(&key.name)).collect();
    let rest_expression = format!("{name} - ARRAY[{}]::text[]", list.join(", "));
    let bytes_of = |images: &[Option<Vec<u8>>]| images.iter().flatten().map(Vec::len).sum::<usize>();
    let after = bytes_of(&rest) + added.iter().map(|added| bytes_of(&added.images)).sum::<usize>();
    let now: u64 = sample.columns.get(index)?.sizes.iter().map(|size| u64::from(*size)).sum();
    if after as u64 >= now {
        return None;
    }
    let finding = finding(table, index, &keys, (count, now, after));
    let extraction = Extraction { column: index, added, rest, rest_expression };
    Some(Candidate { finding, edits: vec![Edit::Extract(extraction)], is_recommended: false })
}

fn finding(table: &Table, index: usize, keys: &[Key], (count, now, after): (usize, u64, usize)) -> Finding {
    let column = table.columns[index].name.clone();
    let name = quote_ident(&column);
    let names: Vec<String> =
        keys.iter().map(|key| format!("{} ({})", key.column_name, key.kind.type_name())).collect();
    let misfits: Vec<String> = keys.iter().map(|key| key.misfit(&name)).collect();
    let average = |bytes: u64| bytes / (count.max(1) as u64);
    Finding {
        id: format!("document_keys:{}.{}.{column}", table.schema, table.name),
        rule: Rule::DocumentKeys,
        title: match keys {
            [_] => "1 key that nearly all documents have".to_owned(),
            _ => format!("{} keys that nearly all documents have", keys.len()),
        },
        reason: format!(
            "Each of these keys is in at least {PRESENT_PERCENT_MIN} % of the {count} sampled documents, with values of one type: {}. \
             A key takes 8 bytes, its name and the value in every document; a column takes the value. Documents take {} bytes on average; \
             the columns and what is left of the documents would take {}.",
            names.join(", "),
            average(now),
            average(after as u64)
        ),
        bytes: Bytes::default(),
        confidence: Confidence::Measured,
        cost: "The table is rebuilt: this temporarily needs space for a second copy with its indexes, and \
            writes WAL for it.".to_owned(),
        risks: vec![
            "Applications must write and read the columns, or a view that puts the documents together again.".to_owned(),
            "A value of another type can no longer be stored under these keys, and null is the same as no key.".to_owned(),
        ],
        // The plan of the rewrite says how.
        sql: Vec::new(),
        proof: Some(format!(
            "SELECT count(*) FROM {} WHERE {name} IS NOT NULL AND \
             (CASE WHEN jsonb_typeof({name}) <> 'object' THEN true ELSE {} END)",
            qualified(&table.schema, &table.name),
            misfits.join(" OR ")
        )),
        in_proposal: false,
        object: column_object(table, &column),
    }
}

/// Keys with values, the last of equal keys only.
type Members = Vec<(String, Json)>;

/// The sampled documents, None for NULL. None at all: one was not read, or is no object.
fn documents(sample: &Sample, index: usize) -> Option<Vec<Option<Members>>> {
    let sampled = sample.columns.get(index)?;
    let document = |(value, place): (&Option<String>, &Place)| match value {
        Some(text) => match json::parse(text)? {
            Json::Object(members) => Some(Some(members)),
            _ => None,
        },
        None => (*place == Place::Null).then_some(None),
    };
    sampled.values.as_ref()?.iter().zip(&sampled.places).map(document).collect()
}

/// What the values of a key are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Boolean,
    Integer,
    Bigint,
    Numeric,
    Uuid,
    Text,
}

/// A key that becomes a column.
struct Key {
    name: String,
    /// Of the new column, not quoted.
    column_name: String,
    kind: Kind,
}

/// Keys that can become columns, by name.
fn keys(documents: &[Option<Members>], count: usize, table: &Table) -> Vec<Key> {
    let mut values: BTreeMap<&str, Vec<&Json>> = BTreeMap::new();
    for (name, value) in documents.iter().flatten().flatten() {
        values.entry(name).or_default().push(value);
    }
    let mut taken: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
    let mut keys = Vec::new();
    for (name, values) in values {
        if values.len() * 100 < count * PRESENT_PERCENT_MIN || keys.len() == COLUMNS_MAX {
            continue;
        }
        let is_name =
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !taken.iter().any(|other| other == name);
        let Some(kind) = Kind::of(&values).filter(|_| is_name && !name.contains('\0')) else { continue };
        taken.push(name.to_owned());
        keys.push(Key { name: name.to_owned(), column_name: name.to_owned(), kind });
    }
    keys
}

impl Kind {
    /// The type that takes all values. None: they are of several types, or no scalars.
    fn of(values: &[&Json]) -> Option<Kind> {
        let all = |is: fn(&Json) -> bool| values.iter().all(|value| is(value));
        if all(|value| matches!(value, Json::Bool(_))) {
            return Some(Kind::Boolean);
        }
        if all(|value| matches!(value, Json::String(_))) {
            let is_uuid = |value: &Json| matches!(value, Json::String(text) if datum::uuid(text).is_some());
            return Some(if all(is_uuid) { Kind::Uuid } else { Kind::Text });
        }
        let text = |value: &&Json| match value {
            Json::Number(text) => Some(text.clone()),
            _ => None,
        };
        let texts: Vec<String> = values.iter().map(text).collect::<Option<_>>()?;
        let Some(numbers) = texts.iter().map(|text| number::integer(text)).collect::<Option<Vec<i64>>>()
        else {
            return texts.iter().all(|text| numeric::is_canonical(text)).then_some(Kind::Numeric);
        };
        let largest = numbers.iter().map(|number| number.unsigned_abs()).max()?;
        match largest {
            // A quarter of the range is left for what comes, and counters get more.
            0..=0x1fff_ffff if !is_growing(&numbers) => Some(Kind::Integer),
            0..1_000_000_000_000_000_000 => Some(Kind::Bigint),
            _ => Some(Kind::Numeric),
        }
    }

    fn type_name(self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::Integer => "integer",
            Kind::Bigint => "bigint",
            Kind::Numeric => "numeric",
            Kind::Uuid => "uuid",
            Kind::Text => "text",
        }
    }

    fn layout(self) -> (Option<u16>, Alignment) {
        match self {
            Kind::Boolean => (Some(1), Alignment::Char),
            Kind::Integer => (Some(4), Alignment::Int),
            Kind::Bigint => (Some(8), Alignment::Double),
            Kind::Uuid => (Some(16), Alignment::Char),
            Kind::Numeric | Kind::Text => (None, Alignment::Int),
        }
    }

    fn image(self, value: &Json) -> Option<Vec<u8>> {
        match (self, value) {
            (Kind::Boolean, Json::Bool(is_true)) => Some(vec![u8::from(*is_true)]),
            (Kind::Integer, Json::Number(text)) => {
                Some(i32::try_from(number::integer(text)?).ok()?.to_le_bytes().to_vec())
            }
            (Kind::Bigint, Json::Number(text)) => Some(number::integer(text)?.to_le_bytes().to_vec()),
            (Kind::Numeric, Json::Number(text)) => Some(varlena(&numeric::data(text)?)),
            (Kind::Uuid, Json::String(text)) => Some(datum::uuid(text)?.to_vec()),
            (Kind::Text, Json::String(text)) => Some(varlena(text.as_bytes())),
            _ => None,
        }
    }
}

impl Key {
    fn column(&self, document: &str, documents: &[Option<Members>]) -> Option<ExtractedColumn> {
        let value = |members: &Option<Members>| {
            let found = members.iter().flatten().rev().find(|(name, _)| *name == self.name);
            found.map_or(Some(None), |(_, value)| self.kind.image(value).map(Some))
        };
        let images = documents.iter().map(value).collect::<Option<Vec<_>>>()?;
        let (length, alignment) = self.kind.layout();
        let text = format!("{document} ->> {}", quote_literal(&self.name));
        let expression = match self.kind {
            Kind::Text => text,
            kind => format!("({text})::{}", kind.type_name()),
        };
        let layout = Column {
            name: self.column_name.clone(),
            length,
            alignment,
            is_packable: length.is_none(),
            is_not_null: false,
            is_dropped: false,
        };
        Some(ExtractedColumn { layout, type_name: self.kind.type_name().to_owned(), expression, images })
    }

    /// True in SQL for a document, an object, whose value does not fit.
    fn misfit(&self, document: &str) -> String {
        let key = quote_literal(&self.name);
        let (kind, pattern) = match self.kind {
            Kind::Boolean => ("boolean", None),
            Kind::Integer => ("number", Some("^(0|-?[1-9][0-9]{0,8})$")),
            Kind::Bigint => ("number", Some("^(0|-?[1-9][0-9]{0,17})$")),
            Kind::Numeric => ("number", None),
            Kind::Uuid => ("string", Some("^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")),
            Kind::Text => ("string", None),
        };
        let mut misfit = format!("coalesce(jsonb_typeof({document} -> {key}) <> '{kind}'");
        if let Some(pattern) = pattern {
            misfit += &format!(" OR ({document} ->> {key}) COLLATE \"C\" !~ '{pattern}'");
        }
        misfit + ", false)"
    }
}
