//! A database whose owner wants to run something with the rights of whoever asks for advice, and sessions that are somebody else's.

use crate::advise::{start, table};
use crate::backup::{ended, refused};
use pgshrink_advisor::Snapshot;
use pgshrink_testkit::{Cluster, Server, TempDir};
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

/// Operators that leave a trace, in front of those of the server.
const TRAPS: &str = "
    create table trace (who text);
    create function text_eq(text, text) returns bool language plpgsql as
        $$begin insert into public.trace values (current_user); return pg_catalog.texteq($1, $2); end$$;
    create function name_eq(name, name) returns bool language plpgsql as
        $$begin insert into public.trace values (current_user); return pg_catalog.nameeq($1, $2); end$$;
    create operator public.= (leftarg = text, rightarg = text, function = text_eq);
    create operator public.= (leftarg = name, rightarg = name, function = name_eq);
    create table shop (b bool, id bigint primary key, c bool, d bigint);
    insert into shop select true, n, false, n from generate_series(1, 20000) n;
    alter database postgres set search_path = public, pg_catalog;";

fn traces(cluster: &Cluster) -> String {
    cluster.sql("select pg_catalog.count(*) from public.trace").unwrap()
}

#[test]
fn neither_the_command_nor_its_script_runs_what_the_search_path_leads_to() {
    Server::each("objects that shadow the server's", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql(TRAPS).unwrap();
        cluster.sql("set search_path = pg_catalog; truncate public.trace").unwrap();
        let script = ended(&["advise", &cluster.conninfo("postgres"), "--sql", "--min-size", "0"], 0);
        assert_eq!(traces(&cluster), "0", "the command");
        assert!(script.contains("LOCK TABLE"));
        let keep = TempDir::new().unwrap();
        let path = keep.path().join("script.sql");
        fs::write(&path, &script).unwrap();
        let output =
            cluster.psql().arg("-X").arg("-f").arg(path.to_str().unwrap()).command().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(traces(&cluster), "0", "its script");
    });
}

#[test]
fn views_and_foreign_tables_that_take_the_place_of_a_table_are_not_read() {
    Server::each("relations that change their kind", &[15, 18], |server| {
        let cluster = start(server);
        cluster.set_conf("log_statement", "all").unwrap();
        cluster.reload().unwrap();
        ended(&["advise", &cluster.conninfo("postgres")], 0);
        let known =
            cluster.sql("select count(*) from pg_settings where name = 'restrict_nonsystem_relation_kind'");
        let log = cluster.log().unwrap();
        if known.unwrap() == "1" {
            assert!(log.contains("('restrict_nonsystem_relation_kind', 'view, foreign-table')"), "{log}");
        }
    });
}

#[test]
fn a_script_that_drops_an_index_stops_when_its_twin_has_gone() {
    Server::each("scripts that are out of date", &[15, 18], |server| {
        let cluster = start(server);
        cluster.sql("create table shop as select n, n % 7 as kind from generate_series(1, 40000) n").unwrap();
        cluster.sql("create index one on shop (kind); create index two on shop (kind)").unwrap();
        cluster.sql("vacuum analyze shop").unwrap();
        let script = ended(&["advise", &cluster.conninfo("postgres"), "--sql", "--min-size", "0"], 0);
        let dropped = if script.contains("DROP INDEX CONCURRENTLY public.two;") { "two" } else { "one" };
        let other = if dropped == "two" { "one" } else { "two" };
        let keep = TempDir::new().unwrap();
        let path = keep.path().join("script.sql");
        fs::write(&path, &script).unwrap();
        let run =
            || cluster.psql().arg("-X").arg("-f").arg(path.to_str().unwrap()).command().output().unwrap();
        let count =
            || cluster.sql("select count(*) from pg_index where indrelid = 'shop'::regclass").unwrap();
        cluster.sql(&format!("drop index {other}")).unwrap();
        let said = String::from_utf8_lossy(&run().stderr).into_owned();
        assert!(said.contains("has changed since this script was made"), "{said}");
        assert_eq!(count(), "1", "the last index on the column stays");
        cluster.sql(&format!("create index {other} on shop (kind); vacuum analyze shop")).unwrap();
        fs::write(&path, ended(&["advise", &cluster.conninfo("postgres"), "--sql", "--min-size", "0"], 0))
            .unwrap();
        let output = run();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(count(), "1");
    });
}

#[test]
fn statistics_that_may_not_be_read_are_told_and_the_rest_goes_on() {
    Server::each("pg_stats is locked away", &[15], |server| {
        let cluster = start(server);
        cluster.sql("create table shop as select n from generate_series(1, 9000) n").unwrap();
        cluster.sql("create role clerk login; grant select on shop to clerk").unwrap();
        cluster.sql("revoke all on pg_stats from public").unwrap();
        let keep = TempDir::new().unwrap();
        let path = keep.path().join("s.json");
        let conninfo = format!("{} user=clerk", cluster.conninfo("postgres"));
        ended(&["advise", &conninfo, "--min-size", "0", "--save", path.to_str().unwrap()], 0);
        let snapshot = Snapshot::parse(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(table(&snapshot, "shop").sample.as_ref().unwrap().rows.len(), 9000);
        let found = snapshot.unseen.iter().find(|unseen| unseen.what == "statistics of columns").unwrap();
        assert!(found.remedy.contains("GRANT SELECT ON pg_catalog.pg_stats TO clerk"), "{found:?}");
    });
}

#[test]
fn a_name_that_no_table_has_is_an_error() {
    Server::each("patterns without a table", &[15], |server| {
        let cluster = start(server);
        cluster.sql("create table orders (id int)").unwrap();
        let conninfo = cluster.conninfo("postgres");
        let said = refused(&["advise", &conninfo, "--table", "odrers"]);
        assert!(said.contains("--table odrers in postgres") && said.contains("expected names"), "{said}");
        let said = ended(&["advise", &conninfo, "--table", "orders", "--table", "odrers", "--json"], 0);
        assert!(said.contains("--table odrers") && !said.contains("\"--table orders\""), "{said}");
    });
}

/// Passes everything on, one way, in a thread of its own.
pub(crate) fn carry(from: &UnixStream, to: &UnixStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// What a pooler does: everything goes through, but for what the startup packet says of `options`.
fn forgetful(listener: UnixListener, server: std::path::PathBuf) {
    for client in listener.incoming() {
        let (Ok(mut client), Ok(mut server)) = (client, UnixStream::connect(&server)) else { return };
        let mut length = [0; 4];
        if client.read_exact(&mut length).is_err() {
            continue;
        }
        let mut packet = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut packet).unwrap();
        let mut words: Vec<&[u8]> = packet[4..].split(|byte| *byte == 0).collect();
        if let Some(at) = words.iter().position(|word| *word == b"options") {
            words.drain(at..at + 2);
        }
        let kept = [&packet[..4], &words.join(&0)].concat();
        server.write_all(&(kept.len() as u32 + 4).to_be_bytes()).unwrap();
        server.write_all(&kept).unwrap();
        carry(&server, &client);
        carry(&client, &server);
    }
}

#[test]
fn a_session_that_a_pooler_lends_is_refused_before_it_is_changed() {
    Server::each("poolers", &[15], |server| {
        let cluster = start(server);
        let socket = cluster.socket_path();
        let keep = TempDir::new().unwrap();
        let listener = UnixListener::bind(keep.path().join(".s.PGSQL.6432")).unwrap();
        thread::spawn(move || forgetful(listener, socket));
        cluster.set_conf("log_statement", "all").unwrap();
        cluster.reload().unwrap();
        let conninfo = format!("{} host={} port=6432", cluster.conninfo("postgres"), keep.path().display());
        let said = refused(&["advise", &conninfo]);
        assert!(said.contains("pooler") && said.contains("connect to the server itself"), "{said}");
        assert!(!cluster.log().unwrap().contains("set_config"), "nothing is left behind");
    });
}

/// Says in the log that it was called, as what a type is converted to text with.
const SPILL: &str = "
    create type mood as enum ('ok');
    create function spill(mood) returns text language plpgsql immutable as $$begin raise log 'spilled'; return 'ok'; end$$;
    create cast (mood as text) with function spill(mood) as implicit;
    create type text as (a int);
    create function spill(public.text) returns pg_catalog.text language plpgsql immutable as
        $$begin raise log 'spilled'; return 'ok'; end$$;
    create cast (public.text as pg_catalog.text) with function spill(public.text) as implicit;
    create table shop (n int, b pg_catalog.text);
    insert into shop select n, repeat('b', 40) from generate_series(1, 20000) n;
    create index on shop (upper(b));
    create table odd (n int, b public.text, m mood);
    insert into odd select n, row(n)::public.text, 'ok' from generate_series(1, 20000) n;
    create index on odd ((m::pg_catalog.text));
    create index odd_hash on odd (hashenum(m));
    create index odd_abs on odd (abs(n));
    vacuum analyze; checkpoint;";

/// Passes on what the client sends, and does something before the first message that has these words.
pub(crate) fn at_message(
    listener: UnixListener,
    server: std::path::PathBuf,
    words: &'static [u8],
    act: impl FnOnce(),
) {
    let mut act = Some(act);
    for client in listener.incoming() {
        let (Ok(mut client), Ok(mut server)) = (client, UnixStream::connect(&server)) else { return };
        carry(&server, &client);
        let mut part = vec![0; 1 << 16];
        while let Ok(length @ 1..) = client.read(&mut part) {
            if part[..length].windows(words.len()).any(|window| window == words) {
                act.take().into_iter().for_each(|act| act());
            }
            if server.write_all(&part[..length]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_cast_of_somebody_is_not_called_when_a_table_is_changed_before_it_is_read() {
    let no_index = "drop index shop_upper_idx;";
    let changes = [
        // Without an index, it is the column that has to be looked at.
        (no_index, "alter table shop alter column b type mood using 'ok'"),
        (no_index, "alter table shop alter column b type public.text using row(1)::public.text"),
        ("", "drop index shop_upper_idx; alter table shop alter column b type mood using 'ok'"),
        (
            "",
            "alter table shop rename to gone; create view shop as select n, spill('ok'::mood) as b from gone",
        ),
        (
            "",
            "alter table shop rename to gone; create table shop (n int, b mood); insert into shop values (1, 'ok')",
        ),
    ];
    Server::each("casts", &[15, 18], |server| {
        for (first, change) in changes {
            let cluster = start(server);
            cluster.sql(&format!("{SPILL} {first}")).unwrap();
            // The index has called it.
            let spilled = || cluster.log().unwrap().matches("spilled").count();
            let before = spilled();
            let keep = TempDir::new().unwrap();
            let listener = UnixListener::bind(keep.path().join(".s.PGSQL.6432")).unwrap();
            let (socket, own) = (cluster.socket_path(), cluster.psql());
            thread::spawn(move || {
                let change = || own.sql(change).map(drop).unwrap();
                at_message(listener, socket, b"FROM ONLY public.shop AS t", change);
            });
            let conninfo =
                format!("{} host={} port=6432", cluster.conninfo("postgres"), keep.path().display());
            let path = keep.path().join("s.json");
            ended(&["advise", &conninfo, "--min-size", "0", "--save", path.to_str().unwrap()], 0);
            let snapshot = Snapshot::parse(&fs::read(&path).unwrap()).unwrap();
            let unseen = snapshot.unseen.iter().find(|unseen| unseen.what.contains("shop"));
            let why = &unseen.unwrap_or_else(|| panic!("{change}: {:?}", snapshot.unseen)).why;
            assert!(why.contains("dropped or changed in the meantime"), "{change}: {why}");
            assert_eq!(table(&snapshot, "odd").sample.as_ref().unwrap().rows.len(), 20_000, "{change}");
            assert_eq!(spilled(), before, "{change}");
            let evaluated = |name: &str| {
                let mut indexes = table(&snapshot, "odd").indexes.iter();
                let index = indexes.find(|index| index.name == name).unwrap();
                index.columns[0].expression_sizes.is_some()
            };
            assert_eq!((evaluated("odd_abs"), evaluated("odd_hash")), (true, false), "{change}");
        }
    });
}

#[test]
fn rows_are_read_in_a_transaction_that_locks_and_checks_their_table_and_ends_at_once() {
    Server::each("statements about rows", &[15, 18], |server| {
        let cluster = start(server);
        cluster
            .sql("create table shop as select n, md5(n::text) b from generate_series(1, 20000) n")
            .unwrap();
        cluster.sql("vacuum analyze").unwrap();
        cluster.set_conf("log_statement", "all").unwrap();
        cluster.reload().unwrap();
        ended(&["advise", &cluster.conninfo("postgres"), "--min-size", "0"], 0);
        let log = cluster.log().unwrap();
        let executed: Vec<&str> =
            log.lines().filter_map(|line| Some(line.split_once("execute ")?.1.split_once(": ")?.1)).collect();
        let is_ask = |at: &usize| executed[*at].starts_with("SELECT x.place, x.version");
        let asks: Vec<usize> = (0..executed.len()).filter(is_ask).collect();
        assert!(!asks.is_empty(), "{log}");
        for at in asks {
            let around = &executed[at - 3..at + 2];
            let begins =
                ["BEGIN", "LOCK TABLE ONLY ", "SELECT '\"a relation as it was", "SELECT x.", "COMMIT"];
            let is_right = around.iter().zip(begins).all(|(statement, begin)| statement.starts_with(begin));
            assert!(is_right && around[1].ends_with(" IN ACCESS SHARE MODE"), "{around:#?}");
        }
    });
}
