//! Answers as rows: typed columns, so that psql aligns numbers and drivers get numbers.

use pgshrink_wire::message::{message, tag};

/// A column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Int,
    /// A number with so many digits behind the point.
    Fixed(usize),
    Bool,
}

impl Kind {
    /// Type OID and size of PostgreSQL's `text`, `int8`, `float8` and `bool`.
    fn oid_and_size(self) -> (u32, i16) {
        match self {
            Kind::Text => (25, -1),
            Kind::Int => (20, 8),
            Kind::Fixed(_) => (701, 8),
            Kind::Bool => (16, 1),
        }
    }
}

/// Name and type.
pub(super) type Column = (&'static str, Kind);

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Text(String),
    Int(u64),
    Number(f64),
    Bool(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Cells of one row, in the order of the columns.
pub(super) type Row = Vec<Value>;

/// How a client wants cells: by column, or all alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Formats(Vec<u16>);

impl Formats {
    pub(super) fn new(codes: Vec<u16>) -> Self {
        Self(codes)
    }

    fn of(&self, column: usize) -> u16 {
        match self.0.as_slice() {
            [] => 0,
            [all] => *all,
            each => each.get(column).copied().unwrap_or(0),
        }
    }
}

/// The RowDescription of `columns`.
pub(super) fn row_description(columns: &[Column], formats: &Formats) -> Vec<u8> {
    let mut body = (columns.len() as u16).to_be_bytes().to_vec();
    for (index, (name, kind)) in columns.iter().enumerate() {
        let (oid, size) = kind.oid_and_size();
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        // No table, no column number in it.
        body.extend_from_slice(&[0; 6]);
        body.extend_from_slice(&oid.to_be_bytes());
        body.extend_from_slice(&size.to_be_bytes());
        body.extend_from_slice(&(-1i32).to_be_bytes());
        body.extend_from_slice(&formats.of(index).to_be_bytes());
    }
    message(tag::ROW_DESCRIPTION, &body)
}

/// The DataRow of `row`.
pub(super) fn data_row(columns: &[Column], row: &[Value], formats: &Formats) -> Vec<u8> {
    debug_assert_eq!(columns.len(), row.len());
    let mut body = (row.len() as u16).to_be_bytes().to_vec();
    for (index, ((_, kind), value)) in columns.iter().zip(row).enumerate() {
        let cell = match formats.of(index) {
            0 => as_text(*kind, value),
            _ => as_binary(value),
        };
        match cell {
            None => body.extend_from_slice(&(-1i32).to_be_bytes()),
            Some(bytes) => {
                body.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                body.extend_from_slice(&bytes);
            }
        }
    }
    message(tag::DATA_ROW, &body)
}

fn as_text(kind: Kind, value: &Value) -> Option<Vec<u8>> {
    let text = match value {
        Value::Null => return None,
        Value::Text(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Number(number) => {
            let digits = if let Kind::Fixed(digits) = kind { digits } else { 2 };
            format!("{number:.digits$}")
        }
        Value::Bool(flag) => if *flag { "t" } else { "f" }.to_string(),
    };
    Some(text.into_bytes())
}

fn as_binary(value: &Value) -> Option<Vec<u8>> {
    Some(match value {
        Value::Null => return None,
        Value::Text(text) => text.clone().into_bytes(),
        Value::Int(number) => number.to_be_bytes().to_vec(),
        Value::Number(number) => number.to_be_bytes().to_vec(),
        Value::Bool(flag) => vec![u8::from(*flag)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] =
        &[("a", Kind::Text), ("b", Kind::Int), ("c", Kind::Fixed(2)), ("d", Kind::Bool)];

    #[test]
    fn cells_come_as_text_or_binary_as_asked() {
        let row: Row = vec![Value::Null, 7.into(), 2.0.into(), true.into()];
        let text = data_row(COLUMNS, &row, &Formats::default());
        assert_eq!(&text[5..], b"\0\x04\xff\xff\xff\xff\0\0\0\x017\0\0\0\x042.00\0\0\0\x01t");
        let binary = data_row(COLUMNS, &row, &Formats::new(vec![1]));
        assert_eq!(
            &binary[5..],
            b"\0\x04\xff\xff\xff\xff\0\0\0\x08\0\0\0\0\0\0\0\x07\0\0\0\x08\x40\0\0\0\0\0\0\0\0\0\0\x01\x01"
        );
    }

    #[test]
    fn a_description_names_type_and_format_of_each_column() {
        let bytes = row_description(COLUMNS, &Formats::new(vec![0, 1, 0, 0]));
        let b = bytes.windows(2).position(|w| w == b"b\0").unwrap();
        assert_eq!(&bytes[b + 8..b + 20], b"\0\0\0\x14\0\x08\xff\xff\xff\xff\0\x01");
    }
}
