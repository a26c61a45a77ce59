//! Databases that had the original zson 1.1: everything it wrote is read, and can be written anew.

mod datum;
mod indexes;

use pgshrink_testkit::{Server, ServerBinaries};

use crate::databases::{Database, MAJORS, on_one_major};
use crate::documents::records;
use crate::session::Session;
use datum::{Words, encoded, hex, unhex};

/// Words of two generations, with codes at the ends of their range, one beyond 16 bits of text order, and one that
/// the original ignored.
const FIRST: &Words<'static> =
    &[(1, "Member"), (2, "Name"), (3, "postgresql-master"), (4, "x"), (65_534, "Größe")];
const SECOND: &Words<'static> = &[(1, "Name"), (2, "Na"), (9, "Port"), (300, "Member")];

/// Of every sort that a jsonb can be, shorter and longer than a literal run, with words of the dictionaries and
/// without, in line and out of it.
fn documents() -> Vec<String> {
    let long = |n: usize| {
        format!("{{\"Member\": \"{}\", \"Name\": \"postgresql-master\"}}", "long words ".repeat(n))
    };
    let numbers: Vec<String> = (0..400).map(|n| (n * 7919 % 1000).to_string()).collect();
    let mut documents: Vec<String> = [
        "{}",
        "[]",
        "null",
        "true",
        "0",
        "-1.5e300",
        "\"\"",
        "\"x\"",
        "\"Member\"",
        "\"Größe\"",
        "[[], {}]",
        r#"{"Member": {"Name": "postgresql-master", "Port": 8301, "Größe": "NaNa"}}"#,
        r#"{"Name": "Name", "NameName": ["Member", "MemberMember", "membre"]}"#,
        r#"{"z": "\u0001\\\"", "emoji": "😀"}"#,
    ]
    .map(str::to_owned)
    .into();
    documents.extend([long(20), long(24), long(1000), long(20_000), format!("[{}]", numbers.join(", "))]);
    documents
}

/// A database as 1.1 left it, table `old (id, how, was jsonb, doc zson)`: every document with each dictionary.
fn before_update(server: &ServerBinaries, options: &str) -> Database {
    let database = Database::made_with(server, options);
    database.sql(
        "create extension zson version '1.1';
        create cast (bytea as zson) without function;
        create cast (jsonb as bytea) without function;
        create table old (id int, how int, was jsonb, doc zson)",
    );
    for (id, words) in [(0, FIRST), (1, SECOND)] {
        for (code, word) in words {
            database.sql(&format!("insert into zson_dict values ({id}, {code}, '{word}')"));
        }
    }
    let documents = documents();
    let mut asked = String::new();
    for document in &documents {
        asked.push_str(&format!("select $zson${document}$zson$::jsonb::bytea;\n"));
    }
    let mut insert = String::new();
    for (id, line) in database.sql(&asked).lines().enumerate() {
        let (jsonb, document) = (unhex(line), &documents[id]);
        for (how, words) in [(0, FIRST), (1, SECOND)] {
            let datum = hex(&encoded(how, words, &jsonb));
            insert.push_str(&format!(
                "insert into old values ({id}, {how}, $zson${document}$zson$, '{datum}'::bytea::zson);\n"
            ));
        }
    }
    database.sql(&insert);
    database
}

const DIFFERENT: &str =
    "select id, how from old where doc::jsonb is distinct from was or doc::text <> was::text";

#[test]
fn every_document_of_version_1_1_is_read_after_the_update() {
    Server::each_with_extensions("documents of 1.1 are read", &MAJORS, |server| {
        let database = before_update(server, "");
        database.sql("alter extension zson update");
        assert_eq!(database.sql(DIFFERENT), "");
        assert_eq!(database.sql("select count(*) from old").parse(), Ok(documents().len() * 2));
        // And through the operators, an index, and by a role that may read nothing but the table.
        assert_eq!(database.sql("select count(*) from old where doc->'Name' <> was->'Name'"), "0");
        assert_eq!(database.sql("select count(*) from old where doc <> was::zson"), "0");
        database.sql("create index on old using gin (doc); set enable_seqscan = off");
        assert_eq!(
            database.sql("select count(*) from old where doc @> '{\"Name\": \"postgresql-master\"}'"),
            database.sql("select count(*) from old where was @> '{\"Name\": \"postgresql-master\"}'")
        );
        database.role("reader");
        database.sql("grant select on old to reader");
        assert_eq!(database.sql_as("reader", DIFFERENT), "");
    });
}

#[test]
fn documents_of_version_1_1_are_read_before_the_update_too() {
    Server::each_with_extensions("the new library serves 1.1's definitions", &[15], |server| {
        let database = before_update(server, "");
        assert_eq!(database.sql(DIFFERENT), "");
    });
}

#[test]
fn what_was_written_anew_needs_no_words_of_version_1_1() {
    Server::each_with_extensions("documents of 1.1 are written anew", &MAJORS, |server| {
        let database = before_update(server, "");
        database.sql("alter extension zson update");
        let of_old = "select count(*) from old where exists (select from unnest(zson_dictionary_ids(doc)) id where id < 0)";
        assert_ne!(database.sql(of_old), "0");
        assert_eq!(database.sql("select count(*) from old where zson_reencode(doc)::jsonb <> was"), "0");
        database.sql("call zson_reencode('old', 'doc')");
        assert_eq!(database.sql(of_old), "0");
        database.sql("delete from zson_dict");
        assert_eq!(database.sql(DIFFERENT), "");
    });
}

#[test]
fn the_update_changes_the_storage_of_columns_too() {
    Server::each_with_extensions("the update changes storage", &[15, 18], |server| {
        let database = before_update(server, "");
        database.sql("create table untouched (id int, doc zson)");
        database.sql("alter extension zson update");
        let storage = "select string_agg(distinct attstorage::text, '') from pg_attribute
            where atttypid = 'zson'::regtype and attnum > 0 and attrelid in ('old'::regclass, 'untouched'::regclass)";
        assert_eq!(database.sql(storage), "e");
        assert_eq!(database.sql("select typstorage from pg_type where typname = 'zson'"), "e");
    });
}

#[test]
fn sessions_from_before_the_update_write_and_read_as_all_others() {
    Server::each_with_extensions("sessions across the update", &MAJORS, |server| {
        let database = before_update(server, "");
        database.sql(&format!("insert into old select id + 100, 0, doc, doc from ({}) r", records(1000)));
        let mut sessions = [Session::new(database.psql()), Session::new(database.psql())];
        for session in &mut sessions {
            // Each has read, and written, what there was.
            assert_eq!(session.sql(DIFFERENT), "");
            session.sql("insert into old values (5000, 0, '{\"a\": 1}', '{\"a\": 1}')");
        }
        // The manual's recipe, in a session that knew 1.1.
        let [updating, other] = &mut sessions;
        updating.sql("alter extension zson update");
        let said = updating.sql("select zson_learn('old', 'doc')");
        assert!(said.contains("a new dictionary"), "{said}");
        updating.sql("call zson_reencode('old', 'doc')");
        assert_eq!(other.sql(DIFFERENT), "");
        other.sql(&format!("insert into old select id + 10000, 0, doc, doc from ({}) r", records(20)));
        let trained =
            "select count(*) from old where id > 10000 and cardinality(zson_dictionary_ids(doc)) = 1";
        assert_eq!(other.sql(trained), "20");
        assert_eq!(updating.sql(DIFFERENT), "");
    });
}

#[test]
fn the_update_lists_the_indexes_that_queries_no_longer_find() {
    Server::each_with_extensions("indexes of 1.1", &MAJORS, |server| {
        let database = before_update(server, "");
        database.sql(&format!(
            "create table k (id int, \"the doc\" jsonb, doc zson);
            insert into k select id, doc, doc from ({}) r; alter table k alter \"the doc\" type zson;
            create unique index by_id on k ((doc->>'id'));
            create index by_host on k (lower(doc->>'host')) where doc ? 'host';
            create index held on k using gin ((doc::jsonb));
            create index paths on k using gin ((\"the doc\"::jsonb) jsonb_path_ops);
            create index tags on k using gin ((doc->'tags') jsonb_path_ops); create index plain on k (id)",
            records(500)
        ));
        let mut update = database.psql().arg("-c").arg("alter extension zson update").command();
        let output = update.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let listed = database.sql("select index, statement from zson_old_indexes order by index::text");
        let names: Vec<&str> = listed.lines().map(|line| line.split_once('|').unwrap().0).collect();
        assert_eq!(names, ["by_host", "by_id", "held", "paths", "tags"], "{listed}");
        for line in listed.lines() {
            let (name, statement) = line.split_once('|').unwrap();
            assert!(
                said.contains(&format!("index {name} serves only")) && said.contains(statement),
                "{said}"
            );
            database
                .sql(&format!("alter index {name} rename to {name}_old; {statement}; drop index {name}_old"));
        }
        assert_eq!(database.sql("select count(*) from zson_old_indexes"), "0");
        database.sql("analyze k");
        for (sql, index) in [
            ("select * from k where doc->>'id' = '7'", "by_id"),
            ("select * from k where lower(doc->>'host') = 'x' and doc ? 'host'", "by_host"),
            ("select * from k where doc @> '{\"id\": 7}'", "held"),
            ("select * from k where \"the doc\" @> '{\"id\": 7}'", "paths"),
            ("select * from k where doc->'tags' @> '[1]'", "tags"),
        ] {
            let plan = database.sql(&format!("set enable_seqscan = off; explain {sql}"));
            assert!(
                plan.contains(&format!(" {index} ")) || plan.contains(&format!(" {index}\n")),
                "{sql}\n{plan}"
            );
        }
        database.sql("insert into k (doc) values ('{\"id\": 7}') on conflict ((doc->>'id')) do nothing");
        assert_eq!(database.sql("select count(*) from k"), "500");
    });
}

#[test]
fn a_view_over_the_originals_zson_info_survives_the_update() {
    Server::each_with_extensions("views of 1.1", &MAJORS, |server| {
        let database = before_update(server, "");
        database.sql("create view infos as select id, how, zson_info(doc)::text as info from old");
        let before = database.sql("select * from infos where id = 0");
        assert!(before.contains("zson version = 0"), "{before}");
        database.sql("alter extension zson update");
        assert_eq!(database.sql("select * from infos where id = 0"), before);
        assert_eq!(database.sql("select pg_typeof(zson_info(doc)), zson_info(doc) = info from old join infos using (id, how) where id = 1 limit 1"), "text|t");
        // As in any new database, once the view is gone.
        database.sql("drop view infos; alter extension zson drop function zson_info_of_1_1(zson); drop function zson_info_of_1_1(zson)");
    });
}

#[test]
fn an_updated_extension_is_what_a_new_one_is() {
    Server::each_with_extensions("updated equals new", &MAJORS, |server| {
        let updated = Database::empty(server);
        updated.sql("create extension zson version '1.1'; alter extension zson update");
        let fresh = Database::with_zson(server);
        for described in DESCRIBED {
            let lines = |database: &Database| -> Vec<String> {
                database.sql(described).lines().map(with_original_input).collect()
            };
            let (updated, fresh) = (lines(&updated), lines(&fresh));
            let only = |these: &[String], those: &[String]| -> Vec<String> {
                these.iter().filter(|line| !those.contains(line)).cloned().collect()
            };
            assert_eq!(only(&updated, &fresh), only(&fresh, &updated), "{described}");
            assert!(!fresh.is_empty(), "{described}");
        }
    });
}

/// The arguments that a type's input function declares cannot be changed, and make no difference to the server.
fn with_original_input(line: &str) -> String {
    if line.contains("zson_in(") {
        line.replace("cstring,oid,integer", "cstring").replace("cstring, oid, integer", "cstring")
    } else {
        line.to_owned()
    }
}

/// Everything that belongs to the extension.
const DESCRIBED: [&str; 6] = [
    "select pg_describe_object(classid, objid, objsubid) from pg_depend
        where refclassid = 'pg_extension'::regclass and deptype = 'e'
          and refobjid = (select oid from pg_extension where extname = 'zson') order by 1",
    "select p.oid::regprocedure, prorettype::regtype, prosrc, probin, provolatile, proisstrict, proparallel, proleakproof,
        procost, prorows, proargnames, pg_get_function_arguments(p.oid), prosecdef, proconfig, proacl,
        prosupport from pg_proc p where probin like '%zson' order by 1::text",
    "select typname, typlen, typtype, typcategory, typispreferred, typinput, typoutput, typreceive, typsend, typmodin,
        typmodout, typanalyze, typsubscript, typalign, typstorage from pg_type where typname ~ 'zson' order by 1",
    "select o.oid::regoperator, oprcanmerge, oprcanhash, oprcom::regoperator, oprnegate::regoperator, oprcode, oprrest,
        oprjoin from pg_operator o where oprcode in (select oid from pg_proc where probin like '%zson') order by 1::text",
    "select castsource::regtype, casttarget::regtype, castfunc::regprocedure, castcontext, castmethod from pg_cast
        where 'zson'::regtype in (castsource, casttarget) order by 1::text, 2::text",
    "select c.oid::regclass, relkind, reloptions, relacl, a.attname, format_type(atttypid, atttypmod), attnotnull, attstorage
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where relname ~ '^zson' and relkind <> 'i' and attnum > 0 order by 1::text, attnum",
];

#[test]
fn a_dump_of_version_1_1_restores_into_this_version() {
    Server::each_with_extensions("a dump of 1.1 restores", &MAJORS, |server| {
        let database = before_update(server, "");
        // Casts that the fixture needs and no user has.
        database.sql("create table plain as select id, how, was, doc from old; drop table old; alter table plain rename to old");
        database.sql("drop cast (bytea as zson); drop cast (jsonb as bytea)");
        let dump = database.run("pg_dump", &["-d", &database.name]).unwrap();
        assert!(dump.contains("COPY public.zson_dict"), "{dump}");
        let restored = Database::empty(server);
        restored.psql().sql(&dump).unwrap();
        assert_eq!(restored.sql(DIFFERENT), "");
        assert_eq!(restored.sql("select extversion from pg_extension where extname = 'zson'"), "2.0");
        assert_eq!(restored.sql("select count(*) from zson_dict"), (FIRST.len() + SECOND.len()).to_string());
    });
}

#[test]
fn a_word_or_dictionary_of_version_1_1_that_is_gone_is_an_error() {
    Server::each_with_extensions("words of 1.1 that are gone", &[15], |server| {
        let database = before_update(server, "");
        database.sql("alter extension zson update");
        database.sql("delete from zson_dict where dict_id = 0 and word = 'Name'");
        let named = "where was @> '{\"Name\": \"postgresql-master\"}'";
        database.fails("XX001", &format!("select doc from old {named} and how = 0"));
        assert_ne!(database.sql(&format!("select doc from old {named} and how = 1 limit 1")), "");
        database.sql("delete from zson_dict where dict_id = 1");
        database.fails("XX001", &format!("select doc from old {named} and how = 1"));
    });
}

#[test]
fn the_originals_documented_examples_behave_the_same() {
    on_one_major("the original's examples", |database| {
        let strings = |document: &str| database.sql(&format!("select zson_extract_strings('{document}')"));
        assert_eq!(strings("true"), "{}");
        assert_eq!(strings("\"aaa\""), "{aaa}");
        assert_eq!(strings(r#"["some", ["dummy", "array"], 456, false]"#), "{some,dummy,array}");
        assert_eq!(
            strings(r#"{"IP":"10.0.0.3","Roles":["master", "slave"]}"#),
            "{IP,Roles,10.0.0.3,master,slave}"
        );
        database.sql(
            r#"create table nocompress(x jsonb);
            insert into nocompress values ('true'), ('123'), ('"aaa"'), ('["some", ["dummy", "array"], 456, false]'), ('[
                {"ModifyIndex":1,"IP":"10.0.0.1","Roles":["master"]}, {"ModifyIndex":2,"IP":"10.0.0.2","Roles":["slave"]},
                {"ModifyIndex":3,"IP":"10.0.0.3","Roles":["master", "slave"]}]')"#,
        );
        assert_ne!(database.sql(r#"select zson_learn('{{"nocompress", "x"}}')"#), "");
        assert_ne!(database.sql(r#"select zson_learn('{{"nocompress", "x"}}', 10000, 1, 128, 1)"#), "");
        assert_eq!(database.sql(r#"select '{"aaa": "ololo"}'::zson"#), r#"{"aaa": "ololo"}"#);
        assert_eq!(database.sql(r#"select '{"aaa": "ololo"}'::zson -> 'aaa'"#), "\"ololo\"");
        database
            .sql(r#"create table zson_test(x zson); insert into zson_test values('{"aaa":123}' :: jsonb)"#);
        assert_eq!(database.sql("select x :: jsonb from zson_test"), r#"{"aaa": 123}"#);
        assert_eq!(database.sql("select x -> 'aaa' from zson_test"), "123");
        assert!(database.sql("select zson_info(x) from zson_test").starts_with("zson version = "));
        database.sql("drop table zson_test; drop table nocompress; drop extension zson");
    });
}
