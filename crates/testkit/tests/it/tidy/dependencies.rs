//! Which room may use which.

/// What each room may depend on; the design's "Dependency direction".
const ALLOWED: [(&str, &[&str]); 15] = [
    ("codec", &[]),
    ("wire", &["codec"]),
    ("cfs", &["codec"]),
    ("zson", &["codec"]),
    ("backup", &["codec", "cfs"]),
    ("advisor", &["codec", "cfs", "zson", "wire", "backup"]),
    ("pgclient", &["codec", "wire", "cfs", "zson", "backup", "advisor"]),
    ("gateway", &["codec", "wire", "pgclient"]),
    ("interpose", &[]),
    ("repository", &[]),
    ("cfs-server", &["codec", "cfs", "interpose"]),
    ("cfs-exec", &["cfs-server", "interpose"]),
    (
        "cli",
        &[
            "codec",
            "wire",
            "cfs",
            "zson",
            "backup",
            "advisor",
            "pgclient",
            "gateway",
            "interpose",
            "cfs-server",
            "repository",
        ],
    ),
    ("testkit", &[]),
    ("demo", &["testkit"]),
];

/// What no pure room may have: the world outside.
const IMPURE: [&str; 6] = ["tokio", "rustls", "socket2", "rustix", "libc", "postgres"];
const PURE: [&str; 6] = ["codec", "wire", "cfs", "zson", "backup", "advisor"];

/// Edges of a crate's manifest that the design does not have. Its tests may use `testkit`.
pub(super) fn wrong_edges(path: &str, manifest: &str) -> Vec<String> {
    let Some(room) = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
        return vec![];
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{path}: room {room} is not in the design")];
    };
    dependencies(manifest)
        .filter_map(|(section, name)| {
            let for_tests = section == "dev-dependencies";
            let wrong = match name.strip_prefix("pgshrink-") {
                Some("testkit") => !for_tests && room != "demo",
                Some(used) => !allowed.contains(&used) && used != room,
                None => PURE.contains(&room) && IMPURE.contains(&name) && !for_tests,
            };
            wrong.then(|| format!("{path}: {room} may not use {name} in [{section}]"))
        })
        .collect()
}

/// The section and name of every dependency.
fn dependencies(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut section = "";
    manifest.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // [target.'cfg(unix)'.dependencies] counts as [dependencies], [dependencies.tokio] is one itself.
            let (kind, name) = section.rsplit_once('.').unwrap_or(("", section));
            if kind.ends_with("dependencies") {
                return Some((kind, name));
            }
            section = if name.ends_with("dependencies") { name } else { "" };
            return None;
        }
        let name = line.split(['=', '.', ' ']).next()?;
        (!section.is_empty() && !name.is_empty() && !name.starts_with('#')).then_some((section, name))
    })
}

#[test]
fn a_wrong_edge_is_found_in_every_spelling() {
    let edges =
        |room: &str, manifest: &str| wrong_edges(&format!("crates/{room}/Cargo.toml"), manifest).len();
    assert_eq!(edges("wire", "[dependencies]\npgshrink-codec.workspace = true\n"), 0);
    assert_eq!(edges("codec", "[dependencies]\npgshrink-wire.workspace = true\n"), 1);
    assert_eq!(edges("codec", "[dependencies.pgshrink-wire]\nworkspace = true\n"), 1);
    assert_eq!(edges("wire", "[target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n"), 1);
    assert_eq!(edges("gateway", "[dev-dependencies]\npgshrink-testkit.workspace = true\n"), 0);
    assert_eq!(edges("gateway", "[dependencies]\npgshrink-testkit.workspace = true\n"), 1);
    assert_eq!(edges("testkit", "[dev-dependencies]\npgshrink-codec.workspace = true\n"), 1);
    assert_eq!(edges("demo", "[dependencies]\npgshrink-testkit.workspace = true\n"), 0);
    assert_eq!(edges("shared", ""), 1);
}
