//! Databases in other encodings and collations.

use pgshrink_testkit::Server;

use crate::databases::Database;
use crate::documents::{DIFFERENT, NEED_DICTIONARY};

#[test]
fn documents_are_learned_and_read_in_any_encoding() {
    Server::each_with_extensions("encodings", &[15, 18], |server| {
        for (encoding, words) in [
            ("LATIN1", "Größe £5 naïve"),
            ("EUC_JP", "日本語 かな"),
            ("SQL_ASCII", "Größe"),
            ("WIN1251", "Привет"),
        ] {
            let options = format!("template template0 encoding '{encoding}' lc_collate 'C' lc_ctype 'C'");
            let database = Database::made_with(server, &options);
            let client = if encoding == "SQL_ASCII" { "SQL_ASCII" } else { "UTF8" };
            let sql = |sql: &str| {
                database
                    .psql()
                    .env("PGCLIENTENCODING", client)
                    .sql(sql)
                    .unwrap_or_else(|error| panic!("{encoding}: {sql}\n{error}"))
            };
            sql("create extension zson");
            sql(&format!(
                "create table t (id int primary key, was jsonb, doc zson);
                insert into t select i, d, d from generate_series(1, 1500) i, lateral (select jsonb_build_object(
                    'id', i, '{words}', '{words} ' || i % 9, 'k', md5(i::text), 'list', jsonb_build_array('{words}', i % 7)) as d) x;
                select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)"
            ));
            assert_ne!(sql(NEED_DICTIONARY), "0", "{encoding}");
            assert_eq!(sql(DIFFERENT), "0", "{encoding}");
            assert_eq!(
                sql(&format!("select count(*) from t where doc->>'{words}' = '{words} 3'")),
                "167",
                "{encoding}"
            );
            let by_shape = "select count(*) from t where zson_info(doc) ~ 'codec = shapes'";
            assert_eq!(sql(by_shape), "1500", "{encoding}");
            let parts = format!(
                "select count(*) from t where doc -> '{words}' is distinct from was -> '{words}' or not doc ? '{words}'
                or doc #>> '{{list,0}}' is distinct from was #>> '{{list,0}}' or doc['list'][0] is distinct from was['list'][0]
                or doc #> array['list', '{words}'] is not null or not doc @> jsonb_build_object('list', array['{words}'])"
            );
            assert_eq!(sql(&parts), "0", "{encoding}");
            let extracted = sql(&format!("select (zson_extract_strings('[\"{words}\"]'))[1]"));
            assert_eq!(extracted, words);
            if client == "UTF8" {
                let dump = database.run("pg_dump", &["-E", "UTF8", "-d", &database.name]).unwrap();
                let restored = Database::empty(server);
                restored.sql(&dump);
                assert_eq!(restored.sql(DIFFERENT), "0", "{encoding} restored into UTF8");
            }
        }
    });
}

#[test]
fn a_database_of_another_collation_sorts_and_learns_as_any() {
    Server::each_with_extensions("a collation that is not C", &[15], |server| {
        let database =
            Database::made_with(server, "template template0 locale_provider icu icu_locale 'de-DE'");
        database.sql("create extension zson");
        crate::documents::trained_table(&database, 1000);
        let sorted =
            |column: &str| database.sql(&format!("select id from t order by {column} desc limit 20"));
        assert_eq!(sorted("doc"), sorted("was"));
    });
}
