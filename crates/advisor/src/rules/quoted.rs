//! Names and texts in SQL.

/// An identifier, always in quotes: whether a plain word is a keyword depends on the server's version.
pub(crate) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table with its schema.
pub(crate) fn table(table: &crate::snapshot::Table) -> String {
    format!("{}.{}", name(&table.schema), name(&table.name))
}

/// A text. Backslashes are ordinary (`standard_conforming_strings`).
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
