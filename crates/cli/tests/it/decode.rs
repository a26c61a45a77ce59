//! `pgshrink decode` on recorded sessions.

use pgshrink_testkit::{TempDir, checkout};
use std::path::{Path, PathBuf};
use std::process::Command;

fn golden(name: &str) -> PathBuf {
    checkout().join(format!("formats/wire/golden/part3_{name}.relay"))
}

/// Exit code, standard output and standard error.
fn decode(capture: &Path, flags: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgshrink"));
    let output = command.arg("decode").arg(capture).args(flags).output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What a line says, without time and connection.
fn said(lines: &str) -> Vec<&str> {
    lines.lines().map(|line| line.get(19..).expect("time and connection")).collect()
}

#[test]
fn a_compressed_capture_reads_like_the_plain_one_and_shows_no_password() {
    let (code, plain, _) = decode(&golden("off"), &[]);
    assert_eq!(code, Some(0));
    let queries = |lines: &str| -> Vec<String> {
        said(lines).iter().filter(|line| line.starts_with("-> Query")).map(ToString::to_string).collect()
    };
    assert!(queries(&plain).len() > 3 && plain.matches("<- DataRow").count() > 200, "{plain}");
    assert!(plain.contains("-> StartupMessage protocol 3.0 user=wire database=postgres"));
    assert!(
        plain.lines().filter(|line| line.contains("PasswordMessage")).all(|line| line.ends_with("bytes"))
    );
    for name in ["zstd", "lz4", "gzip"] {
        let (code, lines, errors) = decode(&golden(name), &[]);
        assert_eq!((code, &errors[..]), (Some(0), ""), "{name}");
        assert_eq!(queries(&lines), queries(&plain), "{name}");
        assert_eq!(lines.matches("<- DataRow").count(), plain.matches("<- DataRow").count(), "{name}");
    }
    let (_, with_data, _) = decode(&golden("zstd"), &["--data", "--connection=1"]);
    let row = |lines: &str| said(lines).into_iter().find(|l| l.contains("DataRow")).map(str::len);
    assert!(row(&with_data) > row(&plain));
}

#[test]
fn a_capture_without_its_begin_says_where_the_context_is_missing() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("cut.relay");
    let whole = std::fs::read(golden("zstd")).expect("golden");
    let first = 17 + u32::from_be_bytes(whole[13..17].try_into().expect("a length")) as usize;
    std::fs::write(&path, &whole[first..]).expect("written");
    let (code, lines, _) = decode(&path, &[]);
    assert_eq!(code, Some(1), "{lines}");
    assert!(
        lines.contains("cannot be read (at byte 0 of cut.relay)") && lines.contains("context (preserved)")
    );
    assert_eq!(lines.lines().count(), 2, "once for each direction: {lines}");
}

#[test]
fn what_is_no_capture_is_an_error() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("text");
    std::fs::write(&path, "hello, this is a text and no capture").expect("written");
    for (path, flags, expected) in [
        (&path, &[][..], "a direction of 0 or 1"),
        (&directory.path().join("gone"), &[], "No such file"),
        (&golden("off"), &["--connection=77"], "does not contain this connection"),
    ] {
        let (code, _, errors) = decode(path, flags);
        assert_eq!(code, Some(2), "{errors}");
        assert!(errors.starts_with("pgshrink: cannot read capture") && errors.contains(expected), "{errors}");
    }
}
