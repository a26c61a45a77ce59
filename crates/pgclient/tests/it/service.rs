//! Service files: lookup, reading, rewriting.

use crate::world::{World, text};
use pgshrink_pgclient::Error;
use pgshrink_pgclient::conninfo::Setting;
use pgshrink_pgclient::service::{self, Edit};
use std::path::Path;

const PATH: &str = "/home/ann/.pg_service.conf";

fn read(file: &str) -> Result<Option<String>, Error> {
    let settings = service::parse(file.as_bytes(), b"s", Path::new(PATH))?;
    let shown = |s: &Setting| format!("{}=<{}>", text(&s.keyword), text(&s.value));
    Ok(settings.map(|list| list.iter().map(shown).collect::<Vec<_>>().join(" ")))
}

#[test]
fn sections_are_read_as_libpq_reads_them() {
    let table = [
        ("[s]\nhost=a\nport=1\n", Some("host=<a> port=<1>")),
        ("# c\n\n[other]\nhost=x\n[s]\nhost=a\n[t]\nport=2\n", Some("host=<a>")),
        ("  [s] trailing\n\t host=a b  \r\n", Some("host=<a b>")),
        ("[s]\nhost=a\nhost=b\n", Some("host=<a>")),
        ("[s]\nhost=a\n[s]\nport=1\n", Some("host=<a>")),
        ("[s]\noptions=-c a=b\n", Some("options=<-c a=b>")),
        ("[s]\nhost=\n", Some("host=<>")),
        ("[s]", Some("")),
        ("[ss]\nhost=a\n[s ]\nhost=b\n", None),
        ("[other]\nnonsense here\n[s]\nuser=u", Some("user=<u>")),
        ("", None),
    ];
    for (file, settings) in table {
        assert_eq!(read(file), Ok(settings.map(str::to_owned)), "{file:?}");
    }
}

#[test]
fn what_libpq_refuses_is_refused_with_file_and_line() {
    let long = format!("[s]\nhost={}\n", "a".repeat(1018));
    let table = [
        ("[s]\nnonsense\n", "syntax error in service file \"/home/ann/.pg_service.conf\", line 2: no \"=\""),
        (
            "[s]\nhost = a\n",
            "syntax error in service file \"/home/ann/.pg_service.conf\", line 2: unknown keyword \"host \"",
        ),
        (
            "[s]\nservice=t\n",
            "nested service specifications not supported in service file \"/home/ann/.pg_service.conf\", line 2",
        ),
        ("[s]\nldap://h/dn?a?one?f\n", "service file \"/home/ann/.pg_service.conf\", line 2: LDAP lookup"),
        (&long, "line 2 too long in service file \"/home/ann/.pg_service.conf\""),
    ];
    for (file, message) in table {
        let error = read(file).unwrap_err().to_string();
        assert!(error.starts_with(message), "{file:?} gave {error}");
    }
    assert!(read(&format!("[s]\nhost={}\n", "a".repeat(1016))).is_ok());
}

#[test]
fn files_are_searched_in_libpqs_order() {
    let home = |world: World| world.file(PATH, "[s]\nhost=home\n");
    let system = |world: World| {
        world.file("/etc/postgresql-common/pg_service.conf", "[s]\nhost=system\n[t]\nhost=t\n")
    };
    let named = |world: World| world.file("/n", "[s]\nhost=named\n").env("PGSERVICEFILE", "/n");
    let dir = |world: World| world.file("/d/pg_service.conf", "[s]\nhost=dir\n").env("PGSYSCONFDIR", "/d");
    let table = [
        (home(system(World::new())), "s", None, Ok("home")),
        (home(system(World::new())), "t", None, Ok("t")),
        (named(home(system(World::new()))), "s", None, Ok("named")),
        (system(World::new()), "s", None, Ok("system")),
        (dir(system(World::new())), "s", None, Ok("dir")),
        (dir(system(World::new())), "t", None, Err("definition of service \"t\" not found")),
        (home(World::new()), "s", Some("/gone"), Err("service file \"/gone\" not found")),
        (
            home(World::new()).env("PGSERVICEFILE", "/gone"),
            "s",
            None,
            Err("service file \"/gone\" not found"),
        ),
        (
            named(World::new()).file("/explicit", "[s]\nhost=explicit\n"),
            "s",
            Some("/explicit"),
            Ok("explicit"),
        ),
    ];
    for (index, (world, name, file, expected)) in table.into_iter().enumerate() {
        let found = service::find(name.as_bytes(), file.map(str::as_bytes), &world.around());
        match (found, expected) {
            (Ok(found), Ok(host)) => assert_eq!(text(&found.settings[0].value), host, "case {index}"),
            (Err(error), Err(message)) => {
                assert!(error.to_string().starts_with(message), "case {index}: {error}")
            }
            (found, _) => panic!("case {index}: {found:?}"),
        }
    }
}

#[test]
fn rewriting_changes_one_section_and_no_other_byte() {
    let file = "# top\n[o]\nhost=a\n[s]  x\r\n # note\nhost=a\n  port = 1\ncompression=lz4\nhost=again\n[s]\nhost=a\n";
    let edit = |setting: &Setting| match &setting.keyword[..] {
        b"compression" => Edit::Drop,
        b"host" => Edit::Replace(b"/s/0".to_vec()),
        _ => Edit::Keep,
    };
    let first = [Setting { keyword: b"hostaddr".to_vec(), value: Vec::new() }];
    let expected =
        "# top\n[o]\nhost=a\n[s]  x\r\nhostaddr=\n # note\nhost=/s/0\n  port = 1\nhost=/s/0\n[s]\nhost=a\n";
    assert_eq!(text(&service::rewrite(file.as_bytes(), b"s", edit, &first)), expected);
    let keep = |_: &Setting| Edit::Keep;
    assert_eq!(text(&service::rewrite(file.as_bytes(), b"s", keep, &[])), file);
    assert_eq!(text(&service::rewrite(b"[s]", b"s", keep, &first)), "[s]\nhostaddr=\n");
}

#[test]
fn one_section_can_be_taken_out() {
    let file = "x=1\n[o]\nhost=a\n[s] z\n# c\nhost=b\n[t]\nhost=c\n[s]\nport=1\n";
    assert_eq!(text(&service::section(file.as_bytes(), b"s")), "[s] z\n# c\nhost=b\n");
    assert_eq!(text(&service::section(b"[s]\nhost=a", b"s")), "[s]\nhost=a\n");
    assert_eq!(text(&service::section(b"[o]\n", b"s")), "");
}
