//! Names in SQL.

/// A name as SQL takes it, always in quotes: no list of reserved words needed.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name with its schema.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(name))
}
