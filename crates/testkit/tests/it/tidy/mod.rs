//! The habits of this source tree that a program can check.
//!
//! Every rule is a function from a file's text to findings, so that a test can plant a violation and see it found;
//! the tests named after the rules apply them to everything git tracks or would track.

mod dependencies;
mod links;
mod rust;
mod text;

use std::path::{Path, PathBuf};
use std::process::Command;

use pgshrink_testkit::checkout;

/// A file of the tree that holds text.
pub(super) struct SourceFile {
    /// Relative to the checkout, with `/`.
    pub path: String,
    pub text: String,
}

impl SourceFile {
    fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn is_rust(&self) -> bool {
        self.extension() == "rs"
    }
}

/// Tracked and not ignored, in whatever state they are.
pub(super) fn tree() -> Vec<SourceFile> {
    let listed = Command::new("git")
        .args(["-c", "core.quotePath=false", "-c", "safe.directory=*"])
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(checkout())
        .output()
        .unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let files: Vec<SourceFile> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter_map(|path| {
            // A deleted file is still listed; one that is not UTF-8 is data.
            let text = String::from_utf8(std::fs::read(checkout().join(path)).ok()?).ok()?;
            (!text.contains('\0')).then(|| SourceFile { path: path.to_owned(), text })
        })
        .collect();
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "the listing lacks what must be there");
    files
}

/// Fails with all findings at once, so that they are mended in one go.
pub(super) fn report(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

/// Applies a rule to every file it is meant for.
fn check(rule: &str, applies: impl Fn(&SourceFile) -> bool, find: impl Fn(&SourceFile) -> Vec<String>) {
    report(rule, tree().iter().filter(|file| applies(file)).flat_map(find).collect());
}

/// Bytes that are what they are: golden files, captures, fuzzing seeds.
fn is_data(file: &SourceFile) -> bool {
    let kinds = ["golden", "/corpus/", "/tests/data/"];
    kinds.iter().any(|kind| file.path.contains(kind)) && !file.is_rust() && file.extension() != "md"
}

/// Written by a tool from something else.
fn is_generated(file: &SourceFile) -> bool {
    matches!(file.name(), "Cargo.lock" | "package-lock.json" | "go.sum" | "LICENSE")
}

#[test]
fn files_are_short_enough_to_read() {
    let long = |file: &SourceFile, limit| {
        let lines = file.text.lines().count();
        (lines > limit).then(|| format!("{}: {lines} lines, over {limit}", file.path))
    };
    let read_by_people =
        |file: &SourceFile| !is_generated(file) && !is_data(file) && file.extension() != "json";
    for warning in tree().iter().filter(|file| read_by_people(file)).filter_map(|file| long(file, 500)) {
        println!("warning: {warning}");
    }
    check("files over 800 lines", read_by_people, |file| long(file, 800).into_iter().collect());
}

#[test]
fn functions_are_short_enough_to_read() {
    check(
        "functions over 70 lines without a `// tidy: long, REASON` before them",
        SourceFile::is_rust,
        |file| rust::long_functions(&file.path, &file.text),
    );
}

#[test]
fn nothing_is_left_half_done() {
    check("placeholders", |file| !is_generated(file) && !is_data(file), text::placeholders);
    check("placeholder macros", SourceFile::is_rust, |file| rust::placeholder_macros(&file.path, &file.text));
}

#[test]
fn nothing_names_the_machine_it_was_made_on() {
    check("absolute paths", |file| !is_data(file), text::machine_paths);
    check("package sources other than the public ones", |file| !is_data(file), text::package_sources);
}

#[test]
fn unsafe_code_stays_in_files_that_say_why() {
    check("unsafe code", SourceFile::is_rust, |file| rust::undeclared_unsafe(&file.path, &file.text));
}

#[test]
fn one_walker_steps_over_messages() {
    const WALKER: &str = "crates/wire/src/walk.rs";
    check(
        "message headers are read by wire::walk alone",
        |file| {
            let product =
                file.path.starts_with("crates/wire/src/") || file.path.starts_with("crates/gateway/src/");
            file.is_rust() && product && file.path != WALKER
        },
        |file| rust::header_readers(&file.path, &file.text),
    );
}

#[test]
fn pure_crates_see_no_clock_no_file_and_no_environment() {
    const PURE: [&str; 7] = ["backup", "cfs", "codec", "egress", "pgclient", "wire", "zson"];
    // What pgclient needs to talk to a server. The rest of it reads text.
    const LIVE: [&str; 3] =
        ["crates/pgclient/src/connection", "crates/pgclient/src/replication", "crates/pgclient/src/tls"];
    let sources = PURE.map(|name| format!("crates/{name}/src/"));
    check(
        "pure crates take the clock, files and environment as arguments",
        |file| {
            let pure = sources.iter().any(|source| file.path.starts_with(source.as_str()));
            file.is_rust() && pure && !LIVE.iter().any(|live| file.path.starts_with(live))
        },
        |file| rust::outside_world(&file.path, &file.text),
    );
}

#[test]
fn modules_begin_with_what_they_are_for() {
    let is_module = |file: &SourceFile| file.is_rust() && file.path.contains("/src/");
    check("no `//!` at the start", is_module, |file| {
        let starts = file.text.starts_with("//!");
        if starts { vec![] } else { vec![file.path.clone()] }
    });
}

#[test]
fn white_space_is_clean() {
    let typed = |file: &SourceFile| !is_data(file) && !is_generated(file);
    check("white space", typed, text::white_space);
}

#[test]
fn no_module_is_named_after_nothing() {
    check("name it after what it holds", SourceFile::is_rust, |file| {
        let parts: Vec<&str> = file.path.trim_end_matches(".rs").split('/').collect();
        let vague = ["util", "utils", "common", "misc", "helper", "helpers"];
        parts.iter().filter(|part| vague.contains(part)).map(|_| file.path.clone()).take(1).collect()
    });
}

#[test]
fn each_crate_has_one_integration_binary() {
    check("tests of a crate go into tests/it", SourceFile::is_rust, |file| {
        let parts: Vec<&str> = file.path.split('/').collect();
        match parts[..] {
            ["crates", _, "tests", single] if single.ends_with(".rs") => vec![file.path.clone()],
            _ => vec![],
        }
    });
}

#[test]
fn crates_depend_only_in_the_direction_of_the_design() {
    check(
        "edges",
        |file| file.name() == "Cargo.toml",
        |file| dependencies::wrong_edges(&file.path, &file.text),
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = checkout();
    check(
        "broken links",
        |file| file.extension() == "md",
        |file| links::broken(&file.path, &file.text, |target| root.join(target).exists()),
    );
}

#[test]
fn every_document_is_linked_from_another() {
    let files = tree();
    let linked: Vec<PathBuf> = files
        .iter()
        .filter(|file| file.extension() == "md")
        .flat_map(|file| links::targets(&file.path, &file.text))
        .collect();
    let rooms = [Path::new("docs"), Path::new("formats"), Path::new("")];
    let orphans = files
        .iter()
        .filter(|file| file.path.starts_with("docs/") || file.path.starts_with("formats/"))
        .filter(|file| {
            let path = Path::new(&file.path);
            // A link to a folder covers what is in it, but not the whole of docs or formats.
            !path
                .ancestors()
                .filter(|link| !rooms.contains(link))
                .any(|link| linked.iter().any(|to| to == link))
        })
        .map(|file| file.path.clone())
        .collect();
    report("linked from nowhere", orphans);
}
