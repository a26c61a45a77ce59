//! Servers and backends that end without warning.

use std::time::Duration;

use pgshrink_testkit::{Seed, Server, Stop, wait_until};

use super::{Compressed, MAJORS, on_each_major};

pub const ACCOUNTS: u32 = 20_000;

/// Accounts, whose balances are to be the sum of what was paid, and an index that every payment changes.
pub const TABLES: &str =
    "create table account (id int primary key using index tablespace fast, balance bigint not null default 0,
    filler char(80) default '') with (fillfactor = 80) tablespace fast;
    create index on account (balance) tablespace fast;
    create table payment (account int, amount int, at timestamptz default now()) tablespace fast;
    create function pay(n int) returns void language plpgsql as $$
    declare a int; m int;
    begin
        for i in 1..n loop
            a := 1 + random() * 19999; m := random() * 1000 - 500;
            update account set balance = balance + m where id = a;
            insert into payment values (a, m);
        end loop;
    end $$;";

const SUMS: &str = "select (select sum(balance) from account) is not distinct from (select coalesce(sum(amount), 0) from payment),
    (select count(*) from account)";

const VICTIMS: [&str; 4] = ["client backend", "checkpointer", "background writer", "cfs garbage collector"];

/// Each balance is the sum of its payments, by the heap and by both indexes.
pub fn check(server: &Compressed) {
    assert_eq!(server.sql(SUMS), format!("t|{ACCOUNTS}"));
    let wrong = "with paid as materialized (select account, sum(amount) as total from payment group by account)
        select count(*) from account a left join paid on paid.account = a.id where balance <> coalesce(total, 0)";
    assert_eq!(server.sql(wrong), "0");
    assert_eq!(
        server.sql("set enable_seqscan = off; set enable_bitmapscan = off; select count(*) from (select id from account order by balance) a"),
        ACCOUNTS.to_string()
    );
    assert_eq!(server.sql("select count(*) from cfs_relations where unreadable > 0"), "0");
    for extension in ["amcheck", "pg_visibility"] {
        // Not every build comes with it.
        let _ = server.cluster.sql(&format!("create extension if not exists {extension}"));
    }
    let amcheck =
        "select bt_index_check(c.oid, true) from pg_class c where relkind = 'i' and reltablespace <> 0";
    let has = |name: &str| {
        server.sql(&format!("select count(*) from pg_extension where extname = '{name}'")) == "1"
    };
    if has("amcheck") {
        server.sql(amcheck);
    }
    if has("pg_visibility") {
        let frozen = "select count(*) from pg_class c, pg_check_visible(c.oid) where relname in ('account', 'payment')";
        assert_eq!(server.sql(frozen), "0");
    }
}

/// Sessions that pay until the server goes.
pub fn load(server: &Compressed, sessions: usize) -> Vec<std::thread::JoinHandle<()>> {
    (0..sessions)
        .map(|_| {
            let psql = server.cluster.psql();
            std::thread::spawn(move || {
                while psql.clone().sql("select pay(20); select pay(20); select pay(20)").is_ok() {}
            })
        })
        .collect()
}

#[test]
fn a_server_that_dies_under_load_comes_back_with_all_that_it_acknowledged() {
    on_each_major("crashes under load", |server| {
        let mut rng = Seed::from_env_or_time().rng();
        server.sql(&format!("{TABLES} insert into account (id) select generate_series(1, {ACCOUNTS})"));
        for round in 0..6 {
            let sessions = load(server, 3);
            std::thread::sleep(Duration::from_millis(rng.between(200, 1100) as u64));
            if rng.chance(50) {
                let _ = server.cluster.sql("checkpoint");
            }
            match round % 3 {
                0 => server.cluster.kill().unwrap(),
                1 => server.cluster.stop(Stop::Immediate).unwrap(),
                _ => kill_one(server, rng.pick::<&str>(&VICTIMS)),
            }
            for session in sessions {
                session.join().unwrap();
            }
            if !server.cluster.is_running() {
                server.cluster.start().unwrap();
            }
            wait_until(Duration::from_secs(60), "the server to be back", || {
                server.cluster.sql("select 1").is_ok()
            })
            .unwrap();
            check(server);
        }
    });
}

/// Kills a process of the server, whose others end and start again.
pub fn kill_one(server: &Compressed, kind: &str) {
    let again = "all server processes terminated; reinitializing";
    let count = || server.cluster.log().unwrap().matches(again).count();
    let before = count();
    let victim = format!(
        "select pid from pg_stat_activity where backend_type = '{kind}' and pid <> pg_backend_pid() limit 1"
    );
    let is_over = || count() > before;
    // A session may not yet have begun, or be ending: a process that has ended can be killed without effect.
    wait_until(Duration::from_secs(60), "a crash", || {
        let Ok(pid) = server.cluster.sql(&victim) else { return is_over() };
        if !pid.is_empty() {
            // The shell's own: a minimal system has no program for it.
            let _ = std::process::Command::new("sh").args(["-c", "kill -KILL $0", &pid]).status().unwrap();
        }
        wait_until(Duration::from_secs(8), "the others to end", is_over).is_ok()
    })
    .unwrap();
}

#[test]
fn pages_that_only_hint_bits_changed_are_whole_after_a_crash() {
    on_each_major("hint bits and crashes", |server| {
        server.sql("create table t (i int, w text) tablespace fast; insert into t select i, 'w' || i from generate_series(1, 50000) i");
        server.sql("checkpoint");
        for _ in 0..3 {
            server.sql("select count(*) from t; checkpoint");
            server.cluster.kill().unwrap();
            server.cluster.start().unwrap();
            assert_eq!(
                server.sql("select count(*), sum(i), count(distinct w) from t"),
                "50000|1250025000|50000"
            );
            server.sql("update t set w = w where i % 100 = 0");
        }
    });
}

/// With `fsync = off` nobody asks for a commit, and the file is as long as at the last one.
#[test]
fn what_vacuum_cut_off_does_not_return_after_a_crash() {
    Server::each_with_extensions("a cut before a crash", &MAJORS, |binaries| {
        for fsync in ["on", "off"] {
            let server = Compressed::start(
                binaries,
                &[("fsync", fsync), ("shared_buffers", "1MB"), ("cfs.gc_workers", "0")],
            );
            assert_eq!(server.sql("show fsync"), fsync);
            server.sql(
                "create table t (id int, w text) tablespace fast;
                create table other as select i, repeat('x', 200) from generate_series(1, 20000) i; checkpoint",
            );
            // Most of it is written out, as it is more than the buffers hold.
            server.sql("begin; insert into t select i, repeat(md5(i::text), 8) from generate_series(1, 2000) i; rollback");
            let pages = "select pg_relation_size('t') / 8192";
            assert!(server.sql(pages).parse::<u32>().unwrap() > 50);
            server.sql("select count(*) from other; vacuum t; checkpoint");
            assert_eq!(server.sql(pages), "0");
            server.cluster.stop(Stop::Immediate).unwrap();
            server.cluster.start().unwrap();
            assert_eq!(server.sql(pages), "0", "fsync = {fsync}");
        }
    });
}
