//! Advice that was followed: what a report promises, beside what a server then has.

use crate::table::{number, read, server};
use pgshrink_advisor::advise::{Accepted, Options, advise};
use pgshrink_advisor::finding::Rule;
use pgshrink_advisor::snapshot::FORMAT;
use pgshrink_advisor::{Report, Snapshot};
use pgshrink_testkit::{Cluster, Server};

fn report(cluster: &Cluster, options: &str) -> Report {
    let mut table = read(cluster, "t", None);
    table.activity.inserted = 1;
    assert_eq!(table.options.join(","), options);
    let tables = vec![table];
    advise(
        &Snapshot { format: FORMAT, server: server(cluster), tables, ..Snapshot::default() },
        // Values have rules of their own, with tests of their own.
        &Options {
            rules: vec![
                Rule::ColumnOrder,
                Rule::DroppedColumns,
                Rule::Fillfactor,
                Rule::Bloat,
                Rule::IndexBloat,
            ],
            accepted: vec![Accepted::Rule(Rule::Fillfactor)],
            ..Options::default()
        },
        None,
    )
}

fn total(cluster: &Cluster, table: &str) -> u64 {
    number(cluster, &format!("select pg_total_relation_size('{table}')"))
}

#[test]
fn a_followed_proposal_gives_the_bytes_that_it_promised() {
    Server::each("followed proposals", &[15, 18], |binaries| {
        let cluster = Cluster::builder().server(binaries).conf("autovacuum", "off").start().unwrap();
        let sql = "create table t (a boolean not null, b bigint not null, c boolean not null, gone int,
                d timestamptz not null, e text, f smallint not null) with (fillfactor=80);
             insert into t select g % 2 = 0, g, true, 1, now(), case g % 3 when 0 then repeat('x', g % 90) end, 1
                from generate_series(1, 60000) g;
             alter table t drop gone; delete from t where b % 5 < 2";
        cluster.sql(sql).unwrap();
        cluster.sql("vacuum t").unwrap();
        let report = report(&cluster, "fillfactor=80");
        let mut rules: Vec<Rule> = report.findings.iter().map(|finding| finding.rule).collect();
        rules.sort_unstable();
        // Two thirds of the rows have a bitmap anyway, and it fits behind the header.
        let all = [Rule::ColumnOrder, Rule::Fillfactor, Rule::Bloat];
        assert_eq!(rules, all, "{:#?}", report.findings);
        let proposal = &report.proposals[0];
        assert_eq!((proposal.findings.len(), proposal.bytes.disk.now), (3, total(&cluster, "t")));
        let columns: Vec<&str> = report.tables[0].row_after.iter().map(|part| &*part.column).collect();
        let columns: Vec<&str> = columns.into_iter().filter(|name| !name.is_empty()).collect();
        let definition = |name: &&str| match *name {
            "a" | "c" => format!("{name} boolean not null"),
            "b" => "b bigint not null".to_owned(),
            "d" => "d timestamptz not null".to_owned(),
            "e" => "e text".to_owned(),
            _ => "f smallint not null".to_owned(),
        };
        let definitions = columns.iter().map(definition).collect::<Vec<_>>().join(", ");
        let list = columns.join(", ");
        cluster.sql(&format!("create table u ({definitions}); insert into u select {list} from t")).unwrap();
        cluster.sql("vacuum u").unwrap();
        assert_eq!(total(&cluster, "u"), proposal.bytes.disk.after);
        // Bloat alone is given back by its own statement.
        let bloat = report.findings.iter().find(|finding| finding.rule == Rule::Bloat).unwrap();
        cluster.sql(&bloat.sql[0]).unwrap();
        cluster.sql("vacuum t").unwrap();
        assert_eq!(total(&cluster, "t"), bloat.bytes.disk.after);
    });
}
