//! Databases that had the original zson 1.1: everything it wrote is read, and can be written anew.

mod datum;

use pgshrink_testkit::{Server, ServerBinaries};

use crate::databases::{Database, MAJORS, on_one_major};
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
