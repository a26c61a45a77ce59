//! The script, and what psql makes of it.

use std::fs;

use pgshrink_advisor::Report;
use pgshrink_advisor::finding::{Proposal, Rule, Step};
use pgshrink_advisor::report::sql;
use pgshrink_testkit::{Cluster, Server, TempDir, or_skip};

use super::example::{self, ODD, change, finding, object};

/// Lines that psql would act on.
fn active(script: &str) -> Vec<&str> {
    script.lines().filter(|line| !line.is_empty() && !line.starts_with("--")).collect()
}

#[test]
fn proposals_come_in_order_and_what_is_not_recommended_is_a_comment() {
    let script = sql(&example::everything());
    let place = |words: &str| script.find(words).unwrap_or_else(|| panic!("no {words} in\n{script}"));
    let order = [
        "\\set ON_ERROR_STOP on",
        "SET lock_timeout",
        "\nCREATE TABLE public.orders_new",
        "\nCREATE TRIGGER follow",
        "\nBEGIN; LOCK public.orders;",
        "\nVACUUM (FULL, ANALYZE) public.events;",
        "\nALTER SYSTEM SET wal_compression",
        "\n-- DROP INDEX CONCURRENTLY public.orders_customer_idx;",
    ];
    assert!(order.map(place).is_sorted(), "{script}");
    assert!(
        !active(&script).iter().any(|line| line.contains("DROP INDEX") || line.contains("CLUSTER")),
        "{script}"
    );
    for said in [
        "Nothing has been executed",
        "risk: INSERT and COPY",
        "lock: ACCESS EXCLUSIVE on public.orders, for an instant",
        "! The view",
    ] {
        assert!(script.contains(said), "{said}:\n{script}");
    }
}

#[test]
fn a_setting_with_risks_is_a_comment_too() {
    let mut setting = finding(Rule::Setting, object("setting", "x", None), "t", change(0, 0), false);
    setting.sql = vec!["ALTER SYSTEM SET x = 1".into()];
    let report = Report { findings: vec![setting], ..example::empty() };
    assert!(sql(&report).contains("\n-- ALTER SYSTEM SET x = 1;\n"));
    assert!(sql(&example::empty()).contains("There are no proposals"));
}

#[test]
fn every_line_is_a_comment_a_statement_or_psqls_own() {
    // All that is odd is in names; statements are one line each.
    let report = example::odd(ODD.len() * 3);
    let statements: Vec<&str> = report
        .proposals
        .iter()
        .flat_map(|p| &p.sql)
        .flat_map(|step| &step.statements)
        .flat_map(|text| text.lines())
        .collect();
    let own = [
        "\\set ",
        "\\encoding ",
        "SET ",
        "\\if ",
        "\\else",
        "\\endif",
        "DO $$",
        "SELECT pg_catalog.current_database() OPERATOR(pg_catalog.=) '",
        "break\r--; DROP TABLE victim;'::pg_catalog.name AS right_database",
        "ALTER SYSTEM",
        "SELECT pg_reload_conf",
    ];
    let script = sql(&report);
    for line in active(&script) {
        let is_known = statements.contains(&line) || own.iter().any(|own| line.starts_with(own));
        assert!(is_known, "{line:?} in\n{script}");
    }
}

/// A report whose every text is `odd`, with one statement that leaves a trace.
fn hostile(database: &str, odd: &str, number: usize) -> Report {
    let place = |kind: &str| pgshrink_advisor::finding::Object {
        schema: odd.into(),
        part: Some(odd.into()),
        ..object(kind, odd, None)
    };
    let mut in_proposal = finding(Rule::ColumnOrder, place("column"), odd, change(2, 1), true);
    in_proposal.risks = vec![odd.into()];
    in_proposal.proof = Some(odd.into());
    in_proposal.id = odd.into();
    let mut alone = in_proposal.clone();
    alone.in_proposal = false;
    alone.id = format!("{odd} alone");
    alone.cost = odd.into();
    alone.sql = vec![format!("DROP TABLE victim; {odd}")];
    Report {
        database: database.into(),
        proposals: vec![Proposal {
            object: place("table"),
            findings: vec![in_proposal.id.clone()],
            sql: vec![Step {
                title: odd.into(),
                statements: vec![format!("INSERT INTO trace VALUES ({number})")],
                lock: odd.into(),
            }],
            warnings: vec![odd.into()],
            ..Proposal::default()
        }],
        findings: vec![in_proposal, alone],
        ..example::empty()
    }
}

#[test]
fn no_name_gets_out_of_a_comment_in_psql() {
    let test = "no_name_gets_out_of_a_comment_in_psql";
    let server = or_skip!(test, Server::find(15));
    let cluster = Cluster::builder().server(&server).start().unwrap();
    let name = "it's \"odd\" \\ :x 😀";
    cluster.sql(&format!("CREATE DATABASE \"{}\"", name.replace('"', "\"\""))).unwrap();
    let folder = TempDir::new().unwrap();
    let run = |number: usize, script: String, database: &str| {
        let file = folder.path().join(format!("{number}.sql"));
        fs::write(&file, script).unwrap();
        cluster.psql().database(database).arg("-f").arg(file.to_str().unwrap()).run()
    };
    let tables = "CREATE TABLE victim (); CREATE TABLE trace (n int)";
    for database in [name, "postgres"] {
        cluster.psql().database(database).sql(tables).unwrap();
    }
    let breaks = [
        "\n",
        "\r",
        "\r\n",
        "\u{b}",
        "\u{c}",
        "\u{85}",
        "\u{2028}",
        "*/",
        "'",
        "\"",
        "$$",
        "\\q\n",
        "\n\\! false\n",
    ];
    let odd = breaks.map(|end| format!("x{end}DROP TABLE victim; --"));
    let odd: Vec<&str> = odd.iter().map(String::as_str).chain(ODD).collect();
    for (number, odd) in odd.iter().enumerate() {
        let script = sql(&hostile(name, odd, number));
        run(number, script.clone(), name).unwrap_or_else(|error| panic!("{odd:?}: {error}\n{script}"));
    }
    let psql = cluster.psql().database(name);
    assert_eq!(psql.clone().sql("SELECT count(*) FROM victim").unwrap().trim(), "0");
    let expected: String = (0..odd.len()).map(|number| format!("{number}\n")).collect();
    assert_eq!(psql.sql("SELECT n FROM trace ORDER BY n").unwrap().trim(), expected.trim());

    // And it does nothing in a database that it was not made for.
    let error = run(99, sql(&hostile(name, "x", 99)), "postgres").unwrap_err().to_string();
    assert!(error.contains("generated for another database"), "{error}");
    assert_eq!(cluster.sql("SELECT count(*) FROM trace").unwrap().trim(), "0");
}
