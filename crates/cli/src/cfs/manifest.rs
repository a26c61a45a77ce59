//! The list of what is in a packed tree, written last (`formats/cfs-tree.md`).

use super::Failure;
use pgshrink_codec::counted;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// Its name in the tree's first directory. In a sealed tree that is a container's directory.
pub(crate) const NAME: &str = "pgshrink-manifest.json";
const FORMAT: u32 = 1;
/// Of a checksum's hexadecimal digits, as many as people need to tell two apart.
const SHA256_SHOWN: usize = 16;
/// A manifest is read whole: of a tree with a million files it has some 150 MB.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// What is in a tree, by path.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub(crate) struct Manifest {
    format: u32,
    /// The version that wrote it.
    pgshrink: String,
    pub entries: Entries,
}

/// By path below the tree's first directory, that itself as `.`.
pub(crate) type Entries = BTreeMap<String, Entry>;

#[derive(Serialize, Deserialize, PartialEq, Eq, Clone, Debug)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Entry {
    Directory {
        /// Where the symbolic link led to that was here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        followed: Option<String>,
    },
    Link {
        target: String,
    },
    /// A relation's segment, in a container.
    Relation(Content),
    /// Any other file, as it is, or in a container in a sealed tree.
    File(Content),
}

/// The bytes of a file as it was before it was packed.
#[derive(Serialize, Deserialize, PartialEq, Eq, Clone, Debug)]
pub(crate) struct Content {
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
}

/// How a tree differs from its manifest, by path.
#[derive(Serialize, Default, Debug)]
pub(crate) struct Differences {
    pub missing: Vec<String>,
    pub extra: Vec<String>,
    pub changed: Vec<String>,
    /// Of each of these paths.
    pub details: BTreeMap<String, Difference>,
}

/// What should be at a path, and what is, in words. None: nothing.
#[derive(Serialize, Debug)]
pub(crate) struct Difference {
    pub expected: Option<String>,
    pub found: Option<String>,
}

/// What to do about differences.
pub(crate) const NEXT_STEP: &str = "next step: get the listed files from another copy, or pack the source \
    again; if the tree was changed on purpose, use --no-manifest\n";

impl Manifest {
    pub(crate) fn new(entries: Entries) -> Manifest {
        Manifest { format: FORMAT, pgshrink: env!("CARGO_PKG_VERSION").to_owned(), entries }
    }

    pub(crate) fn text(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| Failure::new(path, error))?;
        text.push(b'\n');
        Ok(text)
    }

    pub(crate) fn parse(text: &[u8], path: &Path) -> Result<Manifest, Failure> {
        let wrong = |reason: String| Failure::new(path, format!("the manifest is damaged: {reason}"));
        let format =
            serde_json::from_slice::<serde_json::Value>(text).map_err(|error| wrong(error.to_string()))?;
        match format.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => {
                let newer = format!("the manifest has format {format}; this pgshrink reads {FORMAT}");
                return Err(Failure::new(path, newer));
            }
            None => return Err(wrong("it does not contain a format".to_owned())),
        }
        serde_json::from_value(format).map_err(|error| wrong(error.to_string()))
    }

    /// Those at a path and below it, as if it were the first directory.
    pub(crate) fn below(&self, prefix: &str) -> Entries {
        if prefix == "." {
            return self.entries.clone();
        }
        let part = |(path, entry): (&String, &Entry)| {
            let rest = path.strip_prefix(prefix)?;
            let rest = if rest.is_empty() { "." } else { rest.strip_prefix('/')? };
            Some((rest.to_owned(), entry.clone()))
        };
        self.entries.iter().filter_map(part).collect()
    }
}

impl Differences {
    /// Of what was found to what is listed. What is in `unknown` was found and could not be read.
    pub(crate) fn between(listed: &Entries, found: &Entries, unknown: &[String]) -> Differences {
        let is_unknown = |path: &String| unknown.contains(path);
        let mut differences = Differences::default();
        for (path, entry) in listed {
            match found.get(path) {
                None if !is_unknown(path) => differences.missing.push(path.clone()),
                Some(now) if !now.is_as_listed(entry) => differences.changed.push(path.clone()),
                _ => {}
            }
        }
        let extra = found.keys().chain(unknown).filter(|path| !listed.contains_key(*path));
        differences.extra.extend(extra.cloned());
        let Differences { missing, extra, changed, .. } = &differences;
        let details = missing.iter().chain(extra).chain(changed).map(|path| {
            let unread = || is_unknown(path).then(|| "something that cannot be read".to_owned());
            let expected = listed.get(path).map(Entry::text);
            (path.clone(), Difference { expected, found: found.get(path).map(Entry::text).or_else(unread) })
        });
        differences.details = details.collect();
        differences
    }

    pub(crate) fn are_none(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty() && self.changed.is_empty()
    }

    /// A line for each.
    pub(crate) fn text(&self, tree: &Path) -> String {
        let lines = |what: &'static str, paths: &[String]| -> String {
            let line = |path: &String| {
                let detail = self.details.get(path);
                let expected = detail.and_then(|detail| detail.expected.as_deref()).unwrap_or("nothing");
                let found = detail.and_then(|detail| detail.found.as_deref()).unwrap_or("nothing");
                format!("{what}: {}: expected {expected}, found {found}\n", under(tree, path))
            };
            paths.iter().map(line).collect()
        };
        lines("MISSING", &self.missing) + &lines("EXTRA", &self.extra) + &lines("CHANGED", &self.changed)
    }
}

fn under(tree: &Path, path: &str) -> String {
    if path == "." { tree.display().to_string() } else { format!("{}/{path}", tree.display()) }
}

impl Entry {
    /// In words, for people to compare.
    fn text(&self) -> String {
        let of = |what: &str, content: &Content| {
            let start = content.sha256.get(..SHA256_SHOWN).unwrap_or(&content.sha256);
            format!("{what} of {} with sha256 {start}...", counted(content.bytes, "byte", "bytes"))
        };
        match self {
            Entry::Directory { .. } => "a directory".to_owned(),
            Entry::Link { target } => format!("a link to {target}"),
            Entry::Relation(content) => of("a packed relation", content),
            Entry::File(content) => of("a file", content),
        }
    }

    /// A directory that stands for a followed link is a directory.
    fn is_as_listed(&self, listed: &Entry) -> bool {
        match (self, listed) {
            (Entry::Directory { .. }, Entry::Directory { .. }) => true,
            (now, listed) => now == listed,
        }
    }
}

/// Counts and hashes the bytes of a file.
#[derive(Default)]
pub(crate) struct Hashing {
    bytes: u64,
    hash: Sha256,
}

impl Hashing {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    pub(crate) fn content(self) -> Content {
        let sha256 = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Content { bytes: self.bytes, sha256 }
    }

    /// Of a plain file.
    pub(crate) fn of(path: &Path) -> Result<Content, Failure> {
        let mut file = std::fs::File::open(path).map_err(Failure::reading(path))?;
        let (mut hashing, mut buffer) = (Hashing::default(), vec![0; 1 << 17]);
        loop {
            match std::io::Read::read(&mut file, &mut buffer) {
                Ok(0) => return Ok(hashing.content()),
                Ok(count) => hashing.add(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::reading(path)(error)),
            }
        }
    }
}

#[test]
fn differences_are_missing_extra_and_changed() {
    let file = |text: &str| {
        let mut hashing = Hashing::default();
        hashing.add(text.as_bytes());
        Entry::File(hashing.content())
    };
    let entries = |list: &[(&str, Entry)]| -> Entries {
        list.iter().map(|(path, entry)| ((*path).to_owned(), entry.clone())).collect()
    };
    let directory = Entry::Directory { followed: None };
    let listed =
        entries(&[(".", directory.clone()), ("a", file("a")), ("d/b", file("b")), ("d/c", file("c"))]);
    let found = entries(&[(".", directory), ("a", file("A")), ("d/c", file("c")), ("x", file("x"))]);
    let differences = Differences::between(&listed, &found, &["y".to_owned()]);
    assert_eq!(
        (differences.missing, differences.extra, differences.changed),
        (vec!["d/b".to_owned()], vec!["x".to_owned(), "y".to_owned()], vec!["a".to_owned()],)
    );
    let manifest = Manifest::new(listed);
    let text = manifest.text(Path::new("m")).unwrap();
    assert_eq!(Manifest::parse(&text, Path::new("m")).unwrap(), manifest);
    assert_eq!(manifest.below("d").keys().collect::<Vec<_>>(), ["b", "c"]);
    for cut in 0..text.len() - 1 {
        assert!(Manifest::parse(&text[..cut], Path::new("m")).is_err(), "{cut}");
    }
    let newer = String::from_utf8(text).unwrap().replace("\"format\": 1", "\"format\": 2");
    assert!(Manifest::parse(newer.as_bytes(), Path::new("m")).unwrap_err().to_string().contains("format 2"));
}
