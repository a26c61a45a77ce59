//! The catalog queries that fill a [`Definition`](crate::snapshot::definition::Definition), and the one that a script runs to see
//! that nothing has changed since.
//!
//! Each takes a list of OIDs and gives rows of four values: the table's OID, the OID of the table or of a view on it, the part of the
//! definition, and its value as JSON. They read catalogs alone and need no rights. They have to run with an empty
//! `search_path`, so that the server writes every name with its schema.

/// What has to be set in the session before: names get their schemas, and values are written in one way.
pub const SETUP: &str =
    "select set_config('search_path', '', false), set_config('DateStyle', 'ISO, MDY', false),
  set_config('IntervalStyle', 'postgres', false), set_config('extra_float_digits', '1', false),
  set_config('quote_all_identifiers', 'off', false)";
/// What those settings were: one row, one column for each.
pub const SETTINGS: &str = "select current_setting('search_path'), current_setting('DateStyle'),
  current_setting('IntervalStyle'), current_setting('extra_float_digits'), current_setting('quote_all_identifiers')";
/// Sets them back: its parameters are the columns of [`SETTINGS`].
pub const RESTORE: &str = "select set_config('search_path', $1, false), set_config('DateStyle', $2, false),
  set_config('IntervalStyle', $3, false), set_config('extra_float_digits', $4, false),
  set_config('quote_all_identifiers', $5, false)";

/// The tables, and all views on them, on views on them, and so on: `r`.
const RELATIONS: &str = include_str!("queries/relations.sql");

const PARTS: [&str; 19] = [
    // First, as everything else belongs to one of these.
    include_str!("queries/relation.sql"),
    include_str!("queries/column.sql"),
    include_str!("queries/sequence.sql"),
    include_str!("queries/index.sql"),
    include_str!("queries/constraint.sql"),
    include_str!("queries/referenced.sql"),
    include_str!("queries/trigger.sql"),
    include_str!("queries/rule.sql"),
    include_str!("queries/policy.sql"),
    include_str!("queries/statistics.sql"),
    include_str!("queries/grant.sql"),
    include_str!("queries/comment.sql"),
    include_str!("queries/label.sql"),
    include_str!("queries/publication.sql"),
    include_str!("queries/inheritance.sql"),
    include_str!("queries/use.sql"),
    include_str!("queries/elsewhere.sql"),
    include_str!("queries/names.sql"),
    include_str!("queries/obstacle.sql"),
];
const FINGERPRINT: &str = include_str!("queries/fingerprint.sql");

/// The queries for these tables, in the order in which their rows are to be read.
pub fn all(oids: &[u32]) -> Vec<String> {
    let of = |part: &&str| query(part, oids);
    PARTS.iter().chain([&FINGERPRINT]).map(of).collect()
}

/// An expression that gives the fingerprint of a table as text, NULL when there is no such table.
pub(super) fn fingerprint(oid: u32) -> String {
    format!("(select value #>> '{{}}' from (\n{}) f(root, oid, part, value))", query(FINGERPRINT, &[oid]))
}

fn query(part: &str, oids: &[u32]) -> String {
    let list = oids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    format!("{}{part}", RELATIONS.replace("{oids}", &format!("'{{{list}}}'")))
}
