//! The demo's table: one row per package, as text of the COPY format.
//!
//! The document holds what the columns do not and the relations taken apart, as an application would store it.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::package_index::{Stanza, split_list};

/// The columns, in the order of [`write_row`].
const COLUMNS: &str = "\
    id int primary key, name text not null, version text, source text, architecture text, section text,
    priority text, maintainer text, homepage text, summary text, depends text[] not null,
    recommends text[] not null, provides text[] not null, tags text[] not null, installed_size_kb int,
    size_bytes bigint, filename text, sha256 text, document jsonb not null";

const RELATIONS: [&str; 8] =
    ["Depends", "Pre-Depends", "Recommends", "Suggests", "Provides", "Conflicts", "Breaks", "Replaces"];

/// The statement that makes it.
pub(crate) fn definition(table: &str) -> String {
    format!("create table {table} ({COLUMNS});")
}

/// Writes a package as one line.
pub(crate) fn write_row(out: &mut impl Write, id: usize, package: &Stanza) -> io::Result<()> {
    write!(out, "{id}")?;
    write_text(out, Some(package.get("Package").unwrap_or_default()))?;
    for name in
        ["Version", "Source", "Architecture", "Section", "Priority", "Maintainer", "Homepage", "Description"]
    {
        write_text(out, package.get(name))?;
    }
    for name in ["Depends", "Recommends", "Provides", "Tag"] {
        write_text(out, Some(&array(&package.list(name))))?;
    }
    write_text(out, integer::<i32>(package.get("Installed-Size")).as_deref())?;
    write_text(out, integer::<i64>(package.get("Size")).as_deref())?;
    for name in ["Filename", "SHA256"] {
        write_text(out, package.get(name))?;
    }
    write_text(out, Some(&document(package).to_string()))?;
    out.write_all(b"\n")
}

/// A column after the first, with COPY's escapes.
fn write_text(out: &mut impl Write, value: Option<&str>) -> io::Result<()> {
    out.write_all(b"\t")?;
    let Some(value) = value else { return out.write_all(b"\\N") };
    for piece in value.split_inclusive(['\\', '\t', '\n', '\r']) {
        let (text, escape) = match piece.as_bytes() {
            [text @ .., b'\\'] => (text, "\\\\"),
            [text @ .., b'\t'] => (text, "\\t"),
            [text @ .., b'\n'] => (text, "\\n"),
            [text @ .., b'\r'] => (text, "\\r"),
            text => (text, ""),
        };
        out.write_all(text)?;
        out.write_all(escape.as_bytes())?;
    }
    Ok(())
}

/// An array literal, every item quoted.
fn array(items: &[&str]) -> String {
    let quoted = items.iter().map(|item| format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

/// The number, when the type can hold it.
fn integer<T: std::str::FromStr + ToString>(value: Option<&str>) -> Option<String> {
    value?.trim().parse::<T>().ok().map(|number| number.to_string())
}

fn document(package: &Stanza) -> Value {
    let mut members = Map::new();
    for (name, value) in package.fields() {
        let member = match name {
            "Maintainer" => person(value),
            "Tag" => tags(value),
            name if RELATIONS.contains(&name) => {
                Value::Array(split_list(value).into_iter().map(relation).collect())
            }
            _ => match value.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => json!(value),
            },
        };
        members.insert(name.to_ascii_lowercase().replace('-', "_"), member);
    }
    Value::Object(members)
}

/// `Name <address>`.
fn person(value: &str) -> Value {
    match value.rsplit_once('<') {
        Some((name, address)) => {
            json!({ "name": name.trim(), "email": address.trim_end_matches('>').trim() })
        }
        None => json!({ "name": value }),
    }
}

/// `facet::tag, ...` as `{facet: [tag, ...]}`.
fn tags(value: &str) -> Value {
    let mut facets = Map::new();
    for tag in split_list(value) {
        let (facet, name) = tag.split_once("::").unwrap_or(("", tag));
        let names = facets.entry(facet).or_insert_with(|| json!([]));
        if let Value::Array(names) = names {
            names.push(json!(name));
        }
    }
    Value::Object(facets)
}

/// `a (>= 1) | b` as `{any: [{name, relation, version}, {name}]}`, a single one without `any`.
fn relation(item: &str) -> Value {
    let mut alternatives: Vec<Value> = item.split('|').map(|one| requirement(one.trim())).collect();
    match (alternatives.len(), alternatives.pop()) {
        (1, Some(only)) => only,
        (_, last) => {
            alternatives.extend(last);
            json!({ "any": alternatives })
        }
    }
}

fn requirement(text: &str) -> Value {
    let Some((name, bound)) = text.split_once('(') else { return json!({ "name": text }) };
    let bound = bound.trim_end_matches(')').trim();
    let (relation, version) = bound.split_once(' ').unwrap_or(("=", bound));
    json!({ "name": name.trim(), "relation": relation, "version": version.trim() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package_index::Stanzas;

    fn row(text: &str) -> Vec<String> {
        let package = Stanzas::new(text.as_bytes()).next().unwrap().unwrap();
        let mut out = Vec::new();
        write_row(&mut out, 7, &package).unwrap();
        let line = String::from_utf8(out).unwrap();
        line.strip_suffix('\n').unwrap().split('\t').map(str::to_owned).collect()
    }

    #[test]
    fn a_row_has_every_column_and_absent_fields_are_null() {
        let row = row("Package: a\nSize: 12\nInstalled-Size: many\nDepends: b (>= 1:2), c | d\n");
        assert_eq!(row.len(), COLUMNS.split(',').count());
        assert_eq!(row[..3], ["7", "a", "\\N"]);
        assert_eq!(row[10..12], ["{\"b (>= 1:2)\",\"c | d\"}", "{}"]);
        assert_eq!(row[14..16], ["\\N", "12"]);
    }

    #[test]
    fn the_document_takes_relations_tags_and_people_apart() {
        let text =
            "Package: a\nSize: 12\nMaintainer: A B <a@b>\nDepends: b (>= 1:2), c | d\nTag: x::y, x::z\n";
        let document: Value = serde_json::from_str(row(text).last().unwrap()).unwrap();
        let expected = json!({
            "package": "a", "size": 12, "maintainer": { "name": "A B", "email": "a@b" },
            "depends": [
                { "name": "b", "relation": ">=", "version": "1:2" },
                { "any": [{ "name": "c" }, { "name": "d" }] },
            ],
            "tag": { "x": ["y", "z"] },
        });
        assert_eq!(document, expected);
    }

    #[test]
    fn what_copy_and_arrays_treat_specially_is_escaped() {
        let row = row("Package: a\\b\tc\nDescription: one\n two\nDepends: q\"\\\n");
        assert_eq!(row[1], "a\\\\b\\tc");
        assert_eq!(row[9], "one\\ntwo");
        assert_eq!(row[10], r#"{"q\\"\\\\"}"#);
    }
}
