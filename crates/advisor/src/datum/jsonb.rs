//! `jsonb`: containers of entries with offsets at every 32nd one.
//!
//! Sources: `src/include/utils/jsonb.h`, `convertToJsonb` in `src/backend/utils/adt/jsonb_util.c`.

use super::json::Json;
use super::{header, numeric};

/// `JB_OFFSET_STRIDE`
const OFFSET_STRIDE: usize = 32;
/// `JENTRY_OFFLENMASK`
const LENGTH_MASK: u32 = 0x0fff_ffff;
/// `JENTRY_HAS_OFF`
const HAS_OFFSET: u32 = 0x8000_0000;
/// `JENTRY_ISSTRING`, `JENTRY_ISNUMERIC`, `JENTRY_ISBOOL_FALSE`, `JENTRY_ISBOOL_TRUE`, `JENTRY_ISNULL`, `JENTRY_ISCONTAINER`
const STRING: u32 = 0;
const NUMERIC: u32 = 0x1000_0000;
const FALSE: u32 = 0x2000_0000;
const TRUE: u32 = 0x3000_0000;
const NULL: u32 = 0x4000_0000;
const CONTAINER: u32 = 0x5000_0000;
/// `JB_FSCALAR`, `JB_FOBJECT`, `JB_FARRAY`
const IS_SCALAR: u32 = 0x1000_0000;
const IS_OBJECT: u32 = 0x2000_0000;
const IS_ARRAY: u32 = 0x4000_0000;
/// `JENTRY_TYPEMASK`
const TYPE_MASK: u32 = 0x7000_0000;

/// The data of a `jsonb` without a header of `varlena`. None: the server refuses a number, a key or the size.
pub fn data(json: &Json) -> Option<Vec<u8>> {
    let mut buffer = Vec::new();
    match json {
        Json::Object(members) => object(&mut buffer, members)?,
        Json::Array(elements) => {
            container(&mut buffer, elements.len(), IS_ARRAY, elements.iter().map(Part::Value))?
        }
        scalar => container(&mut buffer, 1, IS_ARRAY | IS_SCALAR, [Part::Value(scalar)].into_iter())?,
    };
    Some(buffer)
}

/// What an entry stands for.
enum Part<'j> {
    Key(&'j str),
    Value(&'j Json),
}

/// Keys by length and then by bytes, of the same key the last one; first all keys, then all values. The entry is returned.
fn object(buffer: &mut Vec<u8>, members: &[(String, Json)]) -> Option<u32> {
    let mut sorted: Vec<&(String, Json)> = members.iter().rev().collect();
    sorted.sort_by(|(left, _), (right, _)| (left.len(), left).cmp(&(right.len(), right)));
    sorted.dedup_by(|later, kept| later.0 == kept.0);
    let keys = sorted.iter().map(|(key, _)| Part::Key(key));
    let values = sorted.iter().map(|(_, value)| Part::Value(value));
    container(buffer, sorted.len(), IS_OBJECT, keys.chain(values))
}

fn container<'j>(
    buffer: &mut Vec<u8>,
    count: usize,
    flags: u32,
    parts: impl Iterator<Item = Part<'j>>,
) -> Option<u32> {
    let base = buffer.len();
    pad(buffer);
    let count = u32::try_from(count).ok().filter(|count| *count <= LENGTH_MASK)?;
    buffer.extend((count | flags).to_le_bytes());
    let entries = usize::try_from(count).ok()? * if flags == IS_OBJECT { 2 } else { 1 };
    let mut entry_at = buffer.len();
    buffer.resize(entry_at + 4 * entries, 0);
    let mut end = 0u32;
    for (index, part) in parts.enumerate() {
        let mut entry = match part {
            Part::Key(key) => string(buffer, key)?,
            Part::Value(json) => value(buffer, json)?,
        };
        end = end.checked_add(entry & LENGTH_MASK).filter(|end| *end <= LENGTH_MASK)?;
        if index % OFFSET_STRIDE == 0 {
            entry = (entry & TYPE_MASK) | end | HAS_OFFSET;
        }
        buffer.get_mut(entry_at..entry_at + 4)?.copy_from_slice(&entry.to_le_bytes());
        entry_at += 4;
    }
    entry_of(CONTAINER, buffer.len() - base)
}

fn value(buffer: &mut Vec<u8>, json: &Json) -> Option<u32> {
    match json {
        Json::Null => Some(NULL),
        Json::Bool(false) => Some(FALSE),
        Json::Bool(true) => Some(TRUE),
        Json::String(text) => string(buffer, text),
        Json::Number(text) => {
            let from = buffer.len();
            pad(buffer);
            let data = numeric::data(text)?;
            buffer.extend(header(data.len()));
            buffer.extend(data);
            entry_of(NUMERIC, buffer.len() - from)
        }
        Json::Array(elements) => {
            container(buffer, elements.len(), IS_ARRAY, elements.iter().map(Part::Value))
        }
        Json::Object(members) => object(buffer, members),
    }
}

fn string(buffer: &mut Vec<u8>, text: &str) -> Option<u32> {
    buffer.extend_from_slice(text.as_bytes());
    entry_of(STRING, text.len())
}

fn entry_of(kind: u32, bytes: usize) -> Option<u32> {
    u32::try_from(bytes).ok().filter(|bytes| *bytes <= LENGTH_MASK).map(|bytes| kind | bytes)
}

/// To four bytes. The header of `varlena` before the data has four when the server does this, so it does not matter.
fn pad(buffer: &mut Vec<u8>) {
    buffer.resize(buffer.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;

    #[test]
    fn a_small_object_has_its_keys_sorted_and_the_last_of_equal_ones() {
        let json = parse(r#"{"bb": 1, "a": "x", "a": true}"#).unwrap();
        let image = data(&json).unwrap();
        assert_eq!(image[..4], (2 | IS_OBJECT).to_le_bytes());
        assert_eq!(image[4..8], (STRING | HAS_OFFSET | 1).to_le_bytes());
        assert_eq!(image[12..16], TRUE.to_le_bytes());
        assert_eq!(&image[20..23], b"abb");
    }

    #[test]
    fn numbers_that_the_server_refuses_have_no_image() {
        assert_eq!(data(&parse("[1e200000]").unwrap()), None);
        assert!(data(&parse("[1e1000]").unwrap()).is_some());
    }
}
