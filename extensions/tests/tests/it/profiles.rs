//! Profiles: who makes and removes them, and learning before a column has one.

use std::time::Duration;

use crate::databases::{Database, failure, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, NEED_DICTIONARY, records, records_of, table, trained_table};

#[test]
fn a_new_profile_takes_the_right_to_create_in_the_extensions_schema() {
    on_each_major("who makes profiles", |database| {
        database.role("passer_by");
        database.sql("create schema own authorization passer_by; revoke create on schema public from public");
        database.sql("create table used (doc zson('known'))");
        let as_role = || database.psql().user("passer_by");
        failure(as_role(), "42501", "select '{}'::zson('fresh')");
        failure(as_role(), "42501", "create table own.t (doc zson('fresh'))");
        assert_eq!(database.sql("select count(*) from zson_profile where name = 'fresh'"), "0");
        // A profile that is there is for all.
        database.sql_as(
            "passer_by",
            "create table own.t (doc zson('known')); insert into own.t values ('{\"a\": 1}')",
        );
        database.sql("grant create on schema public to passer_by");
        database.sql_as("passer_by", "create table own.u (doc zson('fresh'))");
        assert_eq!(database.sql("select count(*) from zson_profile where name = 'fresh'"), "1");
        database.sql("drop owned by passer_by");
    });
}

#[test]
fn an_owners_dump_restores_with_its_profiles() {
    on_each_major("an owner's dump", |given| {
        given.role("keeper");
        let owned = || {
            let database = Database::empty(given.cluster.server());
            database.sql(&format!("alter database {} owner to keeper", database.name));
            database
        };
        let database = owned();
        database.sql_as("keeper", "create extension zson");
        database.sql_as(
            "keeper",
            &format!(
                "create table t (id int primary key, was jsonb, doc zson('kept')); insert into t select id, doc, doc from ({}) r;
                select zson_learn('t', 'doc'); call zson_reencode('t', 'doc')",
                records(1000)
            ),
        );
        let mut dump = database.cluster.command("pg_dump");
        dump.arg("-h").arg(database.cluster.socket_dir()).arg("-p").arg(database.cluster.port().to_string());
        let dump = pgshrink_testkit::run::output(dump.args([
            "-U",
            "keeper",
            "--exclude-table-data=*.zson_*",
            "-d",
            &database.name,
        ]))
        .unwrap();
        let restored = owned();
        restored.sql_as("keeper", &dump);
        assert_eq!(restored.sql(DIFFERENT), "0");
        let declared = "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 't'::regclass and attname = 'doc'";
        assert_eq!(restored.sql(declared), "zson('kept')");
    });
}

#[test]
fn a_profile_is_dropped_when_no_column_has_it() {
    on_each_major("dropping profiles", |database| {
        database.sql(&format!(
            "create table t (id int primary key, was jsonb, doc zson('going')); insert into t select id, doc, doc from ({}) r;
            select zson_learn('t', 'doc'); call zson_reencode('t', 'doc')",
            records(1000)
        ));
        database.fails("2BP01", "select zson_drop_profile('going')");
        database.sql("create domain d as zson('narrow'); create table arrays (docs zson('many')[])");
        database.fails("2BP01", "select zson_drop_profile('narrow')");
        database.fails("2BP01", "select zson_drop_profile('many')");
        database.fails("55000", "select zson_drop_profile('default')");
        database.fails("42704", "select zson_drop_profile('never_was')");
        database.role("passer_by");
        failure(database.psql().user("passer_by"), "42501", "select zson_drop_profile('many')");
        // Its documents are read as before, and its dictionary goes when none needs it.
        database.sql("alter table t alter doc type zson");
        database.sql("drop table arrays; select zson_drop_profile('many')");
        database.sql("create table kept as select doc from t");
        database.sql("select zson_drop_profile('going')");
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql("select name from zson_profile where name in ('going', 'many')"), "");
        assert_eq!(database.sql("select current from zson_dictionaries where profile = 'going'"), "f");
        database.sql("create table again (doc zson('going')); insert into again select was from t");
        assert_eq!(database.sql("select count(*) from again join t on again.doc = t.was"), "1000");
    });
}

#[test]
fn a_codec_is_set_for_a_profile_that_is_there() {
    on_each_major("codecs of unknown profiles", |database| {
        database.fails("42704", "select zson_set_codec('misspelt', 'lz4')");
        assert_eq!(database.sql("select count(*) from zson_profile"), "1");
        database.sql("create table t (doc zson('spelt')); select zson_set_codec('spelt', 'lz4')");
        assert_eq!(database.sql("select codec from zson_profile where name = 'spelt'"), "lz4:1");
    });
}

#[test]
fn learning_does_not_judge_by_documents_it_trained_on() {
    on_each_major("judging", |database| {
        database.sql("create table alike (doc zson('alike'))");
        // One document, however often, leaves none to judge by.
        for rows in [1, 2000] {
            database.sql(&format!(
                "truncate alike; insert into alike select jsonb_build_object('a', repeat('word ', 40)) from generate_series(1, {rows})"
            ));
            let said = database.sql("select zson_learn('alike', 'doc')");
            assert!(said.contains("too few to learn from"), "{said}");
        }
        // Nor is a document that one was trained on among those that it is measured on.
        database.sql(
            "truncate alike; insert into alike select jsonb_build_object('a', md5((i % 20)::text)) from generate_series(1, 2000) i",
        );
        let said = database.sql("select zson_learn('alike', 'doc')");
        let foreseen =
            database.sql("select count(*) from zson_dictionaries where after_bytes * 3 < jsonb_bytes * 2");
        assert_eq!(foreseen, "0", "random text was foreseen: {said}");
    });
}

#[test]
fn a_profile_learns_from_a_jsonb_column_before_the_column_has_it() {
    on_each_major("learning first", |database| {
        database.sql(&format!(
            "create table event as select id, doc as was, doc from ({}) r; create table late as select * from event",
            records(4000)
        ));
        let said = database.sql("select zson_learn('event', 'doc', 'event')");
        assert!(said.contains("a new dictionary"), "{said}");
        database.sql("alter table event alter doc type zson('event')");
        let current = "select count(*) from event where not zson_is_current(doc, 'event')";
        assert_eq!(database.sql(current), "0", "documents are not written as the profile writes");
        // Nor as a profile writes that has no dictionary.
        let bare = "select count(*) from event where cardinality(zson_dictionary_ids(doc)) <> 1";
        assert_eq!(database.sql(bare), "0", "documents were written without the dictionary");
        assert_eq!(database.sql("select count(*) from event where doc::jsonb <> was"), "0");
        assert_eq!(database.sql("select name from zson_profile order by id"), "default\nevent");
        // The other order leaves the untrained documents' room behind.
        database.sql("alter table late alter doc type zson('late'); select zson_learn('late', 'doc'); call zson_reencode('late', 'doc')");
        let sizes = database.sql("select pg_table_size('event') * 3 < pg_table_size('late') * 2");
        assert_eq!(sizes, "t");
        // Of json, and of a zson column that has another profile.
        database.sql("alter table late alter doc type json using doc::jsonb::json; select zson_learn('late', 'doc', 'of_json')");
        database.sql("select zson_learn('event', 'doc', 'of_zson')");
        assert_eq!(
            database.sql("select string_agg(profile, ' ' order by id) from zson_dictionaries where current"),
            "event late of_json of_zson"
        );
    });
}

#[test]
fn a_profile_that_is_turned_off_learns_nothing_and_reports_no_error() {
    on_each_major("codec none", |database| {
        trained_table(database, 1000);
        database.sql("select zson_set_codec('default', 'none')");
        let said = database.sql("select zson_learn('t', 'doc')");
        assert!(said.contains("its codec is none"), "{said}");
        database.sql("call zson_reencode('t', 'doc')");
        assert_eq!(database.sql(NEED_DICTIONARY), "0");
        assert_eq!(database.sql("select count(*) from t where zson_info(doc) !~ 'codec = none'"), "0");
        assert_eq!(database.sql(DIFFERENT), "0");
        database.sql("select zson_set_codec('default', null); call zson_reencode('t', 'doc')");
        assert_eq!(database.sql(NEED_DICTIONARY), "1000");
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn what_is_erased_leaves_the_dictionaries_too() {
    on_one_major("erasure", |given| {
        // Of its own: what other databases of the cluster do holds clean-up back.
        let cluster = Box::leak(Box::new(
            pgshrink_testkit::Cluster::builder().server(given.cluster.server()).start().unwrap(),
        ));
        let database = Database::beside(cluster, "");
        database.sql("create extension zson");
        table(&database, 1500);
        let secret = "Erika Mustermann, Heidestrasse 17";
        database.sql(&format!(
            "update t set was = was || '{{\"customer\": \"{secret}\"}}' where id % 10 <> 0; update t set doc = was;
            select zson_learn('t', 'doc'); call zson_reencode('t', 'doc'); analyze t"
        ));
        let known = format!(
            "select count(*) from zson_dictionary where content::text like '%' || encode('{}', 'hex') || '%'",
            "Mustermann"
        );
        assert_eq!(database.sql(&known), "1", "the test's dictionary does not hold the name");
        let path = database.sql("select pg_relation_filepath(reltoastrelid) from pg_class where oid = 'zson_dictionary'::regclass");
        let stored = |path: &str| {
            database.sql("checkpoint");
            let file = std::fs::read(cluster.data_dir().join(path)).unwrap();
            file.windows(10).any(|part| part == b"Mustermann")
        };
        assert!(stored(&path));

        database.sql("delete from t where doc ? 'customer'");
        // Without `anew` a dictionary stays that nothing beats by one per cent.
        database.sql("select zson_learn('t', 'doc', 'default', anew => true)");
        database.sql("call zson_reencode('t', 'doc'); analyze t; vacuum full t");
        // Whoever is in the database holds clean-up back: a psql that is ending, an autovacuum worker.
        let mut removed = String::new();
        let vacuum = "select bool_and(removed), string_agg(reason, '; ') from zson_vacuum_dictionaries()";
        pgshrink_testkit::wait_until(Duration::from_secs(30), "the dictionaries to be removed", || {
            removed = database.sql(vacuum);
            removed.starts_with("t|")
        })
        .unwrap_or_else(|error| panic!("{error}: {removed}"));
        database.sql("vacuum full zson_dictionary; analyze; checkpoint");
        assert_eq!(database.sql(&known), "0");
        let path = database.sql("select pg_relation_filepath(reltoastrelid) from pg_class where oid = 'zson_dictionary'::regclass");
        assert!(!stored(&path));
        assert_eq!(database.sql(DIFFERENT), "0");
        assert_eq!(database.sql("select count(*) from t"), "150");
    });
}

#[test]
fn arrays_and_rows_of_documents_are_written_anew_by_hand() {
    on_each_major("arrays and rows", |database| {
        trained_table(database, 1000);
        database.sql(&format!(
            "create type pair as (name text, doc zson);
            create table many (id int, docs zson[], one pair);
            insert into many select id, array[doc::zson, null], row('x', doc)::pair from ({}) r;
            truncate t; insert into t select id, doc, doc from ({}) r;
            select zson_learn('t', 'doc', 'default', anew => true)",
            records(200),
            records_of("other", 1000)
        ));
        let newest = "(select max(id) from zson_dictionaries)";
        let old = format!(
            "select count(*) from many where not {newest} = all (zson_dictionary_ids(docs) || zson_dictionary_ids(one))"
        );
        assert_ne!(database.sql(&old), "0");
        database.fails("42809", "call zson_reencode('many', 'docs')");
        database.sql(
            "update many set docs = array(select zson_reencode(d) from unnest(docs) with ordinality u(d, n) order by n),
                one = row((one).name, zson_reencode((one).doc))::pair",
        );
        assert_eq!(database.sql(&old), "0");
        assert_eq!(
            database.sql("select count(*) from many where docs[1] <> (one).doc or docs[2] is not null"),
            "0"
        );
    });
}

#[test]
fn a_publications_row_filter_takes_a_column_beside_the_document() {
    on_each_major("row filters", |database| {
        table(database, 10);
        let error =
            database.psql().sql("create publication p for table t where (doc->>'status' = 'passing')");
        assert!(error.unwrap_err().to_string().contains("invalid publication WHERE expression"));
        database.sql(
            "alter table t add status text; update t set status = doc->>'status';
            alter table t replica identity full; create publication p for table t where (status = 'passing')",
        );
    });
}
