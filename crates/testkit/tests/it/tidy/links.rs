//! Relative links of Markdown documents.

use std::path::{Component, Path, PathBuf};

/// What the document at `path` links to inside the repository, relative to its root.
pub(super) fn targets(path: &str, text: &str) -> Vec<PathBuf> {
    relative_links(text).filter_map(|(_, link)| resolved(path, link)).collect()
}

/// Links to what does not exist.
pub(super) fn broken(path: &str, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    relative_links(text)
        .filter(|(_, link)| !resolved(path, link).is_some_and(|target| exists(&target)))
        .map(|(line, link)| format!("{path}:{line}: {link}"))
        .collect()
}

/// The line number and target of every `](target)` and `[label]: target` outside of code blocks.
fn relative_links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    });
    lines.flat_map(|(index, line)| links_of(line).into_iter().map(move |link| (index + 1, link)))
}

fn links_of(line: &str) -> Vec<&str> {
    let inline = line.match_indices("](").filter_map(|(at, open)| {
        let rest = &line[at + open.len()..];
        // Code in backticks is not a link: `a[i](x)`.
        let in_backticks = line[..at].matches('`').count() % 2 == 1;
        rest.split_once(')').filter(|_| !in_backticks).map(|(link, _)| link)
    });
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, link)| link);
    inline
        .chain(definition)
        .filter_map(|link| link.split(['#', ' ']).next())
        .filter(|link| !link.is_empty() && !link.contains("://") && !link.starts_with("mailto:"))
        .collect()
}

/// `None` when the link leaves the repository.
fn resolved(document: &str, link: &str) -> Option<PathBuf> {
    let mut path = Path::new(document).parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                path.file_name()?;
                path.pop();
            }
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

#[test]
fn links_are_resolved_from_where_they_stand() {
    let text =
        "see [a](../formats/wire.md#x), [b](https://example.com/), `c[i](d)`\n```\n[e](f)\n```\n[g]: h.md\n";
    let found = targets("docs/operating/wire.md", text);
    assert_eq!(found, [Path::new("docs/formats/wire.md"), Path::new("docs/operating/h.md")]);
    let exists = |target: &Path| target.ends_with("h.md");
    assert_eq!(
        broken("docs/operating/wire.md", text, exists),
        ["docs/operating/wire.md:1: ../formats/wire.md"]
    );
    assert_eq!(broken("README.md", "[out](../../x)\n", |_| true), ["README.md:1: ../../x"]);
}
