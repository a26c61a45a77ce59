//! What `pgshrink advise` writes, and arguments that cannot be meant.

use crate::backup::{ended, refused};
use pgshrink_advisor::snapshot::{FORMAT, Snapshot};
use pgshrink_testkit::TempDir;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// A folder with a snapshot of an empty database in it, and a path beside it.
fn folder() -> (TempDir, impl Fn(&str) -> String) {
    let folder = TempDir::new().unwrap();
    let at = folder.path().to_owned();
    let empty = Snapshot { format: FORMAT, ..Snapshot::default() };
    fs::write(at.join("seen.json"), empty.to_json().unwrap()).unwrap();
    (folder, move |name: &str| at.join(name).to_str().unwrap().to_owned())
}

#[test]
fn pipes_and_links_are_written_to_and_not_replaced() {
    let (_folder, path) = folder();
    let (seen, pipe, link, real) = (path("seen.json"), path("pipe"), path("link"), path("real.html"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::write(&real, "old").unwrap();
    symlink("real.html", &link).unwrap();
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || {
            let mut all = Vec::new();
            fs::File::open(pipe).unwrap().read_to_end(&mut all).unwrap();
            all
        })
    };
    ended(&["advise", "--snapshot", &seen, "--save", &pipe, "--html", &link], 0);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(reader.join().unwrap(), fs::read(&seen).unwrap());
    assert!(Path::new(&link).is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("<html"));
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_read() {
    let (_folder, path) = folder();
    let seen = path("seen.json");
    // No server is asked: there is none.
    let said = refused(&["advise", "host=/nowhere dbname=x", "--html", &path("missing/report.html")]);
    assert!(said.contains(&path("missing:")) && said.contains("No such file"), "{said}");
    assert!(!said.contains(".tmp"), "{said}");
    let said = refused(&["advise", "--snapshot", &seen, "--html", &path("")]);
    assert!(said.contains("directory") && said.contains("add a file name"), "{said}");
    let said = refused(&["advise", "host=/nowhere dbname=x", "--price", "storage=cheap"]);
    assert!(said.contains("--price"), "{said}");
}

#[test]
fn no_file_is_lost_because_two_flags_name_it() {
    let (_folder, path) = folder();
    let (seen, same) = (path("seen.json"), path("./seen.json"));
    let before = fs::read(&seen).unwrap();
    for flag in ["--html", "--save"] {
        let said = refused(&["advise", "--snapshot", &seen, flag, &same]);
        assert!(said.contains(flag) && said.contains("--snapshot"), "{said}");
    }
    assert!(fs::read(&seen).unwrap() == before);
    let said = refused(&["advise", "--snapshot", &seen, "--save", &path("new"), "--html", &path("./new")]);
    assert!(said.contains("--html") && !Path::new(&path("new")).exists(), "{said}");
}

#[test]
fn what_has_no_effect_on_a_file_is_refused() {
    let (_folder, path) = folder();
    let seen = path("seen.json");
    for words in [
        &["host=db"][..],
        &["--table", "x"],
        &["--schema", "x"],
        &["--min-size", "0"],
        &["--sample-total", "1MB"],
    ] {
        let said = refused(&[&["advise", "--snapshot", &seen], words].concat());
        assert!(said.contains("--snapshot reads a file"), "{said}");
    }
    // What the environment says is for all runs.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    command.args(["advise", "--snapshot", &seen]).env("PGSHRINK_ADVISE_CONNINFO", "host=/nowhere");
    assert_eq!(command.output().unwrap().status.code(), Some(0));
    assert!(refused(&["advise", "--snapshot", &seen, "--fail-above", "-1"]).contains("expected a size"));
}

#[test]
fn an_error_is_an_exit_code_where_nobody_reads_what_it_says() {
    for words in [&["advise", "--snapshot", "/nowhere", "--json"][..], &["advise", "--snapshot", "/nowhere"]]
    {
        let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
        let status = command.args(words).stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(2), "{words:?}");
    }
}
