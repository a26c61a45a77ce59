//! `pgshrink advise --accept zson`: its script trains a dictionary, converts the column, and keeps its promise.

use std::process::Command;

use pgshrink_testkit::Server;

use crate::databases::Database;
use crate::documents::records;

/// What `pgshrink advise` prints.
#[track_caller]
fn advise(database: &Database, words: &[&str]) -> String {
    let conninfo = database.psql().conninfo();
    let mut command = Command::new(crate::exec::pgshrink());
    command.args(["advise", &conninfo, "--no-progress", "--accept", "zson"]).args(words);
    pgshrink_testkit::run::output(&mut command).unwrap()
}

/// Bytes of `event`'s table after its proposal.
fn promised(json: &str) -> u64 {
    let proposals = json.split_once("\"proposals\"").unwrap().1;
    let disk = proposals.split_once("\"disk\"").unwrap().1;
    let after = disk.split_once("\"after\":").unwrap().1;
    after.split(['\n', ',', '}']).next().unwrap().trim().parse().unwrap()
}

#[test]
fn an_accepted_column_of_documents_is_converted_with_a_dictionary() {
    Server::each_with_extensions("advice to use zson", &[15, 18], |server| {
        for (before, words) in [
            ("", &["--sql"][..]),
            ("create schema \"Ext\"; create extension zson schema \"Ext\"", &["--sql"]),
            ("create extension zson", &["--sql", "--online"]),
        ] {
            let database = Database::empty(server);
            database.sql(before);
            database.sql(&format!(
                "create table event as {}; alter table event add primary key (id); vacuum analyze event",
                records(20_000)
            ));
            let sum = |column: &str| {
                let sql = format!(
                    "select count(*), md5(string_agg(id || ({column})::text, ',' order by id)) from event"
                );
                database.sql(&format!("set search_path = public, \"Ext\"; {sql}"))
            };
            let rows = sum("doc");
            let promised = promised(&advise(&database, &["--json"]));
            database.sql(&advise(&database, words));
            database.sql("vacuum event");
            assert_eq!(sum("doc::jsonb"), rows, "{before}");
            let dictionaries =
                "select set_config('search_path', quote_ident(nspname), false) from pg_extension
                    join pg_namespace n on n.oid = extnamespace where extname = 'zson' \\gset
                select count(*) from zson_dictionaries";
            assert_eq!(database.sql(dictionaries), "1", "{before}");
            let found: u64 = database.sql("select pg_total_relation_size('event')").parse().unwrap();
            assert!(promised.abs_diff(found) * 20 <= found, "{before}: {promised} promised, {found} found");
        }
    });
}
