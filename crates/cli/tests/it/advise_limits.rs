//! Tables at the limits of what a server can have, and values that cannot be read.

use crate::advise::{seen, start, table, unseen};
use crate::advise_attacks::carry;
use pgshrink_testkit::{Cluster, Server, ServerBinaries, Stop, TempDir};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;

#[test]
fn a_table_of_1600_columns_is_sampled() {
    Server::each("1600 columns", &[15, 18], |server| {
        let cluster = start(server);
        let columns: Vec<String> = (0..1600)
            .map(|n| {
                format!("\"column {n} {}\" {}", "ü".repeat(20), if n % 2 == 0 { "bool" } else { "text" })
            })
            .collect();
        cluster.sql(&format!("create table wide ({})", columns.join(", "))).unwrap();
        let values: Vec<&str> = (0..1600).map(|n| if n % 2 == 0 { "true" } else { "'y'" }).collect();
        cluster
            .sql(&format!("insert into wide select {} from generate_series(1, 50)", values.join(", ")))
            .unwrap();
        let expressions: Vec<String> =
            (0..10).map(|n| format!("lower(\"column {} {}\")", n * 2 + 1, "ü".repeat(20))).collect();
        cluster.sql(&format!("create index on wide ({})", expressions.join(", "))).unwrap();
        let snapshot = seen(&cluster.conninfo("postgres"), &[]);
        let wide = table(&snapshot, "wide");
        let sample = wide.sample.as_ref().unwrap();
        assert_eq!((wide.columns.len(), sample.rows.len()), (1600, 50));
        assert_eq!(sample.columns[1599].values.as_ref().unwrap()[49].as_deref(), Some("y"));
        assert_eq!((sample.columns[1598].sizes[0], sample.columns[1599].sizes[0]), (1, 2));
        assert_eq!(wide.indexes[0].columns[9].expression_sizes.as_ref().unwrap()[0], Some(2));
    });
}

#[test]
fn a_long_text_of_a_short_value_is_not_read() {
    Server::each("values whose text is long", &[15], |server| {
        let cluster = start(server);
        cluster
            .sql(
                "create table long (id int, n numeric, d jsonb, b bit varying, big text, list numeric[]);
                 insert into long select i, ('1e' || 131000 + i)::numeric, to_jsonb(repeat('a', 3000000)),
                     repeat('0', 8000000)::bit varying, repeat('z', 200000),
                     array_fill('1e131000'::numeric, array[150]) from generate_series(1, 12) i;",
            )
            .unwrap();
        let snapshot = seen(&cluster.conninfo("postgres"), &["--sample-size", "100MB"]);
        let long = table(&snapshot, "long").sample.as_ref().unwrap();
        assert_eq!(long.rows.len(), 12, "{:?}", snapshot.unseen);
        let lengths = |at: usize| -> Vec<Option<usize>> {
            long.columns[at]
                .values
                .as_ref()
                .unwrap()
                .iter()
                .map(|value| value.as_ref().map(String::len))
                .collect()
        };
        assert_eq!(lengths(1)[..2], [Some(131_002), Some(131_003)]);
        assert_eq!(lengths(4)[0], Some(200_000), "compressed, and short enough");
        for at in [2, 3, 5] {
            assert!(lengths(at).iter().all(Option::is_none), "{at}");
            assert!(long.columns[at].sizes.iter().all(|size| *size > 0));
        }
    });
}

/// A cluster with a table that has values in one column that cannot be read.
fn torn(server: &ServerBinaries) -> Cluster {
    let cluster = start(server);
    cluster
        .sql(
            "create table torn (id int, good text, bad text, part text);
             alter table torn alter bad set storage external;
             insert into torn select n, 'good', repeat('x', 3000), 'y' from generate_series(1, 200) n;
             create index on torn (lower(good)); create index on torn ((10 / (id - 5))) where id > 5;
             checkpoint;",
        )
        .unwrap();
    let path = cluster
        .sql("select pg_relation_filepath(reltoastrelid) from pg_class where relname = 'torn'")
        .unwrap();
    cluster.stop(Stop::Fast).unwrap();
    // A page that nothing is on: the values that the index has there are missing.
    let toast = fs::OpenOptions::new().write(true).open(cluster.data_dir().join(path)).unwrap();
    toast.write_all_at(&[0; 8192], 0).unwrap();
    cluster.start().unwrap();
    cluster
}

#[test]
fn a_value_without_a_text_costs_its_column_and_nothing_else() {
    Server::each("values that cannot be read", &[15, 18], |server| {
        let cluster = torn(server);
        let snapshot = seen(&cluster.conninfo("postgres"), &[]);
        let torn = table(&snapshot, "torn");
        let sample = torn.sample.as_ref().unwrap();
        assert_eq!(sample.rows.len(), 200);
        assert!(sample.columns[2].values.is_none() && sample.columns[2].sizes[0] == 3000);
        assert_eq!(sample.columns[1].values.as_ref().unwrap()[7].as_deref(), Some("good"));
        assert!(unseen(&snapshot, "torn").0.contains("column bad"), "{:?}", snapshot.unseen);
        let partial = torn.indexes[1].columns[0].expression_sizes.as_ref().unwrap();
        assert_eq!(partial.iter().flatten().count(), 195, "of rows that the index has");
    });
}

/// Passes everything on, but for the SQLSTATE of one error: of the `number`th one that says that data are corrupted, it says that replay on a
/// standby was in the way.
fn with_a_conflict(listener: UnixListener, server: PathBuf, number: usize) {
    let (is, becomes) = (b"CXX001\0", b"C40001\0");
    let Ok((client, _)) = listener.accept() else { return };
    let mut server = UnixStream::connect(server).unwrap();
    carry(&client, &server);
    let (mut part, mut found, mut client) = (vec![0; 1 << 16], 0, client);
    while let Ok(length @ 1..) = server.read(&mut part) {
        for at in 0..length.saturating_sub(is.len()) {
            if part[at..].starts_with(is) {
                found += 1;
                if found == number {
                    part[at..at + is.len()].copy_from_slice(becomes);
                }
            }
        }
        if client.write_all(&part[..length]).is_err() {
            break;
        }
    }
}

#[test]
fn a_column_that_is_tried_alone_is_tried_again_after_a_conflict_with_replay() {
    Server::each("a conflict while columns are tried", &[15, 18], |server| {
        let cluster = torn(server);
        let keep = TempDir::new().unwrap();
        let listener = UnixListener::bind(keep.path().join(".s.PGSQL.6432")).unwrap();
        let socket = cluster.socket_path();
        // The first error is about all columns.
        thread::spawn(move || with_a_conflict(listener, socket, 2));
        let conninfo = format!("{} host={} port=6432", cluster.conninfo("postgres"), keep.path().display());
        let snapshot = seen(&conninfo, &[]);
        let why = unseen(&snapshot, "torn").0;
        assert!(why.contains("column bad") && why.contains("XX001"), "{why}");
        assert!(table(&snapshot, "torn").sample.as_ref().unwrap().columns[1].values.is_some());
    });
}

#[test]
fn functions_of_somebody_else_are_not_called() {
    Server::each("foreign functions in indexes", &[15], |server| {
        let cluster = start(server);
        cluster
            .sql(
                "create function spy(text) returns text language plpgsql immutable as
                     $$ begin raise log 'spy was called'; return $1; end $$;
                 create table t as select n::text as a from generate_series(1, 50) n;
                 create index on t (spy(a)); create index on t (upper(a));",
            )
            .unwrap();
        let before = cluster.log().unwrap().matches("spy was called").count();
        let snapshot = seen(&cluster.conninfo("postgres"), &[]);
        assert_eq!(cluster.log().unwrap().matches("spy was called").count(), before);
        let indexes = &table(&snapshot, "t").indexes;
        assert!(
            indexes[0].columns[0].expression_sizes.is_none()
                && indexes[1].columns[0].expression_sizes.is_some()
        );
    });
}

#[test]
fn encodings_other_than_utf_8_are_read() {
    Server::each("latin1 and no encoding", &[16], |server| {
        let cluster = start(server);
        for encoding in ["LATIN1", "SQL_ASCII"] {
            let name = encoding.to_lowercase();
            let create = format!(
                "create database {name} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
            );
            cluster.sql(&create).unwrap();
            let psql = || cluster.psql().database(&name);
            psql().sql("create table t (a text); insert into t values (E'\\xe4'), ('plain')").unwrap();
            let snapshot = seen(&cluster.conninfo(&name), &[]);
            let values = table(&snapshot, "t").sample.as_ref().unwrap().columns[0].values.clone().unwrap();
            let first = (encoding == "LATIN1").then(|| "ä".to_owned());
            assert_eq!(values, [first, Some("plain".to_owned())], "{encoding}");
        }
    });
}
