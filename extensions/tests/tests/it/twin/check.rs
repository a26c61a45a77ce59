//! Whether both servers say the same, and ours is whole in itself.

use std::collections::BTreeSet;
use std::path::Path;

use pgshrink_testkit::{Cluster, Psql};

use super::databases;
use super::pair::Twins;

fn must(psql: &Psql, sql: &str) -> Result<String, String> {
    psql.clone().sql(sql).map_err(|error| format!("{sql}\n{error}"))
}

const RELATIONS: &str = "select relname, relkind, relpersistence, coalesce(spcname, '-'), i.indisvalid
    from pg_class c left join pg_tablespace s on s.oid = reltablespace left join pg_index i on i.indexrelid = c.oid
    where relnamespace = 'public'::regnamespace order by 1";

const FILLED: &str = "select relname from pg_class where relnamespace = 'public'::regnamespace
    and relkind in ('r', 'p', 'm') and relispopulated order by 1";

/// A line for each table: its name, its number of rows, and a number that stands for them all.
pub fn sums(psql: &Psql) -> Result<String, String> {
    let names = must(psql, FILLED)?;
    let one =
        |name: &str| format!("select '{name}', count(*), sum(hashtextextended(t::text, 0)) from {name} t;\n");
    must(psql, &names.lines().map(one).collect::<String>())
}

/// The same rows, by whatever index there is.
fn by_index(psql: &Psql) -> Result<String, String> {
    let names = must(psql, FILLED)?;
    let one = |name: &str| {
        format!(
            "select '{name}', count(*), sum(hashtextextended(t::text, 0)) from {name} t where w = 'word 7';
            select '{name}', count(*), sum(hashtextextended(t::text, 0)) from {name} t where id between 100 and 3000;
            select '{name}', count(*) from (select id from {name} order by id) t;\n"
        )
    };
    let names = names.lines().filter(|name| *name != "marker");
    let sql = names.map(one).collect::<String>();
    must(psql, &format!("set enable_seqscan = off; set enable_sort = off;\n{sql}"))
}

fn same(what: &str, twins: &Twins, ask: impl Fn(&Psql) -> Result<String, String>) -> Result<(), String> {
    let (ours, twin) = (ask(&twins.ours.psql())?, ask(&twins.twin.psql())?);
    let mut pairs = ours.lines().zip(twin.lines());
    if let Some((ours, twin)) = pairs.find(|(ours, twin)| ours != twin) {
        return Err(format!("{what}\n  ours: {ours}\n  twin: {twin}"));
    }
    if ours != twin { Err(format!("{what}\n  ours: {ours}\n  twin: {twin}")) } else { Ok(()) }
}

/// Pages that the server sees, where nothing has happened that lets two servers put rows into other places. Not of SP-GiST,
/// which chooses among equal nodes at random.
pub fn sizes(twins: &Twins) -> Result<(), String> {
    let sizes = "select relname, pg_relation_size(oid), pg_relation_size(nullif(reltoastrelid, 0)),
        (select sum(pg_table_size(i.oid)) from pg_index join pg_class i on i.oid = indexrelid join pg_am a on a.oid = i.relam
            where indrelid = c.oid and amname <> 'spgist')
        from pg_class c where relnamespace = 'public'::regnamespace and relkind in ('r', 'm') order by 1";
    same("sizes", twins, |psql| must(psql, sizes))
}

/// Every relation of both servers. Nobody may be changing them.
pub fn compare(twins: &Twins) -> Result<(), String> {
    same("relations", twins, |psql| must(psql, RELATIONS))?;
    same("contents", twins, sums)?;
    same("contents by index", twins, by_index)?;
    databases::compare(twins)
}

/// What amcheck and pg_visibility find wrong in ours.
pub fn examine(ours: &Cluster) -> Result<(), String> {
    let psql = ours.psql();
    let built = "select count(*) from pg_available_extensions where name in ('amcheck', 'pg_visibility')";
    if must(&psql, built)? != "2" {
        // Not every build comes with them.
        return Ok(());
    }
    must(
        &psql,
        "create extension if not exists amcheck schema tools; create extension if not exists pg_visibility schema tools",
    )?;
    let place = "reltablespace <> 0 and relpersistence <> 't'";
    let heap = format!("from pg_class c where relkind in ('r', 'm', 't') and {place}");
    for sql in [
        format!(
            "select c.relname, v.* from (select * {heap}) c, tools.verify_heapam(c.oid, check_toast => true) v"
        ),
        format!("select c.relname, v.* from (select * {heap}) c, tools.pg_check_visible(c.oid) v"),
        format!("select c.relname, v.* from (select * {heap}) c, tools.pg_check_frozen(c.oid) v"),
    ] {
        let found = must(&psql, &sql)?;
        if !found.is_empty() {
            return Err(format!("{sql}\n{found}"));
        }
    }
    let trees = format!(
        "select tools.bt_index_check(c.oid, true) from pg_class c join pg_index i on i.indexrelid = c.oid
        join pg_am a on a.oid = relam where amname = 'btree' and relkind = 'i' and indisvalid and {place}"
    );
    must(&psql, &trees).map(drop)
}

/// Files of the tablespace, as `database/name`, that no relation has and that should not be there.
pub fn leftovers(ours: &Cluster, location: &Path) -> Result<BTreeSet<String>, String> {
    let psql = ours.psql();
    must(&psql, "checkpoint; checkpoint")?;
    let mut known = BTreeSet::new();
    let all = must(
        &psql,
        "select datname, oid, dattablespace = 1663 from pg_database where datallowconn and datconnlimit <> -2",
    )?;
    for line in all.lines() {
        let [name, oid, elsewhere] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        let paths = "select regexp_replace(pg_relation_filepath(oid), '.*/', '') from pg_class
            where pg_relation_filepath(oid) is not null";
        let files = must(&psql.clone().database(name), paths)?;
        known.extend(files.lines().map(|file| format!("{oid}/{file}")));
        if elsewhere == "f" {
            known.extend(["PG_VERSION", "pg_filenode", "pg_internal"].map(|file| format!("{oid}/{file}")));
        }
        known.insert(format!("{oid}/pgshrink-compressed-files-here-need-shared_preload_libraries-cfs"));
    }
    let mut left = BTreeSet::new();
    for version in entries(location) {
        for database in entries(&version) {
            let directory = database.file_name().unwrap().to_string_lossy().into_owned();
            for file in entries(&database) {
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                let relation = name.split(['.', '_']).next().unwrap_or_default();
                let is_known = known.contains(&format!("{directory}/{relation}"))
                    || known.contains(&format!("{directory}/{name}"))
                    || name.starts_with("pg_internal")
                    || name.starts_with("pg_filenode");
                if !is_known && directory != "pgsql_tmp" {
                    left.insert(format!("{directory}/{name}"));
                }
            }
        }
    }
    Ok(left)
}

/// The first that no crash has left. A database that is made as a copy of another one has its leftovers too.
pub fn intolerable<'a>(left: &'a BTreeSet<String>, tolerated: &BTreeSet<String>) -> Option<&'a String> {
    let name = |file: &str| file.split_once('/').map(|(_, name)| name.to_owned());
    let names: BTreeSet<_> = tolerated.iter().filter_map(|file| name(file)).collect();
    left.iter().find(|file| name(file).is_none_or(|name| !names.contains(&name)))
}

fn entries(directory: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(directory)
        .map(|all| all.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// What must never be in the log of our server.
pub fn log(ours: &Cluster) -> Result<(), String> {
    let log = ours.log().map_err(|error| error.to_string())?;
    let bad = [
        "PANIC",
        "pgshrink cfs:",
        "cfs cannot convert",
        "invalid page",
        "was terminated by signal 6",
        "was terminated by signal 11",
    ];
    match log.lines().find(|line| bad.iter().any(|bad| line.contains(bad))) {
        Some(line) => Err(format!("the server's log: {line}")),
        None => Ok(()),
    }
}

/// Everything leaves the tablespace, is rewritten outside, and says the same; then the tablespace goes.
pub fn way_out(twins: &Twins, location: &Path, tolerated: &BTreeSet<String>) -> Result<(), String> {
    for cluster in [&twins.ours, &twins.twin] {
        let names = must(&cluster.psql(), "select datname from pg_database where datname ~ '^d[0-9]'")?;
        for name in names.lines() {
            must(&cluster.psql(), &format!("drop database {name}"))?;
        }
        let psql = cluster.psql();
        for kind in ["table", "index", "materialized view"] {
            must(&psql, &format!("alter {kind} all in tablespace fast set tablespace pg_default"))?;
        }
        // Tables that hold nothing themselves.
        let partitioned = "select format('alter table %s set tablespace pg_default', oid::regclass) from pg_class
            where relkind = 'p' \\gexec\n
            select format('alter index %s set tablespace pg_default', oid::regclass) from pg_class where relkind = 'I' \\gexec\n";
        must(&psql, partitioned)?;
        let rewrite = "select format('vacuum full %s', oid::regclass) from pg_class
            where relkind in ('r', 'm') and relnamespace = 'public'::regnamespace \\gexec\n";
        must(&psql, rewrite)?;
    }
    compare(twins)?;
    let left = leftovers(&twins.ours, location)?;
    if let Some(file) = intolerable(&left, tolerated) {
        return Err(format!("{file} is left in the tablespace"));
    }
    if left.is_empty() {
        must(&twins.ours.psql(), "drop tablespace fast")?;
        let left = entries(location);
        if !left.is_empty() {
            return Err(format!("DROP TABLESPACE left {left:?}"));
        }
    }
    Ok(())
}
