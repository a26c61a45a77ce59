//! Definitions of tables, read over a connection, and a plan that is made from one.

use pgshrink_advisor::edit::Edit;
use pgshrink_advisor::plan::{Method, Request, plan};
use pgshrink_advisor::snapshot::{Column, Table};
use pgshrink_cli::advise::collect::definitions::definitions;
use pgshrink_pgclient::Surroundings;
use pgshrink_pgclient::connection::{Connection, Options};
use pgshrink_pgclient::surroundings::{Files, Stat};
use pgshrink_testkit::{Cluster, Server};
use std::collections::BTreeMap;

/// No files: no service, no password.
pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    fn stat(&self, _: &std::path::Path) -> std::io::Result<Stat> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

#[test]
fn definitions_of_many_tables_are_read_at_once_and_are_enough_for_a_plan() {
    Server::each("definitions of tables", &[15, 16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let make = |n| {
            format!(
                "create table t{n} (a bool, b bigint primary key, \"Odd\n\"\"name\" text default 'x');
                 create view v{n} as select b from t{n}; comment on table t{n} is 'number {n}';
                 insert into t{n} select true, g from generate_series(1, 10) g;"
            )
        };
        cluster.sql(&(1..=300).map(make).collect::<String>()).unwrap();
        cluster.sql("create role nobody_special login").unwrap();
        let oids = cluster
            .sql("select oid from pg_class where relname ~ '^t[0-9]+$' order by length(relname), 1")
            .unwrap();
        let oids: Vec<u32> = oids.lines().map(|line| line.parse().unwrap()).collect();
        let around = Surroundings { env: BTreeMap::new(), home: None, files: &NoFiles };
        let conninfo = format!("{} user=nobody_special", cluster.conninfo("postgres"));
        let mut connection = Connection::open(conninfo.as_bytes(), &around, &Options::default()).unwrap();
        connection.simple_query("set search_path = public, pg_temp; set datestyle = 'german'").unwrap();
        let mut asked = oids.clone();
        asked.push(1);
        let all = definitions(&mut connection, &asked).unwrap();
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), oids, "one for each table that exists");
        let settings = "select current_setting('search_path') || current_setting('datestyle')";
        let settings = connection.simple_query(settings).unwrap();
        assert_eq!(settings[0].text(0, 0), Some("public, pg_tempGerman, DMY"));
        let names: Vec<_> = all[&oids[6]].relations.iter().map(|relation| relation.name.as_str()).collect();
        assert_eq!(names, ["t7", "v7"]);
        let column = |name: &str| Column { name: name.to_owned(), ..Column::default() };
        let table = Table {
            oid: oids[6],
            schema: "public".to_owned(),
            name: "t7".to_owned(),
            columns: ["a", "b", "Odd\n\"name"].map(column).to_vec(),
            definition: Some(all[&oids[6]].clone()),
            ..Table::default()
        };
        let request = Request {
            table: &table,
            edits: &[Edit::Reorder],
            order: Some(&[1, 0, 2]),
            server_version: 150_000,
        };
        for step in plan(&request, Method::Offline).unwrap().steps {
            cluster.sql(&step.statements.join("\n")).unwrap();
        }
        let found = "select obj_description('t7'::regclass) || ' ' || sum(b) from v7";
        assert_eq!(cluster.sql(found).unwrap(), "number 7 55");
    });
}
