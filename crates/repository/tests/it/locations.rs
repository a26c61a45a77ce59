//! Repositories as users write them.

use pgshrink_repository::{Error, Location, ObjectName, Variables};

#[test]
fn directories_and_buckets_are_told_apart() {
    for (text, shown) in [
        ("/backups", "/backups"),
        ("backups", "backups"),
        ("./s3:/bucket", "./s3:/bucket"),
        ("/srv/a:b", "/srv/a:b"),
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
        ("ftp://host/x", "are supported"),
        ("file://host/x", "three slashes"),
        ("s3:/bucket/prefix", "two slashes"),
        ("S3:bucket", "two slashes"),
        ("server:/backups", "two slashes"),
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
    for text in ["s3://AKID:hunter2@bucket/prefix", "http://AKID:hunter2@host/", "s3:/AKID:hunter2@bucket"] {
        let error = Location::parse(text).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn an_endpoint_that_is_no_url_is_refused_with_the_name_of_its_variable() {
    let open = |url: &str| {
        let variables =
            [("AWS_ENDPOINT_URL", url), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        let variables: Variables =
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        Location::parse("s3://bucket").unwrap().open(&variables)
    };
    for url in ["", "127.0.0.1:9000", "host", "http://", "http:///x", "http://a b", "ftp://host"] {
        let error = open(url).err().unwrap().to_string();
        assert!(error.contains("AWS_ENDPOINT_URL") && error.contains("http://host:9000"), "{url}: {error}");
    }
    for url in ["http://127.0.0.1:9000", "https://s3.example.com", "http://[::1]:9000/path"] {
        assert!(open(url).is_ok(), "{url}");
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
