//! Values of common types from the text that the server prints for them.

use super::{datetime, hex, json, jsonb, network, number, numeric, uuid};
use crate::layout::Alignment;

/// A value without the header that depends on where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Of a type of fixed length, aligned like this.
    Fixed(Vec<u8>, Alignment),
    /// The data of a `varlena` that is aligned to four bytes, without its header.
    Varlena(Vec<u8>),
}

/// The value of a type (`pg_type.typname`) with this text, printed with `TimeZone` UTC and `DateStyle` ISO. None: another type,
/// or a value that has no image here, such as an infinity.
pub fn stored(type_id: &str, text: &str) -> Option<Stored> {
    let fixed = |bytes: &[u8], alignment| Some(Stored::Fixed(bytes.to_vec(), alignment));
    match type_id {
        "bool" => fixed(&[u8::from(text == "t" || text == "true")], Alignment::Char),
        "int2" => fixed(&i16::try_from(number::integer(text)?).ok()?.to_le_bytes(), Alignment::Short),
        "int4" => fixed(&i32::try_from(number::integer(text)?).ok()?.to_le_bytes(), Alignment::Int),
        "int8" => fixed(&number::integer(text)?.to_le_bytes(), Alignment::Double),
        "float4" => fixed(&text.parse::<f32>().ok()?.to_le_bytes(), Alignment::Int),
        "float8" => fixed(&text.parse::<f64>().ok()?.to_le_bytes(), Alignment::Double),
        "date" => fixed(&datetime::date(text)?.to_le_bytes(), Alignment::Int),
        "time" => fixed(&datetime::time(text)?.to_le_bytes(), Alignment::Double),
        "timestamp" => fixed(&datetime::timestamp(text)?.to_le_bytes(), Alignment::Double),
        "timestamptz" => fixed(&datetime::timestamp_utc(text)?.to_le_bytes(), Alignment::Double),
        "uuid" => fixed(&uuid(text)?, Alignment::Char),
        "macaddr" => fixed(&network::macaddr(text)?, Alignment::Int),
        "text" | "varchar" | "bpchar" => Some(Stored::Varlena(text.as_bytes().to_vec())),
        "numeric" => Some(Stored::Varlena(numeric::data(text)?)),
        "inet" => Some(Stored::Varlena(network::inet(text)?)),
        "bytea" => Some(Stored::Varlena(hex(text.strip_prefix("\\x")?)?)),
        "jsonb" => Some(Stored::Varlena(jsonb::data(&json::parse(text)?)?)),
        _ => None,
    }
}
