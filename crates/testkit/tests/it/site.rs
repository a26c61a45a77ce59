//! The documentation as a site: what belongs to it, and that its check of links finds what is wrong. `make docs` makes it.

use pgshrink_testkit::{Kind, Missing, TempDir, checkout, skipped};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Documents below a folder of the checkout.
fn documents(folder: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(checkout().join(folder)).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        if entry.file_type().unwrap().is_dir() && !folder.is_empty() {
            documents(&path, found);
        } else if name.ends_with(".md") && name != "SUMMARY.md" {
            found.insert(path);
        }
    }
}

#[test]
fn every_document_is_a_chapter_of_the_site() {
    let summary = fs::read_to_string(checkout().join("docs/site/SUMMARY.md")).unwrap();
    let links = summary.split("](../../").skip(1);
    let chapters: BTreeSet<String> = links.map(|link| link.split_once(')').unwrap().0.to_owned()).collect();
    let mut found = BTreeSet::new();
    for folder in ["", "docs", "formats", "bench/results"] {
        documents(folder, &mut found);
    }
    let missing: Vec<_> = found.difference(&chapters).collect();
    assert!(missing.is_empty(), "docs/site/SUMMARY.md does not list {missing:?}");
    let gone: Vec<_> = chapters.iter().filter(|chapter| !checkout().join(chapter).is_file()).collect();
    assert!(gone.is_empty(), "docs/site/SUMMARY.md lists {gone:?}, which do not exist");
}

fn checked(site: &Path) -> Output {
    Command::new(checkout().join("tools/site")).arg("check").arg(site).output().unwrap()
}

#[test]
fn links_that_lead_nowhere_and_foreign_scripts_are_found() {
    if Command::new("python3").arg("--version").output().is_err() {
        let missing = Missing::new("python3", "it is not installed", "apt-get install python3");
        skipped("links_that_lead_nowhere_and_foreign_scripts_are_found", &missing.of(Kind::Program));
        return;
    }
    let site = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(site.path().join(name), text).unwrap();
    for index in 0..10 {
        write(&format!("{index}.html"), "<h1 id=\"here\">x</h1><a href=\"0.html#here\">x</a>");
    }
    let output = checked(site.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    write(
        "bad.html",
        "<a href=\"gone.html\">x</a>\n<a href=\"0.html#gone\">x</a>\n<a href=\"../../etc/passwd\">x</a>\n\
         <script src=\"https://example.com/x.js\"></script>\n<img src=\"gone.svg\">\n<a href=\"https://example.com/\">x</a>",
    );
    let output = checked(site.path());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = [
        "bad.html:1: gone.html: no such file",
        "bad.html:2: 0.html#gone: no such heading",
        "bad.html:3: ../../etc/passwd: outside of the site",
        "bad.html:4: https://example.com/x.js: loaded from another host",
        "bad.html:5: gone.svg: no such file",
    ];
    for line in expected {
        assert!(said.lines().any(|found| found == line), "no {line} in {said}");
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
}

/// Links of a Markdown document, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let inline = line.split("](").skip(1).filter(|_| !in_code);
        found.extend(inline.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
    }
    found
}

/// What a heading is called in links, as in GitHub's pages and the site.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[test]
fn links_of_packaged_documents_lead_to_what_is_in_the_package() {
    if Command::new("python3").arg("--version").output().is_err() {
        let missing = Missing::new("python3", "it is not installed", "apt-get install python3");
        skipped("links_of_packaged_documents_lead_to_what_is_in_the_package", &missing.of(Kind::Program));
        return;
    }
    let package = TempDir::new().unwrap();
    let output =
        Command::new(checkout().join("tools/site")).arg("package").arg(package.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The list of what a package takes has all of it, and tools/install puts the samples beside it.
    let taken = fs::read_to_string(checkout().join("packaging/debian/pgshrink.docs")).unwrap();
    for entry in fs::read_dir(package.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(taken.lines().any(|line| line == name), "packaging/debian/pgshrink.docs lacks {name}");
    }
    let install = fs::read_to_string(checkout().join("tools/install")).unwrap();
    let mut documents = vec![package.path().to_owned()];
    let (mut read, mut checked) = (0, 0);
    while let Some(path) = documents.pop() {
        if path.is_dir() {
            documents.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        read += 1;
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            checked += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            if let Some((_, sample)) = file.split_once("examples/") {
                assert!(install.contains(&format!("packaging/{sample}")), "{}: {link}", path.display());
                continue;
            }
            let there = fs::read_to_string(&target);
            let there = there.unwrap_or_else(|error| panic!("{}: {link}: {error}", path.display()));
            let has =
                || there.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
            assert!(heading.is_empty() || has(), "{}: {link}: no such heading", path.display());
        }
    }
    assert!(read > 15 && checked > 50, "{read} documents, {checked} links");
}
