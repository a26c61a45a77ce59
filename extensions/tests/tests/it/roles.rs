//! Roles without privileges: what they may do, and what they may not see.

use crate::databases::{Database, failure, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, trained_table};

#[test]
fn dictionaries_show_nothing_to_those_who_may_not_read_every_table() {
    on_each_major("dictionaries are not shown", |database| {
        trained_table(database, 1000);
        database.role("nobody_much");
        let shown = database
            .sql_as("nobody_much", "select id, profile, codec, kind, size, hash from zson_dictionaries");
        assert_ne!(shown, "");
        // A word that is in every document, and so in the dictionary.
        assert_eq!(
            database.sql("select bool_or(content::text ~* encode('service', 'hex')) from zson_dictionary"),
            "t"
        );
        for seen in [
            "select content from zson_dictionary",
            "select content::text from zson_dictionary",
            "select zson_dictionary::text from zson_dictionary",
            "select to_jsonb(d) from zson_dictionary d",
            "select format('%s', content) from zson_dictionary",
            "copy zson_dictionary to stdout",
            "select zson_dictionary_bytes_out(content) from zson_dictionary",
            "select array_agg(content) from zson_dictionary",
        ] {
            if let Ok(printed) = database.psql().user("nobody_much").sql(seen) {
                let printed = printed.to_lowercase();
                let secret = ["service", "736572766963", "example.org"];
                assert!(
                    !secret.iter().any(|word| printed.contains(word)),
                    "{seen}\n{}",
                    &printed[..printed.len().min(300)]
                );
                assert!(printed.len() < 2000, "{seen}: {} bytes", printed.len());
            }
        }
        for sqlstate_and_sql in [
            ("42501", "select * from t"),
            ("42501", "select zson_learn('t', 'doc')"),
            ("42501", "select zson_set_codec('default', 'lz4')"),
            ("42501", "select * from zson_vacuum_dictionaries()"),
            ("42501", "insert into zson_dictionary select * from zson_dictionary"),
            ("42501", "delete from zson_dictionary"),
            ("42501", "update zson_profile set codec = 'none'"),
            ("42501", "insert into zson_profile values (77, 'mine')"),
            ("42501", "select * from zson_dict"),
            // A comparison of rows as they are stored would tell the bytes, one by one.
            ("42501", "select row(content, 1) *< row('00'::zson_dictionary_bytes, 1) from zson_dictionary"),
            (
                "42501",
                "create temp table own (a int, b int); create trigger t before insert on own \
                 for each row execute function zson_dictionary_load()",
            ),
        ] {
            failure(database.psql().user("nobody_much"), sqlstate_and_sql.0, sqlstate_and_sql.1);
        }
    });
}

#[test]
fn not_even_the_owner_changes_a_dictionary() {
    on_one_major("dictionaries are immutable", |database| {
        trained_table(database, 1000);
        for sql in [
            "update zson_dictionary set codec = 'lz4'",
            "update zson_dictionary set id = id + 1",
            "delete from zson_dictionary",
            "truncate zson_dictionary",
            "delete from zson_profile",
        ] {
            assert!(database.psql().sql(sql).is_err(), "{sql}");
        }
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn a_trusting_search_path_does_not_lead_to_other_dictionaries() {
    on_one_major("search paths", |database| {
        trained_table(database, 1000);
        database.role("trickster");
        database.sql("create schema tricks authorization trickster; grant select on t to trickster");
        database.sql_as(
            "trickster",
            "create table tricks.zson_dictionary (like public.zson_dictionary); create table tricks.zson_profile (id int, name text);
            create table tricks.zson_dict (dict_id int, word_id int, word text)",
        );
        assert_eq!(
            database
                .sql_as("trickster", &format!("set search_path = tricks, pg_catalog, public; {DIFFERENT}")),
            "0"
        );
        assert_eq!(database.sql(&format!("set search_path = tricks, public, pg_catalog; {DIFFERENT}")), "0");
        let bare = "set search_path = ''; select count(*) from public.t where public.zson_to_jsonb(doc) is distinct from was";
        assert_eq!(database.sql(bare), "0");
    });
}

#[test]
fn the_extension_lives_in_any_schema() {
    on_each_major("any schema", |given| {
        let database = Database::empty(given.cluster.server());
        database.sql("create schema \"Odd one\"; create extension zson schema \"Odd one\"");
        let path = "set search_path = public, \"Odd one\";";
        database.sql(&format!(
            "{path} create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({}) r;
            select zson_learn('t', 'doc'); call zson_reencode('t', 'doc')",
            crate::documents::records(1000)
        ));
        assert_eq!(database.sql(&format!("{path} {DIFFERENT}")), "0");
        assert_eq!(database.sql("select count(*) from t where doc::text <> was::text"), "0");
        let dump = database.run("pg_dump", &["-d", &database.name]).unwrap();
        let restored = Database::empty(given.cluster.server());
        restored.sql(&dump);
        assert_eq!(restored.sql(&format!("{path} {DIFFERENT}")), "0");
    });
}

#[test]
fn the_extensions_triggers_refuse_other_tables() {
    on_each_major("triggers of the extension", |database| {
        for function in ["zson_dictionary_load", "zson_profile_load"] {
            database.sql(&format!(
                "drop table if exists own; create table own (a int, b int); create trigger t before insert on own
                 for each row execute function {function}()"
            ));
            failure(database.psql(), "39P01", "insert into own values (1, 2)");
            failure(database.psql(), "39P01", &format!("select {function}()"));
        }
        assert_eq!(database.sql("select '{\"a\": 1}'::zson->>'a'"), "1");
    });
}
