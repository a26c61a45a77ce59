//! Conversions under sessions that write: what the rows must add up to, and what conversions cost others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pgshrink_testkit::{Psql, Server, ServerBinaries};

use super::{Live, MAJORS, To, on_each_major, sum, table};

/// Rows of the table that changes most.
pub const ACCOUNTS: u32 = 30_000;

/// Accounts, whose balances are to be the sum of what was paid, an index that every payment changes, and texts of
/// which each says how long it is to be.
pub const TABLES: &str = "
    create table account (id int primary key, balance bigint not null default 0, filler char(300) default '')
        with (fillfactor = 80);
    create index on account (balance);
    create table payment (account int, amount int, at timestamptz default now(), note text default repeat('n', 200));
    create table document (id int primary key, version int, body text);
    alter table document alter body set storage external;
    create function body(id int, version int) returns text immutable language sql as
        $$ select repeat(md5(id::text || version::text), 100 + id % 37) $$;
    create procedure pay(n int) language plpgsql as $$
    declare a int; m int;
    begin
        for i in 1..n loop
            a := 1 + random() * 29999; m := random() * 1000 - 500;
            update account set balance = balance + m where id = a;
            insert into payment values (a, m);
            update document set version = version + 1, body = body(id, version + 1) where id = a % 200;
            commit;
        end loop;
    end $$;
    insert into account (id) select generate_series(1, 30000);
    insert into document select i, 0, body(i, 0) from generate_series(0, 199) i;";

/// Tables that sessions write to.
pub const WRITTEN: [&str; 3] = ["account", "payment", "document"];

/// Each balance is the sum of its payments, by the heap and by both indexes, and no page or index is wrong.
#[track_caller]
pub fn check(live: &Live) {
    let sums = "select (select sum(balance) from account) is not distinct from (select coalesce(sum(amount), 0) from payment),
        (select count(*) from account), (select count(*) from document where body = body(id, version))";
    assert_eq!(live.sql(sums), format!("t|{ACCOUNTS}|200"));
    let wrong = "with paid as materialized (select account, sum(amount) as total from payment group by account)
        select count(*) from account a left join paid on paid.account = a.id where balance <> coalesce(total, 0)";
    assert_eq!(live.sql(wrong), "0");
    let by_index = "set enable_seqscan = off; set enable_bitmapscan = off;
        select count(*) from (select id from account order by balance) a";
    assert_eq!(live.sql(by_index), ACCOUNTS.to_string());
    assert_eq!(live.sql("select count(*) from cfs_relations where unreadable > 0"), "0");
    is_sound(live);
}

/// amcheck finds nothing in any index or table, and pg_visibility nothing in a visibility map.
#[track_caller]
pub fn is_sound(live: &Live) {
    let has =
        |extension: &str| live.cluster.sql(&format!("create extension if not exists {extension}")).is_ok();
    if has("amcheck") {
        let of_users = "oid >= 16384 and relpersistence <> 't'";
        live.sql(&format!(
            "select bt_index_check(oid, true) from pg_class where relkind = 'i' and {of_users}"
        ));
        let damage = format!(
            "select c.oid::regclass, v.* from pg_class c, verify_heapam(c.oid, check_toast => true) v
            where relkind in ('r', 'm', 't') and {of_users}"
        );
        assert_eq!(live.sql(&damage), "");
    }
    if has("pg_visibility") {
        let seen = "select count(*) from pg_class c, pg_check_visible(c.oid) where relkind in ('r', 'm') and c.oid >= 16384";
        assert_eq!(live.sql(seen), "0");
    }
}

/// Sessions that pay until told to stop; none of their statements may fail.
pub fn while_they_pay(live: &Live, sessions: usize, run: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pay = |psql: Psql| {
            while !stop.load(Ordering::Relaxed) {
                psql.clone().sql("call pay(60)").unwrap();
            }
        };
        let payers: Vec<_> = (0..sessions)
            .map(|_| {
                let psql = live.cluster.psql();
                scope.spawn(move || pay(psql))
            })
            .collect();
        // Whatever fails: the others end.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let stopping = Stop(&stop);
        run();
        drop(stopping);
        payers.into_iter().for_each(|payer| payer.join().unwrap());
    });
}

/// The numbers of tables' files, which conversions leave alone.
fn filenodes(live: &Live) -> String {
    live.sql("select string_agg(relname || ' ' || relfilenode, ', ' order by oid) from pg_class where oid >= 16384 and relfilenode <> 0")
}

fn convert_all(live: &Live, to: To) {
    WRITTEN.iter().for_each(|table| live.ask(table, to));
    WRITTEN.iter().for_each(|table| live.wait(table));
}

#[test]
fn tables_change_their_form_to_and_fro_under_writers_and_keep_what_was_written() {
    Server::each_with_extensions("conversions under writers", &[15, 16, 18], |server| {
        let live = &Live::start(server, &[]);
        live.sql(TABLES);
        let before = filenodes(live);
        while_they_pay(live, 2, || {
            for to in To::BOTH {
                convert_all(live, to);
                WRITTEN.iter().for_each(|table| live.has_form(table, to));
            }
            // Turned round in the middle.
            live.set(&[("cfs.convert_rate", "8MB")]);
            for to in To::BOTH {
                live.ask("account", to);
                live.wait_for_middle(20);
                live.ask("account", to.other());
                live.wait_for_middle(20);
                live.set(&[("cfs.convert_rate", "0")]);
                live.convert("account", to);
                live.set(&[("cfs.convert_rate", "8MB")]);
            }
        });
        assert_eq!(filenodes(live), before);
        check(live);
        live.is_clean();
        live.set(&[("cfs.convert_rate", "0")]);
        convert_all(live, To::Container);
        check(live);
    });
}

#[test]
#[ignore = "minutes: make soak"]
fn tables_change_their_form_again_and_again_under_writers_vacuum_and_checkpoints() {
    let test = "many conversions under writers";
    Server::each_with_extensions(test, &MAJORS, |server| many_conversions(server, Duration::from_secs(150)));
}

fn many_conversions(server: &ServerBinaries, time: Duration) {
    let settings = [
        ("shared_buffers", "4MB"),
        ("cfs.convert_workers", "2"),
        ("autovacuum", "on"),
        ("autovacuum_naptime", "1"),
    ];
    let live = Live::start(server, &settings);
    live.sql(TABLES);
    while_they_pay(&live, 4, || {
        let mut rounds = 0;
        super::for_a_while(time, || {
            for to in To::BOTH {
                convert_all(&live, to);
                live.sql("checkpoint; vacuum account; vacuum payment; vacuum document");
                // Half of the payments are forgotten, and the balances with them.
                live.sql(
                    "with gone as (delete from payment where random() < 0.5 returning account, amount),
                    paid as (select account, sum(amount) as total from gone group by account)
                    update account set balance = balance - total from paid where id = paid.account",
                );
            }
            rounds += 1;
        });
        println!("PostgreSQL {}: {rounds} rounds", server.version);
    });
    check(&live);
    live.is_clean();
}

/// What locks a session's statements could meet.
#[test]
fn a_conversion_holds_no_lock_that_a_statement_waits_for_and_writes_no_wal() {
    on_each_major("locks and WAL of conversions", |live| {
        live.sql(&table("t", 30_000));
        live.sql("vacuum freeze t; checkpoint");
        let before = (live.sql(&sum("t")), filenodes(live));
        // The reads have set hint bits; what follows is not theirs.
        live.sql("checkpoint");
        for to in To::BOTH {
            let lsn = live.sql("select pg_switch_wal(); select pg_current_wal_lsn()");
            let lsn = lsn.lines().last().unwrap().to_owned();
            live.ask("t", to);
            let locks = "select mode || ' ' || granted || ' ' || coalesce(a.backend_type, '') from pg_locks l
                join pg_stat_activity a using (pid) where backend_type like 'cfs %' and locktype = 'relation' and relation >= 16384";
            let mut seen = BTreeMap::new();
            while live.sql("select cfs_wait('t', '0')") == "f" {
                for lock in live.sql(locks).lines() {
                    *seen.entry(lock.to_owned()).or_insert(0) += 1;
                }
                // As a statement that conflicts with everything: it gets its lock at once.
                live.sql("set lock_timeout = '500ms'; begin; lock table t in access exclusive mode; commit");
            }
            live.has_form("t", to);
            assert!(seen.keys().all(|lock| lock.starts_with("AccessShareLock true")), "{seen:?}");
            let wal: u64 =
                live.sql(&format!("select pg_current_wal_lsn() - '{lsn}'::pg_lsn")).parse().unwrap();
            assert!(wal < 1 << 20, "{wal} bytes of WAL to {to:?}");
        }
        assert_eq!((live.sql(&sum("t")), filenodes(live)), before);
        live.is_clean();
    });
}
