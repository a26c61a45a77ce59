//! Rules about any text: placeholders, machine paths, package sources, white space.

use super::SourceFile;

/// Public homes of packages, and of the schemas that package files name.
const PUBLIC_HOSTS: [&str; 13] = [
    "crates.io",
    "files.pythonhosted.org",
    "github.com",
    "index.crates.io",
    "maven.apache.org",
    "proxy.golang.org",
    "pypi.org",
    "registry.npmjs.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "static.crates.io",
    "sum.golang.org",
    "www.w3.org",
];

/// Files that say where packages come from.
const PACKAGE_FILES: [&str; 12] = [
    ".npmrc",
    "Cargo.lock",
    "Pipfile.lock",
    "config.toml",
    "go.mod",
    "go.sum",
    "package-lock.json",
    "package.json",
    "pip.conf",
    "pom.xml",
    "requirements.txt",
    "settings.xml",
];

pub(super) fn placeholders(file: &SourceFile) -> Vec<String> {
    // Split, or this file would find itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    by_line(file, |line| {
        let mut parts = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        parts.find(|part| words.contains(part)).map(str::to_owned)
    })
}

pub(super) fn machine_paths(file: &SourceFile) -> Vec<String> {
    let paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/home", "/user/")];
    by_line(file, |line| {
        let starts_a_path = |at: usize| {
            let before = line[..at].chars().next_back();
            // `target/work/x` and `$ROOT/work/x` are not absolute.
            !before.is_some_and(|c| c.is_alphanumeric() || "_-.}*)".contains(c))
        };
        let found = paths.iter().find(|path| line.match_indices(*path).any(|(at, _)| starts_a_path(at)));
        found.map(|path| (*path).to_owned())
    })
}

pub(super) fn package_sources(file: &SourceFile) -> Vec<String> {
    let settings = [concat!("index", "-url"), concat!("replace", "-with"), concat!("GOPROXY", "=http")];
    by_line(file, |line| {
        if let Some(setting) = settings.iter().find(|setting| line.contains(**setting)) {
            return Some((*setting).to_owned());
        }
        if !PACKAGE_FILES.contains(&file.name()) {
            return None;
        }
        hosts(line).find(|host| !PUBLIC_HOSTS.contains(host)).map(|host| format!("host {host}"))
    })
}

fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| {
        let authority = rest.split(|c: char| "/\"'<> \t?#".contains(c)).next().unwrap_or_default();
        authority.rsplit('@').next().unwrap_or_default()
    })
}

pub(super) fn white_space(file: &SourceFile) -> Vec<String> {
    let mut findings = by_line(file, |line| {
        if line.ends_with([' ', '\t', '\r']) {
            return Some("white space at the end".to_owned());
        }
        (file.is_rust() && line.contains('\t')).then(|| "a tab".to_owned())
    });
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(format!("{}: no newline at the end", file.path));
    }
    findings
}

fn by_line(file: &SourceFile, find: impl Fn(&str) -> Option<String>) -> Vec<String> {
    file.text
        .split('\n')
        .enumerate()
        .filter_map(|(index, line)| find(line).map(|what| format!("{}:{}: {what}", file.path, index + 1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_planted_violation_of_each_text_rule_is_found() {
        let planted = concat!("a\n# TO", "DO: b\nmktemp x.XXXXXX\n");
        assert_eq!(placeholders(&file("a.sh", planted)), [concat!("a.sh:2: TO", "DO")]);
        let planted = concat!("cd /wo", "rk/x\ncd target/wo", "rk/x\n");
        assert_eq!(machine_paths(&file("a.sh", planted)), [concat!("a.sh:1: /wo", "rk/")]);
        let planted = "\"resolved\": \"https://registry.npmjs.org/a\"\n\"resolved\": \"https://u:p@mirror.example:80/a\"\n";
        assert_eq!(
            package_sources(&file("x/package-lock.json", planted)),
            ["x/package-lock.json:2: host mirror.example:80"]
        );
        assert_eq!(white_space(&file("a.rs", "a \n\tb\nc")).len(), 3);
        assert_eq!(white_space(&file("Makefile", "\tb\n")).len(), 0);
    }
}
