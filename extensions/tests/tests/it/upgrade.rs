//! pg_upgrade to a later major.

use std::path::Path;
use std::process::Command;

use pgshrink_testkit::{Cluster, Server, ServerBinaries, Stop, TempDir, left_out, run, skipped};

use crate::databases::Database;
use crate::documents::{DIFFERENT, NEED_DICTIONARY, trained_table};

#[test]
fn pg_upgrade_keeps_documents_and_dictionaries() {
    on_each_pair("pg_upgrade", |_| {});
}

#[test]
fn pg_upgrade_keeps_columns_of_profiles() {
    on_each_pair("pg_upgrade with profiles", |database| {
        database.sql(
            "create table named (doc zson('events')); insert into named select doc from t limit 10;
            select zson_learn('named', 'doc'); update named set doc = zson_reencode(doc, 'events');
            create table later (doc zson('never_used'), other zson('events')[])",
        );
    });
}

/// Upgrades between all servers that can be, with what `more` adds to the database.
fn on_each_pair(test: &str, more: impl Fn(&Database)) {
    let mut upgraded = 0;
    Server::each_with_extensions(test, &[15, 16], |from| {
        for major in [16, 18].into_iter().filter(|major| *major > from.major) {
            let pair = format!("{test} from {} to {major}", from.version);
            match Server::with_extensions(major).map(|to| upgrade(from, &to, &more)) {
                Ok(Ok(())) => upgraded += 1,
                // A minor release of 15 in late 2026 adds this to columns, and later majors of before do not know it.
                Ok(Err(said)) if said.contains("unrecognized parameter \"pg_attver\"") => {
                    left_out(&pair, "the later major is an older minor release, which cannot");
                }
                Ok(Err(said)) => panic!("{pair}: {said}"),
                Err(missing) => skipped(&pair, &missing),
            }
        }
    });
    println!("{test}: {upgraded} upgrades");
    assert!(upgraded > 0 || Server::with_extensions(18).is_err(), "no pair of servers could be upgraded");
}

/// Upgrades a cluster with documents and dictionaries, and checks them; what pg_upgrade said if it fails.
fn upgrade(from: &ServerBinaries, to: &ServerBinaries, more: impl Fn(&Database)) -> Result<(), String> {
    let old: &Cluster = Box::leak(Box::new(Cluster::builder().server(from).start().unwrap()));
    let database = Database::beside(old, "");
    database.sql("create extension zson");
    trained_table(&database, 1000);
    database.sql(
        "create index on t using gin (doc); create index on t (doc); create index on t using hash (doc)",
    );
    more(&database);
    let declared = "select attrelid::regclass, attname, format_type(atttypid, atttypmod) from pg_attribute
        where atttypid in ('zson'::regtype, 'zson[]'::regtype) and attnum > 0 order by 1, 2";
    let columns = database.sql(declared);
    let profiles = database.sql("select * from zson_profile order by id");
    // All but what is counted from the start of a server.
    let lasting = "select id, profile, codec, kind, size, created, documents, jsonb_bytes, before_bytes, after_bytes, hash, current
        from zson_dictionaries";
    let counted = "select count(*) from zson_dictionaries where written > 0";
    let dictionaries = database.sql(lasting);
    assert_ne!(database.sql(counted), "0");
    old.stop(Stop::Fast).unwrap();

    // 18's initdb turns checksums on, which 15 had not.
    let builder = Cluster::builder().server(to);
    let builder = if to.major >= 18 { builder.initdb_arg("--no-data-checksums") } else { builder };
    let new: &Cluster = Box::leak(Box::new(builder.create().unwrap()));
    let work = TempDir::owned_by(new.owner()).unwrap();
    let mut upgrade: Command = new.owner().command(to.program("pg_upgrade"));
    upgrade.current_dir(work.path()).args(["-U", "postgres", "--socketdir"]).arg(work.path());
    upgrade.arg("-b").arg(&from.bin).arg("-B").arg(&to.bin).arg("-d").arg(old.data_dir());
    upgrade.arg("-D").arg(new.data_dir()).args([
        "-p",
        &old.port().to_string(),
        "-P",
        &new.port().to_string(),
    ]);
    if let Err(error) = run::output(&mut upgrade) {
        return Err(format!("{error}\n{}", logs(&new.data_dir().join("pg_upgrade_output.d"))));
    }

    new.start().unwrap();
    let upgraded = Database { cluster: new, name: database.name.clone() };
    assert_eq!(upgraded.sql(DIFFERENT), "0");
    assert_ne!(upgraded.sql(NEED_DICTIONARY), "0");
    assert_eq!(upgraded.sql(lasting), dictionaries);
    assert_eq!(upgraded.sql(counted), "0");
    let with_index = |on: &str| {
        upgraded.sql(&format!(
            "set enable_seqscan = {on}; select count(*) from t where doc @> '{{\"status\": \"passing\"}}'"
        ))
    };
    assert_eq!(with_index("off"), with_index("on"));
    assert_eq!(upgraded.sql(declared), columns);
    assert_eq!(upgraded.sql("select * from zson_profile order by id"), profiles);
    upgraded.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
    assert_eq!(upgraded.sql(DIFFERENT), "0");
    new.stop(Stop::Immediate).unwrap();
    Ok(())
}

/// What logs below a folder say of errors.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text.push_str(&logs(&path));
        } else if let Ok(log) = std::fs::read_to_string(&path) {
            let errors = log
                .lines()
                .filter(|line| ["ERROR", "error:", "FATAL"].iter().any(|word| line.contains(word)));
            errors.for_each(|line| text.push_str(&format!("{line}\n")));
        }
    }
    text
}
