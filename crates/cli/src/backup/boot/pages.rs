//! Checksums of all pages of the restored cluster, by PostgreSQL's `pg_checksums`: every fork of every table and index, whether or not
//! anything else reads it.

use super::super::Failure;
use super::cluster::Cluster;
use serde::Serialize;

/// Pages that are named, at most.
const PAGES_MAX: usize = 1000;

/// What became of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Checksums {
    /// Those of all pages were compared.
    Checked,
    /// The cluster has none.
    Off,
    /// They could not be checked.
    Unchecked,
}

/// A page whose checksum is wrong.
pub(super) struct BadPage {
    /// OID of its database; 0 for tables of all databases.
    pub(super) database: u32,
    /// The number that its file is named after.
    pub(super) filenode: u32,
    pub(super) message: String,
}

/// What was found.
pub(super) struct Found {
    pub(super) checksums: Checksums,
    pub(super) bad: Vec<BadPage>,
    /// Why they could not be checked.
    pub(super) why: Option<String>,
}

/// Checks the cluster, whose server was stopped cleanly.
pub(super) fn check(cluster: &Cluster<'_>) -> Result<Found, Failure> {
    let found = |checksums, why| Found { checksums, bad: Vec::new(), why };
    if !cluster.programs.program("pg_checksums").exists() {
        let why = format!("{} has no program pg_checksums", cluster.programs.bin.display());
        return Ok(found(Checksums::Unchecked, Some(why)));
    }
    let data = cluster.scratch.data().display().to_string();
    let ended = cluster.run("pg_checksums", &["--check", "-D", &data], "")?;
    if ended.status.success() {
        return Ok(found(Checksums::Checked, None));
    }
    if ended.said.contains("data checksums are not enabled") {
        return Ok(found(Checksums::Off, None));
    }
    let bad: Vec<_> = ended.said.lines().filter_map(|line| bad_page(line, &data)).take(PAGES_MAX).collect();
    match bad.is_empty() {
        true => Ok(found(Checksums::Unchecked, Some(super::startup::last_lines(&ended.said)))),
        false => Ok(Found { checksums: Checksums::Checked, bad, why: None }),
    }
}

/// `pg_checksums: error: checksum verification failed in file "DATA/base/5/16384.1_vm", block 3: …`.
fn bad_page(line: &str, data: &str) -> Option<BadPage> {
    let (_, rest) = line.split_once("checksum verification failed in file \"")?;
    let (path, rest) = rest.rsplit_once('"')?;
    let path = path.strip_prefix(data).unwrap_or(path).trim_start_matches('/');
    let mut parts = path.rsplit('/');
    let name = parts.next()?;
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    let database = parts.next().and_then(|folder| folder.parse().ok()).unwrap_or(0);
    let message = format!("wrong checksum in file {path}{rest}");
    Some(BadPage { database, filenode: name[..digits].parse().ok()?, message })
}

#[test]
fn a_page_is_found_in_what_pg_checksums_says() {
    let line = "pg_checksums: error: checksum verification failed in file \"/s/data/base/5/16384.1_vm\", \
                block 3: calculated checksum 1 but block contains 2";
    let page = bad_page(line, "/s/data").unwrap();
    assert_eq!((page.database, page.filenode), (5, 16384));
    assert!(page.message.contains("file base/5/16384.1_vm, block 3"), "{}", page.message);
    let line =
        "pg_checksums: error: checksum verification failed in file \"/s/data/global/1262\", block 0: x";
    assert_eq!(bad_page(line, "/s/data").unwrap().database, 0);
    assert!(bad_page("pg_checksums: error: could not open file", "/s").is_none());
}
