//! Names and texts in SQL.

/// An identifier, in quotes where it needs them: a keyword may look like any name, so all but plain lower-case words of a known kind have
/// them.
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
