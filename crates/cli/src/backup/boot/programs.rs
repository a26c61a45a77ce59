//! PostgreSQL's programs of the major version that a backup needs.

use super::super::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs of one installed server.
pub(super) struct Programs {
    pub(super) bin: PathBuf,
    /// What `postgres --version` says behind the product's name: `15.14 (Debian 15.14-1)`.
    pub(super) version: String,
}

impl Programs {
    /// Looks in the directory that was asked for, or where servers usually are.
    pub(super) fn find(asked: Option<&Path>, major: u32) -> Result<Programs, Failure> {
        let places = match asked {
            Some(bin) => vec![bin.to_owned()],
            None => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let usual = ["/usr/lib/postgresql/{}/bin", "/usr/pgsql-{}/bin"];
                let usual = usual.map(|form| PathBuf::from(form.replace("{}", &major.to_string())));
                std::env::split_paths(&path).filter(|place| place.is_absolute()).chain(usual).collect()
            }
        };
        let mut found = Vec::new();
        for place in &places {
            let program = place.join("postgres");
            if !program.exists() {
                continue;
            }
            match version_of(&program) {
                Ok(version) if major_of(&version) == Some(major) => {
                    return Ok(Programs { bin: behind_links(place)?, version });
                }
                Ok(version) => found.push(format!("{}, which is {version}", program.display())),
                Err(reason) => found.push(format!("{}: {reason}", program.display())),
            }
        }
        let looked = match asked {
            Some(bin) => bin.display().to_string(),
            None => format!("PATH, /usr/lib/postgresql/{major}/bin, /usr/pgsql-{major}/bin"),
        };
        let found = if found.is_empty() { "no postgres executable".to_owned() } else { found.join("; ") };
        let next = "Install that version, or name the directory of its programs with --server-bin";
        let reason =
            format!("this backup needs PostgreSQL {major}; looked in {looked}; found {found}. {next}");
        Err(Failure::new("--boot", reason))
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// Where a server finds its libraries and other programs: links may lead there from the directory, or from the program, as from
/// `/usr/local/bin/postgres`.
fn behind_links(place: &Path) -> Result<PathBuf, Failure> {
    let program = place.join("postgres");
    let program = program.canonicalize().map_err(Failure::at(&program))?;
    match program.parent().filter(|bin| bin.join("postgres").exists()) {
        Some(bin) => Ok(bin.to_owned()),
        None => place.canonicalize().map_err(Failure::at(place)),
    }
}

#[test]
fn links_to_a_program_lead_to_those_that_are_installed_with_it() {
    let home = tempfile::TempDir::new().unwrap();
    let [installed, linked, renamed] = ["installed", "linked", "renamed"].map(|name| home.path().join(name));
    [&installed, &linked, &renamed].iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    std::fs::write(installed.join("postgres"), "").unwrap();
    std::fs::write(home.path().join("postgres-15"), "").unwrap();
    std::os::unix::fs::symlink(installed.join("postgres"), linked.join("postgres")).unwrap();
    std::os::unix::fs::symlink(home.path().join("postgres-15"), renamed.join("postgres")).unwrap();
    let whole = |path: &Path| path.canonicalize().unwrap();
    for (place, bin) in [(&installed, &installed), (&linked, &installed), (&renamed, &renamed)] {
        assert_eq!(behind_links(place).unwrap(), whole(bin));
    }
}

/// What `postgres (PostgreSQL) 15.14 (Debian 15.14-1)` says behind the parenthesis.
fn version_of(program: &Path) -> Result<String, String> {
    let mut command = Command::new(program);
    let done = command.arg("--version").env("LC_ALL", "C").stdin(Stdio::null()).output();
    let done = done.map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&done.stdout);
    match text.trim().split_once("(PostgreSQL) ") {
        Some((_, version)) if done.status.success() => Ok(version.to_owned()),
        _ => Err("it does not print a PostgreSQL version".to_owned()),
    }
}

/// 18 for `18.1` and `18beta1`.
fn major_of(version: &str) -> Option<u32> {
    let end = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    version[..end].parse().ok()
}

#[test]
fn the_major_version_is_read_from_releases_and_betas() {
    assert_eq!(major_of("15.14 (Debian 15.14-1)"), Some(15));
    assert_eq!(major_of("18beta1"), Some(18));
    assert_eq!(major_of("devel"), None);
}
