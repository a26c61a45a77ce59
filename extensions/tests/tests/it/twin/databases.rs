//! Whole databases: made, filled, moved and dropped on both servers.

use pgshrink_testkit::{Cluster, Psql, Rng};

use super::link::Link;
use super::pair::{Halt, Step, Twins};
use super::story::SERVER;

/// What was being done with a database when our server went.
#[derive(Clone, Debug)]
pub enum Job {
    /// Makes, moves or drops it.
    Whole {
        name: String,
        sql: String,
    },
    Fill {
        name: String,
        mark: u64,
        sql: Vec<String>,
    },
}

fn must(psql: Psql, sql: &str) -> String {
    psql.sql(sql).unwrap_or_else(|error| panic!("{sql}\n{error}"))
}

fn names(cluster: &Cluster) -> Vec<String> {
    let said = must(cluster.psql(), "select datname from pg_database where datname ~ '^d[0-9]' order by 1");
    said.lines().map(str::to_owned).collect()
}

/// One statement in new sessions of both.
fn both(twins: &Twins, database: &str, sql: &[String]) -> Step<()> {
    let mut ours = Link::new(twins.ours.psql().database(database));
    let mut twin = Link::new(twins.twin.psql().database(database));
    for sql in sql {
        twins.story.tell(SERVER, &format!("{database}: {sql}"));
        let ours_said = ours.ask(sql).ok_or(Halt::Crash)?;
        let twin_said = twin.ask(sql).expect("the twin server has gone");
        if ours_said != twin_said {
            return Err(Halt::Wrong(format!(
                "{database}: {sql}\n  ours: {}\n  twin: {}",
                ours_said.short(),
                twin_said.short()
            )));
        }
    }
    Ok(())
}

/// Does something with a database; `job` says what, should the server go.
pub fn step(twins: &Twins, rng: &mut Rng, mark: u64, job: &mut Option<Job>) -> Step<()> {
    let there = names(&twins.twin);
    // Databases are not in encrypted tablespaces. No statement of a run turns encryption on.
    let encrypted =
        "select tools.cfs_setting_in_force(oid) like '%encrypted' from pg_tablespace where spcname = 'fast'";
    let is_refused = twins.ours.sql(encrypted).map_err(|_| Halt::Crash)? == "t";
    let space = *rng.pick(&["fast", "pg_default"]);
    let space = if is_refused { "pg_default" } else { space };
    let strategy = *rng.pick(&["wal_log", "file_copy"]);
    let name = if there.is_empty() { "d0".to_owned() } else { rng.pick(&there).clone() };
    let choice = if there.is_empty() { 0 } else { rng.below(10) };
    let sql = match choice {
        0 | 1 => {
            let new = format!("d{}", rng.below(4));
            let from = if rng.chance(70) { &name } else { "template0" };
            let from = if there.is_empty() || new == from { "template0" } else { from };
            let space = if rng.chance(25) && !is_refused { " tablespace fast" } else { "" };
            format!("create database {new} template {from} strategy {strategy}{space}")
        }
        2 => format!("alter database {name} set tablespace {space}"),
        3 | 4 => format!("drop database {name}"),
        _ => return fill(twins, rng, &name, mark, job),
    };
    *job = Some(Job::Whole { name: sql.split(' ').nth(2).unwrap_or_default().to_owned(), sql: sql.clone() });
    both(twins, "postgres", &[sql])?;
    *job = None;
    Ok(())
}

fn fill(twins: &Twins, rng: &mut Rng, name: &str, mark: u64, job: &mut Option<Job>) -> Step<()> {
    let (table, first) = (format!("d{}", rng.below(4)), rng.below(10_000));
    let change = match rng.below(5) {
        0 => format!("delete from {table} where id % 3 = {}", rng.below(3)),
        1 => format!("truncate {table}"),
        2 => format!("drop table {table}"),
        _ => format!(
            "insert into {table} select i, repeat(md5(i::text), {}) from generate_series({first}, {}) i",
            rng.between(1, 50),
            first + rng.below(500)
        ),
    };
    let sql = [
        "begin".to_owned(),
        "create table if not exists mark (n bigint)".to_owned(),
        format!("create table if not exists {table} (id int, d text) tablespace fast"),
        format!("create index if not exists {table}_1 on {table} (id) tablespace fast"),
        change,
        format!("select count(*), sum(hashtextextended(t::text, 0)) from {table} t"),
        format!("insert into mark values ({mark})"),
        "commit".to_owned(),
    ];
    *job = Some(Job::Fill { name: name.to_owned(), mark, sql: sql.to_vec() });
    both(twins, name, &sql)?;
    *job = None;
    Ok(())
}

/// After a crash: learns what became of the job, and has the twin do as much.
pub fn resolve(twins: &Twins, job: Job) -> Step<()> {
    twins.story.tell(SERVER, &format!("was at {job:?}"));
    let again = match job {
        Job::Fill { name, mark, sql } => {
            let marked = format!("select count(*) from mark where n = {mark}");
            let done = twins.ours.psql().database(&name).sql(&marked);
            done.is_ok_and(|count| count == "1").then_some((name, sql))
        }
        Job::Whole { name, sql } => {
            let state = |cluster: &Cluster| {
                let place = "select spcname, datconnlimit = -2 from pg_database d join pg_tablespace s on s.oid = dattablespace";
                must(cluster.psql(), &format!("{place} where datname = '{name}'"))
            };
            if state(&twins.ours).ends_with("|t") {
                // Half dropped: dropping it again is the only thing that can be done.
                must(twins.ours.psql(), &format!("drop database {name}"));
            }
            (state(&twins.ours) != state(&twins.twin)).then(|| ("postgres".to_owned(), vec![sql]))
        }
    };
    if let Some((database, sql)) = again {
        let mut link = Link::new(twins.twin.psql().database(&database));
        for sql in sql {
            twins.story.tell(SERVER, &format!("so the twin in {database}: {sql}"));
            let said = link.ask(&sql).expect("the twin server has gone");
            if said.failed() {
                return Err(Halt::Wrong(format!(
                    "the twin refuses what ours has done: {sql}: {}",
                    said.short()
                )));
            }
        }
    }
    Ok(())
}

/// Databases, where they are, and what is in their tables.
pub fn compare(twins: &Twins) -> Result<(), String> {
    let places =
        "select datname, spcname from pg_database d join pg_tablespace s on s.oid = dattablespace order by 1";
    let (ours, twin) = (must(twins.ours.psql(), places), must(twins.twin.psql(), places));
    if ours != twin {
        return Err(format!("databases\n  ours: {ours}\n  twin: {twin}"));
    }
    for name in names(&twins.ours) {
        let sums = |cluster: &Cluster| super::check::sums(&cluster.psql().database(&name));
        let (ours, twin) = (sums(&twins.ours)?, sums(&twins.twin)?);
        if ours != twin {
            return Err(format!("tables of {name}\n  ours: {ours}\n  twin: {twin}"));
        }
    }
    Ok(())
}
