//! The JSON, which stays as it is: `docs/operating/advisor-json.md`.

use std::collections::BTreeSet;
use std::fs;

use pgshrink_advisor::Report;
use pgshrink_testkit::checkout;
use serde_json::Value;

use super::example;

const GOLDEN: &str = "crates/advisor/tests/it/golden/report-1.json";

fn golden() -> Value {
    serde_json::from_slice(&fs::read(checkout().join(GOLDEN)).unwrap()).unwrap()
}

/// Each object of a document.
fn each_object(value: &mut Value, change: &mut impl FnMut(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| each_object(field, change));
            change(fields);
        }
        Value::Array(values) => values.iter_mut().for_each(|value| each_object(value, change)),
        _ => {}
    }
}

/// Where `new` lacks something of `old`, or says something else. More is no difference.
fn differences(path: &str, old: &Value, new: &Value) -> Vec<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .flat_map(|(name, value)| {
                let path = format!("{path}.{name}");
                new.get(name)
                    .map_or_else(|| vec![format!("{path} is gone")], |new| differences(&path, value, new))
            })
            .collect(),
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let each = old.iter().zip(new).enumerate();
            each.flat_map(|(index, (old, new))| differences(&format!("{path}[{index}]"), old, new)).collect()
        }
        _ if old == new => vec![],
        _ => vec![format!("{path}: {new}, expected {old}")],
    }
}

#[test]
fn fields_are_added_and_never_changed() {
    let new = serde_json::to_value(example::everything()).unwrap();
    let changed = differences("report", &golden(), &new);
    assert!(changed.is_empty(), "{GOLDEN} is read by programs of others:\n{}", changed.join("\n"));
}

#[test]
fn readers_ignore_fields_that_they_do_not_know() {
    let mut document = golden();
    let mut objects = 0;
    each_object(&mut document, &mut |fields| {
        objects += 1;
        fields.insert("of_a_later_version".to_owned(), Value::from(vec![1, 2]));
    });
    assert!(objects > 50, "{objects}");
    let read: Report = serde_json::from_value(document).unwrap();
    assert_eq!(read, example::everything());
}

#[test]
fn every_field_is_in_the_manual() {
    let manual = fs::read_to_string(checkout().join("docs/operating/advisor-json.md")).unwrap();
    let mut fields = BTreeSet::new();
    let mut document = serde_json::to_value(example::everything()).unwrap();
    each_object(&mut document, &mut |object| fields.extend(object.keys().cloned()));
    let mut picture = serde_json::to_value(example::picture()).unwrap();
    each_object(&mut picture, &mut |object| fields.extend(object.keys().cloned()));
    let lacking: Vec<&String> =
        fields.iter().filter(|field| !manual.contains(&format!("`{field}`"))).collect();
    assert!(fields.len() > 60 && lacking.is_empty(), "{lacking:?}");
}
