//! One `initdb` per recipe; every cluster is a copy.
//!
//! `initdb` takes seconds of CPU, a copy of its result a tenth of one. Templates live in the checkout's `target`,
//! are made once under a lock, and are never written afterwards.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::{SUPERUSER_PASSWORD, write_owned};
use crate::error::{Doing, Error};
use crate::run::{self, Owner};
use crate::scratch::{TempDir, base, open_lock};
use crate::server::ServerBinaries;
use crate::skip::checkout;

/// Raised when what is done after `initdb` changes: older templates are then left alone.
const LAYOUT: u32 = 2;

/// What makes templates differ.
#[derive(Debug, Hash)]
pub(super) struct Recipe<'a> {
    pub(super) version: &'a str,
    pub(super) bin: &'a Path,
    /// Decides how the superuser's password is stored.
    pub(super) password_encryption: &'a str,
    pub(super) initdb: &'a [String],
}

/// Copies the template of this recipe to `data`, which must not exist.
pub(super) fn copy(
    owner: &Owner,
    server: &ServerBinaries,
    recipe: &Recipe<'_>,
    data: &Path,
) -> Result<(), Error> {
    let template = find_or_make(owner, server, recipe)?;
    run::output(run::command("cp").args(["-a", "--reflink=auto"]).arg(&template).arg(data)).map(drop)
}

fn find_or_make(owner: &Owner, server: &ServerBinaries, recipe: &Recipe<'_>) -> Result<PathBuf, Error> {
    let mut hasher = DefaultHasher::new();
    (LAYOUT, recipe).hash(&mut hasher);
    let name = format!("pg{}-{:016x}", server.major, hasher.finish());
    let dir = templates_dir()?;
    let lock = open_lock(&dir.join(format!("{name}.lock")))?;
    lock.lock().doing(|| format!("waiting for another test process to make {name}"))?;
    let template = dir.join(&name);
    let recorded = dir.join(format!("{name}.files"));
    // A cleaner of old temporary files may have taken some: the count tells.
    let count = fs::read_to_string(&recorded).ok().and_then(|text| text.trim().parse().ok());
    if count.is_some() && count == file_count(&template).ok() {
        return Ok(template);
    }
    let _ = fs::remove_file(&recorded);
    if template.exists() {
        fs::remove_dir_all(&template).doing(|| format!("removing the damaged {}", template.display()))?;
    }
    let work = TempDir::owned_by(owner)?;
    let made = work.path().join("made");
    initdb(owner, server, recipe, work.path(), &made)?;
    fs::rename(&made, &template)
        .or_else(|_| run::output(run::command("cp").arg("-a").arg(&made).arg(&template)).map(drop))?;
    let count = file_count(&template).doing(|| format!("counting the files of {}", template.display()))?;
    fs::write(&recorded, count.to_string()).doing(|| format!("writing {}", recorded.display()))?;
    Ok(template)
}

/// In the checkout, or with the test processes' directories when the checkout is gone or another's.
fn templates_dir() -> Result<PathBuf, Error> {
    let dir = checkout().join("target/testkit-templates");
    if fs::create_dir_all(&dir).is_ok() && open_lock(&dir.join("writable")).is_ok() {
        return Ok(dir);
    }
    let dir = base()?.join("templates");
    fs::create_dir_all(&dir).doing(|| format!("creating {}", dir.display()))?;
    Ok(dir)
}

fn initdb(
    owner: &Owner,
    server: &ServerBinaries,
    recipe: &Recipe<'_>,
    work: &Path,
    made: &Path,
) -> Result<(), Error> {
    let password = work.join("password");
    write_owned(owner, &password, SUPERUSER_PASSWORD.as_bytes())?;
    let mut command = owner.command(server.program("initdb"));
    command
        .args(["-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--auth"])
        .arg(recipe.password_encryption)
        .arg("--pwfile")
        .arg(&password)
        .args(recipe.initdb)
        .arg("-D")
        .arg(made);
    run::output(&mut command)?;
    let conf = made.join("postgresql.conf");
    let mut text = fs::read_to_string(&conf).doing(|| format!("reading {}", conf.display()))?;
    text.push_str("\ninclude 'testkit.conf'\n");
    write_owned(owner, &conf, text.as_bytes())?;
    write_owned(owner, &made.join("testkit.conf"), b"")
}

fn file_count(dir: &Path) -> std::io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { file_count(&entry.path())? } else { 1 };
    }
    Ok(count)
}
