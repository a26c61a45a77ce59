//! cfs in real servers: what statements say and leave behind.

mod conversions;
mod crashes;
mod dispatching;
mod errors;
mod estimate;
mod options;
mod servers;
mod settings;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, ServerBinaries, wait_until};

/// What the library works with here.
pub const MAJORS: [u32; 2] = [15, 18];

/// A cluster with the library.
pub fn with_cfs(server: &ServerBinaries) -> Cluster {
    let builder = Cluster::builder().server(server).conf("shared_preload_libraries", "cfs");
    // LOCATION '' makes a tablespace in the data directory, where a backup of it has a place of its own.
    builder.conf("allow_in_place_tablespaces", "on").start().unwrap()
}

/// Runs `test` with a cluster that has the library, on every major.
pub fn on_each_major(test: &str, mut run: impl FnMut(&Cluster)) {
    Server::each_with_extensions(test, &MAJORS, |server| run(&with_cfs(server)));
}

/// What a script prints that must succeed.
#[track_caller]
pub fn sql(cluster: &Cluster, sql: &str) -> String {
    cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}"))
}

/// Runs an ALTER SYSTEM, and waits until new sessions follow it.
#[track_caller]
pub fn set(cluster: &Cluster, statement: &str) {
    sql(cluster, statement);
    cluster.reload().unwrap();
}

/// The labels of tablespaces, by OID.
pub fn labels(cluster: &Cluster) -> BTreeMap<String, String> {
    let rows = sql(
        cluster,
        "select objoid, label from pg_shseclabel where provider = 'cfs' and classoid = 'pg_tablespace'::regclass",
    );
    let pair = |row: &str| row.split_once('|').map(|(oid, label)| (oid.to_owned(), label.to_owned()));
    rows.lines().filter_map(pair).collect()
}

/// What the files of the data directory say, by OID, as labels.
pub fn files(cluster: &Cluster) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(cluster.data_dir().join("pg_cfs")) else { return BTreeMap::new() };
    let entries = entries.map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| path.extension().is_none());
    entries
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let setting = text.split(' ').nth(2).unwrap_or_else(|| panic!("{}: {text:?}", path.display()));
            (path.file_name().unwrap().to_str().unwrap().to_owned(), format!("compression={setting}"))
        })
        .collect()
}

/// The label of a tablespace, which its file must say too.
#[track_caller]
pub fn setting(cluster: &Cluster, name: &str) -> String {
    let oid = sql(cluster, &format!("select oid from pg_tablespace where spcname = '{name}'"));
    let (label, file) = (labels(cluster).remove(&oid), files(cluster).remove(&oid));
    assert_eq!(label, file, "{name}");
    label.unwrap_or_default()
}

/// Waits until every label is in a file, and nothing else is.
#[track_caller]
pub fn settle(cluster: &Cluster) {
    let waited = wait_until(Duration::from_secs(40), "files to say what labels say", || {
        labels(cluster) == files(cluster)
    });
    waited.unwrap_or_else(|error| {
        panic!("{error}\n{:?}\n{:?}\n{}", labels(cluster), files(cluster), cluster.log().unwrap())
    });
}
