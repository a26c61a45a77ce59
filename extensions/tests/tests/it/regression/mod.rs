//! PostgreSQL's own regression statements for jsonb, with zson in its place.
//!
//! Each script runs twice in one server: as it is, and with the type replaced; what psql says is compared statement
//! by statement. Statements that say something else are listed in `differences.txt`, with what they say and why:
//! one that is not listed fails, and so does one that is listed and no longer differs.
//!
//! The scripts are PostgreSQL's (`tools/fetch-regression`), except for `sqljson.sql`: what 15 does not have.

mod differences;
mod statements;

use std::fs;
use std::path::PathBuf;

use pgshrink_testkit::{Cluster, Missing, Psql, Server, ServerBinaries, checkout, or_skip};

use differences::Difference;
use statements::{Statement, outcomes, replaced, split};

const NAMES: [(&str, &str); 3] =
    [("jsonb", "zson"), ("jsonb_ops", "zson_ops"), ("jsonb_path_ops", "zson_path_ops")];
/// What regression tests are run with.
const SETTINGS: &str = "-c intervalstyle=postgres_verbose -c timezone=PST8PDT -c datestyle=Postgres,MDY";

#[test]
fn postgresqls_own_jsonb_statements_give_the_same_with_zson() {
    let test = "PostgreSQL's own jsonb statements with zson";
    let scripts = or_skip!(test, fetched());
    Server::each_with_extensions(test, &[15, 16, 18], |server| {
        compare(server, &scripts, &["jsonb.sql", "jsonb_jsonpath.sql", "json_encoding.sql"], "");
    });
}

#[test]
fn a_dictionary_changes_nothing_about_that() {
    learned("PostgreSQL's own jsonb statements with zson and a dictionary", "zstd");
}

#[test]
fn a_dictionary_of_shapes_changes_nothing_about_that() {
    learned("PostgreSQL's own jsonb statements with zson and a dictionary of shapes", "shapes");
}

/// Compares with a dictionary of PostgreSQL's own documents.
fn learned(test: &str, codec: &str) {
    let scripts = or_skip!(test, fetched());
    Server::each_with_extensions(test, &[15], |server| {
        let data = scripts.join("data/jsonb.data");
        let learned = format!(
            "create temp table learned (doc zson); \\copy learned from '{}'\n\
            select zson_set_codec('default', '{codec}') \\g /dev/null\n\
            select zson_learn('learned', 'doc') \\g /dev/null\n\
            do $$ begin assert (select size from zson_dictionaries where codec ~ '{codec}') > 0; end $$;
            do $$ begin assert (select count(*) > 500 from learned where zson_info(zson_reencode(doc)) ~ 'codec = {codec}'); end $$;
            drop table learned;",
            data.display()
        );
        compare(server, &scripts, &["jsonb.sql", "jsonb_jsonpath.sql", "json_encoding.sql"], &learned);
        compare(server, &ours(), &["more.sql"], &learned);
    });
}

#[test]
fn everything_else_that_jsonb_columns_can_do_gives_the_same_with_zson() {
    Server::each_with_extensions("statements with a zson for a jsonb", &[15, 16, 18], |server| {
        compare(server, &ours(), &["more.sql"], "");
    });
}

#[test]
fn sql_json_of_later_versions_gives_the_same_with_zson() {
    Server::each_with_extensions("SQL/JSON with zson", &[16, 18], |server| {
        compare(server, &ours(), &["sqljson.sql"], "");
    });
}

fn ours() -> PathBuf {
    checkout().join("extensions/tests/tests/it/regression")
}

fn fetched() -> Result<PathBuf, Missing> {
    let folder = checkout().join("target/regression/postgresql-15/regress");
    if folder.is_dir() {
        return Ok(folder);
    }
    let why = format!("no {}", folder.display());
    Err(Missing::new("PostgreSQL's own regression tests", why, "tools/fetch-regression"))
}

/// Runs scripts of a folder both ways and compares; `more` is run before, with zson.
fn compare(server: &ServerBinaries, folder: &std::path::Path, scripts: &[&str], more: &str) {
    let cluster = Cluster::builder().server(server).start().unwrap();
    let (mut compared, mut unexpected) = (0, Vec::new());
    let mut listed = differences::listed(server.major, scripts);
    for script in scripts {
        let path = [folder.join("sql").join(script), folder.join(script)];
        let text = path.iter().find_map(|path| fs::read_to_string(path).ok()).expect(script);
        let statements = split(&text);
        let name = script.trim_end_matches(".sql");
        let session = |database: &str| {
            cluster.sql(&format!("create database {database}")).unwrap();
            let source = folder.to_string_lossy().into_owned();
            cluster.psql().database(database).env("PGOPTIONS", SETTINGS).env("PG_ABS_SRCDIR", source)
        };
        let with_jsonb = run(session(&format!("{name}_as_it_is")), "", &statements, &[]);
        let preamble = format!("set client_min_messages = warning; create extension zson;\n{more}\n");
        let preamble = preamble + "reset client_min_messages;";
        let with_zson = run(session(&format!("{name}_with_zson")), &preamble, &statements, &NAMES);
        for ((statement, jsonb), zson) in statements.iter().zip(with_jsonb).zip(with_zson) {
            compared += 1;
            if jsonb == zson {
                continue;
            }
            let found = Difference::new(script, &statement.name(), &jsonb, &zson);
            match listed.iter().position(|difference| *difference == found) {
                Some(at) => drop(listed.remove(at)),
                None => unexpected.push(found.to_string()),
            }
        }
    }
    println!("{compared} statements compared on PostgreSQL {}", server.version);
    let gone: Vec<String> = listed.iter().map(Difference::to_string).collect();
    assert!(
        unexpected.is_empty() && gone.is_empty(),
        "on PostgreSQL {}, of {compared} statements\n{} differ and are not listed:\n{}\n{} are listed and do not differ so:\n{}",
        server.version,
        unexpected.len(),
        unexpected.join("\n"),
        gone.len(),
        gone.join("\n"),
    );
}

fn run(psql: Psql, preamble: &str, statements: &[Statement], names: &[(&str, &str)]) -> Vec<String> {
    let typed = |text: &str| if text.starts_with('\\') { text.to_owned() } else { replaced(text, names) };
    let texts: Vec<String> = statements.iter().map(|statement| typed(&statement.text)).collect();
    outcomes(psql, preamble, &texts).iter().map(|said| normal(said)).collect()
}

/// Without what tells the two types' names and lengths apart: where in the script an error is, the excerpt of the
/// statement and the mark below it.
fn normal(said: &str) -> String {
    let back: Vec<(&str, &str)> = NAMES.iter().map(|(jsonb, zson)| (*zson, *jsonb)).collect();
    let mut out = String::new();
    for line in said.lines() {
        let line =
            line.strip_prefix("psql:<stdin>:").and_then(|rest| rest.split_once(": ")).map_or(line, |at| at.1);
        if line.starts_with("LINE ") {
            out.push_str("LINE\n");
        } else if line.trim() != "^" {
            out.push_str(&replaced(line, &back));
            out.push('\n');
        }
    }
    out
}
