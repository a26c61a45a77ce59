//! Repositories as users write them.

use pgshrink_repository::{Error, Location, ObjectName};

#[test]
fn directories_and_buckets_are_told_apart() {
    for (text, shown) in [
        ("/backups", "/backups"),
        ("backups", "backups"),
        ("file:///backups", "/backups"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/one/two/", "s3://bucket/one/two"),
        ("az://container/prefix", "az://container/prefix"),
        ("azure://container", "az://container"),
        ("gs://bucket/prefix", "gs://bucket/prefix"),
    ] {
        assert_eq!(Location::parse(text).unwrap().to_string(), shown, "{text}");
    }
}

#[test]
fn what_is_no_repository_is_refused_with_the_reason() {
    for (text, reason) in [
        ("", "give a directory"),
        ("ftp://host/x", "are known"),
        ("file://host/x", "three slashes"),
        ("s3://", "has no name"),
        ("s3:///prefix", "has no name"),
        ("s3://bucket/a//b", "component"),
        ("s3://bucket/../b", "component"),
        ("s3://bucket/a?x=1", "'?'"),
    ] {
        let error = Location::parse(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn credentials_in_a_url_are_not_repeated_in_the_error() {
    for text in ["s3://AKID:hunter2@bucket/prefix", "http://AKID:hunter2@host/"] {
        let error = Location::parse(text).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn names_of_objects_are_the_same_everywhere() {
    for name in ["x", "a/b/c.json", "20261125T143000Z/packs/00000001.pack", "a_b-c+d.e"] {
        assert_eq!(ObjectName::new(name).unwrap().as_str(), name);
    }
    let long = "x".repeat(513);
    for name in ["", "/x", "x/", "a//b", ".", "..", "a/../b", ".hidden", "a b", "a\\b", "ä", "a\0", &long] {
        assert!(matches!(ObjectName::new(name), Err(Error::Name { .. })), "{name:?}");
    }
    assert_eq!(ObjectName::new("one/two").unwrap().first(), "one");
}
