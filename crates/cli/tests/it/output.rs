//! What people and programs read: errors as JSON, numbers of things, nothing read from damaged containers, a table that
//! fits.

use crate::backup::Kept;
use crate::cfs::{CONTAINER, database, json, packed, run};
use pgshrink_testkit::TempDir;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn pgshrink(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(words).env_remove("PGSHRINK_BACKUP_CONFIG").output().expect("the binary runs")
}

/// The one document on standard output, which has the message of standard error.
fn error(words: &[&str], code: i32) -> Value {
    let output = pgshrink(words);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", String::from_utf8_lossy(&output.stdout)));
    let error = document["error"].clone();
    let mut keys: Vec<_> = error.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["damage", "message", "sqlstate"], "{words:?}");
    let message = error["message"].as_str().expect("a message");
    assert!(said.contains(message) && !message.is_empty(), "{words:?}: {message}\n{said}");
    error
}

#[test]
fn with_json_every_command_tells_its_failure_in_one_document() {
    let nowhere = "host=127.0.0.1 port=1 user=x connect_timeout=5";
    for words in [
        &["backup", nowhere, "--to", "/dev/null/x"][..],
        &["restore", "latest", "--from", "/dev/null/x", "--into", "/dev/null/y"],
        &["verify", "latest", "--from", "/dev/null/x"],
        &["list", "--from", "/dev/null/x"],
        &["expire", "--from", "/dev/null/x", "--keep-last", "1"],
        &["advise", nowhere],
        &["cfs", "info", "/dev/null/x"],
        &["cfs", "verify", "/dev/null/x"],
        &["cfs", "estimate", "/dev/null/x"],
        &["cfs", "unpack", "/dev/null/x", "/dev/null/y"],
        &["cfs", "pack", "/dev/null/x", "/dev/null/y"],
        &["cfs", "rekey", "/dev/null/x"],
        &["cfs", "salvage", "/dev/null/x", "/dev/null/y"],
        &["cfs", "accept", "/dev/null/x"],
        &["cfs", "check-server", "/dev/null/x"],
    ] {
        let found = error(&[words, &["--json"]].concat(), 2);
        assert!(found["sqlstate"].is_null() && found["damage"].is_null(), "{words:?}: {found}");
        assert!(
            pgshrink(words).stdout.is_empty(),
            "{words:?}: without --json, nothing is on standard output"
        );
    }
}

#[test]
fn arguments_that_are_not_understood_are_told_as_json_too() {
    for words in [
        &["list", "--json"][..],
        &["cfs", "info", "--json"],
        &["advise", "--json", "--nonsense"],
        &["verify", "--json", "--config", "/dev/null/x"],
    ] {
        error(words, 2);
    }
    // What belongs to another program, and help, are no errors of ours.
    assert!(pgshrink(&["run", "--nonsense", "psql", "--json"]).stdout.is_empty());
    let help = pgshrink(&["list", "--json", "--help"]);
    assert!(help.status.success() && help.stdout.starts_with(b"List"));
}

#[test]
fn a_damaged_backup_is_told_with_the_object_in_a_field() {
    let kept = Kept::new(&[]);
    let packs = kept.keep.path().join("repository").join(&kept.name).join("packs");
    let pack = fs::read_dir(packs).expect("packs").next().expect("one").expect("an entry").path();
    let file = fs::OpenOptions::new().read(true).write(true).open(&pack).expect("opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1000).expect("reads");
    file.write_all_at(&[!byte[0]], 1000).expect("writes");
    let repository = kept.repository();
    let found = error(&["verify", &kept.name, "--from", &repository, "--json"], 1);
    let name = pack.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(found["damage"]["path"].as_str().is_some_and(|path| path.contains(name)), "{found}");
    assert!(found["damage"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{found}");
    let into = kept.keep.path().join("into");
    let into = into.to_str().expect("text");
    let found = error(&["restore", &kept.name, "--from", &repository, "--into", into, "--json"], 2);
    assert!(found["damage"]["path"].is_string(), "{found}");
}

/// A packed database, and the container of its table.
fn container(dir: &TempDir) -> (PathBuf, PathBuf) {
    let there = dir.path().join("packed");
    packed(&there, &[]);
    let segment = there.join(database().orders.to_string());
    (there, segment)
}

fn write(segment: &Path) -> fs::File {
    fs::OpenOptions::new().write(true).open(segment.join(CONTAINER)).expect("a container")
}

#[test]
fn nothing_is_shown_that_a_broken_root_says() {
    let dir = TempDir::new().expect("a directory");
    let (there, segment) = container(&dir);
    let whole = json(&[&"info", &segment], 0)[0].clone();
    assert!(whole["ratio"].as_f64().is_some_and(|ratio| ratio > 1.0), "{whole}");
    // A bit of each disk block: what the roots say may be anything.
    (0..3).for_each(|slot| write(&segment).write_all_at(&[0xff], slot * 4096 + 300).expect("writes"));
    let fields = ["container", "tablespace", "database", "relation", "fork", "segment", "pages", "sequence"];
    let unreadable = |text: &str, info: &Value| {
        for field in fields.iter().chain(&["epoch", "closed", "ratio", "key_id"]) {
            assert!(info[field].is_null(), "{field}: {info}");
        }
        for line in [
            "container   unreadable",
            "segment     unreadable",
            "pages       unreadable",
            "key         unread",
        ] {
            assert!(text.contains(line), "no {line} in {text}");
        }
        assert!(text.contains("(-), file") && text.contains("PROBLEM"), "{text}");
    };
    unreadable(&run(&[&"info", &segment], 1), &json(&[&"info", &segment], 1)[0]);
    let said = run(&[&"verify", &"--no-manifest", &segment], 1);
    assert!(said.contains("1 container, pages unreadable: 1 DAMAGED"), "{said}");
    let verified = json(&[&"verify", &there], 1);
    let broken = verified["containers"].as_array().expect("an array").iter();
    let broken = broken.filter(|one| one["damages"].as_array().is_some_and(|list| !list.is_empty()));
    let broken: Vec<_> = broken.collect();
    assert_eq!(broken.len(), 1);
    assert!(broken[0]["pages"].is_null() && broken[0]["damages"][0]["part"] == "root", "{}", broken[0]);
    // Without any root.
    write(&segment).set_len(0).expect("cut");
    unreadable(&run(&[&"info", &segment], 1), &json(&[&"info", &segment], 1)[0]);
}

#[test]
fn a_container_that_was_cut_off_has_no_ratio() {
    let dir = TempDir::new().expect("a directory");
    let (_, segment) = container(&dir);
    write(&segment).set_len(3 * 4096).expect("cut");
    let info = &json(&[&"info", &segment], 1)[0];
    assert!(info["ratio"].is_null() && info["pages"].is_u64(), "{info}");
    assert!(run(&[&"info", &segment], 1).contains("(-), file 12.0 kB"));
}

#[test]
fn one_thing_is_not_several() {
    let dir = TempDir::new().expect("a directory");
    let there = dir.path().join("one");
    let table = database().dir.join(database().orders.to_string());
    let said = run(&[&"pack", &table, &there], 0);
    assert!(said.contains("1 relation file packed, ") && said.contains("; 0 other files copied"), "{said}");
    let said = run(&[&"verify", &there], 0);
    assert!(said.contains("1 container, ") && said.contains(" pages: all intact"), "{said}");
    let said = run(&[&"unpack", &there, &dir.path().join("plain")], 0);
    assert!(said.contains("1 container unpacked, "), "{said}");
    // No count of one with the word for many, in any text of this program.
    for said in [said, run(&[&"info", &there], 0), run(&[&"estimate", &table], 0)] {
        assert!(!said.contains(" 1 pages") && !said.contains("(s)") && !said.contains("1 tables"), "{said}");
    }
}

#[test]
fn an_estimate_fits_a_terminal_and_sums_tables_indexes_and_catalogs() {
    let dir = &database().dir;
    let text = run(&[&"estimate", dir, &"--pages", &"5", &"--min-pages", &"1"], 0);
    let longest = text.lines().map(|line| line.chars().count()).max().expect("lines");
    assert!(longest <= 100, "{longest} columns\n{text}");
    let lines: Vec<&str> = text.lines().collect();
    let smaller = lines.iter().position(|line| line.contains(" smaller relations: --all lists everything"));
    assert_eq!(smaller, Some(21), "20 relations are listed\n{text}");
    assert_eq!(lines[0].split_whitespace().skip(3).collect::<Vec<_>>(), ["lz4:1", "zstd:1", "zstd:3"]);
    assert!(lines.iter().any(|line| line.starts_with("2 indexes ")), "{text}");
    let report = json(&[&"estimate", dir, &"--pages", &"5", &"--min-pages", &"1"], 0);
    let sum = |group: &str| {
        let found = report["groups"].as_array().expect("groups").iter().find(|one| one["group"] == group);
        let found = found.unwrap_or_else(|| panic!("no {group} in {report}"));
        (found["relations"].as_u64().expect("a count"), found["bytes"].as_u64().expect("bytes"))
    };
    let (tables, indexes, catalogs) = (sum("tables"), sum("indexes"), sum("catalogs"));
    assert_eq!((tables.0, indexes.0), (4, 2), "a TOAST table's index is the second");
    assert!(catalogs.0 > 100, "{catalogs:?}");
    let total = &report["total"];
    assert_eq!(tables.0 + indexes.0 + catalogs.0, total["relations"].as_u64().expect("a count"));
    assert_eq!(tables.1 + indexes.1 + catalogs.1, total["bytes"].as_u64().expect("bytes"));
    let relations = report["relations"].as_array().expect("an array");
    let of = |name: &str| {
        let is_it = |one: &&Value| one["name"] == name && one["fork"] == "main";
        relations.iter().find(is_it).expect("a relation")["group"].clone()
    };
    assert_eq!((of("orders"), of("orders_by_customer")), ("tables".into(), "indexes".into()));
    assert_eq!((of("pg_class"), of("pg_class_oid_index")), ("catalogs".into(), "catalogs".into()));
    let all = run(&[&"estimate", dir, &"--pages", &"5", &"--all"], 0);
    assert!(all.contains("zlib:6") && all.contains("pages like") && !all.contains("smaller"), "{all}");
}

#[test]
fn an_estimate_has_no_speed_for_zeros_and_no_table_that_is_none() {
    let dir = TempDir::new().expect("a directory");
    let zeros = dir.path().join("16384");
    fs::write(&zeros, vec![0; 20 * 8192]).expect("written");
    let report = json(&[&"estimate", &zeros], 0);
    let figures = &report["relations"][0]["algorithms"][0];
    assert!(figures["compress_mb_s"].is_null() && figures["decompress_mb_s"].is_null(), "{figures}");
    let text = run(&[&"estimate", &zeros], 0);
    let line = text.lines().find(|line| line.contains("160.0 kB")).expect("a line");
    assert!(!line.contains('/') && line.ends_with('-'), "{text}");

    let names = dir.path().join("services");
    // One page, which is too small for the list.
    fs::write(&names, "ssh 22/tcp\n".repeat(1000)).expect("written");
    let report = json(&[&"estimate", &names], 0);
    assert_eq!((&report["groups"][0]["group"], &report["groups"][1]), (&"others".into(), &Value::Null));
    let text = run(&[&"estimate", &names], 0);
    assert!(text.contains("1 other file") && !text.contains("table"), "{text}");
    assert!(text.contains("services: not a relation file"), "{text}");
    // A copy of a table is one, whatever it is called.
    let copy = dir.path().join("orders.copy");
    fs::copy(database().dir.join(database().orders.to_string()), &copy).expect("copied");
    assert_eq!(json(&[&"estimate", &copy, &"--pages", &"5"], 0)["groups"][0]["group"], "tables");
}
