//! pg_dump and pg_restore, in any order, into any database.

use std::fs;

use pgshrink_testkit::{Server, TempDir};

use crate::databases::{Database, MAJORS, failure, on_each_major};
use crate::documents::{DIFFERENT, records, records_of, trained_table};

/// `t` trained, and `named` with a column of a profile of its own.
fn filled(database: &Database) {
    trained_table(database, 1000);
    database.sql(&format!(
        "create table named (id int, was jsonb, doc zson('events')); insert into named select id, doc, doc from ({}) r",
        records(800)
    ));
    database.sql("select zson_learn('named', 'doc'); update named set doc = zson_reencode(doc, 'events')");
}

const DIFFERENT_NAMED: &str =
    "select count(*) from named where doc::jsonb is distinct from was or doc::text <> was::text";

#[track_caller]
fn check(database: &Database) {
    assert_eq!(database.sql("select count(*) from t"), "1000");
    assert_eq!(database.sql(DIFFERENT), "0");
    assert_eq!(database.sql(DIFFERENT_NAMED), "0");
    let declared = "select format_type(atttypid, atttypmod) from pg_attribute
        where attrelid = 'named'::regclass and attname = 'doc'";
    assert!(database.sql(declared).contains("events"), "{}", database.sql(declared));
    // It goes on: what is learned next takes a new id, and nothing changes.
    let newest: i64 = database.sql("select coalesce(max(id), 0) from zson_dictionaries").parse().unwrap();
    database.sql(&format!(
        "create table later (doc zson); insert into later select doc from ({}) r; select zson_learn('later', 'doc');
        update t set doc = zson_reencode(doc); update named set doc = zson_reencode(doc, 'events'); drop table later",
        records_of(&format!("later than {newest}"), 1000)
    ));
    assert!(database.sql("select max(id) from zson_dictionaries").parse::<i64>().unwrap() > newest);
    assert_eq!(database.sql(DIFFERENT), "0");
    assert_eq!(database.sql(DIFFERENT_NAMED), "0");
}

#[test]
fn a_dump_restores_into_an_empty_database() {
    on_each_major("dump and restore", |database| {
        filled(database);
        let dump = database.run("pg_dump", &["-d", &database.name]).unwrap();
        let restored = Database::empty(database.cluster.server());
        restored.sql(&dump);
        let profiles = "select name, codec from zson_profile order by 1";
        assert_eq!(restored.sql(profiles), database.sql(profiles));
        let dictionaries = "select profile, hash, size, current from zson_dictionaries order by 1, 2";
        assert_eq!(restored.sql(dictionaries), database.sql(dictionaries));
        check(&restored);
        let inserts = database.run("pg_dump", &["--inserts", "-d", &database.name]).unwrap();
        let restored = Database::empty(database.cluster.server());
        restored.sql(&inserts);
        check(&restored);
    });
}

#[test]
fn a_dump_restores_into_a_database_with_dictionaries_of_its_own() {
    on_each_major("restore into a used database", |database| {
        filled(database);
        let used = Database::with_zson(database.cluster.server());
        used.sql(
            "create table own (id int, was jsonb, doc zson, other zson('events'), third zson('third'));
            insert into own select i, d, d, d, d from generate_series(1, 1000) i,
                lateral (select jsonb_build_object('quite', 'another', 'kind', 'of document', 'number', i, 'hash', md5((-i)::text)) as d) x;
            select zson_learn('own', 'doc'); select zson_learn('own', 'third'); select zson_learn('own', 'other');
            update own set doc = zson_reencode(doc), other = zson_reencode(other, 'events'), third = zson_reencode(third, 'third')",
        );
        let own =
            "select count(*) from own where doc::jsonb <> was or other::jsonb <> was or third::jsonb <> was";
        assert_eq!(used.sql(own), "0");
        let dump = database.run("pg_dump", &["-d", &database.name]).unwrap();
        used.sql(&dump);
        assert_eq!(used.sql(own), "0");
        check(&used);
        assert_eq!(used.sql(own), "0");
    });
}

#[test]
fn jobs_and_sections_restore_in_any_order() {
    Server::each_with_extensions("pg_restore -j4, --section", &MAJORS, |server| {
        let database = Database::with_zson(server);
        filled(&database);
        let dir = TempDir::new().unwrap();
        let folder = dir.path().join("dump").to_string_lossy().into_owned();
        database.run("pg_dump", &["-Fd", "-j4", "-f", &folder, "-d", &database.name]).unwrap();

        let jobs = Database::empty(server);
        jobs.run("pg_restore", &["-j4", "-d", &jobs.name, &folder]).unwrap();
        check(&jobs);

        let sections = Database::empty(server);
        for section in ["pre-data", "data", "post-data"] {
            sections.run("pg_restore", &["--section", section, "-d", &sections.name, &folder]).unwrap();
        }
        check(&sections);

        let list = database.run("pg_restore", &["-l", &folder]).unwrap();
        let (mut data, rest): (Vec<&str>, Vec<&str>) = list
            .lines()
            .filter(|line| !line.starts_with(';'))
            .partition(|line| line.contains(" TABLE DATA "));
        for order in 0..2 {
            data.sort_by_key(|line| (line.contains("zson_") == (order == 0), *line));
            let lines: Vec<&str> = rest.iter().chain(&data).copied().collect();
            let listed = dir.path().join("list");
            fs::write(&listed, lines.join("\n")).unwrap();
            let ordered = Database::empty(server);
            ordered
                .run("pg_restore", &["-L", &listed.to_string_lossy(), "-d", &ordered.name, &folder])
                .unwrap();
            check(&ordered);
        }
    });
}

#[test]
fn a_role_that_owns_only_its_tables_can_dump_them() {
    on_each_major("a dump by an ordinary role", |database| {
        filled(database);
        database.role("dumper");
        database.sql("alter table t owner to dumper; alter table named owner to dumper");
        let mut command = database.cluster.command("pg_dump");
        command
            .arg("-h")
            .arg(database.cluster.socket_dir())
            .arg("-p")
            .arg(database.cluster.port().to_string());
        let dump =
            pgshrink_testkit::run::output(command.args(["-U", "dumper", "-d", &database.name])).unwrap();
        let restored = Database::empty(database.cluster.server());
        restored.sql(&dump);
        check(&restored);
    });
}

#[test]
fn an_owner_who_is_no_superuser_restores_their_own_dump() {
    on_each_major("an owner's dump, restored by the owner", |database| {
        database.role("owning");
        let cluster = database.cluster;
        let own = Database::beside(cluster, "owner owning");
        own.sql_as("owning", "create extension zson");
        own.sql_as(
            "owning",
            &format!(
                "create table t (id int, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r;
                select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc);
                select zson_set_codec('default', 'lz4');
                create index on t using gin (doc); create table last (n int); insert into last values (7)",
                records(1000)
            ),
        );
        let client = |program: &str, database: &Database| {
            let mut command = cluster.command(program);
            let port = cluster.port().to_string();
            command.arg("-h").arg(cluster.socket_dir()).args([
                "-p",
                &port,
                "-U",
                "owning",
                "-d",
                &database.name,
            ]);
            command
        };
        let dump = pgshrink_testkit::run::output(&mut client("pg_dump", &own)).unwrap();
        let restored = Database::beside(cluster, "owner owning");
        let mut psql = client("psql", &restored);
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        pgshrink_testkit::run::output_with_input(&mut psql, dump.as_bytes()).unwrap();
        assert_eq!(restored.sql("select count(*) from t where doc::jsonb = was"), "1000");
        assert_eq!(restored.sql("select count(*) from pg_indexes where tablename = 't'"), "1");
        assert_eq!(restored.sql("select n from last"), "7");
        assert_eq!(restored.sql("select codec from zson_profile where name = 'default'"), "lz4:1");
        // What is in the tables stays the extension's.
        let refused = "update zson_profile set codec = null";
        assert!(failure(restored.psql().user("owning"), "42501", refused).contains("permission denied"));
    });
}

#[test]
fn a_dump_of_the_data_alone_restores_into_a_new_extension() {
    on_each_major("data only", |database| {
        filled(database);
        let schema = database.run("pg_dump", &["-s", "-d", &database.name]).unwrap();
        let data = database.run("pg_dump", &["-a", "-d", &database.name]).unwrap();
        let restored = Database::empty(database.cluster.server());
        restored.sql(&schema);
        restored.sql(&data);
        check(&restored);
        // Twice: what is there stays, and is not there twice.
        restored.sql("truncate t, named");
        restored.sql(&data);
        check(&restored);
    });
}
