//! Password files.

use crate::world::{World, text};
use pgshrink_pgclient::passfile::{self, Alias, Usable};
use std::path::{Path, PathBuf};

fn aliases(pairs: &[(&str, &str)]) -> Vec<Alias> {
    let alias =
        |(host, stands_for): &(&str, &str)| Alias { host: (*host).into(), stands_for: (*stands_for).into() };
    pairs.iter().map(alias).collect()
}

#[test]
fn lines_that_name_an_aliased_host_are_repeated_right_after_it() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], Option<&'static str>);
    let table: [Case; 11] = [
        ("a:1:d:u:p\n", &[("a", "/s/0")], Some("a:1:d:u:p\n/s/0:1:d:u:p\n")),
        ("a:1:d:u:p", &[("a", "/s/0")], Some("a:1:d:u:p\n/s/0:1:d:u:p\n")),
        ("a:*:*:*:p\\:q\n*:*:*:*:z\n", &[("a", "/s")], Some("a:*:*:*:p\\:q\n/s:*:*:*:p\\:q\n*:*:*:*:z\n")),
        ("*:*:*:*:z\n", &[("a", "/s")], None),
        ("# a:1:d:u:p\n", &[("a", "/s")], None),
        ("ab:1:d:u:p\n", &[("a", "/s")], None),
        ("", &[("a", "/s")], None),
        ("\\:\\:1:5:d:u:p\n", &[("::1", "/s")], Some("\\:\\:1:5:d:u:p\n/s:5:d:u:p\n")),
        ("a:1:d:u:p\r\n", &[("a", "/s")], Some("a:1:d:u:p\r\n/s:1:d:u:p\r\n")),
        ("a:1:d:u:p\n", &[("a", "/s/0"), ("a", "/s/1")], Some("a:1:d:u:p\n/s/0:1:d:u:p\n/s/1:1:d:u:p\n")),
        ("a:1:d:u:p\n", &[("a", "/x:y\\")], Some("a:1:d:u:p\n/x\\:y\\\\:1:d:u:p\n")),
    ];
    for (file, pairs, expected) in table {
        let copy = passfile::with_aliases(file.as_bytes(), &aliases(pairs));
        assert_eq!(copy.map(|copy| text(&copy)), expected.map(str::to_owned), "{file:?}");
    }
}

#[test]
fn the_same_alias_twice_repeats_a_line_once() {
    let twice = aliases(&[("a", "/s"), ("a", "/s")]);
    assert_eq!(passfile::with_aliases(b"a:1:d:u:p\n", &twice), Some(b"a:1:d:u:p\n/s:1:d:u:p\n".to_vec()));
}

#[test]
fn a_file_that_libpq_ignores_is_not_copied() {
    let lines = "a:1:d:u:p\n";
    let path = Path::new("/home/ann/.pgpass");
    let table = [
        (World::new().file(".", ""), Usable::Absent),
        (World::new().file_with("/home/ann/.pgpass", lines, 0o640), Usable::Exposed),
        (World::new().file_with("/home/ann/.pgpass", lines, 0o601), Usable::Exposed),
        (World::new().with_dir("/home/ann/.pgpass"), Usable::NotPlain),
        (World::new().file_with("/home/ann/.pgpass", lines, 0o400), Usable::Yes),
    ];
    for (world, expected) in table {
        assert_eq!(passfile::usable(path, &world.around()), expected);
        let copy = passfile::for_aliases(path, &aliases(&[("a", "/s")]), &world.around()).unwrap();
        assert_eq!(copy.is_some(), expected == Usable::Yes);
    }
}

#[test]
fn the_default_file_is_in_the_home_directory() {
    let world = World::new();
    assert_eq!(passfile::path(None, &world.around()), Some(PathBuf::from("/home/ann/.pgpass")));
    assert_eq!(
        passfile::path(Some(Path::new("")), &world.around()),
        Some(PathBuf::from("/home/ann/.pgpass"))
    );
    assert_eq!(passfile::path(Some(Path::new("/p")), &world.around()), Some(PathBuf::from("/p")));
}

#[test]
fn the_default_socket_directory_is_looked_up_as_localhost() {
    let dir = "/var/run/postgresql";
    let table = [
        (None, None, "localhost"),
        (Some(dir), None, "localhost"),
        (Some("/tmp"), None, "/tmp"),
        (Some("h"), Some("10.0.0.1"), "h"),
        (None, Some("10.0.0.1"), "10.0.0.1"),
        (Some(""), Some(""), "localhost"),
    ];
    for (host, hostaddr, expected) in table {
        assert_eq!(passfile::lookup_host(host, hostaddr, dir), expected);
    }
}

#[test]
fn the_first_line_that_matches_has_the_password() {
    let text = b"# db:1:d:u:comment\ndb:1:d:u:first\r\ndb:*:d:*:second\n*:*:*:*:t\\:h\\\\ird:rest\nlast:1:d:u:no end";
    let find = |host: &str, port: &str, database: &str, user: &str| {
        let wanted = [host, port, database, user].map(str::as_bytes);
        passfile::password(text, wanted).map(|found| String::from_utf8(found).unwrap())
    };
    assert_eq!(find("db", "1", "d", "u").as_deref(), Some("first"));
    assert_eq!(find("db", "2", "d", "x").as_deref(), Some("second"));
    assert_eq!(find("other", "2", "d", "x").as_deref(), Some("t:h\\ird"));
    let wanted: [&[u8]; 4] = [b"last", b"1", b"d", b"u"];
    let last = |text: &[u8]| passfile::password(text, wanted);
    assert_eq!(last(b"last:1:d:u:no end").as_deref(), Some(&b"no end"[..]));
    assert_eq!(last(b"last:1:d:u:").as_deref(), Some(&b""[..]));
    for other in [&b"last:1:d:u"[..], b"last:1:d", b"las:1:d:u:x", b"lastt:1:d:u:x", b"", b"\n:::"] {
        assert_eq!(last(other), None, "{other:?}");
    }
    let colon: [&[u8]; 4] = [b"/tmp/a:b", b"1", b"d", b"u"];
    assert_eq!(passfile::password(b"/tmp/a\\:b:1:d:u:x", colon).as_deref(), Some(&b"x"[..]));
}
