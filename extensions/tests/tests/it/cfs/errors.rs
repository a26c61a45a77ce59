//! Utility statements fail with the same fields with the library and without it.

use pgshrink_testkit::{Cluster, Server};

use super::{MAJORS, with_cfs};

/// What comes before, in each of the two servers.
const BEFORE: &str = "
    create table parent (id int primary key, n int constraint positive check (n > 0));
    create table child (id int references parent);
    insert into parent values (1, 1); insert into child values (1);
    create domain small as int constraint small_check check (value < 10);
    create tablespace plain location '';
    create function fails() returns void language plpgsql as $$ begin execute 'create table parent ()'; end $$;
    create function vetoes() returns event_trigger language plpgsql as $$ begin raise exception 'vetoed' using hint = 'h', detail = 'd', errcode = 'P0099', table = 'x', schema = 'y'; end $$;
";

const FAILING: [&str; 22] = [
    "create table parent ()",
    "create tabel x ()",
    "alter table parent add constraint twice check (n > 5)",
    "alter table child add foreign key (id) references nowhere",
    "alter table parent alter n type date using 'x'::date",
    "create unique index on child ((1 / 0))",
    "create index on child (nothing)",
    "drop table parent",
    "drop schema absent",
    "do $$ begin perform fails(); end $$",
    "do $$ begin insert into child values (7); end $$",
    "copy parent from stdin\n2\tx\n\\.",
    "copy parent from stdin\n2\t-1\n\\.",
    "set statement_timeout = 'never'",
    "create view v as select nothing from parent",
    "create function f() returns int language sql as 'select nothing'",
    "alter domain small add constraint odd check (nothing)",
    "create tablespace relative location 'relative'",
    "alter tablespace plain set (unknown = 1)",
    "alter tablespace absent set (seq_page_cost = 1)",
    "drop tablespace absent",
    "create event trigger veto on ddl_command_start execute function vetoes(); create table never ()",
];

/// All that psql shows of an error: code, message, detail, hint, context, position, objects, place in the source.
fn said(cluster: &Cluster, statement: &str) -> String {
    let separator = if statement.starts_with("copy") {
        statement.replacen('\n', ";\n", 1)
    } else {
        format!("{statement};")
    };
    let script = format!("\\set VERBOSITY verbose\n\\set SHOW_CONTEXT always\n{separator}\n\\errverbose\n");
    let said = cluster.psql().sql(&script).expect_err(statement).to_string();
    // What follows the command line and its port.
    let at =
        said.find("psql:").or_else(|| said.find("ERROR:")).unwrap_or_else(|| panic!("{statement}: {said}"));
    said[at..].to_owned()
}

#[test]
fn errors_of_utility_statements_are_the_same_with_the_library_and_without() {
    Server::each_with_extensions("fields of errors", &MAJORS, |server| {
        let with = with_cfs(server);
        let without =
            Cluster::builder().server(server).conf("allow_in_place_tablespaces", "on").start().unwrap();
        for cluster in [&with, &without] {
            cluster.sql(BEFORE).unwrap();
        }
        let mut contexts = 0;
        for statement in FAILING {
            let (ours, theirs) = (said(&with, statement), said(&without, statement));
            assert_eq!(ours, theirs, "{statement}");
            contexts += usize::from(ours.contains("CONTEXT:"));
        }
        assert!(contexts >= 4, "only {contexts} errors have a context");
    });
}
